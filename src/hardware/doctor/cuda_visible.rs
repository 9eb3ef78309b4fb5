//! Does the variable name devices that are there?

use super::{Check, Finding};
use crate::hardware::cuda_visible::{Selection, Visible, select};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cuda_visible",
    title: "CUDA_VISIBLE_DEVICES",
    rule: "Every word of the variable names a GPU or MIG device that is there.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    if machine.gpus.is_empty() {
        return Finding::not_applicable("no NVIDIA GPU answers");
    }
    let value = machine
        .nvidia
        .cuda_visible_devices
        .as_deref()
        .unwrap_or_default();
    match select(machine) {
        Selection::All => Finding::pass("not set: every GPU"),
        Selection::Named(devices) if devices.is_empty() => Finding::warn(
            "set to nothing",
            "it hides every GPU from CUDA",
            "`unset CUDA_VISIBLE_DEVICES`",
        ),
        Selection::Named(devices) => Finding::pass(format!("{value} is {}", mapping(&devices))),
        Selection::Broken(devices, word) => Finding::fail(
            format!(
                "{value}: `{word}` names no device, or one a second time; CUDA stops there and shows {} of them",
                devices.len()
            ),
            "a number, GPU or MIG identifier that this machine has not",
            "`nvidia-smi -L` lists what there is; numbers count from 0",
        ),
    }
}

/// `CUDA 0 = GPU 3, CUDA 1 = GPU 1`
fn mapping(devices: &[Visible]) -> String {
    let one = |(i, device): (usize, &Visible)| match device.uuid.starts_with("MIG-") {
        true => format!("CUDA {i} = {} on GPU {}", device.name, device.gpu),
        false => format!("CUDA {i} = GPU {}", device.gpu),
    };
    let words: Vec<String> = devices.iter().enumerate().map(one).collect();
    words.join(", ")
}
