//! Samples of a fine-tuned model that repeat themselves instead of ending.

use super::metric;
use crate::base::finding::{Finding, Signal};
use crate::base::human::{grouped, percent};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::state::Sample;
use std::collections::HashSet;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "looping_samples",
        title: "samples",
        summary: "Of weights that were trained already, the samples at two steps in a row do not all repeat half of their 3-grams of words.",
        source: "Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751; the share is a rule of thumb",
    },
    needs: &[metric::TRAIN_LOSS],
    judge,
};

/// Share of a sample's 3-grams that stood in it before.
const MANY: f64 = 0.5;
/// Shorter samples have ended.
const WORDS: usize = 40;

fn judge(view: &View<'_>) -> Option<Finding> {
    if view.from_scratch() || view.has_rollouts() || view.state.is_foreign() {
        return None;
    }
    let samples = &view.state.samples;
    let newest = samples.back()?.step;
    let before = samples.iter().rev().find(|s| s.step < newest)?.step;
    let shares: Vec<f64> = samples
        .iter()
        .filter(|s| s.step == newest || s.step == before)
        .map(repeated)
        .collect();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    if least < MANY {
        return None;
    }
    let [first, last] = [before, newest].map(grouped);
    let text = format!(
        "at least {} of the 3-grams of each sample at steps {first} and {last} are repeats",
        percent(least, 0)
    );
    Some(Finding::warn(
        Signal::of(metric::TRAIN_LOSS, least, text).at(newest),
        "answers loop and do not end: the end of an answer is not learned, the model has overfitted, or weights were damaged by a rate too high",
        "see that answers end with a supervised token« (`llmtui preflight`, answers_end)|» and that the template is the model's own; fewer epochs or a lower learning rate; in chat a repetition penalty",
    ))
}

/// The share of 3-grams of words that stood in the sample before; 0 of a short one.
fn repeated(sample: &Sample) -> f64 {
    let words: Vec<&str> = sample.text.split_whitespace().collect();
    if words.len() < WORDS {
        return 0.0;
    }
    let mut seen = HashSet::new();
    let again = words.windows(3).filter(|three| !seen.insert(*three));
    again.count() as f64 / (words.len() - 2) as f64
}
