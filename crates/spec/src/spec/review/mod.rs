//! Valid settings that are probably mistakes: checked before the start, alone and against the sizes of model and data. One
//! file per subject and one word in the list below; each finding names a change (`-s key=value`) and its source. Plans,
//! preflight, the wizard and `llmtui train` show them.

use super::RunSpec;
use crate::base::finding::Finding;
use crate::data::Unit;
use crate::data::formats::FormatId;
use crate::nn::param_infos;

/// What is known of the run besides its spec. A plan for another machine says nothing of this one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sizes {
    /// Tokens that a step reads, padding and all sequences of its examples included.
    pub step_tokens: Option<u64>,
    /// The same of one pass over the training data.
    pub pass_tokens: Option<u64>,
    /// Whether rows end in padding, which those tokens count.
    pub padded: bool,
    /// Tokens of the validation split that its loss is over: the supervised ones.
    pub val_tokens: Option<u64>,
    /// The share of the data's tokens that is held out of them.
    pub held_out: Option<f64>,
    /// Prompts that are held out, and all of them, where the model answers prompts.
    pub val_prompts: Option<(u64, u64)>,
    /// Desirable and undesirable answers of the training data, where answers are judged one by one.
    pub labels: Option<(u64, u64)>,
    /// Training prompts after which a completion of `rollout.max_new_tokens` does not fit into the row, and all of them.
    pub long_prompts: Option<(u64, u64)>,
    /// The format of rows whose prompts are texts, which are continued: the data's chat template, that of the start model, does
    /// not write them.
    pub plain_prompts: Option<FormatId>,
    /// How many processes share the rows of a micro-batch, where that is known.
    pub ranks: Option<u64>,
    /// Whether it trains on this machine, whose arithmetic is known then.
    pub here: bool,
}

/// A spec under review.
struct Subject<'a> {
    spec: &'a RunSpec,
    sizes: Sizes,
    /// Parameters of the blocks, which do not depend on a vocabulary.
    n_params: f64,
}

impl Subject<'_> {
    /// Weights that begin at random.
    fn begins_at_random(&self) -> bool {
        self.spec.train.from.is_none()
    }

    /// A model whose size says that rates of the literature hold for it.
    fn is_a_language_model(&self) -> bool {
        self.n_params > 2e7
    }

    /// All weights of a trained model, that of the literature's rates.
    fn tunes_all(&self) -> bool {
        !self.begins_at_random() && self.spec.adapter.is_none() && self.is_a_language_model()
    }

    fn learns_preferences(&self) -> bool {
        learns_preferences(self.spec)
    }

    /// The fewest rows of a micro-batch: a judged answer is compared with the others.
    fn least_rows(&self) -> usize {
        match self.spec.method.needs().unit {
            Unit::Judged => 2,
            _ => 1,
        }
    }

    /// The fewest micro-batches of a step: more than the last stage of a batch ramp takes.
    fn least_accum(&self) -> usize {
        let stages = &self.spec.train.batch_ramp;
        stages.last().map_or(1, |stage| stage.grad_accum_steps + 1)
    }

    /// The key of a setting of the optimizer, as after `-s`.
    fn of_optimizer(&self, key: &str) -> String {
        format!("optimizer.{}.{key}", self.spec.optimizer.entry().id)
    }
}

fn learns_preferences(spec: &RunSpec) -> bool {
    matches!(spec.method.needs().unit, Unit::Pair | Unit::Judged)
}

/// What is said of one setting.
fn poor(place: &str, what: String, fix: String, source: &str) -> Finding {
    Finding {
        source: source.into(),
        ..Finding::warn(what, "", fix)
            .named("setting", place)
            .at(place)
    }
}

macro_rules! subjects {
    ($($subject:ident)+) => {
        $(mod $subject;)+

        /// Every subject, in the order in which they are reported.
        const SUBJECTS: &[fn(&Subject<'_>) -> Vec<Finding>] = &[$($subject::review),+];
    };
}

subjects! { context rate floor warmup batch updates moments decay dropout adapter labels passes held_out patience best template cold_start moving_reference room truncation precision smoothing sharing others }

pub use adapter::HIGH_RANK;
pub use passes::{FEWEST_STEPS, FEWEST_TUNING_STEPS, GOOD_PASSES, less_often, repeated};
pub use rate::{LARGE_MODEL, usual as usual_rate};
pub use sharing::uneven_rows;
pub use template::{cut_marks, named_template, other_template};
pub use updates::FEWEST as FEWEST_UPDATES;

/// All that is to be said, in the order of the subjects.
pub fn review(spec: &RunSpec, sizes: Sizes) -> Vec<Finding> {
    let infos = param_infos(&spec.model, 0);
    let n_params: usize = infos.iter().map(|info| info.len).sum();
    let subject = Subject {
        spec,
        sizes,
        n_params: n_params as f64,
    };
    SUBJECTS.iter().flat_map(|look| look(&subject)).collect()
}

/// A number for a setting, to one digit: `6e-4`.
fn one_digit(x: f64) -> String {
    format!("{x:.0e}")
}

#[cfg(test)]
mod tests;
