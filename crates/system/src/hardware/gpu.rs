//! One NVIDIA GPU as reported by NVML, and the shared driver. Memory in bytes, power in watts, clocks in
//! MHz, temperatures in °C, utilization in percent.

use super::throttle;
use crate::wire::id::machine as id;
use serde::{Deserialize, Serialize};

/// The driver and its library.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvidia {
    pub driver: DriverState,
    /// Library version, `580.65.06`.
    pub driver_version: String,
    /// Kernel module version, from `/proc/driver/nvidia/version`; empty if no module is loaded.
    pub module_version: String,
    /// The newest CUDA version the driver supports, `13.0`. Not the installed toolkit.
    pub cuda_version: String,
    /// The device nodes under `/dev`, `nvidia0` …
    pub device_nodes: Vec<String>,
    /// NVIDIA PCI devices that are display or compute controllers.
    pub pci_devices: usize,
    /// The nouveau driver is bound to the cards.
    pub nouveau: bool,
    /// This process runs in a container.
    pub container: bool,
    /// `CUDA_VISIBLE_DEVICES` in the environment.
    pub cuda_visible_devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    pub cuda_device_order: Option<String>,
    /// The CUDA compiler, if found.
    pub nvcc: Option<String>,
    /// NCCL's library: its version, or its path if the name has no version.
    pub nccl: Option<String>,
    /// The IOMMU translates device addresses; `None` if unknown.
    pub iommu: Option<bool>,
    /// The Fabric Manager is running; `None` if not checked.
    pub fabric_manager: Option<bool>,
}

/// State of NVML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "why")]
pub enum DriverState {
    /// It responds.
    Loaded,
    /// No library: normal on a machine without an NVIDIA GPU.
    #[default]
    Absent,
    /// Library and kernel module versions differ.
    Mismatch,
    /// The library exists but the kernel module is not loaded.
    NotLoaded,
    /// Any other error, as NVML states it.
    Failed(String),
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// NVML's index, in PCI order.
    pub index: u32,
    pub name: String,
    /// `GPU-…`
    pub uuid: String,
    /// PCI address.
    pub pci: String,
    /// Set if the GPU no longer responds: NVML's error.
    pub lost: Option<String>,
    pub memory_total: u64,
    pub memory_used: u64,
    /// Major, minor.
    pub compute_capability: Option<(u32, u32)>,
    pub utilization: Option<u32>,
    pub temperature: Option<u32>,
    pub memory_temperature: Option<u32>,
    /// The temperature at which the hardware throttles.
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
    /// The CPUs near this GPU, `0-15`; empty if unknown.
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
    /// Over the GPU's lifetime.
    pub uncorrected_ever: u64,
    /// Rows or pages pending replacement at the next reset.
    pub remap_pending: bool,
    /// A row could not be replaced.
    pub remap_failed: bool,
}

/// The PCIe link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pcie {
    pub generation: u32,
    pub width: u32,
    pub max_generation: u32,
    pub max_width: u32,
}

/// One NVLink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLink {
    pub link: u32,
    pub active: bool,
    /// Checksum and replay errors.
    pub errors: u64,
}

/// MIG state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mig {
    pub enabled: bool,
    pub devices: Vec<MigDevice>,
}

/// One MIG instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigDevice {
    pub name: String,
    /// `MIG-…`
    pub uuid: String,
    pub memory_total: u64,
    pub memory_used: u64,
}

/// A process that uses GPU memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuProcess {
    pub pid: u32,
    pub user: String,
    pub command: String,
    pub memory: Option<u64>,
}

impl Gpu {
    /// Takes in the newest readings, by their ids; what has none stays as it is.
    pub fn follow(&mut self, reading: impl Fn(&str) -> Option<f64>) {
        let index = self.index;
        let of = |what: &str| {
            let value = reading(&id::gpu(index, what));
            value.filter(|x| x.is_finite() && *x >= 0.0)
        };
        self.utilization = of(id::GPU_UTIL).map(|x| x as u32).or(self.utilization);
        self.memory_used = of(id::GPU_MEMORY).map_or(self.memory_used, |x| x as u64);
        self.temperature = of(id::GPU_TEMPERATURE)
            .map(|x| x as u32)
            .or(self.temperature);
        self.power = of(id::GPU_POWER).or(self.power);
        self.sm_clock = of(id::GPU_CLOCK).map(|x| x as u32).or(self.sm_clock);
        self.throttle = of(id::GPU_THROTTLE).map(|x| x as u64).or(self.throttle);
    }

    /// 0 to 1.
    pub fn memory_share(&self) -> f64 {
        match self.memory_total {
            0 => 0.0,
            total => self.memory_used as f64 / total as f64,
        }
    }

    /// Why clocks are reduced; empty if they are not, or only because the GPU is idle.
    pub fn throttled(&self) -> Vec<&'static throttle::Reason> {
        throttle::reasons(self.throttle.unwrap_or(0))
    }

    /// Busy right now, so that readings of links and clocks are meaningful.
    pub fn loaded(&self) -> bool {
        self.utilization.is_some_and(|u| u >= 50)
    }

    /// The capability as one number, 8.9 → 89.
    pub fn capability(&self) -> Option<u32> {
        self.compute_capability
            .map(|(major, minor)| major * 10 + minor)
    }
}
