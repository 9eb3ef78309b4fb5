//! Does the driver stay loaded between runs?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "persistence",
    title: "Persistence mode",
    rule: "On, for a server GPU.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    // A desktop's display keeps its driver loaded anyway; only server cards have ECC.
    let off = each(&gpus, |gpu| {
        (gpu.persistence == Some(false) && gpu.ecc.is_some()).then(|| "off".into())
    });
    match off {
        Some(evidence) => Finding::warn(
            evidence,
            "the driver unloads between runs: each start takes a second or two longer and forgets settings",
            "`sudo nvidia-smi -pm 1`, or enable nvidia-persistenced",
        ),
        None if gpus.iter().all(|gpu| gpu.persistence.is_none()) => Finding::unknown(
            "the driver does not report it",
            "nvidia-smi -q | grep Persistence",
        ),
        None => Finding::pass("not needed"),
    }
}
