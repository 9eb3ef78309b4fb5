//! The rules next to a running engine: folds its events, and returns a `Diagnosed` event for each rule whose status changes. Only
//! metrics read by rules are kept, so that a long run costs an engine a few megabytes.
//!
//! A warning is raised at the first evaluation that has it, and cleared or made milder at the second consecutive one without it:
//! a reading that fluctuates around a threshold is one warning, not one at each evaluation (hysteresis). Each time a warning
//! returns, it takes twice as many evaluations to clear.

use super::metric;
use super::rules::{is_read, is_repeater};
use super::{RULES, diagnose};
use crate::base::clock::UnixMillis;
use crate::base::finding::{Finding, Status};
use crate::run::RunState;
use crate::wire::{Envelope, Event, VERSION, Values};
use std::collections::BTreeMap;

/// Follows one run.
#[derive(Debug, Default)]
pub struct Monitor {
    state: RunState,
    seq: u64,
    /// The last reported status of each rule.
    reported: BTreeMap<String, Status>,
    /// Consecutive evaluations in which a rule's status was milder than last reported.
    milder: BTreeMap<String, u32>,
    /// How often a rule raised a warning.
    raised: BTreeMap<String, u32>,
    /// The last reported verdict.
    word: Option<&'static str>,
    /// Whether steps were rolled back since the last evaluation: findings about them no longer apply.
    rewound: bool,
}

/// Consecutive milder evaluations after which the milder status of a rule is reported.
const CLEAR_AFTER: u32 = 2;
/// Number of repetitions after which the time to clear a warning no longer grows.
const MAX_RAISED: u32 = 6;

impl Monitor {
    pub fn new() -> Monitor {
        Monitor::default()
    }

    /// Adds an event; one that no rule reads costs nothing.
    pub fn on_event(&mut self, event: &Event) {
        let read = |values: &Values| -> Values {
            // Throughput depends on what else the machine does: viewers judge it.
            let of_machine = |id: &str| [metric::TOK_PER_SEC, metric::MFU].contains(&id);
            let needed = |id: &str| is_read(id) && !of_machine(id);
            let kept = values.iter().filter(|(id, _)| needed(id));
            kept.map(|(id, x)| (id.clone(), *x)).collect()
        };
        let event = match event {
            Event::Stepped {
                step,
                tokens,
                values,
            } => Event::Stepped {
                step: *step,
                tokens: *tokens,
                values: read(values),
            },
            Event::Probed { step, layers } => {
                let needed = layers.iter().filter(|(id, _)| is_read(id));
                Event::Probed {
                    step: *step,
                    layers: needed
                        .map(|(id, values)| (id.clone(), values.clone()))
                        .collect(),
                }
            }
            // The direction of a task's score; other declarations are left to viewers.
            Event::MetricsDeclared { metrics } => {
                let of_tasks = metrics
                    .iter()
                    .filter(|info| info.id.starts_with(metric::EVAL));
                Event::MetricsDeclared {
                    metrics: of_tasks.cloned().collect(),
                }
            }
            Event::Diagnosed { finding, .. } => {
                let (id, now) = (&finding.id, finding.status);
                let before = self.reported.insert(id.clone(), now);
                self.count(id, before.unwrap_or(Status::Pass), now);
                return;
            }
            Event::Started { .. }
            | Event::Evaluated { .. }
            | Event::Sampled { .. }
            | Event::Adjusted { .. }
            | Event::Skipped { .. }
            | Event::Rescued { .. }
            | Event::RescueUndone { .. } => event.clone(),
            Event::RolledBack { .. } | Event::StartedOver => {
                self.rewound = true;
                event.clone()
            }
            _ => return,
        };
        self.seq += 1;
        self.state.apply(&Envelope {
            v: VERSION,
            seq: self.seq,
            t: UnixMillis::default(),
            event,
        });
    }

    /// Changes since the last call, and the verdict. Rules that only repeat other events are left to viewers.
    pub fn news(&mut self) -> Vec<Event> {
        let step = self.state.step;
        let diagnosis = diagnose(&self.state);
        let mut findings = diagnosis.findings.clone();
        findings.retain(|f| {
            let known = RULES.iter().any(|rule| rule.entry.id == f.id);
            known && !is_repeater(&f.id)
        });
        // A rule with no finding any more is clear.
        let silent: Vec<String> = self
            .reported
            .iter()
            .filter(|(id, status)| {
                **status <= Status::Warn && !findings.iter().any(|f| f.id == **id)
            })
            .map(|(id, _)| id.clone())
            .collect();
        let cleared = silent.iter().filter_map(|id| {
            let rule = RULES.iter().find(|rule| rule.entry.id == *id)?;
            Some(rule.clear())
        });
        findings.extend(cleared);
        let rewound = std::mem::take(&mut self.rewound);
        findings.retain(|f| self.is_status_change(f, rewound));
        // Every time, so that a list of runs finds it near the end of a log.
        self.word = Some(diagnosis.verdict.word());
        findings.push(diagnosis.finding());
        let event = |finding: Finding| Event::Diagnosed {
            step,
            finding: finding.into(),
        };
        findings.into_iter().map(event).collect()
    }

    /// Only the verdict, if it differs from the last reported one: for lists of runs between evaluations. Findings of single
    /// rules wait for those.
    pub fn new_verdict(&mut self) -> Option<Event> {
        let diagnosis = diagnose(&self.state);
        let word = diagnosis.verdict.word();
        (self.word.replace(word) != Some(word)).then(|| Event::Diagnosed {
            step: self.state.step,
            finding: diagnosis.finding().into(),
        })
    }

    /// Whether a rule's status differs from the last reported one for long enough.
    fn is_status_change(&mut self, finding: &Finding, rewound: bool) -> bool {
        let (id, now) = (&finding.id, finding.status);
        let before = self.reported.get(id).copied().unwrap_or(Status::Pass);
        // `Status` is ordered, worst first.
        if before <= Status::Warn && now > before && !rewound {
            let looks = self.milder.entry(id.clone()).or_default();
            *looks += 1;
            let raised = self.raised.get(id).copied().unwrap_or(1).min(MAX_RAISED);
            if *looks < CLEAR_AFTER << (raised - 1) {
                return false;
            }
        }
        self.count(id, before, now);
        self.milder.remove(id);
        self.reported.insert(id.clone(), now);
        before != now
    }

    /// Counts a warning that was not there before.
    fn count(&mut self, id: &str, before: Status, now: Status) {
        if now <= Status::Warn && before > Status::Warn {
            *self.raised.entry(id.into()).or_default() += 1;
        }
    }
}
