//! Where is nvcc? Only building needs it.

use super::{Check, Verdict};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cuda_compiler",
    title: "CUDA compiler",
    rule: "Found or not: only building CUDA code needs it.",
    judge,
};

fn judge(machine: &Machine) -> Verdict {
    match &machine.nvidia.nvcc {
        Some(path) => Verdict::pass(path.clone()),
        None => Verdict::not_applicable("no nvcc: needed only to build with `--features cuda`"),
    }
}
