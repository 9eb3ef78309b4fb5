//! Apple's GPUs share the machine's memory; this program does not train on them.

use super::{Check, Finding};
use crate::hardware::machine::AcceleratorKind;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "apple",
    title: "Apple GPU",
    rule: "Reported if present; always passes.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let found = machine
        .accelerators
        .iter()
        .any(|a| a.kind == AcceleratorKind::Apple);
    match found {
        true => Finding::pass("Apple silicon; this build trains on its CPU"),
        false => Finding::not_applicable("none"),
    }
}
