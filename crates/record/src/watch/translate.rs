//! From a log's records to events of the wire: names become ours, metrics are declared before their first value, steps that
//! go back are a resume, and a log that stays silent is a run that ended.

use super::names::{self, Mapping, Role};
use super::passes::EpochJoiner;
use super::places::Places;
use super::rl::RlLog;
use super::utilization::Utilization;
use super::{Facts, Item};
use crate::base::clock::UnixMillis;
use crate::base::human;
use crate::wire::{Envelope, Event, MetricInfo, Num, Outcome, Phase, VERSION, Values, id};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a log may be silent at its last step before its run has ended.
const DONE: Duration = Duration::from_secs(60);

/// Translates one log, from its beginning.
#[derive(Debug)]
pub struct Translator {
    name: String,
    format: &'static str,
    mapping: Mapping,
    facts: Facts,
    seq: u64,
    /// Metric → step of its newest reading.
    newest: BTreeMap<String, u64>,
    places: Places,
    passes: EpochJoiner,
    rl: RlLog,
    utilization: Utilization,
    /// The log was replaced, and no reading of the new one has come yet.
    replaced: bool,
    /// A reading of the log had a time of its own.
    has_times: bool,
    /// `Started` was sent.
    started: bool,
    finished: bool,
    /// The program said that a run goes on that had ended, and nothing was read of it yet.
    begun: bool,
    step: u64,
    /// Of the newest record: one without a step is one further.
    record: u64,
    tokens: u64,
    /// When the first reading was taken, and the newest.
    first_t: Option<UnixMillis>,
    last_t: UnixMillis,
    /// When a run went on that had ended: what comes before is counted already.
    resumed_t: Option<UnixMillis>,
    events: Vec<Envelope>,
    /// Readings of one step that are still together: training's and held-out ones.
    group: Option<Group>,
    /// All that was sent of the newest step.
    sent: Option<Group>,
    /// Milliseconds between the two newest steps.
    apart: Option<u64>,
}

#[derive(Debug, Clone)]
struct Group {
    step: u64,
    /// When the first reading of training was taken. Logs have several lines of a step, one for each micro-batch: from first one to
    /// first one is the time of a step, however often the log is looked at.
    train_t: UnixMillis,
    /// When the newest held-out one was.
    held_out_t: UnixMillis,
    train: Values,
    held_out: Values,
}

impl Group {
    fn has(&self, id: &str) -> bool {
        self.train.contains_key(id) || self.held_out.contains_key(id)
    }

    /// With later readings of the same step. Those that come long after it, measured by how far steps are `apart`, are of a run that
    /// was resumed and did the step again.
    fn extend(&mut self, later: Group, apart: Option<u64>) {
        let between = later.train_t.0.saturating_sub(self.train_t.0);
        let is_again = !later.train.is_empty() && apart.is_some_and(|apart| between > 2 * apart);
        if self.train.is_empty() || is_again {
            self.train_t = later.train_t;
        }
        if !later.held_out.is_empty() {
            self.held_out_t = later.held_out_t;
        }
        self.train.extend(later.train);
        self.held_out.extend(later.held_out);
    }
}

impl Translator {
    pub fn new(name: &str, format: &'static str, mapping: Mapping) -> Translator {
        Translator {
            name: name.into(),
            format,
            mapping,
            facts: Facts::default(),
            seq: 0,
            newest: BTreeMap::new(),
            places: Places::default(),
            passes: EpochJoiner::default(),
            rl: RlLog::default(),
            utilization: Utilization::default(),
            replaced: false,
            has_times: false,
            started: false,
            finished: false,
            begun: false,
            step: 0,
            record: 0,
            tokens: 0,
            first_t: None,
            last_t: UnixMillis::default(),
            resumed_t: None,
            events: Vec::new(),
            group: None,
            sent: None,
            apart: None,
        }
    }

    /// The events of `items`; a reading without a time was taken when the log `changed`.
    pub fn translate(&mut self, items: Vec<Item>, changed: UnixMillis) -> Vec<Envelope> {
        self.rl.look(&items, &self.mapping);
        self.utilization.look(&items, &self.mapping);
        for item in items {
            match item {
                Item::Facts(facts) => {
                    // Of a run that has ended they are reported when it goes on.
                    if self.facts.absorb(facts) && self.started && !self.finished {
                        self.close_group();
                        self.start();
                    }
                }
                Item::Readings { step, t, values } => {
                    self.has_times |= t.is_some();
                    self.readings(step, t.unwrap_or(changed), values)
                }
                Item::Restart => {
                    self.close_group();
                    self.passes = EpochJoiner::default();
                    self.record = 0;
                    self.replaced = true;
                }
                Item::Began(step) => self.begin_at(step),
                Item::Ended(well) => self.end(well, ""),
                Item::Trouble(message) => {
                    self.close_group();
                    // A warning does not make a run go on that has ended.
                    if !self.started {
                        self.open();
                    }
                    let step = self.step;
                    self.emit(Event::Warned {
                        step,
                        code: "log".into(),
                        message,
                        hint: String::new(),
                    });
                }
            }
        }
        self.close_group();
        if self.begun {
            // It is the newest that the log says.
            self.last_t = self.last_t.max(changed);
            self.open();
        }
        self.too_many();
        std::mem::take(&mut self.events)
    }

    /// What is to be said once everything was read: a log that is silent for longer than its source is patient, and for 20 times
    /// the usual pause, is one of a run that ended or hangs.
    pub fn rest(
        &mut self,
        now: UnixMillis,
        changed: UnixMillis,
        patience: Duration,
    ) -> Vec<Envelope> {
        if self.started && !self.finished {
            let first = self.first_t.unwrap_or(self.last_t);
            let pause = self
                .last_t
                .since(first)
                .checked_div(u32::try_from(self.seq).unwrap_or(u32::MAX));
            let patience = patience.max(pause.unwrap_or_default().saturating_mul(20));
            let silence = now.since(changed);
            let max = self.max_steps();
            if max > 0 && self.step >= max && silence > DONE {
                self.end(true, "");
            } else if silence > patience {
                let age = human::age(silence);
                self.finish_with(
                    Outcome::Stopped,
                    &format!("nothing was logged for {age}: it ended, or it hangs"),
                );
            }
        }
        std::mem::take(&mut self.events)
    }

    fn readings(&mut self, step: Option<u64>, t: UnixMillis, values: Vec<(String, f64)>) {
        if names::is_summary(&values) {
            self.end(true, "");
            return;
        }
        self.first_t.get_or_insert(t);
        self.last_t = self.last_t.max(t);
        self.mapping
            .note(values.iter().map(|(name, _)| name.as_str()));
        let own = self
            .mapping
            .step(&values)
            .and_then(|(_, x)| super::json::step_of(*x));
        let step = step.or(own).unwrap_or(self.record + 1);
        let joined = self.passes.joined();
        let step = self.step_of_run(step, &values);
        if std::mem::take(&mut self.replaced) {
            self.start_over(step);
        }
        if self.passes.joined() != joined && self.started && !self.finished {
            // What the log called the last step is that of one pass.
            self.close_group();
            self.start();
        }
        // Trainers sum up behind their last step; a last evaluation there still counts.
        let behind = self.is_over() && step == self.step;
        // Before the tokens of this step: they are not those of the one before.
        if self.group.as_ref().is_some_and(|group| group.step != step) {
            self.close_group();
        }
        let (mut train, mut held_out) = (Values::new(), Values::new());
        let mut differs = false;
        for (name, x) in values {
            match self.mapping.role(&name) {
                Role::Tokens => self.tokens = super::json::step_of(x).unwrap_or(self.tokens),
                Role::Metric(id, factor) => {
                    let id = self.rl.id(id, &name, &self.mapping);
                    let Some(x) = self.utilization.value(&id, x, factor) else {
                        continue;
                    };
                    let repeated = self.newest.get(&id) == Some(&step);
                    if behind && (repeated || !names::is_held_out(&id)) {
                        continue;
                    }
                    let is_reported =
                        self.newest.contains_key(&id) || self.places.has(&name, &id, &self.mapping);
                    if !is_reported {
                        continue;
                    }
                    if repeated && !self.group.as_ref().is_some_and(|group| group.has(&id)) {
                        match self.sent_at(step, &id) {
                            Some(sent) if sent.to_bits() != x.to_bits() => differs = true,
                            // Nothing new, or a late word on a step that others have passed.
                            _ => continue,
                        }
                    }
                    let values = if names::is_held_out(&id) {
                        &mut held_out
                    } else {
                        &mut train
                    };
                    values.insert(id, Num(x));
                }
                Role::Step | Role::Time | Role::Nothing => {}
            }
        }
        if train.is_empty() && held_out.is_empty() {
            return;
        }
        self.record = step;
        if differs {
            self.replace_sent(step);
        }
        let ids = train.keys().chain(held_out.keys()).cloned().collect();
        self.roll_back(step, ids, behind);
        let read = Group {
            step,
            train_t: t,
            held_out_t: t,
            train,
            held_out,
        };
        match &mut self.group {
            Some(group) => group.extend(read, self.apart),
            group => *group = Some(read),
        }
    }

    /// The step of the whole run, of a record that the log gives this one.
    fn step_of_run(&mut self, step: u64, values: &[(String, f64)]) -> u64 {
        let epoch = self.epoch(values);
        let (newest, mapping, rl) = (&self.newest, &self.mapping, &self.rl);
        // Every record has its epoch, and an evaluation may have the learning rate.
        let is_telling = |id: &str| id != id::EPOCHS && id != id::LR;
        self.passes.step(step, epoch, |at| {
            values.iter().any(|(name, _)| match mapping.role(name) {
                Role::Metric(id, _) => {
                    let id = rl.id(id, name, mapping);
                    is_telling(&id) && newest.get(&id) == Some(&at)
                }
                _ => false,
            })
        })
    }

    /// Another log stands in place of the one that was read, and begins with this step. One that goes on behind it is the next
    /// part of the same run, as of a program that rotates its logs.
    fn start_over(&mut self, step: u64) {
        if !self.started || self.newest.values().all(|newest| *newest < step) {
            return;
        }
        self.tokens = 0;
        self.drop_after(None);
        self.emit(Event::Noted {
            step: 0,
            text: "the log was overwritten: reading it again from the start".into(),
        });
    }

    /// The program says where its run begins or goes on. Whether it was started several times since the last look does not matter:
    /// each time what is read of later steps goes.
    fn begin_at(&mut self, step: u64) {
        self.close_group();
        self.begun = self.finished;
        if step == 0 {
            (self.passes, self.record) = (EpochJoiner::default(), 0);
        } else if self.passes.joined() {
            // The log counts the steps of each pass, and does not say of which one this is.
            return;
        }
        let Some(from) = self.newest.values().max().copied() else {
            return;
        };
        // What was measured before the first step stays: an evaluation of the model as it was.
        if from <= step {
            return;
        }
        if step == 0 {
            self.tokens = 0;
        }
        self.drop_after((step > 0).then_some(step));
        let (from, at) = (human::grouped(from), human::grouped(step));
        self.emit(Event::Noted {
            step,
            text: format!(
                "the run was started again at step {at}, after step {from}: earlier values behind it are dropped"
            ),
        });
    }

    /// It ended, and nothing says that it goes on.
    fn is_over(&self) -> bool {
        self.finished && !self.begun
    }

    /// What was read after a step no longer counts; without one, nothing does.
    fn drop_after(&mut self, step: Option<u64>) {
        self.sent = None;
        let Some(to) = step else {
            self.newest.clear();
            self.step = 0;
            return self.emit(Event::StartedOver);
        };
        let newest = self.newest.values_mut();
        newest.for_each(|newest| *newest = (*newest).min(to));
        self.step = self.step.min(to);
        self.emit(Event::RolledBack { step: to });
    }

    /// What was sent of a metric, if nothing of another step followed.
    fn sent_at(&self, step: u64, id: &str) -> Option<f64> {
        let sent = self.sent.as_ref().filter(|sent| sent.step == step)?;
        let value = sent.train.get(id).or_else(|| sent.held_out.get(id));
        value.map(|x| x.0)
    }

    /// The newest step is read once more, with other values: it is sent again with those, so that no metric has two readings.
    fn replace_sent(&mut self, step: u64) {
        let Some(mut sent) = self.sent.take() else {
            return;
        };
        let group = self.group.take();
        self.drop_after(step.checked_sub(1));
        if let Some(group) = group {
            sent.extend(group, self.apart);
        }
        let ids = sent.train.keys().chain(sent.held_out.keys());
        for id in ids {
            self.newest.insert(id.clone(), step);
        }
        self.group = Some(sent);
    }

    /// A metric's step went back: the run was resumed from an earlier state.
    fn roll_back(&mut self, step: u64, ids: Vec<String>, behind: bool) {
        let newest = ids.iter().filter_map(|id| self.newest.get(id)).max();
        if let Some(from) = newest.copied().filter(|newest| *newest > step) {
            self.close_group();
            self.drop_after(step.checked_sub(1));
            let (from, at) = (human::grouped(from), human::grouped(step));
            let dropped = match step {
                0 => "as in a run that was started again: earlier values are dropped",
                _ => "as in a resumed run: earlier values after that step are dropped",
            };
            self.emit(Event::Noted {
                step: step.saturating_sub(1),
                text: format!("the log went back from step {from} to step {at}, {dropped}"),
            });
        }
        let mut new: Vec<&String> = ids
            .iter()
            .filter(|id| !self.newest.contains_key(*id))
            .collect();
        // Lists keep this order: the loss stands before hundreds of others.
        new.sort_by_key(|id| !names::is_known(id));
        let new: Vec<MetricInfo> = new.into_iter().map(|id| names::info(id)).collect();
        for id in ids {
            self.newest.insert(id, step);
        }
        if !new.is_empty() {
            self.close_group();
            if !behind {
                self.open();
            }
            self.emit(Event::MetricsDeclared { metrics: new });
        }
    }

    /// The pass over the data that a record is of, where it says so.
    fn epoch(&self, values: &[(String, f64)]) -> Option<f64> {
        let is_epochs =
            |name: &str| matches!(self.mapping.role(name), Role::Metric(id, _) if id == id::EPOCHS);
        values
            .iter()
            .find(|(name, _)| is_epochs(name))
            .map(|(_, x)| *x)
    }

    /// Said once, with their number.
    fn too_many(&mut self) {
        let Some(message) = self.places.warning(self.newest.len()) else {
            return;
        };
        let step = self.step;
        self.open();
        self.emit(Event::Warned {
            step,
            code: "too_many_metrics".into(),
            message,
            hint: String::new(),
        });
    }

    fn close_group(&mut self) {
        let Some(group) = self.group.take() else {
            return;
        };
        // An evaluation behind the end does not make the run go on.
        if !(self.is_over() && group.train.is_empty() && group.step == self.step) {
            self.open_at(group.train_t.min(group.held_out_t));
        }
        let mut sent = match self.sent.take() {
            Some(sent) if sent.step == group.step => sent,
            before => {
                let before = before.filter(|it| it.step < group.step && !it.train.is_empty());
                if let Some(before) = before.filter(|_| !group.train.is_empty()) {
                    self.apart = Some(group.train_t.0.saturating_sub(before.train_t.0));
                }
                Group {
                    train: Values::new(),
                    held_out: Values::new(),
                    ..group
                }
            }
        };
        sent.extend(group.clone(), self.apart);
        let (train_t, held_out_t) = (sent.train_t, sent.held_out_t);
        self.sent = Some(sent);
        let (step, tokens) = (group.step, self.tokens);
        if !group.train.is_empty() {
            self.step = step;
            let values = group.train;
            self.emit_at(
                train_t,
                Event::Stepped {
                    step,
                    tokens,
                    values,
                },
            );
        }
        if !group.held_out.is_empty() {
            let evaluated = Event::Evaluated {
                step,
                tokens,
                values: group.held_out,
                n_windows: 0,
                whole: true,
                seconds: 0.0,
            };
            self.emit_at(held_out_t, evaluated);
        }
    }

    /// Before the first reading, and where one follows an end.
    fn open(&mut self) {
        self.open_at(self.last_t);
    }

    /// The same, for a reading of then.
    fn open_at(&mut self, t: UnixMillis) {
        if self.started && !self.finished {
            return;
        }
        if self.finished {
            self.resumed_t = Some(t);
        }
        (self.finished, self.begun) = (false, false);
        self.emit(Event::Hello {
            run: self.name.clone(),
            engine: self.format.into(),
            pid: 0,
            host: "another program".into(),
        });
        self.start();
        let step = self.step;
        self.emit(Event::PhaseChanged {
            phase: Phase::Training,
            step,
        });
    }

    /// Whether the log has times of its own: the others are those of its last change.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// The last step; 0 where it is not known.
    fn max_steps(&self) -> u64 {
        let passes = match self.passes.joined() {
            true => self.facts.passes.unwrap_or(0),
            false => 1,
        };
        self.facts.max_steps.unwrap_or(0).saturating_mul(passes)
    }

    fn start(&mut self) {
        self.started = true;
        let facts = &self.facts;
        self.emit(Event::Started {
            name: facts.name.clone().unwrap_or(self.name.clone()),
            method: self.format.into(),
            spec: facts.as_spec(),
            n_params: facts.n_params.unwrap_or(0),
            vocab_size: facts.vocab_size.unwrap_or(0),
            max_steps: self.max_steps(),
            batch_tokens: 0,
            epoch_tokens: 0,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        });
    }

    fn end(&mut self, well: bool, message: &str) {
        let outcome = if well {
            Outcome::Completed
        } else {
            Outcome::Failed
        };
        self.finish_with(outcome, message);
    }

    fn finish_with(&mut self, outcome: Outcome, message: &str) {
        self.close_group();
        self.begun = false;
        if !self.started || self.finished {
            return;
        }
        self.finished = true;
        let began = self.resumed_t.or(self.first_t);
        let took = self.last_t.since(began.unwrap_or(self.last_t));
        self.emit(Event::Finished {
            outcome,
            step: self.step,
            tokens: self.tokens,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: took.as_secs_f64(),
            message: message.into(),
        });
    }

    fn emit(&mut self, event: Event) {
        self.emit_at(self.last_t, event);
    }

    fn emit_at(&mut self, t: UnixMillis, event: Event) {
        self.seq += 1;
        self.events.push(Envelope {
            v: VERSION,
            seq: self.seq,
            t,
            event,
        });
    }
}

#[cfg(test)]
mod tests;
