//! The machine that advice is given for.

use crate::base::human;
use crate::base::text::one_line;
use crate::hardware::{GpuSummary, Summary};
use crate::plan::calibration;

/// The machine, as far as advice needs it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Machine {
    /// `AMD EPYC 9654, 32 cores`
    pub name: String,
    /// Bytes of main memory available for training.
    pub memory: Option<u64>,
    /// The CUDA devices visible to this process.
    pub gpus: Vec<GpuSummary>,
    /// Its matmul speed, and calibration from earlier runs.
    pub known: calibration::Machine,
}

impl Machine {
    /// A machine as reported by the hardware room, with its known speed.
    pub fn of(summary: Summary, known: calibration::Machine) -> Machine {
        // What this process can still get, where it was looked at; a recorded machine has all of its memory.
        let memory = known.memory.or(Some(summary.ram_bytes));
        let memory = memory.filter(|bytes| *bytes > 0);
        let cores = match summary.cores {
            1 => "1 core".to_string(),
            n => format!("{n} cores"),
        };
        Machine {
            name: match summary.cpu.as_str() {
                "" => cores,
                cpu => format!("{cpu}, {cores}"),
            },
            memory,
            gpus: summary.gpus,
            known: calibration::Machine { memory, ..known },
        }
    }

    /// Bytes of the largest GPU, if any.
    pub fn gpu_memory(&self) -> Option<u64> {
        let sizes = self.gpus.iter().map(|gpu| gpu.memory_bytes);
        sizes.max().filter(|bytes| *bytes > 0)
    }

    /// `AMD EPYC 9654, 32 cores, 256 GiB; 8 × NVIDIA H100 80GB HBM3 of 80 GiB`
    pub fn line(&self) -> String {
        let mut line = self.name.clone();
        if let Some(memory) = self.memory {
            line.push_str(&format!(", {}", human::bytes(memory)));
        }
        if let Some(first) = self.gpus.first() {
            let more = match self.gpus.len() {
                1 => String::new(),
                n => format!("{n} × "),
            };
            let size = human::bytes(first.memory_bytes);
            line.push_str(&format!("; {more}{} of {size}", one_line(&first.name)));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_in_one_line_with_its_gpus() {
        let gpu = GpuSummary {
            name: "NVIDIA L4".into(),
            memory_bytes: 24 << 30,
        };
        let summary = Summary {
            cpu: "AMD EPYC 9654".into(),
            cores: 32,
            ram_bytes: 64 << 30,
            gpus: vec![gpu; 2],
        };
        let machine = Machine::of(summary, calibration::Machine::default());
        assert_eq!(
            machine.line(),
            "AMD EPYC 9654, 32 cores, 64 GiB; 2 × NVIDIA L4 of 24 GiB"
        );
        assert_eq!(machine.gpu_memory(), Some(24 << 30));
        assert_eq!(machine.known.memory, Some(64 << 30));
        assert_eq!(Machine::default().gpu_memory(), None);
    }
}
