//! The probes of one run, and the engine's calls to them.

use super::{PROBES, Probe, ProbeEntry, ProbeInput, Report, Setup, spectra};
use crate::base::clock::Clock;
use crate::metrics::{Direction, Metric, Repeatable, metric};
use crate::nn::Model;
use crate::nn::tap::{Activation, AttentionInputs, Tap};
use crate::optim::UpdateRule;
use crate::wire::MetricInfo;
use candle_core::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What every step gives.
#[derive(Debug, Clone, Copy)]
pub struct StepStats<'a> {
    /// Its number, from 1.
    pub step: u64,
    pub loss: f64,
    pub grad_norm: f64,
    /// Mean loss of each micro-batch, in the method's unit.
    pub micro_losses: &'a [f64],
}

/// Time that probes took of the run's steps so far.
pub const COST: Metric = metric(
    "probe_cost",
    "Cost of probes",
    "share",
    Direction::Lower,
    Repeatable::No,
    "time spent in probes over wall time since the first step of this start",
)
.estimator("wall_time")
.label("cost of probes")
.health()
.band(f64::NEG_INFINITY, 0.02, crate::metrics::Origin::RuleOfThumb)
.meaning(
    "Below 2 % of the step: most probes run once every `health.every` steps.",
    "Raise health.every, or set health.enabled=false.",
);

/// The probes of one run; none where they are off.
#[derive(Default)]
pub struct Probes {
    set: Option<Arc<Mutex<Set>>>,
    every: u64,
    log_every: u64,
    n_layer: usize,
    /// The step in hand.
    step: u64,
    micro_losses: Vec<f64>,
}

struct Set {
    members: Vec<Member>,
    clock: Arc<dyn Clock>,
    spent: Duration,
    /// Declarations of the readings of checkpoints, for this model's matrices.
    spectra: Vec<MetricInfo>,
    /// When the first step began.
    since: Option<Duration>,
}

struct Member {
    entry: &'static ProbeEntry,
    probe: Box<dyn Probe>,
    due: bool,
    /// It saw something of the step in hand. An update that is left out, or one of the critic alone, shows nothing to who looks
    /// at updates.
    looked: bool,
}

/// What probes carry from step to step, by their ids.
pub type Carried = BTreeMap<String, Value>;

/// The probes of a run as checkpoints know them; empty where there are none.
#[derive(Clone, Default)]
pub struct SharedProbes(Option<Arc<Mutex<Set>>>);

impl SharedProbes {
    pub fn saved_state(&self) -> Carried {
        let Some(set) = open(self.0.as_ref()) else {
            return Carried::new();
        };
        let members = set.members.iter();
        let kept = members.filter_map(|m| Some((m.entry.id.to_string(), m.probe.saved_state()?)));
        kept.collect()
    }

    pub fn restore_state(&self, carried: &Carried) {
        if let Some(mut set) = open(self.0.as_ref()) {
            for member in &mut set.members {
                member.probe.restore_state(carried.get(member.entry.id));
            }
        }
    }
}

/// A probe that panicked ends the run; its poisoned lock is not another failure.
fn open(set: Option<&Arc<Mutex<Set>>>) -> Option<MutexGuard<'_, Set>> {
    Some(set?.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Set {
    /// Asks those that look there; every one where `always`, else those that are due.
    fn ask(&mut self, look: ProbeInput, always: bool, mut work: impl FnMut(&mut dyn Probe)) {
        let begun = self.clock.elapsed();
        for member in &mut self.members {
            if (member.due || always) && member.entry.inputs.contains(&look) {
                member.looked = true;
                work(&mut *member.probe);
            }
        }
        self.spent += self.clock.elapsed().saturating_sub(begun);
    }

    fn wants(&self, look: ProbeInput) -> bool {
        let due = |member: &Member| member.due && member.entry.inputs.contains(&look);
        self.members.iter().any(due)
    }
}

impl Tap for Set {
    fn activation(&mut self, seen: &Activation<'_>) {
        self.ask(ProbeInput::Activations, false, |probe| {
            probe.activation(seen)
        });
    }

    fn attention(&mut self, seen: &AttentionInputs<'_>) {
        self.ask(ProbeInput::Activations, false, |probe| {
            probe.attention(seen)
        });
    }

    fn logits(&mut self, lse: &[f32]) {
        self.ask(ProbeInput::Activations, false, |probe| probe.logits(lse));
    }
}

impl Probes {
    /// Those that have something to look at in this run, asked every `every` steps or so, of which each `log_every`th is
    /// logged.
    pub fn new(setup: &Setup<'_>, (every, log_every): (u64, u64), clock: Arc<dyn Clock>) -> Probes {
        let member = |entry: &&'static ProbeEntry| {
            let seen = !setup.remote || entry.inputs == [ProbeInput::Steps];
            seen.then_some(())?;
            Some(Member {
                entry,
                probe: (entry.make)(setup)?,
                due: false,
                looked: false,
            })
        };
        let set = Set {
            members: PROBES.iter().filter_map(member).collect(),
            since: None,
            clock,
            spent: Duration::ZERO,
            spectra: spectra::declarations(setup.params),
        };
        Probes {
            set: Some(Arc::new(Mutex::new(set))),
            every: every.max(1),
            log_every: log_every.max(1),
            n_layer: setup.n_layer,
            step: 0,
            micro_losses: Vec::new(),
        }
    }

    fn open(&self) -> Option<MutexGuard<'_, Set>> {
        open(self.set.as_ref())
    }

    /// For checkpoints.
    pub fn carrier(&self) -> SharedProbes {
        SharedProbes(self.set.clone())
    }

    /// What readings may come.
    pub fn declarations(&self) -> Vec<MetricInfo> {
        let Some(set) = self.open() else {
            return Vec::new();
        };
        let rows = set.members.iter().flat_map(|m| m.entry.metrics);
        let rows = rows.map(Metric::info);
        let of_checkpoints = set.spectra.iter().cloned();
        rows.chain(of_checkpoints).chain([COST.info()]).collect()
    }

    /// Before a step: who is asked in it.
    pub fn begin(&mut self, step: u64, is_logged: bool) {
        let (every, before) = (self.every, step.saturating_sub(self.log_every));
        self.step = step;
        if let Some(mut set) = self.open() {
            if set.since.is_none() {
                set.since = Some(set.clock.elapsed());
            }
            for member in &mut set.members {
                member.looked = false;
                member.due = is_logged && member.entry.cadence.is_due(every, step, before);
            }
        }
        self.micro_losses.clear();
    }

    /// Before a micro-batch: the first is looked at.
    pub fn before_micro(&mut self, micro: usize, model: &mut Model) {
        if let Some(set) = &self.set
            && micro == 0
            && self
                .open()
                .is_some_and(|set| set.wants(ProbeInput::Activations))
        {
            model.set_tap(Some(set.clone()));
        }
    }

    /// After a micro-batch of this mean loss, whose share of what the step's normalizer counts is `weight`.
    ///
    /// # Errors
    /// Those of reading gradients.
    pub fn after_micro(
        &mut self,
        micro: usize,
        model: &mut Model,
        (loss, weight): (f64, f64),
    ) -> Result<()> {
        if self.set.is_none() {
            return Ok(());
        }
        // One that counts nothing has no mean.
        if weight > 0.0 {
            self.micro_losses.push(loss);
        }
        if micro == 0 {
            model.set_tap(None);
        }
        match self.open() {
            Some(mut set) if set.wants(ProbeInput::MicroGradients) => {
                model.params().read_grads(|grads| {
                    set.ask(ProbeInput::MicroGradients, false, |probe| {
                        probe.micro_gradient(micro, weight, grads);
                    });
                })
            }
            _ => Ok(()),
        }
    }

    /// Between the gradient and the update, which will scale it by `scale`.
    ///
    /// # Errors
    /// Those of the probes.
    pub fn gradient(&mut self, model: &Model, rule: &dyn UpdateRule, scale: f64) -> Result<()> {
        self.look(ProbeInput::Gradient, |probe| {
            probe.gradient(model.params(), rule, scale)
        })
    }

    /// Once loss and gradient norm of a step are known, whatever becomes of its update.
    pub fn step(&mut self, loss: f64, grad_norm: f64) {
        let seen = StepStats {
            step: self.step,
            loss,
            grad_norm,
            micro_losses: &self.micro_losses,
        };
        if let Some(mut set) = self.open() {
            set.ask(ProbeInput::Steps, true, |probe| probe.step(&seen));
        }
    }

    /// After the update.
    ///
    /// # Errors
    /// Those of the probes.
    pub fn update(&mut self, model: &Model, rule: &dyn UpdateRule) -> Result<()> {
        self.look(ProbeInput::Update, |probe| {
            probe.update(model.params(), rule)
        })
    }

    fn look(
        &self,
        look: ProbeInput,
        mut work: impl FnMut(&mut dyn Probe) -> Result<()>,
    ) -> Result<()> {
        let mut result = Ok(());
        if let Some(mut set) = self.open()
            && set.wants(look)
        {
            set.ask(look, false, |probe| {
                let done = work(probe);
                if result.is_ok() {
                    result = done;
                }
            });
        }
        result
    }

    /// What those that were due saw in this step.
    pub fn report(&mut self) -> Report {
        let mut report = Report::default();
        let n_layer = self.n_layer;
        let Some(mut set) = self.open() else {
            return report;
        };
        let begun = set.clock.elapsed();
        for member in set.members.iter_mut().filter(|m| m.due) {
            if member.looked {
                member.probe.report(&mut report);
            }
            member.due = false;
        }
        report.layers.retain(|_, values| values.len() == n_layer);
        let now = set.clock.elapsed();
        set.spent += now.saturating_sub(begun);
        let wall = now.saturating_sub(set.since.unwrap_or(now)).as_secs_f64();
        if wall > 0.0 {
            report.set(COST.id, set.spent.as_secs_f64() / wall);
        }
        report
    }
}
