//! Whether batches follow the order of the data: sorted text makes the loss follow its topics.

use super::{Cause, Subject};
use crate::base::finding::Finding;
use crate::base::human::grouped;
use crate::engine::EngineError;

pub const CAUSE: Cause = Cause {
    id: "order",
    title: "row order",
    run,
};

/// Steps whose batches are looked at, and the fewest that say something.
const STEPS: u64 = 256;
const ENOUGH: usize = 20;
/// Rank correlation of a row's place in its data with the step that read it. Shuffled: 1/√n around 0.
const WARN: f64 = 0.5;
const FAIL: f64 = 0.9;

fn run(subject: &Subject<'_>) -> Result<Finding, EngineError> {
    let size = subject.spec.train.micro_batch_size;
    let mut places = Vec::new();
    // Only the first pass over the data: each pass restarts.
    let tokens = subject.spec.batch_tokens().max(1);
    let pass = (subject.data.epoch_tokens() / tokens).max(1);
    let steps = subject.steps.min(pass);
    let n = steps.min(STEPS);
    for step in (0..n).map(|i| 1 + i * steps / n.max(1)) {
        let micro_step = subject.spec.train.micro_steps(step - 1);
        let batch = subject
            .data
            .train_batch(subject.spec.seed, micro_step, size);
        let of_windows = batch.starts.iter().map(|start| *start as f64);
        let of_documents = batch.origins.iter().map(|origin| origin.start as f64);
        let all: Vec<f64> = of_windows.chain(of_documents).collect();
        if !all.is_empty() {
            places.push(all.iter().sum::<f64>() / all.len() as f64);
        }
    }
    // Rows that are packed of several texts do not say where these stood.
    if places.is_empty() && n > 0 {
        return Ok(Finding::not_applicable(
            "rows are packed of several texts, whose places are not known",
        ));
    }
    Ok(judge(&places))
}

fn judge(places: &[f64]) -> Finding {
    if places.len() < ENOUGH {
        return Finding::unknown(
            format!(
                "{} steps within the first pass over the data are too few for a verdict",
                places.len()
            ),
            "ask again later",
        );
    }
    let rank = rank_correlation(places);
    let evidence = format!(
        "rank correlation of a row's place in the data with its step over {} steps of the first pass: {rank:+.2}; shuffled rows give 0 ± {:.2}",
        grouped(places.len() as u64),
        1.0 / (places.len() as f64).sqrt()
    );
    let cause = "rows are read in data order: neighbours are similar, and early data is forgotten";
    let fix = "data.order: shuffled; shuffle the files before training";
    match rank.abs() {
        r if r >= FAIL => Finding::fail(evidence, cause, fix),
        r if r >= WARN => Finding::warn(evidence, cause, fix),
        _ => Finding::pass(evidence),
    }
}

/// Spearman's correlation of the values with their index; ties share no rank, which is close enough for token offsets.
fn rank_correlation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let squares = order
        .iter()
        .enumerate()
        .map(|(rank, index)| (rank as f64 - *index as f64).powi(2));
    1.0 - 6.0 * squares.sum::<f64>() / (n * (n * n - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;
    use crate::base::rng::{Rng, Stream};

    #[test]
    fn sorted_places_fail_and_shuffled_ones_pass() {
        let sorted: Vec<f64> = (0..100).map(f64::from).collect();
        assert!((rank_correlation(&sorted) - 1.0).abs() < 1e-12);
        assert_eq!(judge(&sorted).status, Status::Fail);
        let backwards: Vec<f64> = sorted.iter().rev().copied().collect();
        assert!((rank_correlation(&backwards) + 1.0).abs() < 1e-12);
        let mut rng = Rng::new(7, Stream::Test, 0, 0);
        let shuffled: Vec<f64> = (0..100).map(|_| rng.below(1 << 20) as f64).collect();
        assert_eq!(judge(&shuffled).status, Status::Pass);
        assert_eq!(judge(&sorted[..5]).status, Status::Unknown);
        // numpy: scipy.stats.spearmanr([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]) is −0.3.
        assert!((rank_correlation(&[3.0, 1.0, 4.0, 0.0, 2.0]) + 0.3).abs() < 1e-12);
    }
}
