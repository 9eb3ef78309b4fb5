//! Do library and kernel module have the same version?

use super::{Check, Finding};
use crate::hardware::gpu::DriverState;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "driver_match",
    title: "Driver and library match",
    rule: "The kernel module and the driver's library have the same version.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let nvidia = &machine.nvidia;
    match nvidia.driver {
        DriverState::Mismatch => Finding::fail(
            format!(
                "NVML: driver/library version mismatch; the loaded kernel module is {}",
                nvidia.module_version
            ),
            "the driver was upgraded and the old kernel module is still loaded",
            "reboot; or end all users of the GPU and reload the module: `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`",
        ),
        DriverState::Loaded => Finding::pass(nvidia.driver_version.clone()),
        _ => Finding::not_applicable("no NVIDIA driver is loaded"),
    }
}
