//! Does NVIDIA's driver work, if there is a card?

use super::{Check, Finding};
use crate::hardware::gpu::{DriverState, Nvidia};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "driver",
    title: "NVIDIA driver",
    rule: "The driver's library loads and responds, if there is a card.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let nvidia = &machine.nvidia;
    let signs = signs(nvidia);
    match &nvidia.driver {
        DriverState::Loaded => Finding::pass(format!(
            "driver {}, {}",
            nvidia.driver_version,
            match machine.gpus.len() {
                1 => "1 GPU".to_string(),
                n => format!("{n} GPUs"),
            }
        )),
        // Judged by `driver_match`.
        DriverState::Mismatch => Finding::pass(format!(
            "a driver is loaded (kernel module {})",
            nvidia.module_version
        )),
        DriverState::Absent | DriverState::NotLoaded if signs.is_empty() => {
            Finding::not_applicable("no NVIDIA GPU in this machine")
        }
        DriverState::Absent if nvidia.container => Finding::fail(
            format!("{}, but no libnvidia-ml.so.1", signs.join(", ")),
            "the container was started without access to the GPU",
            "start it with `--gpus all` (Docker, Podman) or the nvidia runtime class (Kubernetes)",
        ),
        DriverState::Absent => Finding::fail(
            format!("{}, but no libnvidia-ml.so.1", signs.join(", ")),
            "the NVIDIA driver is not installed",
            "install the driver of your distribution, then reboot",
        ),
        DriverState::NotLoaded => Finding::fail(
            format!(
                "{}; the library is installed, but the kernel module is not loaded",
                signs.join(", ")
            ),
            "the module was not built for this kernel, is not signed for secure boot, or another driver is bound to the card",
            "`sudo modprobe nvidia` and read `dmesg`; after a kernel update install the driver's dkms package again",
        ),
        DriverState::Failed(why) => Finding::fail(
            format!("NVML says: {why}"),
            "the driver does not respond",
            "check `dmesg | grep NVRM`; a reboot often helps",
        ),
    }
}

/// Evidence of a card, without querying the driver.
fn signs(nvidia: &Nvidia) -> Vec<String> {
    let mut signs = Vec::new();
    if nvidia.pci_devices > 0 {
        signs.push(match nvidia.pci_devices {
            1 => "an NVIDIA card on the PCI bus".to_string(),
            n => format!("{n} NVIDIA cards on the PCI bus"),
        });
    }
    if !nvidia.module_version.is_empty() {
        signs.push(format!("kernel module {}", nvidia.module_version));
    }
    if !nvidia.device_nodes.is_empty() {
        signs.push(format!("/dev/{}", nvidia.device_nodes.join(", /dev/")));
    }
    signs
}
