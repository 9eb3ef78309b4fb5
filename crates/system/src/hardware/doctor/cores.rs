//! How many cores may this process use?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cores",
    title: "Processor cores",
    rule: "At least two for this process.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let cpu = &machine.cpu;
    if cpu.logical == 0 {
        return Finding::unknown("the number of cores could not be read", "nproc");
    }
    let mut evidence = format!("{} of {}", cpu.usable(), cpu.logical);
    if let Some(quota) = cpu.quota {
        evidence.push_str(&format!(", a cgroup quota of {quota:.1}"));
    }
    if cpu.allowed < cpu.logical {
        evidence.push_str(&format!(", affinity allows {}", cpu.allowed));
    }
    if cpu.usable() == 1 && cpu.logical > 1 {
        return Finding::warn(
            evidence,
            "training, data loading and UI share one core",
            "raise the container's CPU limit (`--cpus`), or `taskset`",
        );
    }
    Finding::pass(evidence)
}
