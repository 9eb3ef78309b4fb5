//! AMD GPUs; this program does not train on them.

use super::{Check, may_be_opened};
use crate::hardware::machine::AcceleratorKind;

pub const CHECK: Check = Check {
    id: "rocm",
    title: "AMD GPU",
    rule: "The device is accessible, if present.",
    judge: |machine| {
        let fix =
            "add yourself to its groups: `sudo usermod -aG render,video USER`, then log in again";
        may_be_opened(machine, AcceleratorKind::Rocm, fix)
    },
};
