//! From a log's records to events of the wire: names become ours, metrics are declared before their first value, steps that
//! go back are a resume, and a log that stays silent is a run that ended.

use super::names::{self, Mapping, Role};
use super::passes::EpochJoiner;
use super::rl::RlLog;
use super::{Facts, Item};
use crate::base::clock::UnixMillis;
use crate::base::human;
use crate::wire::{Envelope, Event, MetricInfo, Num, Outcome, Phase, VERSION, Values, id};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Different metrics of a run that this program does not know; what comes later is left out. Those it knows always have a place.
const MAX_METRICS: usize = 256;
/// Names left out that are counted.
const MAX_COUNTED: usize = 100_000;
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
    /// Metrics with a place that this program does not know.
    foreign: BTreeSet<String>,
    /// Names that were left out.
    left_out: BTreeSet<String>,
    limit_reported: bool,
    passes: EpochJoiner,
    rl: RlLog,
    /// `Started` was sent.
    started: bool,
    finished: bool,
    step: u64,
    /// Of the newest record: one without a step is one further.
    record: u64,
    tokens: u64,
    /// When the first reading was taken, and the newest.
    first_t: Option<UnixMillis>,
    last_t: UnixMillis,
    events: Vec<Envelope>,
    /// Readings of one step that are still together: training's and held-out ones.
    group: Option<Group>,
}

#[derive(Debug)]
struct Group {
    step: u64,
    t: UnixMillis,
    train: Values,
    held_out: Values,
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
            foreign: BTreeSet::new(),
            left_out: BTreeSet::new(),
            limit_reported: false,
            passes: EpochJoiner::default(),
            rl: RlLog::default(),
            started: false,
            finished: false,
            step: 0,
            record: 0,
            tokens: 0,
            first_t: None,
            last_t: UnixMillis::default(),
            events: Vec::new(),
            group: None,
        }
    }

    /// The events of `items`; a reading without a time was taken when the log `changed`.
    pub fn translate(&mut self, items: Vec<Item>, changed: UnixMillis) -> Vec<Envelope> {
        self.rl.look(&items, &self.mapping);
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
                    self.readings(step, t.unwrap_or(changed), values)
                }
                Item::Restart => {
                    self.close_group();
                    self.newest.clear();
                    self.passes = EpochJoiner::default();
                    self.record = 0;
                    if self.started {
                        self.tokens = 0;
                        self.step = 0;
                        self.emit(Event::RolledBack { step: 0 });
                    }
                }
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
        let step = self.passes.step(step, self.epoch(&values));
        if self.passes.joined() != joined && self.started && !self.finished {
            // What the log called the last step is that of one pass.
            self.close_group();
            self.start();
        }
        // Trainers sum up behind their last step; a last evaluation there still counts.
        let behind = self.finished && step == self.step;
        // Before the tokens of this step: they are not those of the one before.
        if self.group.as_ref().is_some_and(|group| group.step != step) {
            self.close_group();
        }
        let (mut train, mut held_out) = (Values::new(), Values::new());
        for (name, x) in values {
            match self.mapping.role(&name) {
                Role::Tokens => self.tokens = super::json::step_of(x).unwrap_or(self.tokens),
                Role::Metric(id, factor) => {
                    let id = self.rl.id(id, &name, &self.mapping);
                    let Some(x) = names::value(&id, x * factor) else {
                        continue;
                    };
                    let repeated = self.newest.get(&id) == Some(&step);
                    if behind && (repeated || !names::is_held_out(&id)) {
                        continue;
                    }
                    if !self.is_reported(&name, &id) {
                        continue;
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
        let ids = train.keys().chain(held_out.keys()).cloned().collect();
        self.roll_back(step, ids, behind);
        let group = self.group.get_or_insert_with(|| Group {
            step,
            t,
            train: Values::new(),
            held_out: Values::new(),
        });
        group.t = t;
        group.train.extend(train);
        group.held_out.extend(held_out);
    }

    /// A metric's step went back: the run was resumed from an earlier state.
    fn roll_back(&mut self, step: u64, ids: Vec<String>, behind: bool) {
        let newest = ids.iter().filter_map(|id| self.newest.get(id)).max();
        if let Some(from) = newest.copied().filter(|newest| *newest > step) {
            self.close_group();
            let to = step.saturating_sub(1);
            self.newest
                .values_mut()
                .for_each(|newest| *newest = (*newest).min(to));
            self.step = self.step.min(to);
            self.emit(Event::RolledBack { step: to });
            let (from, step) = (human::grouped(from), human::grouped(step));
            self.emit(Event::Noted {
                step: to,
                text: format!(
                    "the log went back from step {from} to step {step}, as in a resumed run: earlier values after that step are dropped"
                ),
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

    /// Whether a metric is reported: it was before, is known here or mapped by the user, or is among the first unknown ones.
    fn is_reported(&mut self, name: &str, id: &str) -> bool {
        if self.newest.contains_key(id) || self.foreign.contains(id) {
            return true;
        }
        if self.left_out.contains(id) {
            return false;
        }
        if self.mapping.is_always_reported(name) {
            return true;
        }
        if self.foreign.len() < MAX_METRICS {
            return self.foreign.insert(id.into());
        }
        if self.left_out.len() < MAX_COUNTED {
            self.left_out.insert(id.into());
        }
        false
    }

    /// Said once, with their number.
    fn too_many(&mut self) {
        let Some(first) = self.left_out.first().cloned() else {
            return;
        };
        if std::mem::replace(&mut self.limit_reported, true) {
            return;
        }
        let n = self.left_out.len();
        let (left_out, all) = (
            human::grouped(n as u64),
            human::grouped((n + self.newest.len()) as u64),
        );
        let step = self.step;
        self.open();
        self.emit(Event::Warned {
            step,
            code: "too_many_metrics".into(),
            message: format!(
                "the log has {all} metrics: {left_out} of them, such as {first}, are skipped; all known ones are read"
            ),
            hint: String::new(),
        });
    }

    fn close_group(&mut self) {
        let Some(group) = self.group.take() else {
            return;
        };
        // An evaluation behind the end does not make the run go on.
        if !(self.finished && group.train.is_empty() && group.step == self.step) {
            self.open();
        }
        let (step, tokens) = (group.step, self.tokens);
        if !group.train.is_empty() {
            self.step = step;
            let values = group.train;
            self.emit_at(
                group.t,
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
            self.emit_at(group.t, evaluated);
        }
    }

    /// Before the first reading, and where one follows an end.
    fn open(&mut self) {
        if self.started && !self.finished {
            return;
        }
        self.finished = false;
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
        if !self.started || self.finished {
            return;
        }
        self.finished = true;
        let took = self.last_t.since(self.first_t.unwrap_or(self.last_t));
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
mod tests {
    use super::*;
    use crate::run::RunState;

    fn reading(step: u64, values: &[(&str, f64)]) -> Item {
        let values = values
            .iter()
            .map(|(name, x)| ((*name).to_string(), *x))
            .collect();
        Item::Readings {
            step: Some(step),
            t: Some(UnixMillis(1_000 * (1 + step))),
            values,
        }
    }

    fn fold(items: Vec<Item>) -> RunState {
        let mut translator = Translator::new("x", "csv", Mapping::default());
        RunState::from_events(&translator.translate(items, UnixMillis(5)))
    }

    #[test]
    fn readings_become_series_under_our_names() {
        let facts = Facts {
            max_steps: Some(40),
            ..Facts::default()
        };
        let state = fold(vec![
            Item::Facts(facts),
            reading(10, &[("loss", 3.0)]),
            reading(10, &[("eval_loss", 3.5), ("grad_norm", f64::NAN)]),
            reading(20, &[("loss", 2.0), ("num_tokens", 500.0)]),
            Item::Ended(true),
        ]);
        assert_eq!(state.latest("train/loss"), Some(2.0));
        assert_eq!(state.latest("val/loss"), Some(3.5));
        assert_eq!((state.step, state.tokens, state.missed), (20, 500, 0));
        assert_eq!(state.progress(), Some(0.5));
        assert_eq!(state.word(), "finished");
        assert_eq!(state.metrics.len(), 3);
    }

    #[test]
    fn steps_that_go_back_are_a_resume_and_a_restart_begins_anew() {
        let went = |step| reading(step, &[("loss", step as f64)]);
        let state = fold((1..=10).chain(6..=8).map(went).collect());
        let points: Vec<f64> = state.series["train/loss"]
            .recent()
            .map(|p| p.value)
            .collect();
        assert_eq!(points, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let state = fold(vec![went(7), Item::Restart, went(1)]);
        assert_eq!(state.series["train/loss"].len(), 1);
    }

    #[test]
    fn records_without_a_step_count() {
        let record = |values: &[(&str, f64)]| match reading(0, values) {
            Item::Readings { t, values, .. } => Item::Readings {
                step: None,
                t,
                values,
            },
            other => other,
        };
        let mut translator = Translator::new("x", "csv", Mapping::default());
        let both = |x: f64| record(&[("train_loss", x), ("val_loss", x + 0.5)]);
        let mut events = translator.translate(vec![both(3.0), both(2.0)], UnixMillis(5));
        // Those that are read later count on; one may have held-out readings alone, or say nothing.
        let held_out = record(&[("val_loss", 1.5)]);
        let later = vec![held_out, record(&[("time", 4.0)]), both(0.5)];
        events.extend(translator.translate(later, UnixMillis(6)));
        let state = RunState::from_events(&events);
        let points = |id: &str| -> Vec<(u64, f64)> {
            let recent = state.series[id].recent();
            recent.map(|p| (p.step, p.value)).collect()
        };
        assert_eq!(points("train/loss"), [(1, 3.0), (2, 2.0), (4, 0.5)]);
        assert_eq!(points("val/loss"), [(1, 3.5), (2, 2.5), (3, 1.5), (4, 1.0)]);
    }

    #[test]
    fn a_silent_log_ends_and_one_that_goes_on_begins_again() {
        let mut translator = Translator::new("x", "csv", Mapping::default());
        let mut events =
            translator.translate(vec![reading(1, &[("loss", 1.0)])], UnixMillis(2_000));
        let patience = Duration::from_secs(900);
        events.extend(translator.rest(UnixMillis(60_000), UnixMillis(2_000), patience));
        assert!(RunState::from_events(&events).running());
        events.extend(translator.rest(UnixMillis(3_600_000), UnixMillis(2_000), patience));
        let state = RunState::from_events(&events);
        assert!(
            state
                .finished
                .unwrap()
                .message
                .contains("nothing was logged")
        );
        events.extend(
            translator.translate(vec![reading(2, &[("loss", 1.0)])], UnixMillis(9_000_000)),
        );
        assert!(RunState::from_events(&events).running());
    }

    #[test]
    fn each_step_is_told_with_its_own_tokens() {
        let told = |items: Vec<Item>| -> Vec<(u64, u64)> {
            let events =
                Translator::new("x", "csv", Mapping::default()).translate(items, UnixMillis(5));
            let stepped = events.iter().filter_map(|envelope| match &envelope.event {
                Event::Stepped { step, tokens, .. } => Some((*step, *tokens)),
                _ => None,
            });
            stepped.collect()
        };
        let (loss, tokens) = (("loss", 1.0), |n: f64| ("tokens", n));
        let together = (1..=3).map(|step| reading(step, &[loss, tokens(100.0 * step as f64)]));
        assert_eq!(told(together.collect()), [(1, 100), (2, 200), (3, 300)]);
        // Trackers may write each number in a record of its own, in any order.
        for order in [[0, 1], [1, 0]] {
            let apart = (1..=3).flat_map(|step| {
                let pair = [loss, tokens(100.0 * step as f64)];
                order.map(|i| reading(step, &[pair[i]]))
            });
            let apart = [reading(0, &[loss])].into_iter().chain(apart).collect();
            assert_eq!(told(apart), [(0, 0), (1, 100), (2, 200), (3, 300)]);
        }
    }

    #[test]
    fn neither_a_warning_nor_facts_reopen_a_run_that_has_ended() {
        let facts = Facts {
            max_steps: Some(7),
            ..Facts::default()
        };
        let state = fold(vec![
            reading(1, &[("loss", 1.0)]),
            Item::Ended(true),
            Item::Trouble("a line is no JSON".into()),
            Item::Facts(facts),
        ]);
        assert_eq!((state.word(), state.n_warnings), ("finished", 1));
        // Without any reading the warning is all there is.
        assert_eq!(fold(vec![Item::Trouble("no log".into())]).n_warnings, 1);
    }

    #[test]
    fn known_metrics_have_a_place_among_any_number_of_others() {
        let many: Vec<(String, f64)> = (0..400).map(|i| (format!("grads/{i}"), 1.0)).collect();
        let mut values: Vec<(&str, f64)> = many.iter().map(|(n, x)| (n.as_str(), *x)).collect();
        values.extend([("loss", 3.0), ("eval_loss", 3.5), ("grad_norm", 0.5)]);
        // In one record, and each in one of its own.
        let apart = values.iter().map(|pair| reading(1, &[*pair])).collect();
        for (items, together) in [(vec![reading(1, &values)], true), (apart, false)] {
            let state = fold(items);
            assert_eq!(state.series.len(), MAX_METRICS + 3);
            assert_eq!(state.metrics.len(), state.series.len());
            if together {
                let first: Vec<&str> = state.metrics.iter().map(|m| m.id.as_str()).collect();
                assert_eq!(first[..3], ["grad_norm", "train/loss", "val/loss"]);
            }
            assert_eq!(state.latest("val/loss"), Some(3.5));
            let said = state
                .marks
                .iter()
                .filter(|mark| mark.text.contains("are skipped"));
            let said: Vec<&str> = said.map(|mark| mark.text.as_str()).collect();
            assert_eq!((said.len(), state.n_warnings), (1, 1));
            assert!(said[0].contains("403 metrics: 144 of them"), "{said:?}");
        }
    }

    #[test]
    fn an_evaluation_behind_the_end_counts_and_the_run_stays_ended() {
        let state = fold(vec![
            reading(10, &[("loss", 3.0)]),
            Item::Ended(true),
            reading(10, &[("eval_loss", 3.5), ("loss", 9.0)]),
        ]);
        assert_eq!(
            (state.word(), state.latest("val/loss")),
            ("finished", Some(3.5))
        );
        assert_eq!(state.latest("train/loss"), Some(3.0));
        assert_eq!(state.evaluations.len(), 1);
    }

    #[test]
    fn a_trainer_that_counts_tokens_is_not_done_with_every_record() {
        let so_far = [("train_runtime", 9.0), ("train_tokens_per_second", 500.0)];
        let went = |step: u64, pair: (&'static str, f64)| {
            reading(step, &[&[pair], so_far.as_slice()].concat())
        };
        let state = fold(vec![
            went(10, ("loss", 3.0)),
            went(10, ("eval_loss", 3.5)),
            went(20, ("loss", 2.0)),
        ]);
        assert!(state.running());
        assert_eq!(
            (state.latest("train/loss"), state.latest("val/loss")),
            (Some(2.0), Some(3.5))
        );
        assert_eq!(state.latest("tok_per_sec"), Some(500.0));
    }

    #[test]
    fn a_log_that_is_silent_at_its_last_step_is_of_a_finished_run() {
        let facts = Facts {
            max_steps: Some(2),
            ..Facts::default()
        };
        for (step, word) in [(1, "training"), (2, "finished")] {
            let items = vec![Item::Facts(facts.clone()), reading(step, &[("loss", 1.0)])];
            let mut translator = Translator::new("x", "csv", Mapping::default());
            let mut events = translator.translate(items, UnixMillis(3_000));
            let patience = Duration::from_secs(900);
            events.extend(translator.rest(UnixMillis(90_000), UnixMillis(3_000), patience));
            assert_eq!(RunState::from_events(&events).word(), word);
        }
    }

    #[test]
    fn metrics_are_bounded() {
        let many = (0..400)
            .map(|i| reading(1, &[(&format!("m{i}"), 1.0)]))
            .collect();
        let state = fold(many);
        assert_eq!((state.series.len(), state.n_warnings), (MAX_METRICS, 1));
    }
}
