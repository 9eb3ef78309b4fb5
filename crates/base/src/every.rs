//! How often something happens during a run: every so many steps, or at a fraction of the run, like `eval_steps` in
//! transformers. What is due at a step is decided by the engine.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;

/// Expected values, for error messages.
pub const EXPECTED: &str = "a whole number of steps, or a share of the run below 1";

/// Its `format` in the JSON schema.
pub const FORMAT: &str = "steps-or-share";

/// An interval in steps (0 is never), or as a share of all steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Every {
    Steps(u64),
    /// Between 0 and 1, both excluded.
    Share(f64),
}

impl Every {
    /// Interprets a number as written: below 1 a share, else a whole number of steps.
    pub fn of(number: f64) -> Option<Every> {
        match number {
            x if x > 0.0 && x < 1.0 => Some(Every::Share(x)),
            // Beyond this not every integer is representable as f64.
            x if x >= 0.0 && x.fract() == 0.0 && x < 9e15 => Some(Every::Steps(x as u64)),
            _ => None,
        }
    }

    /// The interval in a run of `max_steps`; a share is rounded up, so it is at least one step.
    pub fn steps(self, max_steps: u64) -> u64 {
        match self {
            Every::Steps(steps) => steps,
            // 0.1 of 30 is 3, though the product is a bit more.
            Every::Share(share) => ((share * max_steps as f64 - 1e-6).ceil() as u64).max(1),
        }
    }

    /// Whether it happens only after the last step.
    pub fn is_never(self) -> bool {
        self == Every::Steps(0)
    }
}

impl Serialize for Every {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Every::Steps(steps) => to.serialize_u64(*steps),
            Every::Share(share) => to.serialize_f64(*share),
        }
    }
}

impl<'de> Deserialize<'de> for Every {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(from)?;
        Every::of(number)
            .ok_or_else(|| de::Error::custom(format!("expected {EXPECTED}, found {number}")))
    }
}

impl JsonSchema for Every {
    fn schema_name() -> Cow<'static, str> {
        "Every".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "minimum": 0, "format": FORMAT})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_refers_to_all_steps_and_is_at_least_one() {
        let of = |every: f64, steps| Every::of(every).unwrap().steps(steps);
        assert_eq!([1, 3, 15, 30, 1000].map(|n| of(0.1, n)), [1, 1, 2, 3, 100]);
        assert_eq!([0.0, 1.0, 250.0].map(|x| of(x, 15)), [0, 1, 250]);
        assert!(Every::Steps(0).is_never() && !Every::Share(0.5).is_never());
    }

    #[test]
    fn values_round_trip_and_fractional_steps_are_rejected() {
        for text in ["0", "100", "0.1"] {
            let every: Every = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&every).unwrap(), text);
        }
        for text in ["1.5", "-1", "-0.1", "1e300"] {
            let error = serde_json::from_str::<Every>(text).unwrap_err();
            assert!(error.to_string().contains(EXPECTED), "{text}: {error}");
        }
    }
}
