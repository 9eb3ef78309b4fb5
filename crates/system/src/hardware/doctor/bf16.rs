//! Does the GPU compute in bfloat16?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "bf16",
    title: "bfloat16",
    rule: "Compute capability 8.0 or newer.",
    judge,
};

const FIRST: u32 = 80;

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    if gpus.iter().all(|gpu| gpu.capability().is_none()) {
        return Finding::unknown("the driver does not report the compute capability", "");
    }
    let without = each(&gpus, |gpu| {
        (gpu.capability()? < FIRST).then(|| format!("{} has none", gpu.name))
    });
    match without {
        Some(evidence) => Finding::warn(
            evidence,
            "matmuls in bfloat16 would be emulated, or fail; float16 needs loss scaling, which llmtui does not have",
            "train in float32, which train.precision: auto does there; half the parameters of a newer GPU fit",
        ),
        None => Finding::pass("every GPU has it"),
    }
}
