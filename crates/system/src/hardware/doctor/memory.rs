//! Is enough memory available, to the machine and to the cgroup?

use super::{Check, Finding};
use crate::base::human::bytes;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "memory",
    title: "Main memory",
    rule: "At least 1 GiB is available, without heavy swapping.",
    judge,
};

const ENOUGH: u64 = 1 << 30;
const HARDLY: u64 = 256 << 20;
/// Above this share of memory in swap, with little left, the machine is thrashing.
const DEEP: f64 = 0.1;

fn judge(machine: &Machine) -> Finding {
    let memory = &machine.memory;
    if memory.total == 0 {
        return Finding::unknown("the size of memory could not be read", "free -h");
    }
    let free = memory.free();
    let mut evidence = format!("{} of {} available", bytes(free), bytes(memory.usable()));
    if let Some(limit) = memory.cgroup_limit {
        evidence.push_str(&format!(
            "; the cgroup's limit is {} on a machine with {}",
            bytes(limit),
            bytes(memory.total)
        ));
    }
    let cause = match memory.cgroup_limit {
        Some(_) => {
            "the container's limit is nearly reached: the kernel will kill processes that need more"
        }
        None => "it is used by other programs",
    };
    let fix = "stop other programs, raise the container's limit (`--memory`), or train something smaller (`llmtui plan`)";
    if free < HARDLY {
        return Finding::fail(evidence, cause, fix);
    }
    let swapping = memory.swap_used as f64 > DEEP * memory.total as f64 && free < 4 * ENOUGH;
    if swapping {
        evidence.push_str(&format!("; {} are swapped out", bytes(memory.swap_used)));
    }
    match free < ENOUGH || swapping {
        true => Finding::warn(evidence, cause, fix),
        false => Finding::pass(evidence),
    }
}
