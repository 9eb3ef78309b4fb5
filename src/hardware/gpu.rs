//! One NVIDIA GPU as NVML tells of it, and the driver that all of them share. Memory in bytes, power in watts, clocks in
//! MHz, temperatures in °C, utilisation in percent.

use super::throttle;
use serde::{Deserialize, Serialize};

/// The driver and its library.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvidia {
    pub driver: DriverState,
    /// Of the library, `580.65.06`.
    pub driver_version: String,
    /// Of the loaded kernel module, from `/proc/driver/nvidia/version`; empty when no module is loaded.
    pub module_version: String,
    /// The newest CUDA that this driver runs, `13.0`. Not the installed toolkit.
    pub cuda_version: String,
    /// The device nodes under `/dev`, `nvidia0` …
    pub device_nodes: Vec<String>,
    /// PCI devices of NVIDIA's that are display or compute controllers.
    pub pci_devices: usize,
    /// The free driver holds the cards.
    pub nouveau: bool,
    /// This process runs in a container.
    pub container: bool,
    /// `CUDA_VISIBLE_DEVICES` as it stands in the environment.
    pub cuda_visible_devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    pub cuda_device_order: Option<String>,
    /// The CUDA compiler, where one was found.
    pub nvcc: Option<String>,
    /// NCCL's library: its version, or its path where the name tells none.
    pub nccl: Option<String>,
    /// The kernel translates the addresses of devices; `None` where it does not tell.
    pub iommu: Option<bool>,
    /// The Fabric Manager's process is there; `None` where it was not looked for.
    pub fabric_manager: Option<bool>,
}

/// Whether NVML answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "why")]
pub enum DriverState {
    /// It answers.
    Loaded,
    /// No library: the usual state of a machine without such a GPU.
    #[default]
    Absent,
    /// Library and kernel module are of different versions.
    Mismatch,
    /// The library is there but the kernel module is not loaded.
    NotLoaded,
    /// Anything else, in NVML's words.
    Failed(String),
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// NVML's number; follows the PCI address.
    pub index: u32,
    pub name: String,
    /// `GPU-…`
    pub uuid: String,
    /// PCI address.
    pub pci: String,
    /// Set when the GPU does not answer any more: in NVML's words.
    pub lost: Option<String>,
    pub memory_total: u64,
    pub memory_used: u64,
    /// Major, minor.
    pub compute_capability: Option<(u32, u32)>,
    pub utilization: Option<u32>,
    pub temperature: Option<u32>,
    pub memory_temperature: Option<u32>,
    /// From here on the hardware slows down.
    pub slowdown_temperature: Option<u32>,
    pub power: Option<f64>,
    pub power_limit: Option<f64>,
    pub power_default: Option<f64>,
    pub sm_clock: Option<u32>,
    pub sm_clock_max: Option<u32>,
    pub memory_clock: Option<u32>,
    /// NVML's bit mask of reasons for lower clocks.
    pub throttle: Option<u64>,
    pub ecc: Option<Ecc>,
    pub pcie: Option<Pcie>,
    pub nvlinks: Vec<NvLink>,
    pub mig: Option<Mig>,
    pub persistence: Option<bool>,
    /// `default`, `exclusive process`, `prohibited`
    pub compute_mode: Option<String>,
    pub processes: Vec<GpuProcess>,
    /// The processors near this GPU, `0-15`; empty when not known.
    pub near_cpus: String,
}

/// Counters of memory errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ecc {
    pub enabled: bool,
    /// Since the driver was loaded.
    pub corrected: u64,
    pub uncorrected: u64,
    /// Over the GPU's life.
    pub uncorrected_ever: u64,
    /// Rows or pages wait for a reset to be replaced.
    pub remap_pending: bool,
    /// A row could not be replaced.
    pub remap_failed: bool,
}

/// The link to the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pcie {
    pub generation: u32,
    pub width: u32,
    pub max_generation: u32,
    pub max_width: u32,
}

/// One link to another GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLink {
    pub link: u32,
    pub active: bool,
    /// Checksum and replay errors.
    pub errors: u64,
}

/// A GPU cut into instances.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mig {
    pub enabled: bool,
    pub devices: Vec<MigDevice>,
}

/// One instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigDevice {
    pub name: String,
    /// `MIG-…`
    pub uuid: String,
    pub memory_total: u64,
    pub memory_used: u64,
}

/// A process that holds memory of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuProcess {
    pub pid: u32,
    pub user: String,
    pub command: String,
    pub memory: Option<u64>,
}

impl Gpu {
    /// 0 to 1.
    pub fn memory_share(&self) -> f64 {
        match self.memory_total {
            0 => 0.0,
            total => self.memory_used as f64 / total as f64,
        }
    }

    /// Why the clocks are lower than they could be; empty when they are not, or only because the GPU idles.
    pub fn throttled(&self) -> Vec<&'static throttle::Reason> {
        throttle::reasons(self.throttle.unwrap_or(0))
    }

    /// Works right now, so that readings of links and clocks mean something.
    pub fn loaded(&self) -> bool {
        self.utilization.is_some_and(|u| u >= 50)
    }

    /// The capability as one number, 8.9 → 89.
    pub fn capability(&self) -> Option<u32> {
        self.compute_capability
            .map(|(major, minor)| major * 10 + minor)
    }
}
