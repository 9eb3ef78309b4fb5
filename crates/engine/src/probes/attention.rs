//! How peaked attention is: entropy of sampled rows, their largest scores, and the weight on the first key.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::kernels::attention;
use crate::metrics::estimators::entropy;
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use crate::nn::tap::AttentionInputs;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "attention",
    metrics: &[ENTROPY, SPREAD, LARGEST, SINK],
    cadence: Cadence::Usual,
    inputs: &[ProbeInput::Activations],
    cost: "16 query rows of each head of one sequence",
    make: |setup| Some(Box::new(Attention::of(setup))),
};

const ENTROPY: Metric = metric(
    id::ATTENTION_ENTROPY,
    "Attention entropy by layer",
    "share",
    Direction::Neutral,
    Repeatable::Yes,
    "entropy of attention rows over ln of their keys, mean over heads and sampled rows (Zhai et al. 2023, arXiv 2303.06296)",
)
.label("attention entropy")
.per_layer()
.estimator("rows_16")
.band(0.05, 0.97, Origin::RuleOfThumb)
.meaning(
    "0.2 to 0.9. Starts near 1, as untrained heads attend uniformly. Attention sinks on the first key lower it harmlessly: see the sink's share. There is no published band.",
    "Below 0.05 with scores above 100: attention has collapsed; QK-norm, z-loss, a lower learning rate. Above 0.97 after a tenth of the run: heads do not learn.",
);

const SPREAD: Metric = metric(
    "attn_entropy_std/layer",
    "Spread of attention entropy by layer",
    "share",
    Direction::Neutral,
    Repeatable::Yes,
    "population standard deviation over heads of their mean relative entropy",
)
.label("entropy spread")
.per_layer()
.estimator("rows_16")
.meaning(
    "Above 0.03 once heads have specialized.",
    "0 long after the warm-up: heads are copies of each other, or are split wrongly.",
);

const LARGEST: Metric = metric(
    id::ATTENTION_LARGEST,
    "Largest attention score by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "largest score before the softmax over the sampled rows",
)
.label("largest score")
.per_layer()
.estimator("rows_16")
.band(f64::NEG_INFINITY, 100.0, Origin::Literature)
.meaning(
    "Below 50. Kimi K2 clips query and key weights from 100 on (arXiv 2507.20534).",
    "Rising with the gradient norm: the softmax saturates; QK-norm (model.qk_norm), a lower learning rate.",
);

const SINK: Metric = metric(
    "attn_sink/layer",
    "Attention to the first key by layer",
    "share",
    Direction::Neutral,
    Repeatable::Yes,
    "mean weight of the first visible key over heads and sampled rows (Xiao et al. 2023, arXiv 2309.17453)",
)
.label("attention sink")
.per_layer()
.estimator("rows_16")
.meaning(
    "Rises to 0.3 and more in middle blocks of trained models: heads use it as an attention sink.",
    "No action needed: it explains a low entropy.",
);

/// Query rows of each head.
const ROWS: usize = 16;
/// Rows with fewer keys have no shape yet, where sequences are long enough.
const FIRST: usize = 16;

struct Attention {
    /// Relative entropy, its spread over heads, largest score and sink of each block.
    found: Vec<[f64; 4]>,
    scores: Vec<f32>,
}

impl Attention {
    fn of(setup: &Setup<'_>) -> Attention {
        Attention {
            found: vec![[f64::NAN; 4]; setup.n_layer],
            scores: Vec::new(),
        }
    }
}

/// Positions of the rows to look at, spread over a sequence of `len`.
fn rows(len: usize) -> Vec<usize> {
    let first = FIRST.min(len / 2).max(1);
    let n = ROWS.min(len.saturating_sub(first));
    let at = |i: usize| first + i * (len - 1 - first) / (n - 1).max(1);
    (0..n).map(at).collect()
}

impl Probe for Attention {
    fn attention(&mut self, seen: &AttentionInputs<'_>) {
        let heads = seen.sizes.heads.n_head;
        let rows = rows(seen.first_row);
        let (mut largest, mut sink, mut n) = (f64::NEG_INFINITY, 0.0, 0.0);
        let mut entropies = Vec::with_capacity(heads);
        for head in 0..heads {
            let (mut sum, mut counted) = (0.0, 0.0);
            for &t in &rows {
                attention::scores_of(seen.sizes, seen.qkv, (0, t, head), &mut self.scores);
                let Some(row) = entropy::of_scores(&self.scores) else { continue };
                largest = largest.max(row.largest);
                // A row of one key attends to it whatever the head does.
                if let Some(relative) = row.relative {
                    sum += relative;
                    sink += row.first;
                    counted += 1.0;
                }
            }
            n += counted;
            if counted > 0.0 {
                entropies.push(sum / counted);
            }
        }
        let mean = entropies.iter().sum::<f64>() / entropies.len() as f64;
        let squares = entropies.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let spread = (squares / entropies.len() as f64).sqrt();
        if let Some(found) = self.found.get_mut(seen.layer) {
            *found = [mean, spread, largest, sink / n];
        }
    }

    fn report(&mut self, into: &mut Report) {
        let metrics = [&ENTROPY, &SPREAD, &LARGEST, &SINK];
        for (i, metric) in metrics.into_iter().enumerate() {
            into.set_layers(metric.id, self.found.iter().map(|found| found[i]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_spread_over_sequences_of_any_length() {
        assert_eq!(rows(1), [0; 0]);
        assert_eq!(rows(2), [1]);
        let long = rows(1024);
        assert_eq!((long.len(), long[0], long[15]), (16, 16, 1023));
        assert!((2..200).all(|len| rows(len).iter().all(|t| *t < len)));
    }
}
