//! TPUs; this program does not train on them.

use super::{Check, may_be_opened};
use crate::hardware::machine::AcceleratorKind;

pub const CHECK: Check = Check {
    id: "tpu",
    title: "TPU",
    rule: "The device is accessible, if present.",
    judge: |machine| {
        let fix = "give this user access to the device node";
        may_be_opened(machine, AcceleratorKind::Tpu, fix)
    },
};
