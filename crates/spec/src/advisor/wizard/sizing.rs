//! Tokenizer, context, batch and steps that suit the data.

use super::pass::Pass;
use super::recommended::{Recommended, rec, round_steps};
use super::rollouts::{fewer_rollouts, fit_completions};
use crate::advisor::choose::DataKind;
use crate::advisor::inspection::DataFacts;
use crate::base::human;
use crate::data::Unit;
use crate::spec::{Draft, FEWEST_STEPS, FEWEST_TUNING_STEPS, FEWEST_UPDATES, GOOD_PASSES, RunSpec};

/// Epochs over a small text beyond which a preset's steps are cut: what the review of a spec finds nearly as good as new text.
const PASSES: f64 = GOOD_PASSES;
/// Epochs of fine-tuning beyond which a pretrained model forgets and recites.
const TUNING_PASSES: f64 = 3.0;
/// The shortest rows recommended for a base model.
const SHORTEST: usize = 128;
/// The longest context recommended for rows from scratch: longer ones cost more than a small model gains.
const LONGEST: usize = 512;
/// The longest rows recommended for a base model with a longer context.
pub const LONG_CONTEXT: u64 = 1024;
/// Steps below which smaller batches teach more than fewer updates.
const ENOUGH_UPDATES: f64 = 100.0;
/// Steps below which a micro-batch is made smaller, too. A pass is an estimate: some more than the least.
const FEW_UPDATES: f64 = 1.25 * FEWEST_UPDATES as f64;
/// Distinct characters beyond which a character vocabulary is no longer small.
const CHARACTERS: usize = 256;

/// Context, batch and steps suited to a small text. `context` is that of the start model, if there is one.
pub fn for_size(preset: &Draft, facts: &DataFacts, context: Option<usize>) -> Vec<Recommended> {
    let mut list = Vec::new();
    let Ok(spec) = preset.spec() else {
        return list;
    };
    let tokenizer = match context {
        Some(_) => "file",
        None => tokenizer_word(preset, facts),
    };
    let unit = spec.method.needs().unit;
    let pass_of = |seq_len| Pass::with(facts, (tokenizer, unit), &spec.data, seq_len);
    let long = context.map(|context| context.min(LONG_CONTEXT as usize));
    let mut seq_len = long.unwrap_or(spec.model.seq_len);
    let row = Pass::sequence_tokens(facts, tokenizer, unit);
    if let (Some(1..), Some(row)) = (facts.rows, row) {
        seq_len = fit_rows(&spec, row, long, &mut list);
        fit_completions(&spec, row, seq_len, &mut list);
    }
    let held_out = pass_of(spec.model.seq_len).map_or(0.0, |pass| pass.val_tokens);
    if facts.kind == DataKind::Text && held_out < 2.0 * (seq_len + 1) as f64 {
        seq_len = fit_held_out(&spec, held_out, seq_len, &mut list);
    }
    // Its steps count prompts.
    if spec.rollout_length().is_some() {
        list.extend(fewer_rollouts(&spec, facts));
        return list;
    }
    let Some(pass) = pass_of(seq_len).filter(|pass| pass.tokens >= 1.0) else {
        return list;
    };
    let micro_steps = pass.micro_steps(spec.train.micro_batch_size);
    if context.is_none() {
        let (accumulated, limits) = (spec.train.grad_accum_steps, (PASSES, FEWEST_STEPS));
        list.extend(fewer_steps(&spec, micro_steps, accumulated as f64, limits));
        return list;
    }
    let accumulated = fewer_accumulated(&spec, micro_steps, &mut list);
    let rows = match accumulated {
        1 => fewer_rows(&spec, &pass, &mut list),
        _ => spec.train.micro_batch_size,
    };
    let limits = (TUNING_PASSES, FEWEST_TUNING_STEPS);
    let micro_steps = pass.micro_steps(rows);
    list.extend(fewer_steps(&spec, micro_steps, accumulated as f64, limits));
    list
}

/// A context that rows of `row` tokens fit into, of a model whose context is `long`, if there is one. Returns the context.
fn fit_rows(spec: &RunSpec, row: f64, long: Option<usize>, list: &mut Vec<Recommended>) -> usize {
    let seq_len = long.unwrap_or(spec.model.seq_len);
    let rollouts = spec.rollout_length();
    // Answers of the model's own stand behind the prompts, however short the data's are.
    let wanted = match &rollouts {
        Some(length) => row + length.max_new_tokens as f64,
        None => 2.0 * row,
    };
    let room = (wanted as usize).next_power_of_two();
    let room = match long {
        Some(long) => room.clamp(SHORTEST.min(long), long),
        None => room.min(LONGEST),
    };
    if room == seq_len || (long.is_none() && room < seq_len) {
        return seq_len;
    }
    let why = match &rollouts {
        Some(length) => format!(
            "rows have about {row:.0} tokens, and completions up to {}",
            length.max_new_tokens
        ),
        None => format!("rows have about {row:.0} tokens and should fit in full"),
    };
    list.push(rec("model.seq_len", room.to_string(), why));
    room
}

/// A context of which a held-out text of so many tokens has two rows. Returns the context.
fn fit_held_out(
    spec: &RunSpec,
    held_out: f64,
    seq_len: usize,
    list: &mut Vec<Recommended>,
) -> usize {
    let fits = (held_out / 2.0) as usize;
    let seq_len = fits
        .next_power_of_two()
        .checked_div(2)
        .unwrap_or(0)
        .max(8)
        .min(seq_len);
    if seq_len < spec.model.seq_len {
        let why = format!(
            "the held-out tenth has only about {} tokens: a longer context does not fit",
            human::grouped(held_out as u64)
        );
        list.push(rec("model.seq_len", seq_len.to_string(), why));
    }
    seq_len
}

/// Smaller batches where a run would have few updates. `pass` is micro-steps per epoch. Returns micro-steps per step.
fn fewer_accumulated(spec: &RunSpec, pass: f64, list: &mut Vec<Recommended>) -> usize {
    let train = &spec.train;
    let mut accumulated = train.grad_accum_steps;
    let passes = train.epochs.unwrap_or(TUNING_PASSES);
    let all = passes * pass;
    while accumulated > 1 && all / (accumulated as f64) < ENOUGH_UPDATES {
        accumulated /= 2;
    }
    if accumulated < train.grad_accum_steps {
        let why = match passes {
            1.0 => "few rows: smaller batches give more updates per epoch".to_string(),
            n => format!("few rows: smaller batches give more updates in {n} epochs"),
        };
        list.push(rec("train.grad_accum_steps", accumulated.to_string(), why));
    }
    accumulated
}

/// A smaller micro-batch where one that is not accumulated still leaves hardly any updates. Returns its rows.
fn fewer_rows(spec: &RunSpec, pass: &Pass, list: &mut Vec<Recommended>) -> usize {
    let train = &spec.train;
    let passes = train.epochs.unwrap_or(TUNING_PASSES);
    let least = match spec.method.needs().unit {
        // A judged answer is compared with the others.
        Unit::Judged => 2,
        _ => 1,
    };
    let updates = |rows: usize| passes * pass.micro_steps(rows);
    let mut rows = train.micro_batch_size;
    while rows > least && updates(rows) < FEW_UPDATES {
        rows = (rows / 2).max(least);
    }
    if rows < train.micro_batch_size {
        let why = format!(
            "few rows: {} at once would be about {:.0} updates in all",
            train.micro_batch_size,
            updates(train.micro_batch_size).ceil()
        );
        list.push(rec("train.micro_batch_size", rows.to_string(), why));
    }
    rows
}

/// Fewer steps where those of the preset are more than `most` epochs, but no fewer than `fewest`. A step has `step` micro-steps, an
/// epoch `pass`.
fn fewer_steps(
    spec: &RunSpec,
    pass: f64,
    step: f64,
    (most, fewest): (f64, u64),
) -> Option<Recommended> {
    let train = &spec.train;
    let passes = step * train.max_steps as f64 / pass;
    let steps = round_steps((pass * most / step) as u64)
        .max(fewest)
        .min(train.max_steps);
    let memorizes = passes > most && train.epochs.is_none();
    (memorizes && steps < train.max_steps).then(|| {
        let why = format!(
            "about {} epochs over your data; the preset's {} would be {} and memorize it",
            human::few(steps as f64 * step / pass),
            human::grouped(train.max_steps),
            human::few(passes)
        );
        rec("train.max_steps", steps.to_string(), why)
    })
}

/// A character vocabulary suits texts with small alphabets.
pub fn tokenizer(preset: &Draft, facts: &DataFacts) -> Option<Recommended> {
    let by_char = preset.value("data.tokenizer") == "char";
    let Some(distinct) = facts.distinct else {
        let why = "rows have markers and words in any script: subwords, trained on them";
        return by_char.then(|| rec("data.tokenizer", "bpe", why));
    };
    (by_char && distinct > CHARACTERS).then(|| {
        let why =
            format!("{distinct} distinct characters are too many for a character vocabulary: subwords instead");
        rec("data.tokenizer", "bpe", why)
    })
}

/// The tokenizer that a new model of a preset gets for these data.
pub fn tokenizer_word(preset: &Draft, facts: &DataFacts) -> &'static str {
    let by_char = preset.value("data.tokenizer") == "char" && tokenizer(preset, facts).is_none();
    if by_char { "char" } else { "bpe" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "About 4 epochs; the preset's 2,000 would be 4 and memorize it."
    #[test]
    fn epochs_that_differ_are_written_apart() {
        let sources = crate::spec::SpecSources::default();
        let set = ["max_steps=2000".to_string()];
        let spec = crate::spec::load("shakespeare-bpe", &set, &sources);
        let less = fewer_steps(&spec.unwrap().spec, 468.0, 1.0, (4.0, 100)).unwrap();
        assert!(
            less.why.contains("the preset's 2,000 would be 4.3"),
            "{}",
            less.why
        );
        assert!(less.why.starts_with("about 3."), "{}", less.why);
    }
}
