//! How fast can the runs disk write? Only an explicit measurement writes.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "disk_speed",
    title: "Write speed",
    rule: "200 MB/s or more; measured only on request.",
    judge,
};

/// Bytes per second.
const ENOUGH: f64 = 200e6;

fn judge(machine: &Machine) -> Finding {
    let Some(speed) = machine.runs_disk().and_then(|disk| disk.write_speed) else {
        return Finding::not_applicable(
            "not measured; `llmtui doctor --measure` writes 256 MiB to find out",
        );
    };
    let evidence = format!("{:.0} MB/s", speed / 1e6);
    match speed < ENOUGH {
        true => Finding::warn(
            evidence,
            "a slow or busy disk: a checkpoint of 1 GB takes more than five seconds",
            "use a local NVMe disk, or save less often",
        ),
        false => Finding::pass(evidence),
    }
}
