//! A GPU that computes little of what it could.

use super::{idle_gpu, metric};
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "low_mfu",
        title: "MFU",
        summary: "From step 50 on, models of at least 100 million parameters on GPUs reach a model FLOPs utilization of 15 %.",
        source: "30 to 50 % is usual: PaLM reached 46 %, Llama 3 38 to 43 %; below 15 % a rule of thumb",
    },
    needs: &[metric::MFU],
    judge,
};

/// A share of the data sheet's FLOP/s.
const LOW: f64 = 0.15;
/// Smaller models have matmuls that fill no GPU.
const LARGE: u64 = 100_000_000;
/// The start and compilation do not count as training.
const YOUNG: u64 = 50;

fn judge(view: &View<'_>) -> Option<Finding> {
    let share = view.typical(metric::MFU).filter(|x| *x < LOW)?;
    let head = view.state.head.as_ref()?;
    if view.state.step < YOUNG || head.n_params < LARGE || !is_on_gpus(view) {
        return None;
    }
    // What it waits for has a rule of its own.
    if view.typical(metric::DATA_WAIT).is_some_and(|x| x > 0.2) {
        return None;
    }
    let text = format!("{:.1} % of the GPUs' FLOP/s", 100.0 * share);
    Some(Finding::warn(
        Signal::of(metric::MFU, share, text).at(view.state.step),
        "short rows, small batches, padding or other ranks keep the GPUs from their matmuls",
        format!("pack rows and fill them; {}", idle_gpu::fix(view)),
    ))
}

/// Runs on processors have a share of what those reach, which is high. Other programs log it on GPUs only.
fn is_on_gpus(view: &View<'_>) -> bool {
    let own = view.typical(metric::machine::FIRST_GPU_OWN_MEMORY);
    let on_ranks = || {
        view.state
            .series
            .keys()
            .any(|id| id.starts_with(metric::ranks::PREFIX))
    };
    view.state.is_foreign() || own.is_some_and(|x| x > 0.0) || on_ranks()
}
