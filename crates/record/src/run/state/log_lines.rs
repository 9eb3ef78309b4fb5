//! The log view of a run: which events become a line or a notice, and their text.

use super::parts::{Finish, Head, Level, LogLine, Notice, Rescue, push_bounded};
use super::words::{adjusted, outlier, undone};
use super::{MAX_LOG, MAX_NOTICES, RunState, outcome_word};
use crate::base::clock::UnixMillis;
use crate::base::finding::{Finding, Status};
use crate::base::{human, text};
use crate::run::engine_time;
use crate::run::index::VERDICT;
use crate::wire::{Best, Envelope, Event, Outcome, Phase, Values, id};

/// A line and how it is shown.
struct Line {
    level: Level,
    text: String,
    /// Also a toast.
    notice: bool,
}

impl Line {
    fn info(text: String) -> Self {
        Line {
            level: Level::Info,
            text,
            notice: false,
        }
    }

    fn notice(level: Level, text: String) -> Self {
        Line {
            level,
            text,
            notice: true,
        }
    }
}

impl RunState {
    /// Adds the event's line, given the state before it.
    pub(super) fn push_log_line(&mut self, envelope: &Envelope) {
        let Some(line) = self.line(&envelope.event) else {
            return;
        };
        let text = text::one_line(&line.text);
        if line.notice {
            let notice = Notice {
                seq: envelope.seq,
                t: envelope.t,
                level: line.level,
                text: text.clone(),
            };
            push_bounded(&mut self.notices, notice, MAX_NOTICES);
        }
        let t = envelope.t;
        push_bounded(
            &mut self.log,
            LogLine {
                t,
                level: line.level,
                text,
            },
            MAX_LOG,
        );
    }

    /// The log view's line for an event, given the state before it.
    pub fn line_of(&self, event: &Event) -> Option<String> {
        Some(text::one_line(&self.line(event)?.text))
    }

    fn line(&self, event: &Event) -> Option<Line> {
        Some(match event {
            // What logs of other programs do not tell is 0 in their events.
            Event::Hello { engine, pid: 0, .. } => {
                Line::info(format!("log of another program, read as {engine}"))
            }
            Event::Hello {
                engine, pid, host, ..
            } => Line::info(format!("engine {engine} on {host}, process {pid}")),
            Event::Started { .. } => return started_line(event),
            Event::PhaseChanged { phase, step } => return self.phase_line(*phase, *step),
            Event::Queued { after } => Line::notice(
                Level::Info,
                format!("queued: begins when {after} has ended"),
            ),
            Event::Checked { finding, .. } => return found("preflight", finding),
            Event::Evaluated { .. } => return evaluated_line(event),
            Event::Checkpointed { .. } => return self.checkpointed_line(event),
            Event::Adjusted {
                step,
                key,
                old,
                new,
            } => {
                let change = adjusted(key, old.0, new.0);
                Line::notice(
                    Level::Info,
                    format!("{change} from step {} on", human::grouped(*step)),
                )
            }
            _ => return self.other_event_line(event),
        })
    }

    fn other_event_line(&self, event: &Event) -> Option<Line> {
        Some(match event {
            Event::Stepped { step, values, .. } => return self.diverged(*step, values),
            // Of a log that says a step again, as with a line for each micro-batch; a resume has a note of its own.
            Event::RolledBack { step } if self.is_foreign() && self.step == step + 1 => {
                return None;
            }
            Event::RolledBack { step } if self.step > *step => {
                let lost = human::grouped(self.step - step);
                Line::info(match *step == 0 && self.checkpoints.is_empty() {
                    true => {
                        format!("no checkpoint yet: it starts over, {lost} steps discarded")
                    }
                    false => format!(
                        "rolled back to step {}: {lost} steps discarded",
                        human::grouped(*step)
                    ),
                })
            }
            Event::StartedOver if self.step > 0 => {
                let lost = human::grouped(self.step);
                Line::info(format!("started over: {lost} steps discarded"))
            }
            // Findings tell the same in more words.
            Event::Diagnosed { finding, .. } if finding.id == VERDICT => return None,
            Event::Diagnosed { step, finding } => {
                if finding.status == Status::Pass && self.diagnosed.contains_key(&finding.id) {
                    let (title, at) = (&finding.title, human::grouped(*step));
                    return Some(Line::info(format!("diagnosis clear: {title} at step {at}")));
                }
                return found("diagnosis", finding);
            }
            Event::Skipped {
                step,
                outlier: found,
            } => Line::info(format!(
                "step {}: update skipped, {}",
                human::grouped(*step),
                outlier(found)
            )),
            Event::Rescued { .. } => Line::notice(Level::Warn, Rescue::from_event(event)?.words()),
            Event::RescueUndone { .. } => Line::notice(Level::Info, undone(event)),
            Event::Noted { text, .. } => Line::info(format!("note: {text}")),
            Event::Warned { message, hint, .. } if hint.is_empty() => {
                Line::notice(Level::Warn, message.clone())
            }
            Event::Warned { message, hint, .. } => {
                Line::notice(Level::Warn, format!("{message}: {hint}"))
            }
            Event::Rejected { why, .. } => Line::notice(Level::Warn, format!("refused: {why}")),
            Event::Finished {
                outcome, message, ..
            } if self.before_resume.is_some()
                && (outcome.is_refusal() || self.phase == Some(Phase::Queued)) =>
            {
                Line::notice(outcome_level(*outcome), format!("not resumed: {message}"))
            }
            Event::Finished { .. } => {
                self.finished_line(&Finish::from_event(UnixMillis::default(), event)?)
            }
            Event::Unknown(value) => {
                let kind = value
                    .get("type")
                    .and_then(|t| t.as_str())
                    .unwrap_or("without a type");
                Line::info(format!("unknown event {kind}: written by a newer llmtui"))
            }
            _ => return None,
        })
    }

    fn finished_line(&self, end: &Finish) -> Line {
        let loss = end
            .loss()
            .map(|loss| format!(", val {}", human::number(loss)));
        let why = match end.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let after = match self.is_foreign() && end.seconds <= 0.0 {
            true => String::new(),
            false => format!(" after {}", engine_time::words(end.seconds, self.seconds)),
        };
        let text = format!(
            "{} at step {}{after}{}{why}",
            outcome_word(end.outcome),
            human::grouped(end.step),
            loss.unwrap_or_default(),
        );
        Line::notice(outcome_level(end.outcome), text)
    }

    /// The first step of a stretch with a non-finite loss.
    fn diverged(&self, step: u64, values: &Values) -> Option<Line> {
        let loss = values.get(id::TRAIN_LOSS)?.0;
        let before = self.latest(id::TRAIN_LOSS).is_some_and(|x| !x.is_finite());
        let (at, loss_is) = (human::grouped(step), human::number(loss));
        let line = || {
            Line::notice(
                Level::Bad,
                format!("the training loss is {loss_is} at step {at}"),
            )
        };
        (!loss.is_finite() && !before).then(line)
    }

    fn phase_line(&self, phase: Phase, step: u64) -> Option<Line> {
        let at = human::grouped(step);
        match (self.phase, phase) {
            (before, now) if before == Some(now) => None,
            // Back from what was asked for meanwhile.
            (_, Phase::Paused) if self.in_pause => None,
            (_, Phase::Paused) => Some(Line::notice(Level::Info, format!("paused at step {at}"))),
            (Some(Phase::Paused), Phase::Training) => Some(Line::notice(
                Level::Info,
                format!("training resumed at step {at}"),
            )),
            (_, Phase::Stopping) => Some(Line::info(format!("stopping at step {at}"))),
            _ => None,
        }
    }
}

fn started_line(event: &Event) -> Option<Line> {
    let head = Head::from_event(event)?;
    // What logs of other programs do not tell is 0 in their events.
    let params = match head.n_params {
        0 => String::new(),
        n => format!(", {} parameters", human::short(n as f64)),
    };
    let precision = head.precision.map(|dtype| format!(" in {dtype}"));
    let from = head.resumed_from.map(human::grouped);
    let from = from.map(|step| format!(", resumed from step {step}"));
    let steps = match head.max_steps {
        0 => String::new(),
        n => format!(", {} steps", human::grouped(n)),
    };
    Some(Line::info(format!(
        "{}: {}{params}{steps}{}{}",
        head.name,
        head.method,
        precision.unwrap_or_default(),
        from.unwrap_or_default(),
    )))
}

fn evaluated_line(event: &Event) -> Option<Line> {
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
    let (at, windows) = (human::grouped(*step), human::grouped(*n_windows));
    let Some(loss) = values.get(id::VAL_LOSS) else {
        let scores = scores(values).join(", ");
        return Some(Line::info(format!(
            "step {at}: {scores} over {windows}, {seconds:.1} s"
        )));
    };
    let others = values.iter().filter_map(|(id, value)| {
        let name = text::one_line(id.strip_prefix(id::EXTRA)?);
        Some(format!(", {} on {name}", human::number(value.0)))
    });
    let others: String = others.collect();
    let how = match (n_windows, whole) {
        // What logs of other programs do not tell.
        (0, _) => others,
        (_, true) => format!(" over the whole split{others}, {seconds:.1} s"),
        (_, false) => format!(" over {windows} windows{others}, {seconds:.1} s"),
    };
    let loss = human::number(loss.0);
    Some(Line::info(format!(
        "step {at}: validation loss {loss}{how}"
    )))
}

/// `pass@1 0.5 ± 0.02`, for each score of answers.
fn scores(values: &Values) -> Vec<String> {
    let scores = values
        .iter()
        .filter(|(id, _)| !id.starts_with(id::EVAL_STDERR));
    let told = scores.map(|(id, value)| {
        let name = id.strip_prefix(id::EVAL).unwrap_or(id);
        let error = values.get(&format!("eval_stderr/{name}"));
        let error = error.map(|error| format!(" ± {}", human::number(error.0)));
        let (name, value) = (text::one_line(name), human::number(value.0));
        format!("{name} {value}{}", error.unwrap_or_default())
    });
    told.collect()
}

impl RunState {
    fn checkpointed_line(&self, event: &Event) -> Option<Line> {
        let Event::Checkpointed {
            path,
            bytes,
            best,
            val_loss,
            by,
            ..
        } = event
        else {
            return None;
        };
        let name = path.rsplit('/').next().unwrap_or(path);
        let val = val_loss.map(|x| format!(", val {}", human::number(x.0)));
        let why = match best {
            true => {
                let rank = self.rank_of_best(by.as_ref());
                match by.as_ref().and_then(|by| self.best_by(by)) {
                    Some(words) => format!(" ({rank} by {words})"),
                    None => format!(" ({rank}{})", val.unwrap_or_default()),
                }
            }
            false => String::new(),
        };
        Some(Line::notice(
            Level::Good,
            format!("checkpoint {name} kept{why}, {}", human::bytes(*bytes)),
        ))
    }

    /// By what, if not by the validation loss: `val accuracy 0.9906`. An evaluation of more rows has another value of it.
    pub fn best_by(&self, by: &Best) -> Option<String> {
        let words = by.not_by_loss()?;
        let then = self.evaluations.iter().rev().find(|e| e.step == by.step);
        let value = then.and_then(|e| e.values.get(&by.metric));
        Some(match value.is_some_and(|value| *value != by.value.0) {
            true => format!("{words} on the rows of the evaluations before"),
            false => words,
        })
    }

    /// What a checkpoint is that counts as the best: of equal ones the newest does.
    pub fn rank_of_best(&self, by: Option<&Best>) -> &'static str {
        let equals = |by: &Best| {
            let earlier = self.checkpoints.iter().filter(|c| c.step < by.step);
            let mut readings = earlier.filter_map(|c| c.by.as_ref());
            readings.any(|other| other.metric == by.metric && other.value == by.value)
        };
        match by.is_some_and(equals) {
            true => "as good as the best before it",
            false => "best so far",
        }
    }
}

/// What a check or a rule found, where that is worth a line.
fn found(who: &str, finding: &Finding) -> Option<Line> {
    let advice = match finding.advice() {
        advice if advice.is_empty() => advice,
        advice => format!("; {advice}"),
    };
    let (title, evidence) = (&finding.title, &finding.evidence);
    let text = |word: &str| format!("{who} {word}: {title}: {evidence}{advice}");
    match finding.status {
        Status::Warn => Some(Line::notice(Level::Warn, text("warning"))),
        Status::Fail => Some(Line::notice(Level::Bad, text("failure"))),
        Status::Pass | Status::Unknown | Status::NotApplicable => None,
    }
}

fn outcome_level(outcome: Outcome) -> Level {
    match outcome {
        Outcome::Completed => Level::Good,
        Outcome::Stopped => Level::Info,
        Outcome::Refused
        | Outcome::Invalid
        | Outcome::Failed
        | Outcome::Starved
        | Outcome::Crashed => Level::Bad,
    }
}
