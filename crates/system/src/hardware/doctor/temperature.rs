//! Is the GPU cool enough?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "temperature",
    title: "GPU temperature",
    rule: "Below 83 °C, its memory below 95 °C.",
    judge,
};

/// Degrees Celsius from which on a GPU is hot.
pub const HOT: u32 = 83;
const HOT_MEMORY: u32 = 95;

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    let hot = each(&gpus, |gpu| {
        let core = gpu
            .temperature
            .filter(|t| *t >= HOT)
            .map(|t| format!("{t} °C"));
        let memory = gpu
            .memory_temperature
            .filter(|t| *t >= HOT_MEMORY)
            .map(|t| format!("memory {t} °C"));
        let words: Vec<String> = [core, memory].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(", "))
    });
    if let Some(evidence) = hot {
        return Finding::warn(
            evidence,
            "near the point where clocks are lowered",
            "better airflow: fans, dust, distance between cards, the room",
        );
    }
    match gpus.iter().filter_map(|gpu| gpu.temperature).max() {
        Some(hottest) => Finding::pass(format!("at most {hottest} °C")),
        None => Finding::unknown(
            "the driver does not report it",
            "nvidia-smi -q -d TEMPERATURE",
        ),
    }
}
