//! The run's log view: which events become a line or a notice, and their wording.

use super::parts::{Level, LogLine, Notice, Rescue, push_bounded};
use super::words::{adjusted, outlier, undone};
use super::{MAX_LOG, MAX_NOTICES, RunState, outcome_word};
use crate::base::finding::{Finding, Status};
use crate::base::{human, text};
use crate::run::index::VERDICT;
use crate::run::spent;
use crate::wire::{Envelope, Event, Outcome, Phase, Values};

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
    pub(super) fn tell(&mut self, envelope: &Envelope) {
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
            Event::Started {
                name,
                method,
                n_params,
                max_steps,
                resumed_from,
                precision,
                ..
            } => {
                let from =
                    resumed_from.map(|s| format!(", resumed from step {}", human::grouped(s)));
                let steps = human::grouped(*max_steps);
                let params = match n_params {
                    0 => String::new(),
                    n => format!(", {} parameters", human::short(*n as f64)),
                };
                let from = from.unwrap_or_default();
                let precision = precision.as_ref().map(|p| format!(" in {p}"));
                let precision = precision.unwrap_or_default();
                Line::info(format!(
                    "{name}: {method}{params}, {steps} steps{precision}{from}"
                ))
            }
            Event::PhaseChanged { phase, step } => return self.phase_line(*phase, *step),
            Event::Checked { finding, .. } => return found("preflight", finding),
            Event::Evaluated {
                step,
                values,
                n_windows,
                whole,
                seconds,
                ..
            } => {
                let Some(loss) = values.get("val/loss") else {
                    let scores = values
                        .iter()
                        .filter(|(id, _)| !id.starts_with("eval_stderr/"));
                    let told = scores.map(|(id, value)| {
                        let name = id.strip_prefix("eval/").unwrap_or(id);
                        let value = human::number(value.0);
                        match values.get(&format!("eval_stderr/{name}")) {
                            Some(error) => {
                                let error = human::number(error.0);
                                format!("{} {value} ± {error}", text::one_line(name))
                            }
                            None => format!("{} {value}", text::one_line(name)),
                        }
                    });
                    let told: Vec<String> = told.collect();
                    return Some(Line::info(format!(
                        "step {}: {} over {}, {seconds:.1} s",
                        human::grouped(*step),
                        told.join(", "),
                        human::grouped(*n_windows)
                    )));
                };
                let part = if *whole {
                    "the whole split".into()
                } else {
                    format!("{} windows", human::grouped(*n_windows))
                };
                let (step, loss) = (human::grouped(*step), human::number(loss.0));
                let others = values.iter().filter_map(|(id, value)| {
                    let name = text::one_line(id.strip_prefix("extra/")?);
                    Some(format!(", {} on {name}", human::number(value.0)))
                });
                let others: String = others.collect();
                let how = match n_windows {
                    0 => others,
                    _ => format!(" over {part}{others}, {seconds:.1} s"),
                };
                Line::info(format!("step {step}: validation loss {loss}{how}"))
            }
            Event::Checkpointed {
                path,
                bytes,
                best,
                val_loss,
                ..
            } => {
                let name = path.rsplit('/').next().unwrap_or(path);
                let val = val_loss
                    .map(|x| format!(", val {}", human::number(x.0)))
                    .unwrap_or_default();
                let why = if *best {
                    format!(" (best so far{val})")
                } else {
                    String::new()
                };
                Line::notice(
                    Level::Good,
                    format!("checkpoint {name} kept{why}, {}", human::bytes(*bytes)),
                )
            }
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
            _ => return self.rare_line(event),
        })
    }

    fn rare_line(&self, event: &Event) -> Option<Line> {
        Some(match event {
            Event::Stepped { step, values, .. } => return self.diverged(*step, values),
            Event::RolledBack { step } if self.step > *step => {
                let lost = human::grouped(self.step - step);
                Line::info(format!(
                    "rolled back to step {}: {lost} steps discarded",
                    human::grouped(*step)
                ))
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
                "step {}: update left out, {}",
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
            } if outcome.is_refusal() && self.stood.is_some() => {
                Line::notice(outcome_level(*outcome), format!("not resumed: {message}"))
            }
            Event::Finished {
                outcome,
                step,
                val_loss,
                best,
                seconds,
                message,
                ..
            } => {
                let lowest = best.as_ref().filter(|best| best.metric == "val/loss");
                let val = val_loss
                    .or(lowest.map(|best| best.value))
                    .map(|x| format!(", val {}", human::number(x.0)));
                let why = if message.is_empty() {
                    String::new()
                } else {
                    format!(": {message}")
                };
                let took = spent::words(*seconds, self.seconds);
                let word = outcome_word(*outcome);
                let at = human::grouped(*step);
                let text = format!(
                    "{word} at step {at} after {took}{}{why}",
                    val.unwrap_or_default()
                );
                Line::notice(outcome_level(*outcome), text)
            }
            Event::Unknown(value) => {
                let kind = value
                    .get("type")
                    .and_then(|t| t.as_str())
                    .unwrap_or("without a type");
                Line::info(format!("unknown event {kind}: written by a newer program"))
            }
            _ => return None,
        })
    }

    /// The first step of a stretch with a non-finite loss.
    fn diverged(&self, step: u64, values: &Values) -> Option<Line> {
        let loss = values.get("train/loss")?.0;
        let before = self.latest("train/loss").is_some_and(|x| !x.is_finite());
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
