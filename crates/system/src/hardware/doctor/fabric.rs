//! The service required by GPUs behind NVSwitches.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "fabric",
    title: "Fabric Manager",
    rule: "Running, if the GPUs are connected by NVSwitches.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    match machine.nvidia.fabric_manager {
        None => Finding::not_applicable("no NVSwitch found"),
        Some(true) => Finding::pass("nv-fabricmanager runs"),
        Some(false) => Finding::fail(
            "there are NVSwitches, but nv-fabricmanager is not running",
            "CUDA fails with error 802, system not yet initialized",
            "`sudo systemctl start nvidia-fabricmanager`; its version must match the driver's",
        ),
    }
}
