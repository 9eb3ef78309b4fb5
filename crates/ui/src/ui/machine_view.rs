//! One machine as the workbench shows it: what it is made of, what the doctor says, and the history of its readings. Filled
//! by a watcher for this machine, and from a run's events for the machine of a run.

use crate::base::clock::UnixMillis;
use crate::hardware::Machine;
use crate::hardware::doctor::{Finding, Status, examine};
use crate::run::series::Series;
use crate::wire::{Envelope, Event, Values};
use std::collections::BTreeMap;

/// A longer silence between two readings counts as this many seconds: a run that went on after a night has no gap of a
/// night.
const LONGEST_GAP: u64 = 10;

/// A machine and its readings.
#[derive(Debug, Default)]
pub struct MachineView {
    /// `None` until it was described.
    pub machine: Option<Machine>,
    /// The worst first.
    pub findings: Vec<Finding>,
    latest: BTreeMap<String, f64>,
    history: BTreeMap<String, Series>,
    /// Seconds of readings, gaps shortened: the x of the history.
    seconds: u64,
    read: Option<UnixMillis>,
}

impl MachineView {
    /// Takes a description in; a new look at the same machine replaces the old one.
    pub fn describe(&mut self, machine: Machine) {
        self.findings = examine(&machine);
        self.machine = Some(machine);
    }

    /// Takes readings in that were made at `t`.
    pub fn sample(&mut self, t: UnixMillis, values: &Values) {
        if let Some(before) = self.read.replace(t) {
            let passed = (t.since(before).as_millis() + 500) / 1000;
            let passed = u64::try_from(passed).unwrap_or(LONGEST_GAP);
            self.seconds += passed.clamp(1, LONGEST_GAP);
        }
        for (id, value) in values {
            self.latest.insert(id.clone(), value.0);
            let series = self.history.entry(id.clone()).or_default();
            series.push(self.seconds, value.0);
        }
        self.follow();
    }

    /// The parts of the description that readings renew.
    fn follow(&mut self) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        for gpu in &mut machine.gpus {
            gpu.follow(|id| self.latest.get(id).copied());
        }
    }

    /// Takes an event of a run in; most are not about its machine.
    pub fn apply(&mut self, envelope: &Envelope) {
        match &envelope.event {
            Event::MachineDescribed { machine } => {
                // A description that a newer writer made may have parts of a shape unknown here: then there is none.
                if let Ok(machine) = crate::base::json::read(machine) {
                    self.describe(machine);
                }
            }
            Event::HardwareSampled { values } => self.sample(envelope.t, values),
            _ => {}
        }
    }

    /// Neither described nor read.
    pub fn is_empty(&self) -> bool {
        self.machine.is_none() && self.latest.is_empty()
    }

    /// The newest reading, when it was one.
    pub fn latest(&self, id: &str) -> Option<f64> {
        self.latest.get(id).copied().filter(|x| x.is_finite())
    }

    pub fn history(&self, id: &str) -> Option<&Series> {
        self.history.get(id)
    }

    /// Seconds of readings.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// How many checks came out so.
    pub fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|f| f.status == status).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::sampler::id;
    use crate::wire::Num;

    fn values(pairs: &[(&str, f64)]) -> Values {
        let pair = |(id, x): &(&str, f64)| (id.to_string(), Num(*x));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_night_without_readings_is_a_short_gap() {
        let mut view = MachineView::default();
        for t in [0, 1_000, 2_100, 40_000_000] {
            view.sample(UnixMillis(t), &values(&[(id::CPU, 5.0)]));
        }
        assert_eq!(view.seconds(), 2 + LONGEST_GAP);
        assert_eq!(view.history(id::CPU).map(Series::len), Some(4));
    }

    #[test]
    fn readings_renew_the_description_and_failed_ones_do_not() {
        let mut view = MachineView::default();
        let machine = r#"{"gpus": [{"name": "T4", "utilization": 3, "power": 20.0}]}"#;
        view.describe(serde_json::from_str(machine).unwrap());
        view.sample(
            UnixMillis(0),
            &values(&[("gpu/0/util", 97.0), ("gpu/0/power", f64::NAN)]),
        );
        let gpu = &view.machine.as_ref().unwrap().gpus[0];
        assert_eq!((gpu.utilization, gpu.power), (Some(97), Some(20.0)));
        assert_eq!(view.latest("gpu/0/power"), None);
    }
}
