//! Why are clocks reduced?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::gpu::Gpu;
use crate::hardware::machine::Machine;
use crate::hardware::throttle::Weight;

pub const CHECK: Check = Check {
    id: "throttle",
    title: "Clocks are not throttled",
    rule: "Clocks are reduced only by idling or the power limit.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    if let Some(evidence) = each(&gpus, |gpu| reasons(gpu, Weight::Critical)) {
        return Finding::fail(
            evidence,
            "the hardware protects itself: clocks are halved or worse",
            "check fans, airflow, dust and the power cables",
        );
    }
    if let Some(evidence) = each(&gpus, |gpu| reasons(gpu, Weight::Slows)) {
        return Finding::warn(
            evidence,
            "the driver lowers clocks to keep the GPU cool",
            "better airflow, or a lower power limit that it can sustain",
        );
    }
    if gpus.iter().all(|gpu| gpu.throttle.is_none()) {
        return Finding::unknown(
            "the driver does not report it",
            "nvidia-smi -q -d PERFORMANCE",
        );
    }
    match each(&gpus, |gpu| reasons(gpu, Weight::Usual)) {
        Some(usual) => Finding::pass(format!("{usual} (normal under full load)")),
        None if gpus.iter().any(|gpu| gpu.loaded()) => Finding::pass("full clocks under load"),
        None => Finding::pass("no throttling; the GPUs are idle"),
    }
}

fn reasons(gpu: &Gpu, weight: Weight) -> Option<String> {
    let found = gpu.throttled();
    let words: Vec<&str> = found
        .iter()
        .filter(|r| r.weight == weight)
        .map(|r| r.words)
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}
