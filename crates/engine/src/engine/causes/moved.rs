//! Whether every block has changed since the first step: one that has not is frozen, or gets no gradient.

use super::{Cause, Subject};
use crate::base::finding::Finding;
use crate::engine::EngineError;
use crate::engine::revisit::Weights;
use crate::nn::Params;
use std::collections::BTreeMap;

pub const CAUSE: Cause = Cause {
    id: "moved",
    title: "moved blocks",
    run,
};

/// Below this share of the other blocks' median a block counts as unchanged.
const STILL: f64 = 0.02;

/// Sums of squares of a part: how far it went, and how large it was; of those that train.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Way {
    moved: f64,
    size: f64,
}

/// By block; `None` holds what belongs to no block.
type Ways = BTreeMap<Option<u32>, Way>;

fn run(subject: &Subject<'_>) -> Result<Finding, EngineError> {
    if let Some(why) = subject.revisit.without_losses() {
        return Ok(Finding::not_applicable(why));
    }
    let Some(newest) = subject.newest()? else {
        return Ok(Finding::unknown(
            "no checkpoint was saved yet",
            "run it again after the first one",
        ));
    };
    let begun = subject.revisit.weights(None)?;
    let now = subject.revisit.weights(Some(newest))?;
    Ok(judge(&ways(&begun, &now)?, newest.step))
}

fn ways(begun: &Weights, now: &Weights) -> Result<Ways, EngineError> {
    let (before, after) = (begun.params(), now.params());
    let found = before.read_held(|was| after.read_held(|is| sums(before, was, is)));
    Ok(found??)
}

fn sums(params: &Params, was: &[f32], is: &[f32]) -> Ways {
    let mut ways = Ways::new();
    let first = params.first_held();
    for info in params.trainable() {
        let Some(begin) = info.offset.checked_sub(first) else {
            continue;
        };
        let way = ways.entry(info.layer).or_default();
        let pairs = was[begin..begin + info.len]
            .iter()
            .zip(&is[begin..begin + info.len]);
        for (a, b) in pairs {
            let (a, b) = (f64::from(*a), f64::from(*b));
            way.moved += (b - a).powi(2);
            way.size += b.powi(2);
        }
    }
    ways
}

fn judge(ways: &Ways, step: u64) -> Finding {
    let relative = |way: &Way| match way.size > 0.0 {
        true => (way.moved / way.size).sqrt(),
        false => 0.0,
    };
    let blocks: Vec<(u32, f64)> = ways
        .iter()
        .filter_map(|(layer, way)| Some(((*layer)?, relative(way))))
        .collect();
    if blocks.is_empty() {
        return Finding::not_applicable("no block trains");
    }
    let mut sorted: Vec<f64> = blocks.iter().map(|(_, x)| *x).collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let apart = ways.get(&None).map_or(0.0, relative);
    let still: Vec<&(u32, f64)> = blocks
        .iter()
        .filter(|(_, x)| *x == 0.0 || *x < STILL * median)
        .collect();
    let evidence = format!(
        "after step {step} blocks have moved by {:.2e} to {:.2e} of their weights, embeddings and head by {apart:.2e}",
        sorted[0],
        sorted[sorted.len() - 1]
    );
    let cause = "they are frozen, or no gradient reaches them";
    let fix = "check which parameters train (llmtui model show), learning-rate groups, residual scaling; llmtui inspect shows their weights";
    if still.is_empty() {
        return Finding::pass(evidence);
    }
    let names: Vec<String> = still.iter().map(|(block, _)| block.to_string()).collect();
    let evidence = format!("{evidence}; not moving: block {}", names.join(", "));
    match still.len() == blocks.len() {
        true => Finding::fail(evidence, cause, fix),
        false => Finding::warn(evidence, cause, fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn blocks_that_stand_still_are_named() {
        let way = |moved: f64| Way { moved, size: 100.0 };
        let ways = |moved: [f64; 3]| -> Ways {
            let blocks = (0..)
                .zip(moved)
                .map(|(block, moved)| (Some(block), way(moved)));
            blocks.chain([(None, way(4.0))]).collect()
        };
        let healthy = judge(&ways([1.0, 1.2, 0.8]), 100);
        assert_eq!(healthy.status, Status::Pass);
        // √(4/100)
        assert!(
            healthy.evidence.to_string().contains("head by 2.00e-1"),
            "{}",
            healthy.evidence
        );
        let one = judge(&ways([1.0, 0.0, 0.8]), 100);
        assert_eq!(one.status, Status::Warn);
        assert!(
            one.evidence.to_string().ends_with("block 1"),
            "{}",
            one.evidence
        );
        assert_eq!(judge(&ways([0.0; 3]), 100).status, Status::Fail);
    }
}
