//! The service required by GPUs behind NVSwitches.

use super::{Check, Verdict};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "fabric",
    title: "Fabric Manager",
    rule: "Running, if the GPUs are connected by NVSwitches.",
    judge,
};

fn judge(machine: &Machine) -> Verdict {
    match machine.nvidia.fabric_manager {
        None => Verdict::not_applicable("no NVSwitch found"),
        Some(true) => Verdict::pass("nv-fabricmanager runs"),
        Some(false) => Verdict::fail(
            "there are NVSwitches, but nv-fabricmanager is not running",
            "CUDA fails with error 802, system not yet initialized",
            "`sudo systemctl start nvidia-fabricmanager`; its version must match the driver's",
        ),
    }
}
