//! The description of a machine. `None` and empty mean "unknown"; recordings, run logs and `llmtui doctor --record` use the
//! same structure.

use super::gpu::{Gpu, Nvidia};
use crate::base::human::bytes;
use serde::{Deserialize, Serialize};

/// Everything known about a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub host: String,
    /// `Linux 6.18.44`
    pub os: String,
    pub cpu: Cpu,
    pub memory: Memory,
    pub disks: Vec<Disk>,
    /// `/dev/shm`.
    pub shm: Option<Space>,
    pub networks: Vec<Network>,
    pub nvidia: Nvidia,
    pub gpus: Vec<Gpu>,
    /// Accelerators of other vendors.
    pub accelerators: Vec<Accelerator>,
    pub limits: Limits,
    pub kernel_log: KernelLog,
    pub clock: ClockState,
    pub session: Session,
    pub logout: Logout,
}

/// The processor and the share available to this process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub model: String,
    /// Logical CPUs of the machine.
    pub logical: usize,
    /// Those available to this process (affinity).
    pub allowed: usize,
    /// The same as a list, `0-15,32-47`; empty if unknown.
    pub allowed_list: String,
    /// The cgroup's CPU quota, if any.
    pub quota: Option<f64>,
    /// Threads of the whole machine that ran or wanted to, mean of a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Other programs with running threads where there are more of them than cores, the busiest first, each with their number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<(String, usize)>,
    /// NUMA nodes.
    pub nodes: usize,
    /// Instruction sets relevant to the kernels, in Linux's names: `avx2`, `avx512f`, `amx_tile`, `asimd` …
    pub features: Vec<String>,
}

impl Cpu {
    /// Cores available to this process, after affinity and quota; at least 1.
    pub fn usable(&self) -> usize {
        let quota = self.quota.map_or(usize::MAX, |q| q.ceil() as usize);
        let allowed = if self.allowed > 0 {
            self.allowed
        } else {
            self.logical
        };
        allowed.min(quota).max(1)
    }

    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }

    /// The widest instruction set: `AVX-512 with bf16`, `AVX2`, `NEON`.
    pub fn widest(&self) -> &'static str {
        const WIDEST_FIRST: &[(&str, &str)] = &[
            ("amx_tile", "AMX"),
            ("avx512_bf16", "AVX-512 with bf16"),
            ("avx512f", "AVX-512"),
            ("avx2", "AVX2"),
            ("avx", "AVX"),
            ("sve", "SVE"),
            ("asimd", "NEON"),
        ];
        let found = WIDEST_FIRST.iter().find(|(feature, _)| self.has(feature));
        found.map_or("", |(_, words)| words)
    }
}

/// Main memory, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    pub total: u64,
    /// Available without swapping.
    pub available: u64,
    pub swap_total: u64,
    pub swap_used: u64,
    /// The cgroup's limit, if it is below the machine's memory.
    pub cgroup_limit: Option<u64>,
    /// The cgroup's usage, without reclaimable pages.
    pub cgroup_used: Option<u64>,
    /// What the limits of all groups above this process leave it; absent in recordings of older programs.
    pub cgroup_left: Option<u64>,
    /// OOM kills in this cgroup.
    pub oom_kills: Option<u64>,
    /// Address space that this process may still allocate (`ulimit -v`), if it is limited.
    pub address_left: Option<u64>,
}

impl Memory {
    /// Bytes that this process can still get, and what bounds them.
    pub fn left(&self) -> (u64, &'static str) {
        let bounds = [
            (Some(self.available), "available on this machine"),
            (self.cgroup_headroom(), "left in this cgroup (memory.max)"),
            (self.address_left, "left of the address space (ulimit -v)"),
        ];
        let known = bounds
            .into_iter()
            .filter_map(|(bytes, what)| Some((bytes?, what)));
        known
            .min_by_key(|(bytes, _)| *bytes)
            .unwrap_or((u64::MAX, ""))
    }

    /// Most bytes this process can use.
    pub fn usable(&self) -> u64 {
        self.cgroup_limit
            .map_or(self.total, |limit| limit.min(self.total))
    }

    /// Bytes available now, within both the machine's and the cgroup's limits.
    pub fn free(&self) -> u64 {
        let group = self.cgroup_headroom();
        group.map_or(self.available, |left| left.min(self.available))
    }

    fn cgroup_headroom(&self) -> Option<u64> {
        self.cgroup_left.or_else(|| {
            let used = self.cgroup_used.unwrap_or(0);
            Some(self.cgroup_limit?.saturating_sub(used))
        })
    }
}

/// Bytes of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Space {
    pub total: u64,
    /// Available to this user.
    pub free: u64,
    pub inodes_total: u64,
    pub inodes_free: u64,
}

/// The storage under a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskKind {
    Ssd,
    Hdd,
    Network,
    /// A file system in memory.
    Memory,
    #[default]
    Unknown,
}

impl DiskKind {
    pub fn word(self) -> &'static str {
        match self {
            DiskKind::Ssd => "SSD",
            DiskKind::Hdd => "hard disk",
            DiskKind::Network => "network",
            DiskKind::Memory => "memory",
            DiskKind::Unknown => "disk",
        }
    }
}

/// A mounted file system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    pub mount: String,
    pub device: String,
    /// `ext4`, `nfs4` …
    pub filesystem: String,
    pub kind: DiskKind,
    pub space: Space,
    pub read_only: bool,
    /// Contains the runs directory.
    pub holds_runs: bool,
    /// Bytes per second, measured only on request.
    pub write_speed: Option<f64>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    pub name: String,
    pub up: bool,
    /// Megabits per second.
    pub speed_mbps: Option<u64>,
    pub mtu: Option<u64>,
}

/// An accelerator that this build cannot use but that is worth reporting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Accelerator {
    pub kind: AcceleratorKind,
    pub name: String,
    /// The evidence for it.
    pub sign: String,
    /// This user has access to the device.
    pub accessible: Option<bool>,
}

/// Vendors other than NVIDIA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceleratorKind {
    Rocm,
    Apple,
    Tpu,
    #[default]
    Other,
}

impl AcceleratorKind {
    pub fn word(self) -> &'static str {
        match self {
            AcceleratorKind::Rocm => "AMD ROCm",
            AcceleratorKind::Apple => "Apple GPU",
            AcceleratorKind::Tpu => "TPU",
            AcceleratorKind::Other => "accelerator",
        }
    }
}

/// Limits of this process; `u64::MAX` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub open_files: Option<u64>,
    pub locked_memory: Option<u64>,
    pub processes: Option<u64>,
}

/// Health-related messages in the kernel log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelLog {
    /// Its source; `None` if nothing could be read.
    pub read_from: Option<String>,
    pub xids: Vec<Xid>,
    /// Processes killed by the OOM killer, newest last.
    pub oom_kills: Vec<String>,
}

/// A message of NVIDIA's driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Xid {
    pub code: u32,
    /// PCI address of the GPU.
    pub pci: String,
    /// The driver's message.
    pub text: String,
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockState {
    /// Seconds since the Unix epoch.
    pub unix_seconds: Option<u64>,
    /// A time service is synchronizing it; `None` if unknown.
    pub synchronised: Option<bool>,
    /// Seconds by which the hardware clock is ahead; `None` if there is none.
    pub hardware_ahead: Option<i64>,
    /// Seconds by which the newest file among the runs is in the future; 0 if none is, `None` without files.
    pub files_ahead: Option<i64>,
}

/// The user's terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// Whether there is a terminal; `None` if not checked.
    pub terminal: Option<bool>,
    pub term: String,
    pub truecolor: bool,
    pub utf8: bool,
    pub ssh: bool,
    /// tmux or screen.
    pub multiplexer: bool,
}

/// What systemd-logind does when this user logs out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Logout {
    /// logind runs here.
    pub logind: bool,
    /// It kills the user's remaining processes.
    pub kills: bool,
    /// The user lingers: nothing ends at a logout.
    pub lingers: bool,
}

impl Machine {
    /// `atlas · AMD EPYC 9654 (32 cores, AVX-512) · 231 GiB of 256 GiB free · 1 × NVIDIA H100 80GB HBM3`
    pub fn in_one_line(&self) -> String {
        let mut parts = vec![self.host.clone()];
        let cores = match self.cpu.usable() {
            1 => "1 core".to_string(),
            n => format!("{n} cores"),
        };
        let widest = match self.cpu.widest() {
            "" => String::new(),
            words => format!(", {words}"),
        };
        parts.push(
            format!("{} ({cores}{widest})", self.cpu.model)
                .trim_start()
                .into(),
        );
        if self.memory.total > 0 {
            let memory = &self.memory;
            parts.push(format!(
                "{} of {} free",
                bytes(memory.free()),
                bytes(memory.usable())
            ));
        }
        parts.push(self.gpus_in_words());
        parts.retain(|part| !part.is_empty());
        parts.join(" · ")
    }

    /// `8 × NVIDIA H100 80GB HBM3`, `no GPU`
    pub fn gpus_in_words(&self) -> String {
        let mut kinds: Vec<(&str, usize)> = Vec::new();
        for gpu in &self.gpus {
            match kinds.iter_mut().find(|(name, _)| *name == gpu.name) {
                Some((_, n)) => *n += 1,
                None => kinds.push((&gpu.name, 1)),
            }
        }
        let words: Vec<String> = kinds
            .iter()
            .map(|(name, n)| format!("{n} × {name}"))
            .collect();
        match words.is_empty() {
            true => "no GPU".into(),
            false => words.join(", "),
        }
    }

    /// The file system of the runs.
    pub fn runs_disk(&self) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.holds_runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        let mut cpu = Cpu {
            logical: 64,
            allowed: 16,
            quota: Some(3.5),
            ..Cpu::default()
        };
        assert_eq!(cpu.usable(), 4);
        cpu.quota = None;
        assert_eq!(cpu.usable(), 16);
        assert_eq!(Cpu::default().usable(), 1);
        let memory = Memory {
            total: 100,
            available: 70,
            cgroup_limit: Some(40),
            cgroup_used: Some(15),
            ..Memory::default()
        };
        assert_eq!((memory.usable(), memory.free()), (40, 25));
    }

    #[test]
    fn the_widest_instruction_set_is_named() {
        let cpu = |features: &[&str]| Cpu {
            features: features.iter().map(|f| (*f).into()).collect(),
            ..Cpu::default()
        };
        assert_eq!(cpu(&["avx", "avx2", "avx512f"]).widest(), "AVX-512");
        assert_eq!(cpu(&["asimd"]).widest(), "NEON");
        assert_eq!(cpu(&[]).widest(), "");
    }
}
