//! Which CUDA version does the driver support? Not the installed toolkit.

use super::{Check, Finding};
use crate::hardware::gpu::DriverState;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cuda_level",
    title: "CUDA version of the driver",
    rule: "The driver supports CUDA 12 or newer.",
    judge,
};

/// Current frameworks are built for this or newer.
const CURRENT: u32 = 12;
/// Still supported by older releases.
const OLD: u32 = 11;

fn judge(machine: &Machine) -> Finding {
    let nvidia = &machine.nvidia;
    if nvidia.driver != DriverState::Loaded {
        return Finding::not_applicable("no NVIDIA driver is loaded");
    }
    let major = nvidia.cuda_version.split('.').next().unwrap_or_default();
    let evidence = format!(
        "driver {} supports CUDA up to {}",
        nvidia.driver_version, nvidia.cuda_version
    );
    let fix = "install a newer driver: 525.60 or later for CUDA 12, 580.65 or later for CUDA 13";
    match major.parse::<u32>() {
        Ok(CURRENT..) => Finding::pass(evidence),
        Ok(OLD) => Finding::warn(evidence, "current builds require CUDA 12 or newer", fix),
        Ok(_) => Finding::fail(evidence, "no current build runs on this driver", fix),
        Err(_) => Finding::unknown("the driver does not report its CUDA version", "nvidia-smi"),
    }
}
