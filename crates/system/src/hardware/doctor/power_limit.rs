//! Is the power limit the vendor's default?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "power_limit",
    title: "GPU power limit",
    rule: "Not set below the vendor's default.",
    judge,
};

/// A limit this close to the default counts as the default.
const NEAR: f64 = 0.97;

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    let lowered = each(&gpus, |gpu| {
        let (limit, default) = (gpu.power_limit?, gpu.power_default?);
        (limit < NEAR * default).then(|| format!("{limit:.0} W of {default:.0} W"))
    });
    if let Some(evidence) = lowered {
        return Finding::warn(
            evidence,
            "it was lowered: clocks are lower under full load",
            "if that is not intended: `sudo nvidia-smi -pl WATTS`",
        );
    }
    match each(&gpus, |gpu| {
        gpu.power_limit.map(|limit| format!("{limit:.0} W"))
    }) {
        Some(evidence) => Finding::pass(evidence),
        None => Finding::unknown("the driver does not report it", "nvidia-smi -q -d POWER"),
    }
}
