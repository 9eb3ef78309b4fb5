//! The service without which GPUs behind NVSwitches do not start.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "fabric",
    title: "Fabric Manager",
    rule: "Runs, where NVSwitches join the GPUs.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    match machine.nvidia.fabric_manager {
        None => Finding::not_applicable("no NVSwitch to be seen"),
        Some(true) => Finding::pass("nv-fabricmanager runs"),
        Some(false) => Finding::fail(
            "NVSwitches are there, nv-fabricmanager is not",
            "CUDA fails with error 802, system not yet initialized",
            "`sudo systemctl start nvidia-fabricmanager`; its version must equal the driver's",
        ),
    }
}
