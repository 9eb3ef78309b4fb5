//! Where is nvcc? Only building needs it.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cuda_compiler",
    title: "CUDA compiler",
    rule: "Found or not: only building CUDA code needs it.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    match &machine.nvidia.nvcc {
        Some(path) => Finding::pass(path.clone()),
        None => Finding::not_applicable("no nvcc: needed only to build with `--features cuda`"),
    }
}
