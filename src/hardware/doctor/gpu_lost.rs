//! Does every GPU answer?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "gpu_lost",
    title: "GPUs answer",
    rule: "Every GPU that the driver knows answers.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    if machine.gpus.is_empty() {
        return Finding::not_applicable("no NVIDIA GPU answers");
    }
    let lost: Vec<String> = machine
        .gpus
        .iter()
        .filter_map(|gpu| Some(format!("GPU {}: {}", gpu.index, gpu.lost.as_ref()?)))
        .collect();
    if lost.is_empty() {
        return Finding::pass(format!("{} of {}", machine.gpus.len(), machine.gpus.len()));
    }
    Finding::fail(
        lost.join("; "),
        "it fell off the bus: power, PCIe contact, heat or a defect",
        "save what runs on the other GPUs, then switch the machine off and on; seat the card anew or return it if it happens again",
    )
}
