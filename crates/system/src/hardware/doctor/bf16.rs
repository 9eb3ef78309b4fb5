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
            "float16 has a narrow range: losses need scaling, norms and softmax need float32",
            "train in float16 with loss scaling, or in float32",
        ),
        None => Finding::pass("every GPU has it"),
    }
}
