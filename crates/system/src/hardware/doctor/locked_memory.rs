//! Can memory be pinned?

use super::{Check, Finding};
use crate::base::human::bytes;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "locked_memory",
    title: "Locked memory",
    rule: "Unlimited, or at least 64 MiB, if several GPUs exchange data.",
    judge,
};

const ENOUGH: u64 = 64 << 20;

fn judge(machine: &Machine) -> Finding {
    if machine.gpus.len() < 2 {
        return Finding::not_applicable("only relevant with several GPUs");
    }
    match machine.limits.locked_memory {
        None => Finding::unknown("the limit could not be read", "ulimit -l"),
        Some(u64::MAX) => Finding::pass("unlimited"),
        Some(limit) if limit >= ENOUGH => Finding::pass(bytes(limit)),
        Some(limit) => Finding::warn(
            bytes(limit),
            "InfiniBand and pinned buffers need more",
            "`ulimit -l unlimited`, in a container `--ulimit memlock=-1`",
        ),
    }
}
