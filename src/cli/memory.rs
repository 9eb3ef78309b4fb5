//! The gate before a start, in the shell's words.

use super::exit::Failure;
use crate::plan::room;
use crate::spec::{PrecisionError, RunSpec};

/// Asks the plan before anything is made: a model that cannot fit would end the process. And whether the processor has
/// what `train.precision` asks for.
///
/// # Errors
/// What is needed, what is there, the cheapest changes.
pub fn check(spec: &RunSpec) -> Result<(), Failure> {
    let refused =
        |e: PrecisionError| Failure::yours(format!("train.precision: {e}"), PrecisionError::HINT);
    spec.computes_here().map_err(refused)?;
    room::check(spec, &crate::hardware::memory()).map_err(|shortage| {
        let hint =
            "a change above; llmtui plan shows every part; train --force starts all the same";
        Failure::yours(shortage.to_string(), hint)
    })
}
