//! The number of epochs.

use super::{Subject, learns_preferences, poor};
use crate::base::finding::Finding;
use crate::base::human::{few, short};
use crate::base::text::one_line;
use crate::data::Mix;
use crate::spec::RunSpec;

/// Passes over the same text that are nearly as good as new text (Muennighoff et al. 2023).
pub const GOOD_PASSES: f64 = 4.0;
const GOOD_PASSES_OF_PAIRS: f64 = 2.0;
/// Passes after which new text is worth more, and of pairs, which are memorized sooner.
const MOST: f64 = 4.5;
const MOST_OF_PAIRS: f64 = 3.5;

/// Fewest steps worth running, from scratch and from a model: with fewer it is the data that are too few.
pub const FEWEST_STEPS: u64 = 100;
pub const FEWEST_TUNING_STEPS: u64 = 20;

/// What helps against passes too many: `more data, or -s max_steps=400`, which is reported where so few steps are a training.
pub fn less_often(steps: u64, from_scratch: bool) -> String {
    let fewest = match from_scratch {
        true => FEWEST_STEPS,
        false => FEWEST_TUNING_STEPS,
    };
    match steps < fewest {
        true => "more data".into(),
        false => format!("more data, or -s max_steps={steps}"),
    }
}

/// Passes over the training data, where their sizes are known. Answers of a policy's own are new each time.
pub(super) fn passes(subject: &Subject<'_>) -> Option<f64> {
    let pass = subject.sizes.pass_tokens.filter(|n| *n > 0)?;
    if subject.spec.method.on_policy().is_some() {
        return None;
    }
    // Steps of a batch ramp read less than later ones do.
    let train = &subject.spec.train;
    let micro_step = subject.sizes.step_tokens? as f64 / train.grad_accum_steps as f64;
    Some(micro_step * train.micro_steps(train.max_steps) as f64 / pass as f64)
}

/// Passes that are nearly as good as new data.
pub(super) fn good_passes(subject: &Subject<'_>) -> f64 {
    match subject.learns_preferences() {
        true => GOOD_PASSES_OF_PAIRS,
        false => GOOD_PASSES,
    }
}

/// Sources of a mix, by name with their epochs over the run, that are read far more often than new text is worth less; the
/// `overall` number says nothing of them.
pub fn repeated<'a>(
    spec: &RunSpec,
    overall: f64,
    sources: impl ExactSizeIterator<Item = (&'a str, f64)>,
) -> Vec<Finding> {
    if sources.len() < 2 || spec.method.on_policy().is_some() {
        return Vec::new();
    }
    let (most, paper) = most(learns_preferences(spec));
    let told = sources.filter(|(_, epochs)| *epochs > most && *epochs > 1.5 * overall);
    let other = match spec.data.mix {
        Mix::Share if spec.data.curriculum.is_empty() => ", or -s data.mix=concatenate",
        _ => "",
    };
    told.map(|(name, epochs)| {
        poor(
            "data.sources",
            format!(
                "{} is repeated for {epochs:.1} epochs, the data overall for {overall:.1}",
                one_line(name)
            ),
            format!("lower this source's weight, or add rows to it{other}"),
            paper,
        )
        .named("repeated_data", "data epochs")
    })
    .collect()
}

/// Passes after which new data are worth more, and the source.
fn most(preferences: bool) -> (f64, &'static str) {
    match preferences {
        true => (
            MOST_OF_PAIRS,
            "one to three passes: Tunstall et al. 2023, arXiv 2310.16944",
        ),
        false => (MOST, "Muennighoff et al. 2023, arXiv 2305.16264"),
    }
}

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let sizes = subject.sizes;
    let (Some(step), Some(pass), Some(passes)) =
        (sizes.step_tokens, sizes.pass_tokens, passes(subject))
    else {
        return Vec::new();
    };
    let train = &subject.spec.train;
    let micro_step = step as f64 / train.grad_accum_steps as f64;
    let good = good_passes(subject);
    let (most, source) = most(subject.learns_preferences());
    if passes <= most {
        return Vec::new();
    }
    let steps = train.steps_within((good * pass as f64 / micro_step) as u64);
    let accum = train.grad_accum_steps;
    // Fewer steps are no way where one of them reads the data several times.
    let least = subject.least_accum();
    let fix = match step as f64 > good * pass as f64 && accum > least {
        true => {
            let fits = (accum as f64 * pass as f64 / step as f64).floor() as usize;
            let fits = fits.max(least);
            format!("more data, or smaller batches: -s train.grad_accum_steps={fits}")
        }
        false => less_often(steps, subject.begins_at_random()),
    };
    let finding = poor(
        "train",
        format!(
            "{} epochs over the same {} tokens{}: up to {good:.0} are nearly as good as new text, later ones add little",
            few(passes),
            short(pass as f64),
            if sizes.padded { ", padding included" } else { "" }
        ),
        fix,
        source,
    );
    vec![finding.named("repeated_data", "data epochs")]
}
