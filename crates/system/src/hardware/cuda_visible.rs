//! The GPUs that CUDA would expose to this process: NVML ignores `CUDA_VISIBLE_DEVICES`, so it is resolved here (CUDA C++
//! Programming Guide, environment variables): indices, `GPU-` and `MIG-` identifiers or unambiguous prefixes; the
//! first invalid entry ends the list.

use super::gpu::Gpu;
use super::machine::Machine;

/// A device as CUDA would number it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// NVML's index of its GPU.
    pub gpu: u32,
    pub name: String,
    pub uuid: String,
    pub memory_total: u64,
    pub memory_used: u64,
}

/// The meaning of the variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Not set: every GPU.
    All,
    /// The listed devices, in order.
    Named(Vec<Visible>),
    /// The devices before an invalid entry, and that entry: CUDA stops there.
    Broken(Vec<Visible>, String),
}

/// The devices that CUDA would expose, in its order.
pub fn visible(machine: &Machine) -> Vec<Visible> {
    match select(machine) {
        Selection::All => all(machine),
        Selection::Named(devices) | Selection::Broken(devices, _) => devices,
    }
}

/// Resolves the variable on this machine.
pub fn select(machine: &Machine) -> Selection {
    let Some(value) = machine.nvidia.cuda_visible_devices.as_deref() else {
        return Selection::All;
    };
    let mut devices: Vec<Visible> = Vec::new();
    for word in value.split(',').map(str::trim) {
        // CUDA also treats a duplicate as an error.
        match named(machine, word).filter(|found| devices.iter().all(|d| d.uuid != found.uuid)) {
            Some(found) => devices.push(found),
            None if word.is_empty() && devices.is_empty() => break,
            None => return Selection::Broken(devices, word.to_string()),
        }
    }
    Selection::Named(devices)
}

fn all(machine: &Machine) -> Vec<Visible> {
    machine
        .gpus
        .iter()
        .filter(|gpu| gpu.lost.is_none())
        .map(whole_or_first_instance)
        .collect()
}

/// A GPU with MIG instances exposes only the first one.
fn whole_or_first_instance(gpu: &Gpu) -> Visible {
    instances(gpu)
        .into_iter()
        .next()
        .unwrap_or_else(|| whole(gpu))
}

fn whole(gpu: &Gpu) -> Visible {
    Visible {
        gpu: gpu.index,
        name: gpu.name.clone(),
        uuid: gpu.uuid.clone(),
        memory_total: gpu.memory_total,
        memory_used: gpu.memory_used,
    }
}

fn instances(gpu: &Gpu) -> Vec<Visible> {
    let devices = gpu.mig.iter().filter(|mig| mig.enabled);
    devices
        .flat_map(|mig| &mig.devices)
        .map(|device| Visible {
            gpu: gpu.index,
            name: device.name.clone(),
            uuid: device.uuid.clone(),
            memory_total: device.memory_total,
            memory_used: device.memory_used,
        })
        .collect()
}

fn named(machine: &Machine, word: &str) -> Option<Visible> {
    if let Ok(number) = word.parse::<usize>() {
        // CUDA's default order is fastest first; with identical GPUs that is PCI order.
        return all(machine).into_iter().nth(number);
    }
    if !word.starts_with("GPU-") && !word.starts_with("MIG-") {
        return None;
    }
    let mut found = machine
        .gpus
        .iter()
        .filter(|gpu| gpu.lost.is_none())
        .flat_map(|gpu| std::iter::once(whole(gpu)).chain(instances(gpu)))
        .filter(|device| device.uuid.starts_with(word));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu::{Mig, MigDevice};

    fn machine(variable: Option<&str>) -> Machine {
        let gpu = |index: u32, uuid: &str| Gpu {
            index,
            name: format!("card {index}"),
            uuid: uuid.into(),
            memory_total: 80,
            ..Gpu::default()
        };
        let mut machine = Machine {
            gpus: vec![gpu(0, "GPU-aa11"), gpu(1, "GPU-ab22"), gpu(2, "GPU-cc33")],
            ..Machine::default()
        };
        let device = |uuid: &str| MigDevice {
            name: "card 2 1g.10gb".into(),
            uuid: uuid.into(),
            memory_total: 10,
            memory_used: 0,
        };
        machine.gpus[2].mig = Some(Mig {
            enabled: true,
            devices: vec![device("MIG-1"), device("MIG-2")],
        });
        machine.nvidia.cuda_visible_devices = variable.map(Into::into);
        machine
    }

    fn seen(variable: Option<&str>) -> Vec<String> {
        let devices = visible(&machine(variable));
        devices.into_iter().map(|d| d.uuid).collect()
    }

    #[test]
    fn indices_identifiers_and_instances_resolve_in_order() {
        assert_eq!(seen(None), ["GPU-aa11", "GPU-ab22", "MIG-1"]);
        assert_eq!(seen(Some("1,0")), ["GPU-ab22", "GPU-aa11"]);
        assert_eq!(seen(Some("GPU-cc, GPU-aa11")), ["GPU-cc33", "GPU-aa11"]);
        assert_eq!(seen(Some("MIG-2")), ["MIG-2"]);
        assert!(seen(Some("")).is_empty());
    }

    #[test]
    fn an_invalid_entry_ends_the_list() {
        assert_eq!(seen(Some("0,7,1")), ["GPU-aa11"]);
        assert!(seen(Some("GPU-a")).is_empty(), "two begin like this");
        assert!(seen(Some("-1")).is_empty());
        let Selection::Broken(_, word) = select(&machine(Some("0,0"))) else {
            panic!("a device named twice");
        };
        assert_eq!(word, "0");
    }

    #[test]
    fn a_lost_gpu_is_not_visible() {
        let mut machine = machine(Some("1"));
        machine.gpus[0].lost = Some("GPU is lost".into());
        assert_eq!(visible(&machine)[0].uuid, "MIG-1");
    }
}
