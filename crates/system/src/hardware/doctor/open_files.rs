//! How many files may a process open?

use super::{Check, Finding};
use crate::base::human::grouped;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "open_files",
    title: "Open files",
    rule: "At least 1,024; 65,536 on a machine with GPUs.",
    judge,
};

const ALWAYS: u64 = 1024;
const WITH_GPUS: u64 = 65_536;

fn judge(machine: &Machine) -> Finding {
    let Some(limit) = machine.limits.open_files else {
        return Finding::unknown("the limit could not be read", "ulimit -n");
    };
    let wanted = if machine.gpus.is_empty() {
        ALWAYS
    } else {
        WITH_GPUS
    };
    if limit >= wanted {
        return Finding::pass(if limit == u64::MAX {
            "unlimited".into()
        } else {
            grouped(limit)
        });
    }
    Finding::warn(
        format!(
            "{} of the {} that large datasets and several GPUs need",
            grouped(limit),
            grouped(wanted)
        ),
        "a shell's default",
        "`ulimit -n 65536`; permanently in /etc/security/limits.conf or the unit's LimitNOFILE",
    )
}
