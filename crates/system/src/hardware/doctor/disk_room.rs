//! Is there space for checkpoints?

use super::{Check, Finding};
use crate::base::human::bytes;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "disk_room",
    title: "Space for runs",
    rule: "The runs' file system is writable and has 10 GiB and 5 % free.",
    judge,
};

const HARDLY: u64 = 1 << 30;
const ENOUGH: u64 = 10 << 30;
const SHARE: f64 = 0.05;
const INODES: u64 = 1000;

fn judge(machine: &Machine) -> Finding {
    let Some(disk) = machine.runs_disk() else {
        return Finding::unknown(
            "the file system of the runs could not be determined",
            "df -h .",
        );
    };
    let space = disk.space;
    if disk.read_only {
        return Finding::fail(
            format!("{} is mounted read-only", disk.mount),
            "on purpose, or after a disk error",
            "choose another location with --runs-dir; check `dmesg` for disk errors",
        );
    }
    if space.total == 0 {
        return Finding::unknown(
            format!("{} does not report its free space", disk.mount),
            "df -h .",
        );
    }
    let evidence = format!(
        "{} of {} free on {}",
        bytes(space.free),
        bytes(space.total),
        disk.mount
    );
    let fix = "free some space, or put runs elsewhere with --runs-dir";
    if space.free < HARDLY {
        return Finding::fail(
            evidence,
            "a checkpoint will not fit: a run would lose its last one",
            fix,
        );
    }
    if space.inodes_total > 0 && space.inodes_free < INODES {
        return Finding::fail(
            format!("{} inodes left on {}", space.inodes_free, disk.mount),
            "many small files: no new ones can be created despite free bytes",
            fix,
        );
    }
    // On a small disk 5 % is little, on a large one 10 GiB is.
    let little = space.free < ENOUGH || (space.free as f64) < SHARE * space.total as f64;
    match little {
        true => Finding::warn(evidence, "a few checkpoints of a large model fill it", fix),
        false => Finding::pass(evidence),
    }
}
