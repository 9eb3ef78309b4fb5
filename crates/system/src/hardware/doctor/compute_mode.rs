//! May this process use the GPU at all?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "compute_mode",
    title: "GPU takes work",
    rule: "The compute mode is the default.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    let mode = |word: &'static str| {
        each(&gpus, move |gpu| {
            (gpu.compute_mode.as_deref()? == word).then(|| format!("compute mode {word}"))
        })
    };
    let fix = "`sudo nvidia-smi -c DEFAULT -i N`, if you may";
    if let Some(evidence) = mode("prohibited") {
        return Finding::fail(evidence, "an administrator has disabled compute on it", fix);
    }
    if let Some(evidence) = mode("exclusive process") {
        return Finding::warn(
            evidence,
            "one process at a time: a chat beside a run fails with `all devices are busy`",
            fix,
        );
    }
    match gpus.iter().all(|gpu| gpu.compute_mode.is_none()) {
        true => Finding::unknown("the driver does not report it", "nvidia-smi -q -d COMPUTE"),
        false => Finding::pass("default"),
    }
}
