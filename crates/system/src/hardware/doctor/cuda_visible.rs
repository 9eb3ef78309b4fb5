//! Does the variable list existing devices?

use super::{Check, Finding};
use crate::hardware::cuda_visible::{Selection, Visible, select};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cuda_visible",
    title: "CUDA_VISIBLE_DEVICES",
    rule: "Every entry of the variable is an existing GPU or MIG device.",
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
            "set but empty",
            "it hides every GPU from CUDA",
            "`unset CUDA_VISIBLE_DEVICES`",
        ),
        Selection::Named(devices) => Finding::pass(format!("{value} is {}", mapping(&devices))),
        Selection::Broken(devices, word) => Finding::fail(
            format!(
                "{value}: `{word}` is not a device, or a duplicate; CUDA stops there and exposes {} of them",
                devices.len()
            ),
            "an index, GPU or MIG identifier that this machine does not have",
            "`nvidia-smi -L` lists the devices; indices count from 0",
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
