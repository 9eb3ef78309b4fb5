//! The parts of a [`super::RunState`], each built from its event; untrusted text is sanitized here.

use super::MAX_SAMPLE_BYTES;
use super::words::adjusted;
use crate::base::clock::UnixMillis;
use crate::base::finding::Finding;
use crate::base::{human, text};
use crate::wire::{
    Best, CommandId, Event, ExaminedExample, ExaminedSequence, Num, Outcome, UndoPoint, id,
};
use std::collections::{BTreeMap, VecDeque};

/// Appends; drops the oldest if there are already `max`.
pub(super) fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, max: usize) {
    if queue.len() >= max {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// Appends a sample. Where there are `max` already, every second between the first and the newest of a prompt goes: the one from
/// before training is what the others are compared with.
pub(super) fn push_sample(samples: &mut VecDeque<Sample>, sample: Sample, max: usize) {
    if samples.len() >= max {
        // Prompts that came once show no progress: they are half of them at most.
        let times = |prompt: &str| samples.iter().filter(|s| s.prompt == prompt).count();
        let once = samples
            .iter()
            .enumerate()
            .filter(|(_, s)| times(&s.prompt) == 1);
        let once: Vec<usize> = once.map(|(at, _)| at).collect();
        if once.len() <= max / 2 {
            thin(samples);
        } else if let Some(oldest) = once.first() {
            samples.remove(*oldest);
        }
    }
    if samples.len() >= max {
        samples.pop_front();
    }
    samples.push_back(sample);
}

fn thin(samples: &mut VecDeque<Sample>) {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for sample in samples.iter() {
        *left.entry(sample.prompt.clone()).or_default() += 1;
    }
    let mut passed: BTreeMap<String, usize> = BTreeMap::new();
    samples.retain(|sample| {
        let at = passed.entry(sample.prompt.clone()).or_default();
        *at += 1;
        *at % 2 == 1 || *at == left[&sample.prompt]
    });
}

/// The resolved spec and derived values.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    pub name: String,
    pub method: String,
    pub spec: serde_json::Value,
    pub n_params: u64,
    pub vocab_size: u64,
    pub max_steps: u64,
    /// Target tokens per optimizer step, behind any batch ramp.
    pub batch_tokens: u64,
    /// Tokens per epoch of the training split.
    pub epoch_tokens: u64,
    pub resumed_from: Option<u64>,
    /// Dtype of the matmuls; unknown in older logs.
    pub precision: Option<String>,
    /// Entropy of the training tokens' frequencies, nats; unknown where a part of the tokens is supervised.
    pub unigram_entropy: Option<f64>,
}

impl Head {
    /// The spec's values of live-tunable settings: the peak learning rate and the clipping norm.
    pub fn settings(&self) -> Vec<(&'static str, f64)> {
        let optimizer = self.spec["optimizer"].as_object();
        let member = optimizer.and_then(|members| members.values().next());
        let lr = member.and_then(|config| config["lr"].as_f64());
        let clip_norm = self.spec["train"]["clip_norm"].as_f64();
        [("lr", lr), ("clip_norm", clip_norm)]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    /// The stages of the spec's batch ramp: the last step of each, and its micro-batches beside those behind the ramp.
    fn ramp(&self) -> impl Iterator<Item = (u64, f64)> {
        let train = &self.spec["train"];
        let behind = train["grad_accum_steps"].as_f64().unwrap_or(1.0);
        let stages = train["batch_ramp"].as_array().into_iter().flatten();
        stages.filter_map(move |stage| {
            let share = stage["grad_accum_steps"].as_f64()? / behind;
            Some((stage["until_step"].as_u64()?, share))
        })
    }

    /// Target tokens of this step.
    pub fn batch_tokens_at(&self, step: u64) -> u64 {
        let stage = self.ramp().find(|(until, _)| step <= *until);
        let share = stage.map_or(1.0, |(_, share)| share);
        (self.batch_tokens as f64 * share).round() as u64
    }

    /// Target tokens of the steps behind `from`, up to `to`.
    pub(super) fn tokens_between(&self, from: u64, to: u64) -> u64 {
        let (mut done, mut sum) = (from.min(to), 0_u64);
        let ends = self.ramp().map(|(until, _)| until).chain([to]);
        for end in ends.map(|end| end.clamp(from.min(to), to)) {
            let steps = end.saturating_sub(done);
            sum = sum.saturating_add(steps.saturating_mul(self.batch_tokens_at(end)));
            done = done.max(end);
        }
        sum
    }

    pub(super) fn from_event(event: &Event) -> Option<Self> {
        let Event::Started {
            name,
            method,
            spec,
            n_params,
            vocab_size,
            max_steps,
            batch_tokens,
            epoch_tokens,
            resumed_from,
            precision,
            unigram_entropy,
        } = event
        else {
            return None;
        };
        Some(Head {
            name: text::one_line(name),
            method: text::one_line(method),
            spec: spec.clone(),
            n_params: *n_params,
            vocab_size: *vocab_size,
            max_steps: *max_steps,
            batch_tokens: *batch_tokens,
            epoch_tokens: *epoch_tokens,
            resumed_from: *resumed_from,
            precision: precision.as_deref().map(text::one_line),
            unigram_entropy: unigram_entropy.filter(|nats| nats.is_finite()),
        })
    }
}

/// What a rule on the training said last, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosed {
    pub step: u64,
    pub finding: Finding,
}

/// One evaluation of the validation split, or of a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub t: UnixMillis,
    pub step: u64,
    pub values: BTreeMap<String, f64>,
    pub n_windows: u64,
    /// The whole split was evaluated.
    pub whole: bool,
    pub seconds: f64,
}

impl Evaluation {
    pub(super) fn from_event(t: UnixMillis, event: &Event) -> Option<Self> {
        let Event::Evaluated {
            step,
            values,
            n_windows,
            whole,
            seconds,
            ..
        } = event
        else {
            return None;
        };
        Some(Evaluation {
            t,
            step: *step,
            values: values.iter().map(|(id, x)| (id.clone(), x.0)).collect(),
            n_windows: *n_windows,
            whole: *whole,
            seconds: *seconds,
        })
    }

    /// Mean nats per token; NaN if it was not measured.
    pub fn val_loss(&self) -> f64 {
        self.values.get(id::VAL_LOSS).copied().unwrap_or(f64::NAN)
    }
}

/// A sample generated with the weights of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub t: UnixMillis,
    pub step: u64,
    pub prompt: String,
    /// The continuation, without the prompt and without thoughts.
    pub text: String,
    /// What the model thought first.
    pub thought: Option<String>,
    pub seconds: f64,
}

/// In the place of the final message of an answer that has none.
pub const UNFINISHED: &str = "(ended inside its thoughts)";

impl Sample {
    /// The text to show.
    pub fn said(&self) -> &str {
        match &self.thought {
            Some(_) if self.text.trim().is_empty() => UNFINISHED,
            _ => &self.text,
        }
    }
}

/// Held-out examples at one evaluation, made safe to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Examined {
    pub step: u64,
    pub examples: Vec<ExaminedExample>,
}

impl Examined {
    pub(super) fn new(step: u64, examples: &[ExaminedExample]) -> Self {
        let piece = |(piece, logp): &(String, Num)| (text::sanitize(piece), *logp);
        let clean = |sequence: &ExaminedSequence| ExaminedSequence {
            label: text::one_line(&sequence.label),
            prompt: text::sanitize(&sequence.prompt),
            answer: text::sanitize(&sequence.answer),
            thought: sequence.thought.as_deref().map(text::sanitize),
            pieces: sequence.pieces.iter().map(piece).collect(),
            ..sequence.clone()
        };
        let example = |example: &ExaminedExample| ExaminedExample {
            sequences: example.sequences.iter().map(clean).collect(),
        };
        Examined {
            step,
            examples: examples.iter().map(example).collect(),
        }
    }
}

impl Sample {
    pub(super) fn new(
        (t, step): (UnixMillis, u64),
        prompt: &str,
        continuation: &str,
        thought: Option<&str>,
        seconds: f64,
    ) -> Self {
        Sample {
            t,
            step,
            prompt: text::sanitize(bounded(prompt)),
            text: text::sanitize(bounded(continuation)),
            thought: thought.map(|thought| text::sanitize(bounded(thought))),
            seconds,
        }
    }
}

/// The longest prefix of at most [`MAX_SAMPLE_BYTES`].
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_SAMPLE_BYTES)]
}

/// A checkpoint that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointMark {
    pub t: UnixMillis,
    pub step: u64,
    /// Relative to the run directory.
    pub path: String,
    pub bytes: u64,
    pub seconds: f64,
    /// It was the best one when it was saved.
    pub best: bool,
    pub val_loss: Option<f64>,
    /// The reading that decides which is the best, where the log says it.
    pub by: Option<Best>,
}

impl CheckpointMark {
    pub(super) fn from_event(t: UnixMillis, event: &Event) -> Option<Self> {
        let Event::Checkpointed {
            step,
            path,
            bytes,
            seconds,
            best,
            val_loss,
            by,
        } = event
        else {
            return None;
        };
        Some(CheckpointMark {
            t,
            step: *step,
            path: text::one_line(path),
            bytes: *bytes,
            seconds: *seconds,
            best: *best,
            val_loss: val_loss.map(|x| x.0),
            by: by.clone(),
        })
    }
}

/// A rescue: what happened, and with what the run goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Rescue {
    /// Of the checkpoint that goes on.
    pub step: u64,
    /// The step that was given up.
    pub from: u64,
    pub why: String,
    /// Peak learning rate before and since.
    pub lr: (f64, f64),
    pub moments_reset: bool,
    pub count: u64,
    pub at_most: u64,
    /// What an undo would take up again.
    pub undo: Option<UndoPoint>,
    pub undone: bool,
}

impl Rescue {
    pub(super) fn from_event(event: &Event) -> Option<Self> {
        let Event::Rescued {
            step,
            from,
            why,
            lr,
            moments_reset,
            count,
            at_most,
            undo,
            ..
        } = event
        else {
            return None;
        };
        Some(Rescue {
            step: *step,
            from: *from,
            why: text::one_line(why),
            lr: (lr.0.0, lr.1.0),
            moments_reset: *moments_reset,
            count: *count,
            at_most: *at_most,
            undo: *undo,
            undone: false,
        })
    }

    /// `rescued 1 of 3: … → back to step 400, lr 1.00e-3 → 5.00e-4`
    pub fn words(&self) -> String {
        let lr = adjusted("lr", self.lr.0, self.lr.1);
        let moments = if self.moments_reset {
            ", moments reset"
        } else {
            ""
        };
        format!(
            "rescued {} of {}: {}; back to step {}, {lr}, batches from step {} on skipped{moments}",
            self.count,
            self.at_most,
            self.why,
            human::grouped(self.step),
            human::grouped(self.from),
        )
    }

    /// What an undo does while the run stands at step `now`, in sentences; `None` where there is nothing to undo.
    pub fn undo_words(&self, now: u64) -> Option<Vec<String>> {
        let to = self.undo?;
        let at = human::grouped(to.step);
        let state = match to.whole {
            true => format!("it continues at step {at} from the state just before the rescue"),
            false => format!(
                "it continues at step {at} from the latest checkpoint before the rescue: the state at the rescue had NaN or inf"
            ),
        };
        let batches = human::grouped(self.from);
        let lost = now.saturating_sub(self.step);
        let mut lines = vec![
            format!("rescued because {}", self.why),
            state,
            format!(
                "{}; the batches from step {batches} on are not skipped",
                adjusted("lr", self.lr.1, self.lr.0)
            ),
        ];
        if lost > 0 {
            let lost = human::grouped(lost);
            lines.push(format!(
                "{lost} steps trained since the rescue are discarded"
            ));
        }
        Some(lines)
    }
}

/// The meaning of a mark on a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    Evaluated,
    Checkpoint,
    Resumed,
    Note,
    Adjusted,
    /// An update was left out.
    Skipped,
    Rescued,
    Warning,
}

/// Something that happened at a step, drawn on every chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub step: u64,
    pub kind: MarkKind,
    /// Empty if the kind is enough.
    pub text: String,
}

/// Severity of a line or a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Info,
    Good,
    Warn,
    Bad,
}

/// One line of the run's log view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub t: UnixMillis,
    pub level: Level,
    pub text: String,
}

/// Also shown as a toast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Of its event: a viewer remembers the newest one shown.
    pub seq: u64,
    pub t: UnixMillis,
    pub level: Level,
    pub text: String,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub id: CommandId,
    /// `Err` contains the engine's reason.
    pub result: Result<(), String>,
}

impl Answer {
    pub(super) fn accepted(id: CommandId) -> Self {
        Answer { id, result: Ok(()) }
    }

    pub(super) fn rejected(id: CommandId, why: &str) -> Self {
        Answer {
            id,
            result: Err(text::one_line(why)),
        }
    }
}

/// How an engine process ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub t: UnixMillis,
    pub outcome: Outcome,
    pub step: u64,
    /// Over the whole split, if measured at the end.
    pub val_loss: Option<f64>,
    /// The best evaluation by the reading that the method names.
    pub best: Option<Best>,
    pub train_loss: Option<f64>,
    /// Time spent by that process.
    pub seconds: f64,
    /// Empty if completed; otherwise what happened and what to do.
    pub message: String,
}

impl Finish {
    /// The validation loss of the last evaluation, or else the lowest.
    pub fn loss(&self) -> Option<f64> {
        let lowest = self.best.as_ref().filter(|b| b.metric == id::VAL_LOSS);
        self.val_loss.or(lowest.map(|best| best.value.0))
    }

    pub(super) fn from_event(t: UnixMillis, event: &Event) -> Option<Self> {
        let Event::Finished {
            outcome,
            step,
            val_loss,
            best,
            train_loss,
            seconds,
            message,
            ..
        } = event
        else {
            return None;
        };
        Some(Finish {
            t,
            outcome: *outcome,
            step: *step,
            val_loss: val_loss.map(|x| x.0),
            best: best.clone(),
            train_loss: train_loss.map(|x| x.0),
            seconds: *seconds,
            message: text::sanitize(message),
        })
    }
}
