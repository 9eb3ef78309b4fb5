//! The facts of a log that a list of runs shows. The whole log is read, because a best value, a resume or a rollback may be
//! anywhere in it. For a long log the result is stored beside it, and only what was appended since is read the next time.

use super::pace::NewestSteps;
use super::{RunStatus, VERDICT};
use crate::base::clock::UnixMillis;
use crate::base::files::{open_plain, read_small, write_atomic};
use crate::base::text::one_line;
use crate::run::RunDir;
use crate::run::engine_time::EngineTime;
use crate::run::log::{Tail, kind_of};
use crate::run::newest_loss::{WINDOW, newest_loss};
use crate::run::rollback_buffer::RollbackBuffer;
use crate::wire::{Best, Event, Outcome, Phase, Values, decode_envelope, id};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// What was found in logs up to this size is not kept: they are read quickly.
const SHORT: u64 = 4 << 20;
/// So many bytes are read again before what was found is written again.
const AGAIN: u64 = 1 << 20;
/// Bytes of a log by which it is known to be the one that was read: its end then.
const MARK: u64 = 256;
/// Largest file of what was found.
const MAX_KEPT: u64 = 16 << 20;
/// Of what is kept; another one is not read.
const VERSION: u32 = 11;

/// What was found in the first bytes of a log.
#[derive(Serialize, Deserialize)]
struct ScannedPrefix {
    version: u32,
    /// Bytes that were read: whole lines.
    read: u64,
    /// The last of them.
    mark: Vec<u8>,
    scan: Scan,
}

/// What a run's log of `size` bytes says.
pub(super) fn read(run: &RunDir, size: u64) -> io::Result<Scan> {
    let log = run.events_path();
    if size <= SHORT {
        let mut scan = Scan::default();
        scan.part(&log, 0, size)?;
        return Ok(scan);
    }
    let kept = kept(run, &log, size);
    let (begin, mut scan) = kept.map_or_else(Default::default, |kept| (kept.read, kept.scan));
    let read = scan.part(&log, begin, size)?;
    if read > begin + AGAIN {
        let kept = ScannedPrefix {
            version: VERSION,
            read,
            mark: before(&log, read)?,
            scan,
        };
        // Nobody has to be able to write there: the log is read again then.
        if let Ok(bytes) = serde_json::to_vec(&kept) {
            let _ = write_atomic(&run.summary_path(), &bytes);
        }
        scan = kept.scan;
    }
    Ok(scan)
}

/// What was found earlier, if it is of this log: one that was cut or replaced is read from its beginning.
fn kept(run: &RunDir, log: &Path, size: u64) -> Option<ScannedPrefix> {
    let bytes = read_small(&run.summary_path(), MAX_KEPT).ok()?;
    let kept: ScannedPrefix = serde_json::from_slice(&bytes).ok()?;
    let fits = kept.version == VERSION && kept.read > 0 && kept.read <= size;
    (fits && before(log, kept.read).ok()? == kept.mark).then_some(kept)
}

/// The bytes in front of `end`.
fn before(log: &Path, end: u64) -> io::Result<Vec<u8>> {
    let mut file = open_plain(log)?;
    let begin = end.saturating_sub(MARK);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(end - begin).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is measured now and then, in the order of the log, as far as it counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// (step, validation loss).
    pub vals: Vec<(u64, f64)>,
    /// (step, validation bits per byte).
    pub bpbs: Vec<(u64, f64)>,
    /// (step, pass@1).
    pub passes: Vec<(u64, f64)>,
    /// Checkpoints that were the best when they were saved, and the same reading over the whole validation split; `None` where
    /// only a part was read at that step.
    pub bests: Vec<(Best, Option<f64>)>,
    /// Step and readings of the newest evaluation of the whole split.
    pub whole: Option<(u64, Values)>,
    /// Steps as they stood when something else was logged.
    steps: Vec<(u64, StepFigures)>,
    /// Step and training loss of the newest steps.
    losses: Vec<(u64, f64)>,
    /// (step, verdict).
    verdicts: Vec<(u64, String)>,
}

/// What a list of runs shows of a step; a figure that it does not have is that of the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepFigures {
    pub train_loss: Option<f64>,
    pub reward: Option<f64>,
    /// Passes over the training split.
    pub epochs: Option<f64>,
}

/// Takes out of a list what comes after a step.
fn after<T>(list: &mut Vec<(u64, T)>, step: u64) -> Vec<(u64, T)> {
    list.extract_if(.., |(at, _)| *at > step).collect()
}

impl Measured {
    /// Takes out what comes after a step.
    fn split_off(&mut self, step: u64) -> Measured {
        Measured {
            vals: after(&mut self.vals, step),
            bpbs: after(&mut self.bpbs, step),
            passes: after(&mut self.passes, step),
            steps: after(&mut self.steps, step),
            losses: after(&mut self.losses, step),
            verdicts: after(&mut self.verdicts, step),
            bests: self
                .bests
                .extract_if(.., |(best, _)| best.step > step)
                .collect(),
            whole: self.whole.take_if(|(at, _)| *at > step),
        }
    }

    fn stepped(&mut self, step: u64, values: &Values) {
        let before = self.figures();
        let figures = StepFigures {
            train_loss: loss(values, id::TRAIN_LOSS).or(before.train_loss),
            reward: loss(values, id::REWARD).or(before.reward),
            epochs: loss(values, id::EPOCHS),
        };
        match self.steps.last_mut() {
            Some((at, last)) if *at == step => *last = figures,
            _ => self.steps.push((step, figures)),
        }
    }

    /// Of the newest step that counts.
    pub fn figures(&self) -> StepFigures {
        self.steps
            .last()
            .map_or_else(Default::default, |last| last.1)
    }

    /// Takes the training losses of steps behind those it has.
    fn lost(&mut self, losses: Vec<(u64, f64)>) {
        self.losses.extend(losses);
        let before = self.losses.len().saturating_sub(WINDOW);
        self.losses.drain(..before);
    }

    /// The training loss that stands for the run, as [`RunState::newest_loss`](crate::run::RunState::newest_loss) has it.
    pub fn newest_loss(&self) -> Option<f64> {
        newest_loss(&self.losses).or(self.figures().train_loss)
    }

    /// The newest verdict that counts.
    pub fn verdict(&self) -> Option<&str> {
        self.verdicts.last().map(|(_, verdict)| verdict.as_str())
    }

    fn evaluated(&mut self, step: u64, values: Values, whole: bool) {
        let of = |id| loss(&values, id).map(|value| (step, value));
        self.vals.extend(of(id::VAL_LOSS));
        self.bpbs.extend(of(id::VAL_BPB));
        self.passes.extend(of(id::PASS_AT_1));
        if whole {
            self.whole = Some((step, values));
        }
    }

    /// The checkpoint of an evaluation was saved as the best.
    fn saved(&mut self, by: Best) {
        let over_all = self.over_all(&by);
        self.bests.push((by, over_all));
    }

    /// The reading of an evaluation over the whole validation split, if that is the newest of the whole split.
    fn over_all(&self, by: &Best) -> Option<f64> {
        let here = self.whole.as_ref().filter(|(at, _)| *at == by.step);
        here.and_then(|(_, values)| loss(values, &by.metric))
    }

    fn append(&mut self, later: Measured) {
        self.vals.extend(later.vals);
        self.bpbs.extend(later.bpbs);
        self.passes.extend(later.passes);
        self.bests.extend(later.bests);
        self.steps.extend(later.steps);
        self.lost(later.losses);
        self.verdicts.extend(later.verdicts);
        self.whole = later.whole.or(self.whole.take());
    }
}

/// Where the pace of now begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Base {
    pub step: u64,
    /// Spent until then.
    pub seconds: f64,
}

/// Result of scanning a log.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Scan {
    pub method: String,
    pub max_steps: u64,
    pub n_params: u64,
    pub start_model: Option<String>,
    pub phase: Option<Phase>,
    /// The folder of the run that it waits for; kept where it ended before its turn.
    pub queued_after: Option<String>,
    pub step: u64,
    pub measured: Measured,
    given_up: RollbackBuffer<Measured>,
    /// Where the newest rescue stands in the log.
    rescued_at: u64,
    /// What lies between a rescue and its undo, in bytes of the log: steps that do not count, in front of none that take their place.
    pub undone: Vec<(u64, u64)>,
    /// The best evaluation according to a `Finished` event.
    pub best_said: Option<Best>,
    pub outcome: Option<Outcome>,
    /// How the run stood when the newest engine came, while that one has taken no step.
    earlier: Option<(Option<Outcome>, String)>,
    /// Why the newest engine ended before its first step, where the run had taken some before.
    pub refused: Option<String>,
    pub message: String,
    pub spent: EngineTime,
    pub base: Base,
    /// Time (milliseconds since 1970) and number of the newest steps since `base`.
    pub newest_steps: Vec<(u64, u64)>,
    pub updated: Option<UnixMillis>,
}

/// The events a summary needs; of `Stepped` only the newest matters.
const SUMMARY_KINDS: &[&str] = &[
    "Hello",
    "Started",
    "PhaseChanged",
    "Queued",
    "Evaluated",
    "Checkpointed",
    "Diagnosed",
    "RolledBack",
    "Rescued",
    "RescueUndone",
    "Finished",
];

/// Those after which other steps count.
const CUTS: [&str; 3] = ["RolledBack", "Rescued", "RescueUndone"];

impl Scan {
    /// Reads the lines that begin in `begin..end`; returns where the next one begins.
    fn part(&mut self, path: &Path, begin: u64, end: u64) -> io::Result<u64> {
        let mut tail = Tail::open_at(path, begin)?;
        let mut lines = String::new();
        let mut steps = NewestSteps::default();
        // Taken before what comes behind it; empty once it was.
        let mut newest_step = String::new();
        let mut newest = String::new();
        while tail.offset() < end {
            lines.clear();
            let mut next = tail.offset();
            if !tail.read_lines(&mut lines, 64 << 10)? {
                break;
            }
            let mut before = newest.as_str();
            for line in lines.lines() {
                let at = next;
                next += line.len() as u64 + 1;
                let kind = kind_of(line);
                if kind == Some("Hello") {
                    // The last event of an engine that died may be of any kind.
                    self.take_last_line(before);
                }
                before = line;
                match kind {
                    Some("Stepped") => {
                        steps.push(line);
                        line.clone_into(&mut newest_step);
                    }
                    Some(kind) if !SUMMARY_KINDS.contains(&kind) => {}
                    _ => {
                        if kind.is_some_and(|kind| CUTS.contains(&kind)) {
                            self.measured.lost(steps.losses());
                        }
                        self.take(&std::mem::take(&mut newest_step), at);
                        let base = self.base;
                        self.take(line, at);
                        if self.base != base {
                            steps.forget();
                        }
                    }
                }
            }
            if let Some(line) = lines.lines().next_back() {
                line.clone_into(&mut newest);
            }
        }
        self.take(&newest_step, tail.offset());
        steps.add_to(&mut self.newest_steps);
        self.measured.lost(steps.losses());
        self.take_last_line(&newest);
        Ok(tail.offset())
    }

    fn take_last_line(&mut self, line: &str) {
        if let Ok(envelope) = decode_envelope(line) {
            self.updated = Some(envelope.t);
            self.spent.until(envelope.t);
        }
    }

    /// A line that begins at this byte of the log, or ended before it.
    fn take(&mut self, line: &str, at: u64) {
        let Ok(envelope) = decode_envelope(line) else {
            return;
        };
        self.spent.take(envelope.t, &envelope.event);
        match envelope.event {
            Event::Hello { .. } => self.engine_started(),
            Event::Started {
                method,
                max_steps,
                n_params,
                spec,
                ..
            } => {
                self.start_model = spec["train"]["from"].as_str().map(String::from);
                self.method = method;
                self.max_steps = max_steps;
                self.n_params = n_params;
            }
            Event::PhaseChanged { phase, .. } => self.enter(phase),
            Event::Queued { after } => {
                self.enter(Phase::Queued);
                self.queued_after = Some(one_line(&after));
            }
            Event::Stepped { step, values, .. } => self.stepped(step, &values),
            Event::Evaluated {
                step,
                values,
                whole,
                ..
            } => self.measured.evaluated(step, values, whole),
            Event::Checkpointed {
                best: true,
                by: Some(by),
                ..
            } => self.measured.saved(by),
            Event::Diagnosed { step, finding } if finding.id == VERDICT => {
                let verdict = one_line(&finding.title);
                self.measured.verdicts.push((step, verdict));
            }
            Event::RolledBack { step } => {
                self.given_up.rolled_back(self.measured.split_off(step));
                self.best_said = self.best_said.take().filter(|best| best.step <= step);
                self.begin_at(step);
            }
            Event::Rescued { .. } => {
                self.given_up.rescued();
                self.rescued_at = at;
            }
            Event::RescueUndone { step, .. } => self.undo_rescue(step, at),
            Event::Finished {
                outcome,
                step,
                best,
                message,
                ..
            } => self.finished(outcome, step, best, message),
            _ => {}
        }
    }

    fn engine_started(&mut self) {
        let stood = (self.outcome.take(), std::mem::take(&mut self.message));
        self.earlier = (self.step > 0).then_some(stood);
        self.refused = None;
        self.queued_after = None;
        self.phase = Some(Phase::Preparing);
        self.begin_at(self.step);
    }

    fn enter(&mut self, phase: Phase) {
        let before = self.phase.replace(phase);
        self.queued_after = None;
        let idle = [
            Phase::Queued,
            Phase::Preparing,
            Phase::Preflight,
            Phase::Paused,
        ]
        .map(Some);
        if phase == Phase::Training && idle.contains(&before) {
            self.begin_at(self.step);
        }
    }

    fn stepped(&mut self, step: u64, values: &Values) {
        self.earlier = None;
        self.step = step;
        self.measured.stepped(step, values);
    }

    /// Brings back what the rescue gave up; what it trained since, up to the byte `at` of the log, does not count.
    fn undo_rescue(&mut self, step: u64, at: u64) {
        let mut counted = self.given_up.undone();
        counted.split_off(step);
        self.measured.append(counted);
        self.undone.push((self.rescued_at, at));
        self.begin_at(step);
    }

    fn finished(&mut self, outcome: Outcome, step: u64, best: Option<Best>, message: String) {
        // A resume that is refused, or ends before its turn, is the matter of who asked for it: the run stands as it did.
        if (outcome.is_refusal() || self.phase == Some(Phase::Queued))
            && let Some(earlier) = self.earlier.take()
        {
            (self.outcome, self.message) = earlier;
            self.refused = Some(message);
            return;
        }
        self.outcome = Some(outcome);
        self.step = step;
        self.best_said = best.filter(|best| best.value.0.is_finite());
        self.message = message;
    }

    /// The run goes on from this step, from now on.
    fn begin_at(&mut self, step: u64) {
        self.step = step;
        self.newest_steps.clear();
        self.base = Base {
            step,
            seconds: self.spent.seconds(),
        };
    }

    /// The best evaluation, and the same reading over the whole validation split. What an engine said at its end counts as well
    /// as what was saved: a validation loss is not saved at once.
    pub fn best_evaluation(&self) -> Option<(Best, Option<f64>)> {
        let saved = self.measured.bests.last();
        let said = self.best_said.as_ref().filter(|said| {
            // Older engines sent no step.
            let unsaved = said.step > 0 && saved.is_none_or(|(best, _)| best.step != said.step);
            // A resume that has not ended may go by another reading.
            let by_same = saved.is_none_or(|(best, _)| best.metric == said.metric);
            let best = said.improves_on(saved.map(|(best, _)| best));
            unsaved && best && (by_same || self.outcome.is_some())
        });
        let unsaved = said.map(|said| {
            let over_all = self.measured.over_all(said);
            (said.clone(), over_all)
        });
        unsaved.or_else(|| saved.cloned())
    }

    /// The validation loss of the best evaluation that an engine said at its end, where it goes by that.
    pub fn lowest_said(&self) -> Option<f64> {
        let said = self.best_said.as_ref();
        said.filter(|best| best.metric == id::VAL_LOSS)
            .map(|best| best.value.0)
    }

    pub fn status(&self, alive: bool) -> RunStatus {
        match self.outcome {
            _ if alive => RunStatus::Live,
            Some(outcome) => RunStatus::of(outcome),
            None if self.updated.is_some() => RunStatus::Crashed,
            None => RunStatus::Empty,
        }
    }
}

/// A finite value of a reading: a NaN is neither a best nor a point of a curve.
pub(super) fn loss(values: &Values, id: &str) -> Option<f64> {
    values.get(id).map(|n| n.0).filter(|x| x.is_finite())
}
