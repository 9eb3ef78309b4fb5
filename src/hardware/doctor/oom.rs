//! Has the kernel killed processes for want of memory?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "oom",
    title: "Killed for want of memory",
    rule: "The kernel has killed nothing for want of memory.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let (counted, log) = (machine.memory.oom_kills, &machine.kernel_log);
    let last = log.oom_kills.last();
    if counted.is_none() && log.read_from.is_none() {
        return Finding::unknown(
            "neither the control group nor the kernel's log tells",
            "sudo dmesg | grep -i 'out of memory'",
        );
    }
    let killed = counted.unwrap_or(0).max(log.oom_kills.len() as u64);
    if killed == 0 {
        return Finding::pass("none");
    }
    let who = last.map_or(String::new(), |who| format!(", last {who}"));
    Finding::warn(
        format!("{killed} killed{who}"),
        "memory ran out; such a process ends with exit code 137 and no message",
        "raise the limit, use fewer workers, or ask `llmtui plan` what fits",
    )
}
