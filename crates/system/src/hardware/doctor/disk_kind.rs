//! What storage are runs on?

use super::{Check, Finding};
use crate::hardware::machine::DiskKind;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "disk_kind",
    title: "Disk of the runs",
    rule: "A local disk without moving parts.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let Some(disk) = machine.runs_disk() else {
        return Finding::unknown(
            "the file system of the runs could not be determined",
            "df -hT .",
        );
    };
    let evidence = format!("{} {} on {}", disk.filesystem, disk.kind.word(), disk.mount);
    match disk.kind {
        DiskKind::Ssd | DiskKind::Unknown => Finding::pass(evidence),
        DiskKind::Network => Finding::warn(
            evidence,
            "training waits while a checkpoint crosses the network, and stalls when the server does",
            "put runs on a local disk (--runs-dir) and copy what you want to keep",
        ),
        DiskKind::Hdd => Finding::warn(
            evidence,
            "checkpoints and random reads of data are slow",
            "use an SSD for runs and data if there is one",
        ),
        DiskKind::Memory => Finding::warn(
            evidence,
            "runs are lost on reboot, and use main memory",
            "put runs on a disk with --runs-dir",
        ),
    }
}
