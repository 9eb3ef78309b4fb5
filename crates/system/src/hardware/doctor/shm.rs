//! Data loaders with workers need space in /dev/shm; containers get 64 MiB.

use super::{Check, Finding};
use crate::base::human::bytes;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "shm",
    title: "Shared memory",
    rule: "/dev/shm has at least 1 GiB.",
    judge,
};

const ENOUGH: u64 = 1 << 30;

fn judge(machine: &Machine) -> Finding {
    let Some(space) = machine.shm else {
        return Finding::unknown("/dev/shm could not be checked", "df -h /dev/shm");
    };
    match space.total < ENOUGH {
        true => Finding::warn(
            format!("/dev/shm has {}", bytes(space.total)),
            "a container's default: other programs' data loaders crash with a bus error",
            "start the container with `--shm-size=8g`; llmtui itself does not need it",
        ),
        false => Finding::pass(bytes(space.total)),
    }
}
