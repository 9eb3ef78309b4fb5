//! A GPU that is idle for lack of work.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "idle_gpu",
        title: "GPU in use",
        summary: "The run's GPU is utilized above 50 % in most samples.",
        source: "utilization as NVML counts it: the share of time in which any kernel runs; half is a rule of thumb",
    },
    needs: &[
        metric::machine::FIRST_GPU_UTIL,
        metric::machine::FIRST_GPU_OWN_MEMORY,
    ],
    judge,
};

/// Percent of the time.
const BUSY: f64 = 50.0;
/// The start and compilation do not count as training.
const YOUNG: u64 = 50;

fn judge(view: &View<'_>) -> Option<Finding> {
    // Without memory of the run on the GPU, the CPU trains.
    view.typical(metric::machine::FIRST_GPU_OWN_MEMORY)
        .filter(|x| *x > 0.0)?;
    let busy = view
        .typical(metric::machine::FIRST_GPU_UTIL)
        .filter(|x| *x < BUSY)?;
    if view.state.step < YOUNG || view.typical(metric::DATA_WAIT).is_some_and(|x| x > 0.2) {
        return None;
    }
    let text = format!("busy {busy:.0} % of the time");
    Some(Finding::warn(
        Signal::of(metric::machine::FIRST_GPU_UTIL, busy, text).at(view.state.step),
        "small batches are launch-bound, or samples and checkpoints take the time",
        fix(view),
    ))
}

/// Settings that make kernels larger, or fewer, without changing the batch per step.
pub(super) fn fix(view: &View<'_>) -> String {
    if view.state.series.contains_key(metric::REWARD) {
        return "more completions at once: raise rollout.side_by_side".into();
    }
    let spec = view.state.head.as_ref().map(|head| &head.spec);
    let train = |key: &str| spec.and_then(|spec| spec["train"][key].as_u64());
    let mut ways = Vec::new();
    if let (Some(rows), Some(times @ 2..)) = (train("micro_batch_size"), train("grad_accum_steps"))
    {
        let by = if times % 2 == 0 { 2 } else { times };
        let (rows, times) = (rows * by, times / by);
        ways.push(format!(
            "the same batch in larger micro-batches: -s micro_batch_size={rows} -s grad_accum_steps={times}"
        ));
    }
    if spec.is_some_and(|spec| spec["engine"]["torch"]["compile"] == false) {
        ways.push("-s engine.torch.compile=true".into());
    }
    ways.push("less frequent samples and checkpoints (sample.every, checkpoint.every)".into());
    ways.join("; ")
}
