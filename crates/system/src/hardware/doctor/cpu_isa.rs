//! Does the processor have the vector instructions that the fast kernels need?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cpu_isa",
    title: "Vector instructions",
    rule: "AVX2 or wider, or NEON: required by the fast kernels.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let cpu = &machine.cpu;
    if cpu.features.is_empty() {
        return Finding::unknown("the processor's features could not be read", "");
    }
    let fast = ["avx2", "avx512f", "asimd", "sve"]
        .iter()
        .any(|f| cpu.has(f));
    match fast {
        true => Finding::pass(format!("{} ({})", cpu.widest(), cpu.model)),
        false => Finding::warn(
            format!("{}: no AVX2", cpu.model),
            "an old processor, or a virtual machine that hides its features",
            "let the virtual machine have the host's processor model; else expect a third of the speed",
        ),
    }
}
