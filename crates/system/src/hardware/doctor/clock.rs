//! Is the wall clock right? Run names and multi-machine setups rely on it.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "clock",
    title: "Clock",
    rule: "Synchronized by a time service; the year is plausible.",
    judge,
};

/// 2025-01-01: earlier than the first release of this program.
const OLDEST: u64 = 1_735_689_600;

fn judge(machine: &Machine) -> Finding {
    let clock = machine.clock;
    let fix = "`sudo timedatectl set-ntp true`, or start chrony";
    if clock.unix_seconds.is_some_and(|now| now < OLDEST) {
        return Finding::fail(
            "the clock is set before 2025",
            "it was never set: names and ages of runs will be wrong, certificates invalid",
            fix,
        );
    }
    match clock.synchronised {
        Some(true) => Finding::pass("kept by a time service"),
        Some(false) => Finding::warn(
            "a time service is running but has not reached a server",
            "no network, or the server is blocked",
            fix,
        ),
        None => Finding::unknown(
            "no sign of a time service; containers cannot see their host's",
            "timedatectl",
        ),
    }
}
