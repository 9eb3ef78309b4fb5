//! The messages of a machine about its runs, one JSON object per line: `llmtui runs --json --follow`. The first has its
//! version; then each run that is new or has changed, and a heartbeat with the machine's readings after each scan.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Of the lines; a reader refuses a larger one.
pub const VERSION: u32 = 1;

/// A run as a list shows it: a part of what `llmtui runs --json` prints. What a line lacks is left at its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    pub id: String,
    pub name: String,
    /// `live`, `finished`, `stopped`, `failed`, `crashed`, `empty`.
    pub status: String,
    pub method: String,
    pub step: u64,
    pub max_steps: u64,
    /// Nats per token.
    pub train_loss: Option<f64>,
    pub val_loss: Option<f64>,
    /// Of methods on answers of their own: the newest mean reward, and the share of held-out prompts answered right.
    pub reward: Option<f64>,
    pub pass_at_1: Option<f64>,
    /// Milliseconds since 1970.
    pub created: u64,
    pub updated: u64,
    /// Spent so far.
    pub seconds: f64,
    /// Where its pace of now begins: 0 of a program that does not tell.
    pub base_step: u64,
    pub base_seconds: f64,
    /// Seconds per step of the newest steps; absent before the second one, and of a program that does not tell.
    pub step_seconds: Option<f64>,
    pub verdict: Option<String>,
    /// Training loss or reward, oldest first.
    pub curve: Vec<f64>,
}

impl Run {
    pub fn is_live(&self) -> bool {
        self.status == "live"
    }

    /// The figure that says most of how far it has come, and its name.
    pub fn figure(&self) -> Option<(&'static str, f64)> {
        let first = [
            ("val", self.val_loss),
            ("pass@1", self.pass_at_1),
            ("reward", self.reward),
            ("loss", self.train_loss),
        ];
        first
            .into_iter()
            .find_map(|(name, value)| Some((name, value?)))
    }

    /// Seconds to its last step at its pace of now; of live runs. Steps of a parent, of earlier engines and from before a
    /// pause tell nothing of it. The time spent would, but for a clock that was set meanwhile.
    pub fn remaining(&self) -> Option<f64> {
        let left = self.max_steps.checked_sub(self.step)? as f64;
        if let Some(pace) = self.step_seconds.filter(|_| self.is_live()) {
            return Some(left * pace);
        }
        let steps = self.step.checked_sub(self.base_step)? as f64;
        let seconds = self.seconds - self.base_seconds;
        let known = self.is_live() && steps > 0.0 && seconds > 0.0;
        known.then(|| left * seconds / steps)
    }
}

/// Readings of a machine by their ids: `host/cpu_percent`, `gpu/0/util`, …
pub type Machine = BTreeMap<String, f64>;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FleetMessage {
    Begin {
        version: u32,
        #[serde(default)]
        program: String,
    },
    Run {
        run: Box<Run>,
    },
    /// A run that is no longer there.
    Gone {
        id: String,
    },
    Beat {
        #[serde(default)]
        machine: Machine,
    },
    /// What a newer program says.
    #[serde(other)]
    Unknown,
}

/// A line with its end.
pub fn encode(news: &FleetMessage) -> String {
    // The types above have string keys and nothing that cannot be written.
    let mut line = serde_json::to_string(news).unwrap_or_default();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_and_newer_kinds_are_passed_over() {
        let run = Run {
            id: "a".into(),
            status: "live".into(),
            step: 10,
            max_steps: 40,
            seconds: 5.0,
            curve: vec![1.5],
            ..Run::default()
        };
        for news in [
            FleetMessage::Begin {
                version: VERSION,
                program: "0.1.0".into(),
            },
            FleetMessage::Run {
                run: Box::new(run.clone()),
            },
            FleetMessage::Gone { id: "a".into() },
            FleetMessage::Beat {
                machine: [("host/cpu_percent".to_string(), 40.0)].into(),
            },
        ] {
            let line = encode(&news);
            assert!(line.ends_with('\n'));
            assert_eq!(serde_json::from_str::<FleetMessage>(&line).unwrap(), news);
        }
        let newer = r#"{"type":"weather","sun":true}"#;
        assert_eq!(
            serde_json::from_str::<FleetMessage>(newer).unwrap(),
            FleetMessage::Unknown
        );
        assert_eq!(run.remaining(), Some(15.0));
    }

    #[test]
    fn the_time_left_follows_from_the_pace_of_now() {
        let live = |step, base_step, base_seconds| Run {
            status: "live".into(),
            step,
            max_steps: 1_000,
            seconds: 110.0,
            base_step,
            base_seconds,
            ..Run::default()
        };
        // A branch from step 500 that took 50 steps in 100 seconds.
        assert_eq!(live(550, 500, 10.0).remaining(), Some(900.0));
        // One that went on and has taken no step since.
        assert_eq!(live(500, 500, 10.0).remaining(), None);
        assert_eq!(live(400, 500, 10.0).remaining(), None);
        // The clock of its machine was set a day ahead meanwhile.
        let set = Run {
            seconds: 86_510.0,
            step_seconds: Some(2.0),
            ..live(550, 500, 10.0)
        };
        assert_eq!(set.remaining(), Some(900.0));
        let status = "stopped".into();
        assert_eq!(Run { status, ..set }.remaining(), None);
    }
}
