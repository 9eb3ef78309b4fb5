//! `RunState`: everything a viewer shows of a run, as a pure fold over its events. The same events give the same
//! state, live or replayed, in any batching. No clock, file or UI here.

mod comparable;
mod log_lines;
mod mean_speed;
mod pace;
mod parts;
mod rolled_back;
mod speed;
mod words;

pub use comparable::OtherRows;
pub use pace::{Pace, WINDOW as PACE_WINDOW};
pub use parts::{
    Answer, CheckpointMark, Diagnosed, Evaluation, Examined, Finish, Head, Level, LogLine, Mark,
    MarkKind, Notice, Rescue, Sample, UNFINISHED,
};
pub use speed::Speed;

use super::engine_time::EngineTime;
use super::index::RunStatus;
use super::layers::LayerMap;
use super::rollback_buffer::RollbackBuffer;
use super::series::Series;
use crate::base::clock::UnixMillis;
use crate::base::finding::Finding;
use crate::base::text;
use crate::wire::{Envelope, Event, MetricInfo, Outcome, Phase, Values, id};
use parts::{push_bounded, push_sample};
use rolled_back::RolledBackState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Code of the engine's warning that a value is not finite and that the run ends.
pub const NON_FINITE: &str = "non_finite";
/// Code of a link's warning that lines of the log cannot be read.
pub const DAMAGED: &str = "damaged_lines";
/// Samples kept, newest last; of a prompt always the first.
pub const MAX_SAMPLES: usize = 64;
/// Looks at held-out examples that are kept.
const MAX_EXAMINED: usize = 32;
/// Log lines kept.
pub const MAX_LOG: usize = 2_000;
/// Notices kept; a viewer that draws ten frames per second misses none.
pub const MAX_NOTICES: usize = 64;
/// Command answers kept.
pub const MAX_ANSWERS: usize = 256;
/// Marks and evaluations kept; the oldest are dropped first.
pub const MAX_MARKS: usize = 10_000;
/// Most bytes kept of one sample.
pub const MAX_SAMPLE_BYTES: usize = 1 << 16;

/// A run according to its events. Changed only by [`RunState::apply`].
#[derive(Debug, Clone, Default)]
pub struct RunState {
    /// The run's id: its directory's name.
    pub run: String,
    /// Machine and process of the newest engine.
    pub host_name: String,
    pub pid: u32,
    /// Program version of the newest engine.
    pub engine: String,
    /// `None` until the engine has read its spec.
    pub head: Option<Head>,
    /// Live-tunable settings by the key of `Adjust`: from the spec, then as adjusted.
    pub settings: BTreeMap<String, f64>,
    /// Those that were adjusted.
    adjusted: BTreeSet<String>,
    /// `None` before the first event.
    pub phase: Option<Phase>,
    /// It is paused, also while it saves, evaluates or samples on request.
    pub in_pause: bool,
    /// See [`RunState::orphan`].
    pub orphaned: bool,
    pub phase_since: UnixMillis,
    /// Completed optimizer steps.
    pub step: u64,
    /// Where its steps begin to count: the step of the checkpoint that a branch began at, 0 for other runs.
    pub base_step: u64,
    /// Target tokens consumed.
    pub tokens: u64,
    /// Those of them that the run consumed which a branch began from: all but the branch's own at its first reading.
    pub base_tokens: u64,
    /// In declaration order.
    pub metrics: Vec<MetricInfo>,
    /// By metric id; including undeclared metrics and host readings (at the step of their time).
    pub series: BTreeMap<String, Series>,
    /// Metrics with a value for each block, by id.
    pub layers: BTreeMap<String, LayerMap>,
    pub evaluations: VecDeque<Evaluation>,
    pub samples: VecDeque<Sample>,
    /// Held-out examples at the last evaluations.
    pub examined: VecDeque<Examined>,
    pub checkpoints: Vec<CheckpointMark>,
    pub marks: VecDeque<Mark>,
    /// Preflight checks, the newest of each: a resumed run does not repeat them, and what they found stands.
    pub checks: Vec<Finding>,
    /// The title of the check that is being made.
    next_check: Option<String>,
    /// What the engine's rules said of the training, the newest of each rule, by its id.
    pub diagnosed: BTreeMap<String, Diagnosed>,
    /// The engine's machine, as it described itself.
    pub machine: Option<serde_json::Value>,
    /// Newest reading of the machine, by metric id.
    pub host: BTreeMap<String, f64>,
    pub log: VecDeque<LogLine>,
    pub notices: VecDeque<Notice>,
    pub answers: VecDeque<Answer>,
    /// Warnings so far.
    pub n_warnings: u64,
    /// The newest warning, and what to do about it; the latter may be empty.
    pub warned: Option<(String, String)>,
    /// The value that ended the run by being non-finite, with its step: not every one is a reading, as a weight or a logit.
    pub non_finite: Option<(u64, String)>,
    /// The newest rescue, which a roll-back does not undo.
    pub rescued: Option<Rescue>,
    /// The run that this one waits for, or waited for last; empty if it never did.
    pub queued_after: String,
    given_up: RollbackBuffer<RolledBackState>,
    /// Updates that were left out, of the steps that count.
    pub skipped: u64,
    /// Set while no engine is running: how the last one ended that took steps, or the only one.
    pub finished: Option<Finish>,
    /// The engine that was to go on and was refused before a step of its own: the run stands as `finished` says.
    pub refused: Option<Finish>,
    /// How the run stood when the newest engine began, until that engine's first step.
    before_resume: Option<Finish>,
    /// Time of all engine processes: see [`EngineTime`].
    pub seconds: f64,
    spent: EngineTime,
    /// Step time and the cost of interruptions, for the ETA.
    pub pace: Pace,
    /// Newest sequence number; repeated ones are ignored.
    pub last_seq: u64,
    /// Events missing from the sequence.
    pub missed: u64,
    /// Events of types unknown to this build.
    pub unknown: u64,
    /// Lines of its log that cannot be read.
    pub damaged: u64,
    /// Why nothing goes on, as the link says, and since when: until a newer event comes.
    pub halted: Option<(StopCause, UnixMillis)>,
    /// Wall time of the first event and of the newest.
    pub first_t: UnixMillis,
    pub last_t: UnixMillis,
    /// Of the newest step or change of phase: what the run does now began then. 0 before the first one.
    pub moved_t: UnixMillis,
}

impl RunState {
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds a whole log that is held in memory: for tests and benchmarks. Programs take events in one by one.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Envelope>) -> Self {
        let mut state = Self::new();
        for envelope in events {
            state.apply(envelope);
        }
        state
    }

    /// Folds one event. A repeated one (replay and live stream overlap) changes nothing; a gap is counted.
    pub fn apply(&mut self, envelope: &Envelope) {
        if envelope.seq == 0 {
            // A reply of the link itself, such as "the engine is busy": not part of the log.
            match &envelope.event {
                Event::Accepted { .. } | Event::Rejected { .. } => {
                    self.fold(envelope.t, &envelope.event);
                }
                // It is about the log itself.
                Event::Warned { code, .. } if code == DAMAGED => {
                    self.fold(envelope.t, &envelope.event);
                }
                Event::Warned { code, .. } => {
                    let halt = StopCause::of(code).map(|halt| (halt, envelope.t));
                    self.halted = halt.or(self.halted);
                }
                _ => {}
            }
            return;
        }
        if envelope.seq <= self.last_seq {
            return;
        }
        self.halted = self.halted.filter(|(_, since)| envelope.t <= *since);
        self.missed += envelope.seq - self.last_seq - 1;
        self.last_seq = envelope.seq;
        if self.first_t == UnixMillis::default() {
            self.first_t = envelope.t;
        }
        self.last_t = self.last_t.max(envelope.t);
        self.pace.observe(envelope);
        self.spent.take(envelope.t, &envelope.event);
        self.seconds = self.spent.seconds();
        self.push_log_line(envelope);
        self.fold(envelope.t, &envelope.event);
    }

    fn fold(&mut self, t: UnixMillis, event: &Event) {
        match event {
            Event::Hello { .. } => self.fold_hello(t, event),
            Event::Started { .. } => self.start(event),
            Event::MetricsDeclared { metrics } => self.declare(metrics),
            Event::PhaseChanged { phase, step } => {
                self.step = self.step.max(*step);
                self.moved_t = t;
                self.enter(*phase, t);
            }
            Event::Checked { finding, next, .. } => {
                self.fold_check(finding);
                self.next_check = next.as_deref().map(text::one_line);
            }
            Event::Stepped {
                step,
                tokens,
                values,
            } => {
                self.before_resume = None;
                self.non_finite = None;
                self.moved_t = t;
                self.step = *step;
                self.tokens = *tokens;
                if self.base_tokens == 0 && self.base_step > 0 {
                    // The run before may have had batches of another size.
                    let own = |head: &Head| head.tokens_between(self.base_step, *step);
                    let own = self.head.as_ref().map_or(0, own);
                    self.base_tokens = tokens.saturating_sub(own);
                }
                self.extend_series(*step, values);
            }
            Event::Evaluated {
                step,
                tokens,
                values,
                ..
            } => {
                self.tokens = self.tokens.max(*tokens);
                self.extend_series(*step, values);
                self.mark(*step, MarkKind::Evaluated, String::new());
                if let Some(evaluation) = Evaluation::from_event(t, event) {
                    push_bounded(&mut self.evaluations, evaluation, MAX_MARKS);
                }
            }
            Event::Probed { step, layers } => {
                for (id, values) in layers {
                    let values = values.iter().map(|x| x.0 as f32).collect();
                    self.layers
                        .entry(id.clone())
                        .or_default()
                        .push(*step, values);
                }
            }
            Event::Sampled {
                step,
                prompt,
                text,
                thought,
                seconds,
            } => {
                let at = (t, *step);
                let sample = Sample::new(at, prompt, text, thought.as_deref(), *seconds);
                push_sample(&mut self.samples, sample, MAX_SAMPLES);
            }
            Event::Examined { step, examples } => {
                let examined = Examined::new(*step, examples);
                push_bounded(&mut self.examined, examined, MAX_EXAMINED);
            }
            Event::HardwareSampled { values } => {
                self.host
                    .extend(values.iter().map(|(id, x)| (id.clone(), x.0)));
                self.extend_series(self.step, values);
            }
            _ => self.fold_rare(t, event),
        }
    }

    /// An engine came: how the run stood is kept until that one has taken a step.
    fn fold_hello(&mut self, t: UnixMillis, event: &Event) {
        let Event::Hello {
            run,
            engine,
            pid,
            host,
        } = event
        else {
            return;
        };
        self.run = text::one_line(run);
        self.host_name = text::one_line(host);
        self.engine = text::one_line(engine);
        self.pid = *pid;
        self.before_resume = self.finished.take().filter(|_| self.step > 0);
        self.refused = None;
        self.orphaned = false;
        self.enter(Phase::Preparing, t);
    }

    /// The preflight check that is being made, by its title.
    pub fn checking(&self) -> Option<&str> {
        let now = self.phase == Some(Phase::Preflight) && self.finished.is_none();
        self.next_check.as_deref().filter(|_| now)
    }

    fn fold_check(&mut self, finding: &Finding) {
        let check = finding.sanitized();
        let same = |old: &Finding| (&old.id, &old.title) == (&check.id, &check.title);
        self.checks.retain(|old| !same(old));
        self.checks.push(check);
    }

    fn fold_checkpoint(&mut self, t: UnixMillis, event: &Event, step: u64) {
        self.checkpoints.retain(|c| c.step < step);
        if let Some(checkpoint) = CheckpointMark::from_event(t, event) {
            let label = if checkpoint.best { "best so far" } else { "" };
            self.mark(step, MarkKind::Checkpoint, label.into());
            self.checkpoints.push(checkpoint);
        }
    }

    fn fold_rare(&mut self, t: UnixMillis, event: &Event) {
        match event {
            Event::Checkpointed { step, .. } => self.fold_checkpoint(t, event, *step),
            Event::Queued { after } => {
                self.queued_after = text::one_line(after);
                self.enter(Phase::Queued, t);
            }
            Event::Adjusted {
                step,
                key,
                old,
                new,
            } => {
                self.settings.insert(key.clone(), new.0);
                self.adjusted.insert(key.clone());
                self.mark(
                    *step,
                    MarkKind::Adjusted,
                    words::adjusted(key, old.0, new.0),
                );
            }
            Event::RolledBack { step } => self.roll_back(*step),
            Event::StartedOver => self.start_over(),
            Event::Skipped { step, outlier } => {
                self.skipped += 1;
                self.mark(*step, MarkKind::Skipped, words::outlier(outlier));
            }
            Event::Rescued { step, .. } => {
                if let Some(rescue) = Rescue::from_event(event) {
                    self.mark(*step, MarkKind::Rescued, rescue.words());
                    self.rescued = Some(rescue);
                    self.given_up.rescued();
                }
            }
            Event::RescueUndone { step, tokens, .. } => {
                self.given_up.undone().restore(self, *step);
                (self.step, self.tokens) = (*step, *tokens);
                self.mark(*step, MarkKind::Rescued, words::undone(event));
                if let Some(rescue) = &mut self.rescued {
                    (rescue.undo, rescue.undone) = (None, true);
                }
            }
            Event::Noted { step, text } => self.mark(*step, MarkKind::Note, text::one_line(text)),
            Event::Warned {
                step,
                code,
                message,
                hint,
            } => {
                self.n_warnings += 1;
                let (message, hint) = (text::one_line(message), text::one_line(hint));
                if code == NON_FINITE {
                    self.non_finite = Some((*step, message.clone()));
                }
                self.warned = Some((message.clone(), hint));
                self.mark(*step, MarkKind::Warning, message);
            }
            Event::Accepted { id } => {
                push_bounded(&mut self.answers, Answer::accepted(*id), MAX_ANSWERS)
            }
            Event::Rejected { id, why } => {
                push_bounded(&mut self.answers, Answer::rejected(*id, why), MAX_ANSWERS);
            }
            Event::Finished { step, tokens, .. } => {
                self.step = (*step).max(self.step);
                self.tokens = (*tokens).max(self.tokens);
                self.finished = Finish::from_event(t, event);
                // It ended before its turn had come.
                let queued = self.phase == Some(Phase::Queued);
                let refusal = |end: &Finish| queued || end.outcome.is_refusal();
                if self.before_resume.is_some() && self.finished.as_ref().is_some_and(refusal) {
                    self.refused = std::mem::replace(&mut self.finished, self.before_resume.take());
                }
            }
            Event::Diagnosed { step, finding } => {
                let (step, finding) = (*step, finding.sanitized());
                let id = finding.id.clone();
                self.diagnosed.insert(id, Diagnosed { step, finding });
            }
            Event::MachineDescribed { machine } => self.machine = Some(machine.clone()),
            Event::Unknown(_) => self.unknown += 1,
            _ => {}
        }
    }

    /// Whether this is a reward model: it scores completions and generates none.
    pub fn judges(&self) -> bool {
        self.head
            .as_ref()
            .is_some_and(|head| head.method == "reward")
    }

    /// How the newest engine ended, also one whose resume was refused.
    pub fn newest_end(&self) -> Option<&Finish> {
        self.refused.as_ref().or(self.finished.as_ref())
    }

    fn start(&mut self, event: &Event) {
        let Some(head) = Head::from_event(event) else {
            return;
        };
        // A new generation may have fewer ranks: drop the readings of all ranks.
        self.host.retain(|id, _| !id.starts_with(id::ranks::PREFIX));
        if let Some(step) = head.resumed_from {
            self.mark(step, MarkKind::Resumed, String::new());
        }
        // An adjustment survives a resume; of the others the spec may have been edited meanwhile.
        for (key, value) in head.settings() {
            if !self.adjusted.contains(key) {
                self.settings.insert(key.into(), value);
            }
        }
        if self.head.is_none() {
            self.base_step = head.resumed_from.unwrap_or(0);
        }
        self.head = Some(head);
    }

    fn declare(&mut self, metrics: &[MetricInfo]) {
        for metric in metrics {
            let clean = MetricInfo {
                id: metric.id.clone(),
                title: text::one_line(&metric.title),
                unit: text::one_line(&metric.unit),
                direction: metric.direction,
                source: text::one_line(&metric.source),
                label: text::one_line(&metric.label),
                normal: text::one_line(&metric.normal),
                advice: text::one_line(&metric.advice),
                estimator: text::one_line(&metric.estimator),
                ..metric.clone()
            };
            match self.metrics.iter_mut().find(|known| known.id == metric.id) {
                Some(known) => *known = clean,
                None => self.metrics.push(clean),
            }
        }
    }

    fn enter(&mut self, phase: Phase, t: UnixMillis) {
        let on_request = matches!(
            phase,
            Phase::Evaluating | Phase::Sampling | Phase::Checkpointing
        );
        self.in_pause = phase == Phase::Paused || self.in_pause && on_request;
        if self.phase != Some(phase) {
            self.phase = Some(phase);
            self.phase_since = t;
        }
    }

    fn extend_series(&mut self, step: u64, values: &Values) {
        for (id, value) in values {
            if !self.series.contains_key(id) {
                self.series.insert(id.clone(), Series::new());
            }
            if let Some(series) = self.series.get_mut(id) {
                series.push(step, value.0);
            }
        }
    }

    fn mark(&mut self, step: u64, kind: MarkKind, text: String) {
        push_bounded(&mut self.marks, Mark { step, kind, text }, MAX_MARKS);
    }

    /// Events after `step` no longer count. The log keeps its lines: they did happen.
    fn roll_back(&mut self, step: u64) {
        self.given_up
            .rolled_back(RolledBackState::after(self, step));
        for series in self.series.values_mut() {
            series.truncate_after(step);
        }
        for map in self.layers.values_mut() {
            map.truncate_after(step);
        }
        self.evaluations.retain(|e| e.step <= step);
        self.samples.retain(|s| s.step <= step);
        self.examined.retain(|e| e.step <= step);
        self.checkpoints.retain(|c| c.step <= step);
        let undone = |m: &&Mark| m.step > step && m.kind == MarkKind::Skipped;
        self.skipped = self
            .skipped
            .saturating_sub(self.marks.iter().filter(undone).count() as u64);
        self.marks.retain(|m| m.step <= step);
        self.non_finite = None;
        self.diagnosed.retain(|_, d| d.step <= step);
        if self.step > step {
            let lost = |head: &Head| head.tokens_between(step, self.step);
            let lost = self.head.as_ref().map_or(0, lost);
            self.tokens = self.tokens.saturating_sub(lost);
        }
        self.step = step;
    }

    /// No reading counts any longer, those of step 0 included.
    fn start_over(&mut self) {
        self.roll_back(0);
        self.given_up = RollbackBuffer::default();
        self.series.values_mut().for_each(|s| *s = Series::new());
        self.layers.clear();
        self.evaluations.clear();
        self.samples.clear();
        self.examined.clear();
        self.diagnosed.clear();
        self.tokens = 0;
    }

    /// How long engines have held the run.
    pub fn spent(&self) -> EngineTime {
        self.spent
    }

    /// True while an engine is running, according to the log.
    pub fn running(&self) -> bool {
        self.last_seq > 0 && self.finished.is_none()
    }

    /// Epochs over the training split so far, of methods on answers of their own over the prompts; `None` until they are known.
    /// Logs of older programs do not say them: there they follow from the tokens.
    pub fn epochs(&self) -> Option<f64> {
        if let Some(epochs) = self.latest(id::EPOCHS).filter(|x| x.is_finite()) {
            return Some(epochs);
        }
        let epoch_tokens = self.head.as_ref()?.epoch_tokens;
        (epoch_tokens > 0).then(|| self.tokens as f64 / epoch_tokens as f64)
    }

    /// Completed fraction of the steps, 0 to 1.
    pub fn progress(&self) -> Option<f64> {
        let max_steps = self.head.as_ref()?.max_steps;
        (max_steps > 0).then(|| (self.step as f64 / max_steps as f64).min(1.0))
    }

    /// Time to the last step at the recent pace, including evaluations, samples and checkpoints; `None` while unknown.
    pub fn remaining(&self) -> Option<Duration> {
        // A foreign log may not say where it ends.
        let head = self.head.as_ref().filter(|head| head.max_steps > 0)?;
        self.pace.remaining(self.step, head.max_steps)
    }

    /// Whether another program trains it, so that no engine of ours writes the log. False until the log names its engine.
    pub fn is_foreign(&self) -> bool {
        self.pid == 0 && !self.engine.is_empty()
    }

    /// Steps of the warm-up; 0 where the spec does not say.
    pub fn warmup_steps(&self) -> u64 {
        let schedule = self.head.as_ref().map(|head| &head.spec["schedule"]);
        let members = schedule.and_then(|schedule| schedule.as_object());
        let config = members.and_then(|members| members.values().next());
        config
            .and_then(|config| config["warmup_steps"].as_u64())
            .unwrap_or(0)
    }

    /// The newest reading of a metric.
    pub fn latest(&self, id: &str) -> Option<f64> {
        self.series.get(id)?.last().map(|p| p.value)
    }

    /// The evaluation with the lowest validation loss. A run that has ended says which one that is: the last one may have read
    /// other rows than those before it.
    pub fn best_evaluation(&self) -> Option<&Evaluation> {
        let said = self.finished.as_ref().and_then(|f| f.best.as_ref());
        if let Some(best) = said
            .filter(|best| best.metric == id::VAL_LOSS)
            // Older engines sent no step.
            .filter(|best| best.step > 0)
            && let Some(found) = self.evaluations.iter().rev().find(|e| e.step == best.step)
        {
            return Some(found);
        }
        let measured = self.evaluations.iter().filter(|e| e.val_loss().is_finite());
        measured.min_by(|a, b| a.val_loss().total_cmp(&b.val_loss()))
    }

    /// Whether e to the loss is a perplexity: the run measured it beside its likelihood.
    pub fn measures_perplexity(&self) -> bool {
        self.series.contains_key(id::VAL_PPL)
    }

    /// The declaration of a metric, if any.
    pub fn metric(&self, id: &str) -> Option<&MetricInfo> {
        self.metrics.iter().find(|m| m.id == id)
    }

    /// Of another program's log the format; its translation names that in place of a method and of an engine.
    pub fn foreign_format(&self) -> Option<&str> {
        self.is_foreign().then_some(&self.engine)
    }

    /// The engine process is gone and logged no end; the log alone cannot tell that from a live one.
    pub fn orphan(&mut self) {
        self.orphaned = self.running();
    }

    /// Whether it was stopped before its turn in a queue had come.
    pub fn left_queue(&self) -> bool {
        let stopped = |finish: &Finish| finish.outcome == Outcome::Stopped;
        let queued = self.phase == Some(Phase::Queued) && self.refused.is_none();
        queued && self.finished.as_ref().is_some_and(stopped)
    }

    /// What the run is doing, in one word, for titles and lists.
    pub fn word(&self) -> &'static str {
        match &self.finished {
            Some(finish) => outcome_word(finish.outcome),
            None if self.orphaned => "crashed",
            None => match self.halted {
                Some((halt, _)) => halt.word(),
                None => self.phase.map_or("waiting", phase_word),
            },
        }
    }
}

/// Why a live engine does not go on, though its log does not say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// The disk takes no event: training waits for it.
    Disk,
    /// Its process is stopped by a signal.
    Signal,
}

impl StopCause {
    /// By the code of a link's own warning.
    fn of(code: &str) -> Option<StopCause> {
        match code {
            "log_stalled" => Some(StopCause::Disk),
            "suspended" => Some(StopCause::Signal),
            _ => None,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            StopCause::Disk => "stalled",
            StopCause::Signal => "suspended",
        }
    }
}

/// Display name of an outcome: the word of lists. What kind of failure it was is in its message.
pub fn outcome_word(outcome: Outcome) -> &'static str {
    RunStatus::of(outcome).word()
}

/// Display name of a phase.
pub fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Preparing => "preparing",
        Phase::Preflight => "preflight",
        Phase::Training => "training",
        Phase::Evaluating => "evaluating",
        Phase::Sampling => "sampling",
        Phase::Checkpointing => "checkpointing",
        Phase::Paused => "paused",
        Phase::Stopping => "stopping",
    }
}

#[cfg(test)]
mod tests;
