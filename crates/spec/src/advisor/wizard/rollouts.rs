//! What data make of a recipe whose model learns from its own answers: steps for few prompts, room for completions.

use super::recommended::{Recommended, rec, round_steps};
use crate::advisor::inspection::DataFacts;
use crate::base::human;
use crate::spec::{FEWEST_TUNING_STEPS, RolloutLength, RunSpec};

/// Passes over few prompts with answers of the model's own, beyond which they are mostly solved or never will be: a rule of thumb.
const ROLLOUT_PASSES: f64 = 20.0;

/// Shorter completions where those of the preset do not fit behind prompts of `row` tokens.
pub fn fit_completions(spec: &RunSpec, row: f64, seq_len: usize, list: &mut Vec<Recommended>) {
    if let Some(length) = spec.rollout_length()
        && row + length.max_new_tokens as f64 > seq_len as f64
    {
        // Prompts differ: the longest may be twice as long as most.
        let left = (seq_len as f64 - 2.0 * row).max(seq_len as f64 / 4.0);
        let why = format!(
            "the context is {seq_len} tokens, and prompts have about {row:.0}: {} do not fit",
            length.max_new_tokens
        );
        list.push(rec("rollout.max_new_tokens", format!("{left:.0}"), why));
    }
}

/// Steps of a run on the model's own answers over few prompts. The answers to one that comes again are new, so it may come often.
pub fn fewer_rollouts(spec: &RunSpec, facts: &DataFacts) -> Option<Recommended> {
    let length = spec.rollout_length()?;
    let share = 1.0 - spec.data.val_share().unwrap_or(0.0);
    let prompts = (facts.rows? as f64 * share).round().max(1.0) as u64;
    let passes = length.passes(prompts);
    let learned = round_steps((length.steps as f64 * ROLLOUT_PASSES / passes) as u64);
    let steps = learned.max(FEWEST_TUNING_STEPS) + length.cold_start_steps;
    (passes > ROLLOUT_PASSES && steps < spec.train.max_steps).then(|| {
        let fewer = RolloutLength {
            steps: steps - length.cold_start_steps,
            ..length
        };
        let why = format!(
            "about {} epochs of your {} prompts; the preset's {} would be {}",
            human::few(fewer.passes(prompts)),
            human::grouped(prompts),
            human::grouped(spec.train.max_steps),
            human::few(passes)
        );
        rec("train.max_steps", steps.to_string(), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::inspection;
    use crate::spec::{Draft, SpecSources};

    /// Thirty-nine prompts were trained on a hundred times, for a day and a half.
    #[test]
    fn steps_follow_the_number_of_prompts() {
        let spec = Draft::open("grpo-gsm8k", &SpecSources::default());
        let spec = spec.unwrap().spec().unwrap();
        let steps = |rows| {
            let facts = DataFacts {
                rows: Some(rows),
                ..inspection::corpus("tinyshakespeare").unwrap()
            };
            fewer_rollouts(&spec, &facts)
                .map(|found| (found.text.parse::<u64>().unwrap(), found.why))
        };
        let (few, why) = steps(39).unwrap();
        let length = spec.rollout_length().unwrap();
        let steps_of_own = few - length.cold_start_steps;
        let passes = RolloutLength {
            steps: steps_of_own,
            ..length
        }
        .passes(38);
        assert!(
            (15.0..=20.5).contains(&passes),
            "{few} steps, {passes} epochs"
        );
        assert!(why.contains("of your 38 prompts"), "{why}");
        assert_eq!(steps(7_000), None, "the preset's are right");
        assert_eq!(steps(1).unwrap().0, FEWEST_TUNING_STEPS);
    }
}
