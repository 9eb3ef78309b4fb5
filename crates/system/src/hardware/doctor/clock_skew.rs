//! How far off is the wall clock? Judged without a network, from the hardware clock and the times of files among the runs.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "clock_skew",
    title: "Clock against others",
    rule: "The hardware clock and the runs' files agree with it to 2 seconds.",
    judge,
};

/// Seconds by which two clocks read in sequence may differ.
const CLOSE: i64 = 2;
/// A hardware clock set to local time is off by a time zone: a multiple of this, up to this many of them.
const QUARTER: i64 = 900;
const QUARTERS: i64 = 14 * 4;

fn judge(machine: &Machine) -> Finding {
    let clock = machine.clock;
    let fix =
        "compare with another machine (`date -u`); `sudo timedatectl set-ntp true` sets it right";
    if let Some(ahead) = clock.files_ahead.filter(|s| *s > CLOSE) {
        return Finding::warn(
            format!("files among the runs are {ahead} s in the future"),
            "the clock was set back, or the file server's clock is ahead: orders and ages of runs will be wrong",
            fix,
        );
    }
    let Some(ahead) = clock.hardware_ahead else {
        return match clock.files_ahead {
            Some(_) => {
                Finding::pass("no file among the runs is in the future; no hardware clock to read")
            }
            None => Finding::unknown(
                "neither a hardware clock nor files among the runs to compare with",
                "`date -u` here and on another machine",
            ),
        };
    };
    let off = match ahead {
        a if a.abs() <= CLOSE => return Finding::pass("the hardware clock agrees"),
        a if a > 0 => format!("the hardware clock is {a} s ahead"),
        a => format!("the hardware clock is {} s behind", -a),
    };
    let zones = (ahead + ahead.signum() * CLOSE) / QUARTER;
    if zones != 0 && zones.abs() <= QUARTERS && (ahead - zones * QUARTER).abs() <= CLOSE {
        return Finding::pass(format!("{off}: it keeps local time"));
    }
    match clock.synchronised {
        Some(true) => Finding::pass(format!("{off}, and a time service keeps the clock")),
        _ => Finding::warn(
            off,
            "one of the two is wrong, and without a time service it is unclear which",
            fix,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::doctor::Status;
    use crate::hardware::machine::ClockState;

    #[test]
    fn a_wrong_clock_is_distinguished_from_a_time_zone_and_from_a_synchronized_one() {
        let status = |hardware_ahead, files_ahead, synchronised| {
            let clock = ClockState {
                unix_seconds: None,
                synchronised,
                hardware_ahead,
                files_ahead,
            };
            let machine = Machine {
                clock,
                ..Machine::default()
            };
            judge(&machine).status
        };
        assert_eq!(status(None, None, None), Status::Unknown);
        assert_eq!(status(Some(-2), None, None), Status::Pass);
        assert_eq!(status(Some(40), None, None), Status::Warn);
        assert_eq!(status(Some(40), None, Some(true)), Status::Pass);
        for zone in [3600, -18_001, 20_700] {
            assert_eq!(status(Some(zone), None, None), Status::Pass, "{zone}");
        }
        assert_eq!(status(Some(0), Some(30), Some(true)), Status::Warn);
        assert_eq!(status(None, Some(0), None), Status::Pass);
    }
}
