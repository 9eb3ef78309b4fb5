//! Is the GPU new enough for current CUDA builds?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "capability",
    title: "Compute capability",
    rule: "7.0 or newer: tensor cores, and current CUDA builds.",
    judge,
};

/// Current toolkits still build for it.
const OLDEST_BUILT: u32 = 50;
/// The first with tensor cores.
const TENSOR_CORES: u32 = 70;

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    let below = |limit: u32| {
        each(&gpus, |gpu| {
            let (major, minor) = gpu.compute_capability?;
            (gpu.capability()? < limit).then(|| format!("{} has {major}.{minor}", gpu.name))
        })
    };
    if let Some(evidence) = below(OLDEST_BUILT) {
        return Finding::fail(
            evidence,
            "no current CUDA build has code for it (`no kernel image is available`)",
            "use a newer GPU, or the CPU",
        );
    }
    if let Some(evidence) = below(TENSOR_CORES) {
        return Finding::warn(
            evidence,
            "no tensor cores, and CUDA 13 has dropped it",
            "expect a tenth of a current GPU's speed",
        );
    }
    let known = each(&gpus, |gpu| {
        gpu.compute_capability
            .map(|(major, minor)| format!("{major}.{minor}"))
    });
    match known {
        Some(evidence) => Finding::pass(evidence),
        None => Finding::unknown(
            "the driver does not report it",
            "nvidia-smi --query-gpu=compute_cap --format=csv",
        ),
    }
}
