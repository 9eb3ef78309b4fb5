//! A machine from a JSON file: for tests, screenshots, and diagnosing someone else's machine.
//!
//! ```json
//! {
//!   "machine": {"cpu": {"model": "AMD EPYC 9654", "logical": 96}, "gpus": [{"name": "NVIDIA H100 80GB HBM3"}]},
//!   "readings": {"gpu/0/util": [97, 98, null, 96], "host/cpu_percent": [12, 14]}
//! }
//! ```
//! `machine` has the structure of [`Machine`]; missing fields are unknown. `readings` are played back one per second, each in
//! a loop; `null` is a failed reading. `llmtui doctor --record FILE` writes such a file.

use super::Provider;
use super::machine::Machine;
use crate::base::files::read_plain_text;
use crate::base::near::{did_you_mean, nearest};
use crate::wire::{Num, Values};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The contents of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    pub machine: Machine,
    #[serde(default)]
    pub readings: BTreeMap<String, Vec<Option<f64>>>,
}

/// A file that is not a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("{path} cannot be read: {source}")]
    Read {
        path: String,
        source: std::io::Error,
    },
    #[error("{path}{place}: {what}")]
    Shape {
        path: String,
        /// `: machine.gpus[0].name`, or empty.
        place: String,
        what: String,
    },
}

impl Recording {
    /// # Errors
    /// The file cannot be read, is not JSON, or has an unknown key or value; with its location.
    pub fn read(path: &Path) -> Result<Recording, RecordingError> {
        let name = path.display().to_string();
        let text = read_plain_text(path).map_err(|source| RecordingError::Read {
            path: name.clone(),
            source,
        })?;
        Recording::parse(&text, &name)
    }

    /// # Errors
    /// As [`Recording::read`]; `name` is the file's name in messages.
    pub fn parse(text: &str, name: &str) -> Result<Recording, RecordingError> {
        let shape = |place: String, what: String| RecordingError::Shape {
            path: name.into(),
            place,
            what,
        };
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|e| shape(String::new(), e.to_string()))?;
        let recording: Recording = crate::base::json::read(&value).map_err(|e| {
            let path = e.path().to_string();
            let place = match path.as_str() {
                "." => String::new(),
                path => format!(": {path}"),
            };
            shape(place, e.into_inner().to_string())
        })?;
        let known =
            serde_json::to_value(&recording).map_err(|e| shape(String::new(), e.to_string()))?;
        match unknown_key(&value, &known, String::new()) {
            Some((place, what)) => Err(shape(format!(": {place}"), what)),
            None => Ok(recording),
        }
    }

    /// The text of a recording file.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// The first key of `given` that is missing in `known`, the same value re-serialized: a misspelt key would silently be ignored.
fn unknown_key(
    given: &serde_json::Value,
    known: &serde_json::Value,
    place: String,
) -> Option<(String, String)> {
    use serde_json::Value::{Array, Object};
    match (given, known) {
        (Object(given), Object(known)) => given.iter().find_map(|(key, value)| {
            let here = match place.as_str() {
                "" => key.clone(),
                place => format!("{place}.{key}"),
            };
            let Some(found) = known.get(key) else {
                let near = nearest(key, known.keys().map(String::as_str));
                let hint = near.map_or(String::new(), |k| {
                    format!("; {}", did_you_mean(format_args!("`{k}`")))
                });
                return Some((here, format!("no such key{hint}")));
            };
            unknown_key(value, found, here)
        }),
        (Array(given), Array(known)) => given
            .iter()
            .zip(known)
            .enumerate()
            .find_map(|(i, (g, k))| unknown_key(g, k, format!("{place}[{i}]"))),
        _ => None,
    }
}

/// Plays a [`Recording`].
pub struct Recorded {
    recording: Recording,
    at: usize,
}

impl Recorded {
    pub fn new(recording: Recording) -> Recorded {
        Recorded { recording, at: 0 }
    }

    fn reading(&self, id: &str) -> Option<f64> {
        let values = self.recording.readings.get(id).filter(|v| !v.is_empty())?;
        Some(values[self.at % values.len()].unwrap_or(f64::NAN))
    }
}

impl Provider for Recorded {
    /// The recorded machine, with the readings of this second.
    fn machine(&mut self) -> Machine {
        let mut machine = self.recording.machine.clone();
        for gpu in &mut machine.gpus {
            gpu.follow(|id| self.reading(id));
        }
        machine
    }

    fn sample(&mut self) -> Values {
        let values = self
            .recording
            .readings
            .keys()
            .filter_map(|id| Some((id.clone(), Num(self.reading(id)?))))
            .collect();
        self.at += 1;
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Recording::parse(text, "box.json").unwrap_err().to_string()
    }

    #[test]
    fn missing_fields_are_unknown_and_wrong_ones_are_named() {
        let recording =
            Recording::parse(r#"{"machine": {"gpus": [{"name": "T4"}]}}"#, "x").unwrap();
        assert_eq!(recording.machine.gpus[0].name, "T4");
        assert_eq!(recording.machine.gpus[0].temperature, None);
        let misspelt = error(r#"{"machine": {"gpus": [{"name": "T4", "temprature": 3}]}}"#);
        assert_eq!(
            misspelt,
            "box.json: machine.gpus[0].temprature: no such key; did you mean `temperature`?"
        );
        assert!(
            error(r#"{"machine": {"zebra": 1}}"#).ends_with("zebra: no such key"),
            "nothing here is like it"
        );
        assert!(
            error(r#"{"machine": {"cpu": {"logical": "two"}}}"#).contains("machine.cpu.logical")
        );
        assert!(error("{").starts_with("box.json: "));
        assert!(error("{}").contains("missing field `machine`"));
    }

    #[test]
    fn readings_are_played_in_a_loop() {
        let text = r#"{"machine": {"gpus": [{"name": "T4"}]}, "readings": {"gpu/0/util": [1, null], "host/cpu_percent": [5]}}"#;
        let mut recorded = Recorded::new(Recording::parse(text, "x").unwrap());
        assert_eq!(recorded.machine().gpus[0].utilization, Some(1));
        let samples: Vec<Values> = (0..3).map(|_| recorded.sample()).collect();
        let utils: Vec<String> = samples
            .iter()
            .map(|s| s["gpu/0/util"].0.to_string())
            .collect();
        assert_eq!(utils, ["1", "NaN", "1"]);
        assert_eq!(samples[2]["host/cpu_percent"].0, 5.0);
    }

    #[test]
    fn a_recording_of_this_machine_round_trips() {
        let env = crate::base::paths::Env::default();
        let machine = super::super::Live::new(&env).machine();
        let recording = Recording {
            machine,
            readings: BTreeMap::new(),
        };
        assert_eq!(
            Recording::parse(&recording.to_json(), "x").unwrap(),
            recording
        );
    }
}
