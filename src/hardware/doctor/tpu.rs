//! Devices of this kind, by their public signs; this program does not train on them.

use crate::hardware::machine::AcceleratorKind;
use super::{Check, Verdict};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "tpu",
    title: "TPU",
    rule: "The device may be opened, where there is one.",
    judge,
};

fn judge(machine: &Machine) -> Verdict {
    let found = machine
        .accelerators
        .iter()
        .find(|a| a.kind == AcceleratorKind::Tpu);
    let Some(device) = found else {
        return Verdict::not_applicable("none");
    };
    let evidence = format!("{} {}", device.sign, device.name).trim_end().to_string();
    match device.accessible {
        Some(false) => Verdict::warn(
            format!("{evidence} may not be opened"),
            "this user lacks the right",
            "give this user access to the device node",
        ),
        _ => Verdict::pass(format!("{evidence}; this build trains on CPU and CUDA")),
    }
}
