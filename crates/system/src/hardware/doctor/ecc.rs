//! GPU memory errors.

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::gpu::Ecc;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "ecc",
    title: "GPU memory errors",
    rule: "No uncorrectable errors, no row pending or failing remapping.",
    judge,
};

/// Over a GPU's lifetime, before it should be returned.
const MAX_EVER: u64 = 4;

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    let of = |test: fn(&Ecc) -> Option<String>| each(&gpus, |gpu| gpu.ecc.as_ref().and_then(test));
    if let Some(evidence) = of(defect) {
        return Finding::fail(
            evidence,
            "the memory is defective: results may be wrong and runs will crash",
            "take the GPU out of service (`CUDA_VISIBLE_DEVICES`) and return it",
        );
    }
    if let Some(evidence) = of(uncorrected) {
        return Finding::fail(
            evidence,
            "a bit was lost: what was computed since may be wrong",
            "stop all work on it and reset the GPU (`sudo nvidia-smi --gpu-reset -i N`), then resume from a checkpoint",
        );
    }
    if let Some(evidence) = of(pending) {
        return Finding::warn(
            evidence,
            "a bad row is replaced at the next reset",
            "reset the GPU when it is idle",
        );
    }
    let counted = gpus
        .iter()
        .filter(|g| g.ecc.is_some_and(|e| e.enabled))
        .count();
    match counted {
        0 => Finding::not_applicable("these GPUs have no ECC"),
        n => Finding::pass(format!("no uncorrectable errors on {n} GPUs")),
    }
}

fn defect(ecc: &Ecc) -> Option<String> {
    if ecc.remap_failed {
        return Some("a memory row could not be replaced".into());
    }
    (ecc.uncorrected_ever > MAX_EVER).then(|| {
        format!(
            "{} uncorrectable errors over its lifetime",
            ecc.uncorrected_ever
        )
    })
}

fn uncorrected(ecc: &Ecc) -> Option<String> {
    (ecc.uncorrected > 0).then(|| {
        format!(
            "{} uncorrectable errors since the driver was loaded",
            ecc.uncorrected
        )
    })
}

fn pending(ecc: &Ecc) -> Option<String> {
    ecc.remap_pending
        .then(|| "a memory row is pending replacement".into())
}
