//! Has the kernel killed processes for lack of memory?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "oom",
    title: "Out-of-memory kills",
    rule: "The kernel's OOM killer has killed no process.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let (counted, log) = (machine.memory.oom_kills, &machine.kernel_log);
    let last = log.oom_kills.last();
    if counted.is_none() && log.read_from.is_none() {
        return Finding::unknown(
            "neither the cgroup nor the kernel log can be read",
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
        "memory ran out; a killed process ends with exit code 137 and no message",
        "raise the limit, use fewer workers, or ask `llmtui plan` what fits",
    )
}
