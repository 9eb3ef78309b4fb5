//! Is there memory to be had, by the machine's and the control group's account?

use super::{Check, Finding};
use crate::base::human::bytes;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "memory",
    title: "Main memory",
    rule: "At least 1 GiB can be had, without deep swapping.",
    judge,
};

const ENOUGH: u64 = 1 << 30;
const HARDLY: u64 = 256 << 20;
/// This share of memory in swap, with little left, is thrashing.
const DEEP: f64 = 0.1;

fn judge(machine: &Machine) -> Finding {
    let memory = &machine.memory;
    if memory.total == 0 {
        return Finding::unknown("the size of memory could not be read", "free -h");
    }
    let free = memory.free();
    let mut evidence = format!("{} of {} can be had", bytes(free), bytes(memory.usable()));
    if let Some(limit) = memory.cgroup_limit {
        evidence.push_str(&format!(
            "; the control group's limit is {} on a machine of {}",
            bytes(limit),
            bytes(memory.total)
        ));
    }
    let cause = match memory.cgroup_limit {
        Some(_) => {
            "the container's limit is nearly used up: the kernel will kill what asks for more"
        }
        None => "other programs hold it",
    };
    let fix = "end what holds it, raise the container's limit (`--memory`), or train something smaller (`llmtui plan`)";
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
