//! Hugging Face's `warmup_stable_decay`: its phases are steps, here the decay is a share of the run (transformers 5.24
//! `get_wsd_schedule`).

use super::{KeyOutcome, Reader, plain};
use serde_json::{Map, Value};

const SHARE: &str = "schedule.wsd.decay_fraction";
const SHAPE: &str = "schedule.wsd.shape";
/// Theirs and ours.
const SHAPES: [(&str, &str); 3] = [
    ("linear", "linear"),
    ("cosine", "cosine"),
    ("1-sqrt", "sqrt"),
];

fn whole(map: &Map<String, Value>, key: &str) -> Option<u64> {
    let value = map.get(key)?;
    value.as_u64().or_else(|| {
        let x = value.as_f64()?;
        (x >= 0.0 && x.fract() == 0.0).then_some(x as u64)
    })
}

impl Reader {
    /// A key of `lr_scheduler_kwargs` that this schedule has by itself; `false` of others.
    pub(super) fn wsd_setting(
        &mut self,
        key: &str,
        theirs: &str,
        value: &Value,
        map: &Map<String, Value>,
    ) -> bool {
        let theirs = theirs.to_string();
        match key {
            "decay_type" => match SHAPES.iter().find(|(word, _)| *word == plain(value)) {
                Some((_, ours)) => self.set(theirs, SHAPE, ours, ""),
                None => {
                    let words = "linear, cosine and 1-sqrt are understood: schedule.wsd.shape";
                    self.line(KeyOutcome::NoEqual, theirs, "", words);
                }
            },
            "warmup_type" if value == "linear" => {
                self.line(
                    KeyOutcome::Needless,
                    theirs,
                    "",
                    "the warm-up is a straight line",
                );
            }
            "warmup_type" => {
                let words = "the learning rate rises in a straight line";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
            "num_cycles" if value.as_f64() == Some(0.5) => {
                self.line(KeyOutcome::Needless, theirs, "", "half a wave, as here");
            }
            "num_decay_steps" => self.decay_steps(theirs, map),
            "num_stable_steps" => self.stable_steps(theirs, map),
            _ => return false,
        }
        true
    }

    /// Steps of warm-up as the run will have them.
    fn warm_up_steps(&self, max_steps: u64) -> u64 {
        match self.draft.value("train.warmup_ratio").as_f64() {
            Some(share) => (share * max_steps as f64).ceil() as u64,
            None => {
                let steps = self.draft.value("schedule.wsd.warmup_steps");
                steps.as_u64().unwrap_or(0)
            }
        }
    }

    /// Steps of a run whose peak and decay take so many.
    fn phases(&self, peak_and_decay: u64) -> u64 {
        let rest = peak_and_decay as f64;
        let all = match self.draft.value("train.warmup_ratio").as_f64() {
            Some(share) if share < 1.0 => rest / (1.0 - share),
            _ => rest + self.warm_up_steps(0) as f64,
        };
        (all.round() as u64).max(1)
    }

    fn decay_steps(&mut self, theirs: String, map: &Map<String, Value>) {
        let decay = whole(map, "num_decay_steps");
        match (decay, self.max_steps) {
            (Some(decay), Some(all)) if decay <= all => {
                let share = (decay as f64 / all as f64).to_string();
                self.set(theirs, SHARE, &share, "");
            }
            (Some(decay), Some(all)) => {
                let words =
                    format!("a decay of {decay} steps does not end in a run of {all}: set {SHARE}");
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
            // The tool wants all phases together to be the run.
            (Some(decay), None) if let Some(stable) = whole(map, "num_stable_steps") => {
                let all = self.phases(stable + decay);
                let share = (decay as f64 / all as f64).to_string();
                let words = format!("of the {all} steps that warm-up, peak and decay have there");
                self.set(theirs, SHARE, &share, &words);
            }
            (Some(decay), None) => {
                let words = format!(
                    "{SHARE} is the share of the run's steps: set it to {decay} / steps once the data are read, which says how many \
                     there are"
                );
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
            (None, _) => {
                let words =
                    format!("a number of steps is understood: {SHARE} is their share of the run");
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }

    /// What warm-up and decay leave of the run, unless the file ends the decay elsewhere.
    fn stable_steps(&mut self, theirs: String, map: &Map<String, Value>) {
        let parts = ["num_stable_steps", "num_decay_steps"].map(|key| whole(map, key));
        let left = "the peak is held between warm-up and decay, and the decay ends with the run";
        let ([Some(stable), Some(decay)], Some(all)) = (parts, self.max_steps) else {
            let outcome = match parts {
                [Some(_), Some(_)] => KeyOutcome::Needless,
                _ => KeyOutcome::NoEqual,
            };
            return self.line(outcome, theirs, "", left);
        };
        let end = self.warm_up_steps(all) + stable + decay;
        match end == all {
            true => self.line(KeyOutcome::Needless, theirs, "", left),
            false => {
                let words = format!("there the decay ends at step {end} of {all}: {left}");
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }

    /// What the tool does where the file says nothing of the decay.
    pub(super) fn default_wsd(&mut self, map: &Map<String, Value>) {
        if self.draft.value("schedule") != "wsd" {
            return;
        }
        let none = Map::new();
        let kwargs = map.get("lr_scheduler_kwargs").and_then(Value::as_object);
        let kwargs = kwargs.unwrap_or(&none);
        if !kwargs.contains_key("decay_type") {
            self.apply_default_as("decay_type: cosine", SHAPE, "cosine", "");
        }
        if !kwargs.contains_key("num_decay_steps") {
            let share = super::shown(&self.draft.value(SHARE));
            let ours = format!("{SHARE}: {share}");
            let words = "the tool requires num_decay_steps and the file has none: this is the default of llmtui";
            self.line(
                KeyOutcome::NoEqual,
                "(no num_decay_steps)".into(),
                &ours,
                words,
            );
        }
    }
}
