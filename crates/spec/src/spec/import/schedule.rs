//! Settings of a schedule that Hugging Face keeps in a map of its own, and shares of the learning rate.

use super::defaults::has_key;
use super::{KeyOutcome, Reader, brief, plain};
use serde_json::{Map, Value};

const FLOOR: &str = "schedule.*.min_lr";

/// The key of the warm-up that counts: steps above 0 before a share (transformers 4.57).
pub(super) fn warm_up_of(map: &Map<String, Value>) -> &'static str {
    let steps = map.get("warmup_steps").and_then(Value::as_f64);
    match has_key(map, "warmup_ratio") && !steps.is_some_and(|n| n > 0.0) {
        true => "warmup_ratio",
        false => "warmup_steps",
    }
}

impl Reader {
    /// `warmup_ratio`, or `warmup_steps`, where a number below 1 is a share of the run since transformers 5.
    pub(super) fn warm_up(&mut self, key: &str, theirs: String, value: &Value) {
        if key != self.warm_up {
            let words = format!("{} counts", self.warm_up);
            return self.line(KeyOutcome::Needless, theirs, "", words);
        }
        let below_one = value.as_f64().is_some_and(|n| n > 0.0 && n < 1.0);
        let share = key == "warmup_ratio" || below_one;
        let path = match share {
            true => "train.warmup_ratio",
            false => "schedule.*.warmup_steps",
        };
        let steps = value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0);
        let text = match steps {
            Some(steps) => format!("{steps:.0}"),
            None => plain(value),
        };
        self.set(theirs, path, &text, "");
    }

    /// `lr_scheduler_kwargs`: each of its keys has a line.
    pub(super) fn schedule_settings(&mut self, theirs: String, value: &Value) {
        let Value::Object(map) = value else {
            return self.line(
                KeyOutcome::NoEqual,
                theirs,
                "",
                "settings go below schedule",
            );
        };
        for (key, value) in map {
            let theirs = format!("lr_scheduler_kwargs.{key}: {}", brief(value));
            if self.draft.value("schedule") == "wsd" && self.wsd_setting(key, &theirs, value, map) {
                continue;
            }
            match key.as_str() {
                "min_lr" | "lr_end" => self.set(theirs, FLOOR, &plain(value), ""),
                "min_lr_rate" | "min_lr_ratio" => self.floor_of_rate(theirs, value),
                "power" => {
                    self.says_power = true;
                    self.set(theirs, "schedule.*.power", &plain(value), "");
                }
                "timescale" => self.set(theirs, "schedule.*.timescale", &plain(value), ""),
                _ => self.line(
                    KeyOutcome::NoEqual,
                    theirs,
                    "",
                    "the schedule has no such setting here",
                ),
            }
        }
    }

    /// The last learning rate as a share of the peak.
    pub(super) fn floor_of_rate(&mut self, theirs: String, share: &Value) {
        let peak = self.draft.resolve_wildcard("optimizer.*.lr");
        let peak = peak.and_then(|path| self.draft.value(&path).as_f64());
        match (peak, share.as_f64()) {
            (Some(peak), Some(share)) => {
                // Shares of short decimals are short decimals too.
                let floor = format!("{:.6e}", peak * share);
                let floor = floor.parse::<f64>().unwrap_or_default();
                self.set(theirs, FLOOR, &floor.to_string(), "");
            }
            _ => self.line(
                KeyOutcome::NoEqual,
                theirs,
                "",
                "a share of the learning rate is a number",
            ),
        }
    }
}
