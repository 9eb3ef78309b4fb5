//! PyTorch in its own processes: on one GPU or several, or on the CPU.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const ENTRY: Entry = Entry {
    id: "torch",
    title: "PyTorch",
    summary: "PyTorch processes, one per GPU; same batches and losses.",
    source: "PyTorch 2.15: torchrun, DDP, FSDP2",
};

/// Micro-batches from which on compiling pays off: 135M parameters on an H200 (PyTorch 2.11, 16 rows of 1,024 tokens) took 104 ms
/// a step, 70 compiled, and about 20 s to compile steps and evaluations.
const WORTH_COMPILING: u64 = 2_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A Python with PyTorch, or a virtual environment. Default: the one from `llmtui engine install torch`.
    pub python: Option<PathBuf>,
    /// Number of processes over all machines; each micro-batch is split over them. Default: one per GPU, or one per
    /// machine.
    #[schemars(range(min = 1, max = 1024))]
    pub ranks: Option<usize>,
    /// Machines as ssh destinations, in rank order; `localhost` is this one. Default: only this machine.
    pub nodes: Vec<String>,
    /// How processes are started on the other machines.
    pub launcher: Launcher,
    /// Path of llmtui there. Default: with ssh `llmtui` in the login PATH; with srun this program's own path.
    pub program: Option<String>,
    /// Address or name under which the others reach the first machine. Default: as ssh or SLURM reaches it.
    pub address: Option<String>,
    /// Allow a public Internet address. PyTorch's connections have no passwords or encryption.
    pub public_address: bool,
    /// What computes.
    pub device: Device,
    /// How the ranks parallelize.
    pub shard: Shard,
    /// With `fsdp2`: keep weights, gradients and moments in host memory and move them through the GPU block by block. Fits larger
    /// models, slower steps.
    pub offload: bool,
    /// Number format of matmuls; weights, gradients and moments are f32. `auto` follows `train.precision`; if that is `auto` too, bf16 on a GPU.
    pub precision: Format,
    /// Compile the model (torch.compile): about twenty seconds at the start, faster steps on GPUs. Default: where it pays off, which
    /// is pretraining and SFT of 2,000 micro-batches or more on one GPU.
    pub compile: Option<bool>,
    /// Seconds without progress after which ranks count as hung; at least 20 times the typical step.
    #[schemars(range(min = 1.0, max = 86400.0))]
    pub patience: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            python: None,
            ranks: None,
            nodes: Vec::new(),
            launcher: Launcher::Ssh,
            program: None,
            address: None,
            public_address: false,
            device: Device::Auto,
            shard: Shard::Ddp,
            offload: false,
            precision: Format::Auto,
            compile: None,
            patience: 120.0,
        }
    }
}

/// How the processes of other machines are started.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// By ssh, with its own keys and configuration; `nodes` names the machines.
    #[default]
    Ssh,
    /// By srun, inside a job of SLURM's; `nodes` may be left out: all of the job's.
    Srun,
}

/// Where PyTorch computes.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// GPUs where there are any, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// GPUs of NVIDIA, or of AMD where PyTorch was built for them.
    Cuda,
}

/// What each rank holds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// The whole model: fastest where it fits.
    #[default]
    Ddp,
    /// A share of weights, gradients and moments.
    Fsdp2,
}

/// A number format of PyTorch's.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// That of the run (`train.precision`), else bf16 on a GPU and f32 on a processor.
    #[default]
    Auto,
    /// 24 bits of significand.
    F32,
    /// 8 bits of significand, in matmuls alone.
    Bf16,
}

impl super::Compute for Config {
    fn torch(&self) -> Option<&Config> {
        Some(self)
    }
}

impl Config {
    /// Whether other machines may have ranks.
    pub fn is_on_several_machines(&self) -> bool {
        !self.nodes.is_empty() || self.launcher == Launcher::Srun
    }

    /// Its ranks and machines, for display.
    pub fn placed(&self) -> String {
        let ranks = match self.ranks {
            Some(1) => "one rank".to_string(),
            Some(n) => format!("{n} ranks"),
            None => "a rank for each GPU, or one on each machine,".to_string(),
        };
        let machines = match (self.nodes.len(), self.launcher) {
            (0, Launcher::Srun) => "the machines of the job".to_string(),
            (0, Launcher::Ssh) => "this machine".to_string(),
            (n, _) => format!("{n} machines: {}", self.nodes.join(", ")),
        };
        format!("{ranks} on {machines}")
    }

    /// The device to compute on, if this many GPUs are visible.
    pub fn device(&self, gpus: usize) -> &'static str {
        match self.device {
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
            Device::Auto if gpus > 0 => "cuda",
            Device::Auto => "cpu",
        }
    }

    /// Micro-batches from which on compiling pays off.
    pub fn worth_compiling(&self) -> u64 {
        WORTH_COMPILING
    }

    /// Whether ranks compile the model, in a run of this many micro-batches; `even`: all rows have the same length.
    pub fn compiles(&self, device: &str, ranks: usize, passes: u64, even: bool) -> bool {
        let pays = device == "cuda" && ranks == 1 && even && passes >= WORTH_COMPILING;
        self.compile.unwrap_or(pays)
    }

    /// The number format on that device, if the run requests `asked` (`train.precision`).
    pub fn format(&self, device: &str, asked: Format) -> &'static str {
        match (self.precision, asked) {
            (Format::F32, _) | (Format::Auto, Format::F32) => "f32",
            (Format::Bf16, _) | (Format::Auto, Format::Bf16) => "bf16",
            (Format::Auto, Format::Auto) if device == "cuda" => "bf16",
            (Format::Auto, Format::Auto) => "f32",
        }
    }

    /// `ddp` or `fsdp2`.
    pub fn shard_word(&self) -> &'static str {
        match self.shard {
            Shard::Ddp => "ddp",
            Shard::Fsdp2 => "fsdp2",
        }
    }
}
