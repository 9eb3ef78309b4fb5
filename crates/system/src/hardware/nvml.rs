//! NVIDIA's management library, loaded on first use. A machine without it is normal: the reason is
//! kept as text, not as an error. Read-only; nothing here sets, resets or terminates anything.

use super::gpu::{DriverState, Ecc, Gpu, GpuProcess, Mig, MigDevice, NvLink, Nvidia, Pcie};
use crate::base::files::read_plain_text;
use nvml_wrapper::enum_wrappers::device::{
    Clock, ComputeMode, EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

/// NVML field ids of readings without their own function (nvml.h, NVML_FI_DEV_…).
const MEMORY_TEMPERATURE: u32 = 82;
const REMAP_PENDING: u32 = 144;
const REMAP_FAILED: u32 = 145;
/// Most NVLinks per GPU.
const MAX_NVLINKS: u32 = 18;

/// The library, once opened.
pub struct Library {
    opened: Option<Result<Nvml, DriverState>>,
}

/// The fast-changing readings of one GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pulse {
    pub index: u32,
    /// The GPU does not respond.
    pub lost: bool,
    pub utilization: Option<f64>,
    pub memory_used: Option<f64>,
    pub temperature: Option<f64>,
    pub power: Option<f64>,
    pub sm_clock: Option<f64>,
    pub throttle: Option<f64>,
    /// Bytes used by this process and its descendants, such as PyTorch's ranks; `None` if none or unknown.
    pub own_memory: Option<f64>,
}

impl Library {
    pub fn new() -> Library {
        Library { opened: None }
    }

    fn open(&mut self) -> &Result<Nvml, DriverState> {
        self.opened
            .get_or_insert_with(|| Nvml::init().map_err(|e| state_of(&e)))
    }

    /// Fills in the driver's state and versions.
    pub fn describe(&mut self, nvidia: &mut Nvidia) {
        match self.open() {
            Ok(nvml) => {
                nvidia.driver = DriverState::Loaded;
                nvidia.driver_version = nvml.sys_driver_version().unwrap_or_default();
                nvidia.cuda_version = nvml.sys_cuda_driver_version().map_or_else(
                    |_| String::new(),
                    |v| format!("{}.{}", v / 1000, v % 1000 / 10),
                );
            }
            Err(state) => nvidia.driver = state.clone(),
        }
    }

    /// Every GPU with everything NVML reports.
    pub fn gpus(&mut self) -> Vec<Gpu> {
        let Ok(nvml) = self.open() else {
            return Vec::new();
        };
        let count = nvml.device_count().unwrap_or(0);
        (0..count)
            .map(|index| match nvml.device_by_index(index) {
                Ok(device) => read(&device, index),
                Err(e) => Gpu {
                    index,
                    lost: Some(e.to_string()),
                    ..Gpu::default()
                },
            })
            .collect()
    }

    /// The fast-changing readings.
    pub fn pulses(&mut self) -> Vec<Pulse> {
        let Ok(nvml) = self.open() else {
            return Vec::new();
        };
        let count = nvml.device_count().unwrap_or(0);
        (0..count)
            .map(|index| match nvml.device_by_index(index) {
                Ok(device) => pulse(&device, index),
                Err(_) => Pulse {
                    index,
                    lost: true,
                    ..Pulse::default()
                },
            })
            .collect()
    }
}

fn state_of(error: &NvmlError) -> DriverState {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => DriverState::Absent,
        NvmlError::LibRmVersionMismatch => DriverState::Mismatch,
        NvmlError::DriverNotLoaded => DriverState::NotLoaded,
        other => DriverState::Failed(other.to_string()),
    }
}

fn pulse(device: &Device, index: u32) -> Pulse {
    let utilization = device.utilization_rates();
    Pulse {
        index,
        lost: matches!(utilization, Err(NvmlError::GpuLost)),
        utilization: utilization.ok().map(|u| f64::from(u.gpu)),
        memory_used: device.memory_info().ok().map(|m| m.used as f64),
        temperature: temperature(device).map(f64::from),
        power: device.power_usage().ok().map(watts),
        sm_clock: device.clock_info(Clock::SM).ok().map(f64::from),
        throttle: throttle(device).map(|bits| bits as f64),
        own_memory: own_memory(&processes(device), |pid| {
            is_of(pid, std::process::id(), parent)
        }),
    }
}

fn read(device: &Device, index: u32) -> Gpu {
    let memory = device.memory_info();
    let lost = matches!(memory, Err(NvmlError::GpuLost | NvmlError::ResetRequired));
    let (total, used) = memory.as_ref().map_or((0, 0), |m| (m.total, m.used));
    let capability = device.cuda_compute_capability().ok();
    Gpu {
        index,
        name: device.name().unwrap_or_default(),
        uuid: device.uuid().unwrap_or_default(),
        pci: device.pci_info().map(|p| p.bus_id).unwrap_or_default(),
        lost: memory.err().filter(|_| lost).map(|e| e.to_string()),
        memory_total: total,
        memory_used: used,
        compute_capability: capability
            .and_then(|c| Some((c.major.try_into().ok()?, c.minor.try_into().ok()?))),
        utilization: device.utilization_rates().ok().map(|u| u.gpu),
        temperature: temperature(device),
        memory_temperature: field(device, MEMORY_TEMPERATURE)
            .and_then(|t| t.try_into().ok())
            .filter(|t| *t > 0),
        slowdown_temperature: device
            .temperature_threshold(TemperatureThreshold::Slowdown)
            .ok(),
        power: device.power_usage().ok().map(watts),
        power_limit: device.enforced_power_limit().ok().map(watts),
        power_default: device.power_management_limit_default().ok().map(watts),
        sm_clock: device.clock_info(Clock::SM).ok(),
        sm_clock_max: device.max_clock_info(Clock::SM).ok(),
        memory_clock: device.clock_info(Clock::Memory).ok(),
        throttle: throttle(device),
        ecc: ecc(device),
        pcie: pcie(device),
        nvlinks: nvlinks(device),
        mig: mig(device),
        persistence: device.is_in_persistent_mode().ok(),
        compute_mode: device.compute_mode().ok().map(mode_word),
        processes: processes(device),
        near_cpus: String::new(),
    }
}

/// Milliwatts to watts.
fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

fn temperature(device: &Device) -> Option<u32> {
    device.temperature(TemperatureSensor::Gpu).ok()
}

fn throttle(device: &Device) -> Option<u64> {
    device.current_throttle_reasons().ok().map(|r| r.bits())
}

fn mode_word(mode: ComputeMode) -> String {
    match mode {
        ComputeMode::Default => "default",
        ComputeMode::Prohibited => "prohibited",
        ComputeMode::ExclusiveThread | ComputeMode::ExclusiveProcess => "exclusive process",
    }
    .into()
}

fn field(device: &Device, id: u32) -> Option<u64> {
    let samples = device.field_values_for(&[FieldId(id)]).ok()?;
    match samples.into_iter().next()?.ok()?.value.ok()? {
        SampleValue::U32(x) => Some(x.into()),
        SampleValue::U64(x) => Some(x),
        SampleValue::I64(x) => x.try_into().ok(),
        SampleValue::F64(x) => Some(x as u64),
    }
}

fn ecc(device: &Device) -> Option<Ecc> {
    let enabled = device.is_ecc_enabled().ok()?.currently_enabled;
    let count = |kind, span| device.total_ecc_errors(kind, span).unwrap_or(0);
    let remapped = |id| field(device, id).is_some_and(|x| x > 0);
    Some(Ecc {
        enabled,
        corrected: count(MemoryError::Corrected, EccCounter::Volatile),
        uncorrected: count(MemoryError::Uncorrected, EccCounter::Volatile),
        uncorrected_ever: count(MemoryError::Uncorrected, EccCounter::Aggregate),
        remap_pending: remapped(REMAP_PENDING)
            || device
                .are_pages_pending_retired()
                .is_ok_and(|pending| pending),
        remap_failed: remapped(REMAP_FAILED),
    })
}

fn pcie(device: &Device) -> Option<Pcie> {
    Some(Pcie {
        generation: device.current_pcie_link_gen().ok()?,
        width: device.current_pcie_link_width().ok()?,
        max_generation: device.max_pcie_link_gen().ok()?,
        max_width: device.max_pcie_link_width().ok()?,
    })
}

fn nvlinks(device: &Device) -> Vec<NvLink> {
    const COUNTERS: [ErrorCounter; 4] = [
        ErrorCounter::DlReplay,
        ErrorCounter::DlRecovery,
        ErrorCounter::DlCrcFlit,
        ErrorCounter::DlCrcData,
    ];
    // Links are numbered without gaps: the first unknown one ends the list.
    (0..MAX_NVLINKS)
        .map_while(|link| {
            let wrapper = device.link_wrapper_for(link);
            let active = wrapper.is_active().ok()?;
            let count = |counter| wrapper.error_counter(counter).unwrap_or(0);
            let errors = COUNTERS.into_iter().map(count).sum();
            Some(NvLink {
                link,
                active,
                errors,
            })
        })
        .collect()
}

fn mig(device: &Device) -> Option<Mig> {
    let enabled = device.mig_mode().ok()?.current == 1;
    let count = if enabled {
        device.mig_device_count().unwrap_or(0)
    } else {
        0
    };
    let devices = (0..count)
        .filter_map(|i| device.mig_device_by_index(i).ok())
        .map(|instance| {
            let memory = instance.memory_info().ok();
            MigDevice {
                name: instance.name().unwrap_or_default(),
                uuid: instance.uuid().unwrap_or_default(),
                memory_total: memory.as_ref().map_or(0, |m| m.total),
                memory_used: memory.as_ref().map_or(0, |m| m.used),
            }
        })
        .collect();
    Some(Mig { enabled, devices })
}

/// Memory used by the processes for which `own` is true.
fn own_memory(processes: &[GpuProcess], own: impl Fn(u32) -> bool) -> Option<f64> {
    let all = processes.iter().filter(|p| own(p.pid));
    let known: Vec<u64> = all.filter_map(|p| p.memory).collect();
    (!known.is_empty()).then(|| known.iter().sum::<u64>() as f64)
}

/// Whether a process is `root` or one of its descendants.
fn is_of(pid: u32, root: u32, parent: impl Fn(u32) -> Option<u32>) -> bool {
    // If a process ends while its ancestors are followed, the chain may become a cycle.
    const DEEPEST: usize = 64;
    std::iter::successors(Some(pid), |pid| parent(*pid))
        .take(DEEPEST)
        .any(|pid| pid == root)
}

/// The parent of a process, from `/proc/PID/stat` (proc(5)).
fn parent(pid: u32) -> Option<u32> {
    let stat = read_plain_text(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may contain anything, come the state and the parent.
    let fields = stat.rsplit(')').next()?;
    let parent = fields.split_whitespace().nth(1)?.parse().ok()?;
    (parent > 0).then_some(parent)
}

fn processes(device: &Device) -> Vec<GpuProcess> {
    let mut processes: Vec<GpuProcess> = device
        .running_compute_processes()
        .unwrap_or_default()
        .into_iter()
        .map(|process| GpuProcess {
            pid: process.pid,
            memory: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
            ..GpuProcess::default()
        })
        .collect();
    processes.sort_by_key(|p| std::cmp::Reverse(p.memory));
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_library_has_a_reason_and_no_gpus() {
        let mut library = Library {
            opened: Some(Err(DriverState::Absent)),
        };
        let mut nvidia = Nvidia::default();
        library.describe(&mut nvidia);
        assert_eq!(nvidia.driver, DriverState::Absent);
        assert!(library.gpus().is_empty() && library.pulses().is_empty());
    }

    #[test]
    fn a_process_finds_its_own_memory_among_others() {
        let process = |pid, memory| GpuProcess {
            pid,
            memory,
            ..GpuProcess::default()
        };
        let all = [process(7, Some(5)), process(9, None)];
        let of = |pid| own_memory(&all, |it| it == pid);
        assert_eq!((of(7), of(9), of(11)), (Some(5.0), None, None));
    }

    #[test]
    fn ranks_count_towards_the_process_that_started_their_launcher() {
        // 1 → 5 (this program) → 6 (torchrun) → 7, 9 (ranks); 1 → 11 (unrelated).
        let parent = |pid| match pid {
            5 | 11 => Some(1),
            6 => Some(5),
            7 | 9 => Some(6),
            _ => None,
        };
        let process = |pid, memory| GpuProcess {
            pid,
            memory: Some(memory),
            ..GpuProcess::default()
        };
        let all = [process(7, 30), process(9, 20), process(11, 1000)];
        let of = |root| own_memory(&all, |pid| is_of(pid, root, parent));
        assert_eq!((of(5), of(11), of(12)), (Some(50.0), Some(1000.0), None));
        assert!(!is_of(3, 5, |_| Some(3)));
    }

    #[test]
    fn a_child_of_this_process_has_it_as_its_parent() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert_eq!(super::parent(child.id()), Some(std::process::id()));
        assert!(is_of(child.id(), std::process::id(), super::parent));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn errors_become_states() {
        assert_eq!(
            state_of(&NvmlError::LibRmVersionMismatch),
            DriverState::Mismatch
        );
        assert_eq!(
            state_of(&NvmlError::DriverNotLoaded),
            DriverState::NotLoaded
        );
        assert!(matches!(
            state_of(&NvmlError::Unknown),
            DriverState::Failed(_)
        ));
    }
}
