//! The service without which GPUs behind NVSwitches do not start.

use super::{Check, Verdict};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "fabric",
    title: "Fabric Manager",
    rule: "Runs, where NVSwitches join the GPUs.",
    judge,
};

fn judge(machine: &Machine) -> Verdict {
    match machine.nvidia.fabric_manager {
        None => Verdict::not_applicable("no NVSwitch to be seen"),
        Some(true) => Verdict::pass("nv-fabricmanager runs"),
        Some(false) => Verdict::fail(
            "NVSwitches are there, nv-fabricmanager is not",
            "CUDA fails with error 802, system not yet initialized",
            "`sudo systemctl start nvidia-fabricmanager`; its version must equal the driver's",
        ),
    }
}
