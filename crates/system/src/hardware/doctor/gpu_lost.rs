//! Does every GPU respond?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "gpu_lost",
    title: "GPUs respond",
    rule: "Every GPU known to the driver responds.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    if machine.gpus.is_empty() {
        return Finding::not_applicable("no NVIDIA GPU responds");
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
        "save the work on the other GPUs, then power-cycle the machine; reseat or return the card if it happens again",
    )
}
