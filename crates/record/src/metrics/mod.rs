//! The metrics of the engine: name, definition and source of each. A value is computed where its inputs are (engine,
//! methods); its interpretation is in the guide.

pub mod estimators;
pub mod ranks;
mod readings;
pub mod texts;

pub use readings::Readings;

pub use crate::wire::{Band, Direction, Origin, id};
use crate::wire::{ChartPlace, MetricInfo};

/// Whether the same seed gives the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeatable {
    Yes,
    /// A time or a machine reading: differs between runs.
    No,
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub id: &'static str,
    pub title: &'static str,
    /// `nats`, `1/s`, `bytes` … or empty.
    pub unit: &'static str,
    pub direction: Direction,
    pub repeatable: Repeatable,
    /// Where the definition comes from.
    pub source: &'static str,
    /// A shorter title for its chart; empty: the title.
    pub label: &'static str,
    /// It is set, not measured: charts draw no average.
    pub exact: bool,
    pub place: ChartPlace,
    /// A list with one value per block; its id ends in `/layer`.
    pub per_layer: bool,
    /// Which of several estimators it is; bands apply only to it.
    pub estimator: &'static str,
    pub band: Option<Band>,
    /// What is normal, and why; empty if the definition says everything.
    pub normal: &'static str,
    /// What to do otherwise.
    pub advice: &'static str,
}

impl Metric {
    pub const fn label(self, label: &'static str) -> Metric {
        Metric { label, ..self }
    }

    /// Shown as text with other readings, without a chart.
    const fn nowhere(self) -> Metric {
        Metric {
            place: ChartPlace::Nowhere,
            ..self
        }
    }

    const fn exact(self) -> Metric {
        Metric {
            exact: true,
            ..self
        }
    }

    /// A probe's reading: on the health pane.
    pub const fn health(self) -> Metric {
        Metric {
            place: ChartPlace::Health,
            ..self
        }
    }

    /// A probe's reading with a value per block.
    pub const fn per_layer(self) -> Metric {
        Metric {
            per_layer: true,
            ..self.health()
        }
    }

    pub const fn estimator(self, estimator: &'static str) -> Metric {
        Metric { estimator, ..self }
    }

    /// The expected range after the warm-up; infinite ends are open.
    pub const fn band(self, low: f64, high: f64, origin: Origin) -> Metric {
        let low = if low.is_finite() { Some(low) } else { None };
        let high = if high.is_finite() { Some(high) } else { None };
        Metric {
            band: Some(Band { low, high, origin }),
            ..self
        }
    }

    /// What is normal and why, and what to do otherwise.
    pub const fn meaning(self, normal: &'static str, advice: &'static str) -> Metric {
        Metric {
            normal,
            advice,
            ..self
        }
    }

    /// What to do about a value outside of the band; `None` within it, or if there is none.
    pub fn judge(&self, value: f64) -> Option<&'static str> {
        let band = self.band?;
        let low = band.low.is_some_and(|low| value < low);
        let high = band.high.is_some_and(|high| value > high);
        (low || high).then_some(self.advice)
    }
}

pub const fn metric(
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    direction: Direction,
    repeatable: Repeatable,
    source: &'static str,
) -> Metric {
    Metric {
        id,
        title,
        unit,
        direction,
        repeatable,
        source,
        label: "",
        exact: false,
        place: ChartPlace::Dashboard,
        per_layer: false,
        estimator: "",
        band: None,
        normal: "",
        advice: "",
    }
}

use Direction::{Higher, Lower, Neutral};
use Repeatable::{No, Yes};

/// For supervised methods; evaluations measure it too.
pub const TOKEN_ACCURACY: Metric = metric(
    id::TOKEN_ACCURACY,
    "Token accuracy",
    "share",
    Higher,
    Yes,
    "share of supervised tokens that the model ranked first (TRL's mean_token_accuracy)",
);

/// Every built-in reading of training, in display order. One row each; machine readings are
/// in `hardware`, those of a method in its file.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    metric(id::TRAIN_LOSS, "Training loss", "nats", Lower, Yes, "mean negative log-likelihood of the step's target tokens").label("loss"),
    metric(id::VAL_LOSS, "Validation loss", "nats", Lower, Yes, "mean negative log-likelihood of held-out tokens"),
    metric(id::GRAD_NORM, "Gradient norm", "", Neutral, Yes, "global L2 norm before clipping (Pascanu et al. 2013, arXiv 1211.5063)").label("grad norm").estimator("l2_global")
        .meaning("Falls fast in the warm-up, then drifts slowly, in pretraining mostly within 0.1 to 1. Its value depends on the model and the loss normalization.", "Slow growth over a twentieth of the run: growing instability, lower the learning rate. Near 0 with a high loss: nothing trains, or every target is masked."),
    metric(id::ENTROPY, "Token entropy", "nats", Neutral, Yes, "mean entropy of the predicted token distributions").label("token entropy").estimator("mean_exact")
        .meaning("Starts at ln V and follows the loss: in a calibrated model both agree. Loss far above entropy: over-confident.", "In RL a drop by half within 50 steps is entropy collapse: raise the temperature, clip higher, use new prompts. Low entropy with high gradients: confident and wrong, inspect the data."),
    metric(id::TOK_PER_SEC, "Tokens per second", "1/s", Higher, No, "target tokens over wall time of the steps, without evaluations; the number shown is the mean over the newest 32 readings, times the step time the tokens of a step").label("tokens/s"),
    metric(id::LR, "Learning rate", "", Neutral, Yes, "schedule at this step, live changes included").label("learning rate").exact(),
    metric(id::EPOCHS, "Epochs", "", Neutral, Yes, "passes over the training split so far (for RL methods over the prompts): `epoch` of transformers' logs").exact().nowhere(),
    metric(id::STEP_MS, "Step time", "ms", Lower, No, "wall time of one optimizer step; the number shown is the mean over the newest 32 readings").label("step time"),
    metric(id::MFU, "Model FLOPs utilization", "share", Higher, No, "tokens/s × FLOPs of a token over the FLOP/s of the devices (PaLM, appendix B): of GPUs their data sheets', of a processor what its kernels reach from registers, measured at the start; nothing of padding and recomputation").label("MFU")
        .meaning("On GPUs 30 to 50 %; on a processor up to 80 %, with AMX less. Small models and short rows have less.", "Low: small matmuls or waiting. Raise the micro-batch, pack rows; see the data wait and, on ranks, their communication."),
    metric(id::VAL_PPL, "Validation perplexity", "", Lower, Yes, "exp(validation loss)").label("validation perplexity"),
    metric(id::VAL_BPB, "Validation bits per byte", "bits", Lower, Yes, "loss / ln 2 × tokens per byte: comparable between tokenizers").label("validation bits/byte"),
    metric(id::DATA_WAIT, "Waiting for data", "share", Lower, No, "share of the step spent waiting for batches").label("waiting for data"),
    metric(id::REFERENCE_SHARE, "Reference model", "share", Lower, No, "share of the step spent on the frozen reference's log-probabilities; method.*.reference: precomputed computes them once").label("reference model"),
    metric(id::CLIPPED, "Gradient clipped", "share", Neutral, Yes, "1 where the gradient norm exceeded clip_norm, else 0").label("clipped steps").estimator("norm_above_clip")
        .band(f64::NEG_INFINITY, 0.3, Origin::RuleOfThumb)
        .meaning("Up to 30 % of the newest steps; small models more. It is a warning only if the typical norm is 10 times clip_norm, too (rule clip_tight).", "Clipping then acts as the learning rate: lower lr, or raise train.clip_norm."),
    TOKEN_ACCURACY,
    metric(id::EXPERT_LOAD, "Busiest expert", "× mean", Lower, Yes, "tokens of the busiest expert over the mean, averaged over blocks, padding left out: 1 if balanced"),
    metric(id::EXPERT_ENTROPY, "Expert entropy", "share", Higher, Yes, "entropy of the token distribution over experts relative to uniform, averaged over blocks"),
    metric(id::AUX_LOSS, "Balancing loss", "", Lower, Yes, "E · Σ f P over the tokens of a step, padding left out, before its coefficient, averaged over blocks (Fedus et al. 2021): top_k if balanced; not in the training loss shown"),
    metric(id::Z_LOSS, "Router z-loss", "", Lower, Yes, "mean squared log-sum-exp of router logits before its coefficient (Zoph et al. 2022); not in the training loss shown"),
    metric(id::UPDATE_RATIO, "Update to weight ratio", "", Neutral, Yes, "norm of a step's change over the norm of the weights, median over matrices (Karpathy, CS231n: about 1e-3)").label("update ratio").estimator("median_l2_ratio")
        .band(f64::NEG_INFINITY, 1e-2, Origin::RuleOfThumb)
        .meaning("3e-4 to 3e-3 in pretraining with AdamW; 1e-5 to 1e-4 when a model is fine-tuned at 5e-6, less in preference training, where a low value is normal.", "Above 1e-2: the learning rate is too high or the warm-up too short. Below 1e-5 in pretraining: too low, or frozen."),
    metric(id::UNCLIPPED, "Unclipped elements", "share", Neutral, Yes, "share of elements whose update Sophia did not clip to the learning rate (Liu et al. 2023, arXiv 2305.14342)").label("unclipped").estimator("share_unclipped")
        .band(0.1, 0.5, Origin::Literature)
        .meaning("10 to 50 % after the warm-up; in the first steps, before the curvature is known, fewer.", "Below: updates are signs, as Lion's; raise optimizer.sophia.rho. Above: hardly anything is clipped; lower rho."),
    metric(id::VAL_TOKEN_ACCURACY, "Validation token accuracy", "share", Higher, Yes, "share of supervised held-out tokens that the model ranked first"),
];

impl Metric {
    /// Its declaration on the wire.
    pub fn info(&self) -> MetricInfo {
        MetricInfo {
            id: self.id.into(),
            title: self.title.into(),
            unit: self.unit.into(),
            direction: self.direction,
            source: self.source.into(),
            label: self.label.into(),
            exact: self.exact,
            place: self.place,
            per_layer: self.per_layer,
            estimator: self.estimator.into(),
            band: self.band,
            normal: self.normal.into(),
            advice: self.advice.into(),
        }
    }

    /// The same measured on held-out data.
    pub fn validation_info(&self) -> MetricInfo {
        let info = self.info();
        MetricInfo {
            id: validation_id(self.id),
            title: format!("Validation: {}", info.title.to_lowercase()),
            label: match info.label.is_empty() {
                true => String::new(),
                false => format!("validation: {}", info.label),
            },
            source: format!("{}, on held-out data", info.source),
            ..info
        }
    }
}

/// The id of a reading measured on held-out data.
pub fn validation_id(id: &str) -> String {
    format!("val/{id}")
}

/// The declarations sent before the first value.
pub fn declarations() -> Vec<MetricInfo> {
    METRICS.iter().map(Metric::info).collect()
}

/// The row of one id.
pub fn find(id: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|m| m.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_row_is_filled() {
        let mut ids: Vec<&str> = METRICS.iter().map(|m| m.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), METRICS.len());
        assert!(
            METRICS
                .iter()
                .all(|m| !m.title.is_empty() && !m.source.is_empty())
        );
    }

    #[test]
    fn losses_repeat_and_times_do_not() {
        assert_eq!(
            find(id::TRAIN_LOSS).map(|m| m.repeatable),
            Some(Repeatable::Yes)
        );
        assert_eq!(
            find(id::STEP_MS).map(|m| m.repeatable),
            Some(Repeatable::No)
        );
        assert!(find("levitation").is_none());
    }
}
