//! The state of a fleet: a fold over the messages of its machines. Time is passed in.

use super::connection::ConnectionEvent;
use super::hosts::Host;
use super::news::{FleetMessage, Machine, Run};
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs of a machine that are kept.
const MAX_RUNS: usize = 2_000;

/// Whether a machine can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostStatus {
    /// Being asked for the first time.
    Asking,
    /// It answers.
    Up,
    /// It does not, since when (in monotonic time) and why.
    Gone { since: Duration, why: String },
}

/// One machine.
#[derive(Debug, Clone, PartialEq)]
pub struct HostState {
    pub host: Host,
    pub reach: HostStatus,
    /// When it last said something, in monotonic time.
    pub heard: Duration,
    /// By their ids; kept while it is gone.
    pub runs: BTreeMap<String, Run>,
    pub machine: Machine,
    /// It has listed all its runs once.
    pub complete: bool,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    pub hosts: Vec<HostState>,
}

/// The order of a list; live runs come first in each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Newest,
    Host,
    Loss,
    TimeLeft,
}

impl Sort {
    pub fn next(self) -> Sort {
        match self {
            Sort::Newest => Sort::Host,
            Sort::Host => Sort::Loss,
            Sort::Loss => Sort::TimeLeft,
            Sort::TimeLeft => Sort::Newest,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Sort::Newest => "newest first",
            Sort::Host => "by host",
            Sort::Loss => "lowest loss first",
            Sort::TimeLeft => "first to end first",
        }
    }
}

/// A run and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Number of the host.
    pub at: usize,
    pub host: &'a HostState,
    pub run: &'a Run,
}

impl Fleet {
    pub fn new(hosts: Vec<Host>, now: Duration) -> Fleet {
        let state = |host| HostState {
            host,
            reach: HostStatus::Asking,
            heard: now,
            runs: BTreeMap::new(),
            machine: Machine::new(),
            complete: false,
        };
        Fleet {
            hosts: hosts.into_iter().map(state).collect(),
        }
    }

    /// Takes in what host number `at` says, or that it no longer does.
    pub fn apply(&mut self, at: usize, said: ConnectionEvent, now: Duration) {
        let Some(host) = self.hosts.get_mut(at) else {
            return;
        };
        match said {
            ConnectionEvent::Lost(why) => {
                // It stays gone since it went, however often it is tried.
                let since = match host.reach {
                    HostStatus::Gone { since, .. } => since,
                    HostStatus::Asking | HostStatus::Up => now,
                };
                host.reach = HostStatus::Gone { since, why };
                host.machine.clear();
            }
            ConnectionEvent::FleetMessage(news) => {
                host.heard = now;
                host.on_message(news);
            }
        }
    }

    /// Every run in this order.
    pub fn rows(&self, sort: Sort) -> Vec<Row<'_>> {
        let hosts = self.hosts.iter().enumerate();
        let mut rows: Vec<Row> = hosts
            .flat_map(|(at, host)| host.runs.values().map(move |run| Row { at, host, run }))
            .collect();
        rows.sort_by(|a, b| {
            let live = b.live().cmp(&a.live());
            let loss = |row: &Row| {
                let run = row.run;
                // A policy's training loss does not indicate progress.
                let train_loss = run.train_loss.filter(|_| run.reward.is_none());
                run.val_loss.or(train_loss).unwrap_or(f64::INFINITY)
            };
            let left = |row: &Row| row.run.remaining().unwrap_or(f64::INFINITY);
            let newest = b.run.created.cmp(&a.run.created);
            let own = match sort {
                Sort::Newest => newest,
                Sort::Host => a.at.cmp(&b.at),
                Sort::Loss => loss(a).total_cmp(&loss(b)),
                Sort::TimeLeft => left(a).total_cmp(&left(b)),
            };
            live.then(own)
                .then(newest)
                .then_with(|| a.run.id.cmp(&b.run.id))
        });
        rows
    }

    /// Whether each machine has listed all its runs, or is gone.
    pub fn settled(&self) -> bool {
        let settled =
            |host: &HostState| host.complete || matches!(host.reach, HostStatus::Gone { .. });
        self.hosts.iter().all(settled)
    }
}

impl Row<'_> {
    /// Whether it trains, as far as is known now.
    pub fn live(&self) -> bool {
        self.run.is_live() && self.host.reach == HostStatus::Up
    }
}

impl HostState {
    fn on_message(&mut self, news: FleetMessage) {
        match news {
            FleetMessage::Begin { .. } => {
                self.reach = HostStatus::Up;
                self.complete = false;
                self.runs.clear();
            }
            FleetMessage::Run { run } => {
                if self.runs.len() < MAX_RUNS || self.runs.contains_key(&run.id) {
                    self.runs.insert(run.id.clone(), *run);
                }
            }
            FleetMessage::Gone { id } => {
                self.runs.remove(&id);
            }
            FleetMessage::Beat { machine } => {
                self.machine = machine;
                self.complete = true;
            }
            FleetMessage::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Place;

    fn run(id: &str, status: &str, loss: f64, created: u64) -> FleetMessage {
        FleetMessage::Run {
            run: Box::new(Run {
                id: id.into(),
                status: status.into(),
                train_loss: Some(loss),
                created,
                step: 10,
                max_steps: 20,
                seconds: created as f64,
                ..Run::default()
            }),
        }
    }

    fn begin() -> FleetMessage {
        FleetMessage::Begin {
            version: 1,
            program: String::new(),
        }
    }

    fn fleet() -> Fleet {
        let host = |name: &str| Host {
            name: name.into(),
            place: Place::Here,
            program: "llmtui".into(),
            runs_dir: Some("runs".into()),
        };
        let mut fleet = Fleet::new(vec![host("a"), host("b")], Duration::ZERO);
        let said = [
            (0, begin()),
            (0, run("old", "finished", 1.0, 1)),
            (0, run("slow", "live", 3.0, 20)),
            (1, begin()),
            (1, run("quick", "live", 2.0, 10)),
        ];
        for (at, news) in said {
            fleet.apply(
                at,
                ConnectionEvent::FleetMessage(news),
                Duration::from_millis(1_000),
            );
        }
        fleet
    }

    fn ids(fleet: &Fleet, sort: Sort) -> Vec<String> {
        fleet
            .rows(sort)
            .iter()
            .map(|row| row.run.id.clone())
            .collect()
    }

    #[test]
    fn live_runs_come_first_in_every_order() {
        let fleet = fleet();
        assert_eq!(ids(&fleet, Sort::Newest), ["slow", "quick", "old"]);
        assert_eq!(ids(&fleet, Sort::Host), ["slow", "quick", "old"]);
        assert_eq!(ids(&fleet, Sort::Loss), ["quick", "slow", "old"]);
        assert_eq!(ids(&fleet, Sort::TimeLeft), ["quick", "slow", "old"]);
        let round = [Sort::Newest, Sort::Host, Sort::Loss, Sort::TimeLeft];
        assert!(
            round
                .iter()
                .zip(round.iter().cycle().skip(1))
                .all(|(a, b)| a.next() == *b)
        );
    }

    #[test]
    fn a_host_is_gone_since_it_went_and_comes_back_whole() {
        let mut fleet = fleet();
        for (now, why) in [(5_000, "refused"), (9_000, "no route")] {
            fleet.apply(
                1,
                ConnectionEvent::Lost(why.into()),
                Duration::from_millis(now),
            );
        }
        let gone = HostStatus::Gone {
            since: Duration::from_millis(5_000),
            why: "no route".into(),
        };
        assert_eq!(fleet.hosts[1].reach, gone);
        // Its runs stay on the list; they are live no longer, as far as is known.
        assert_eq!(ids(&fleet, Sort::Newest), ["slow", "quick", "old"]);
        assert!(!fleet.rows(Sort::Newest)[1].live());
        fleet.apply(
            1,
            ConnectionEvent::FleetMessage(begin()),
            Duration::from_millis(10_000),
        );
        assert_eq!(fleet.hosts[1].reach, HostStatus::Up);
        assert!(fleet.hosts[1].runs.is_empty() && !fleet.settled());
        let beat = FleetMessage::Beat {
            machine: Machine::new(),
        };
        fleet.apply(
            1,
            ConnectionEvent::FleetMessage(beat),
            Duration::from_millis(11_000),
        );
        fleet.apply(
            0,
            ConnectionEvent::Lost("x".into()),
            Duration::from_millis(11_000),
        );
        assert!(fleet.settled());
    }

    #[test]
    fn a_machine_cannot_fill_the_memory() {
        let mut fleet = fleet();
        for i in 0..3 * MAX_RUNS {
            fleet.apply(
                0,
                ConnectionEvent::FleetMessage(run(&i.to_string(), "live", 1.0, 1)),
                Duration::ZERO,
            );
        }
        assert_eq!(fleet.hosts[0].runs.len(), MAX_RUNS);
    }
}
