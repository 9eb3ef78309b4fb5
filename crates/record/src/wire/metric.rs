//! Metric declarations, sent before the first value so that viewers can plot metrics they were not compiled with.

use super::{Num, id};
use crate::base::human;
use crate::base::text::one_line;
use serde::{Deserialize, Serialize};

/// Which way is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Lower,
    Higher,
    /// Neither: e.g. the learning rate.
    #[default]
    Neutral,
}

/// The declaration of one metric.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricInfo {
    /// Key in `values`, e.g. `train/loss`, `grad_norm`, `val/loss`, `host/rss_bytes`.
    pub id: String,
    /// Chart title.
    pub title: String,
    /// Unit as shown: `nats`, `1/s`, `bytes`, or empty.
    pub unit: String,
    pub direction: Direction,
    /// Source of the definition.
    pub source: String,
    /// A shorter title for its chart; empty: the title.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// It is set, not measured: charts draw no average.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    #[serde(default, skip_serializing_if = "ChartPlace::is_dashboard")]
    pub place: ChartPlace,
    /// Values are lists, one value per block of the model, in `Probed` events.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_layer: bool,
    /// Which of several estimators gives the value; bands apply only to it. Empty if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub estimator: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<Band>,
    /// What is normal, and why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub normal: String,
    /// What to do otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

/// The expected range of a metric after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Band {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    pub origin: Origin,
}

impl Band {
    /// Whether a finite value lies within.
    pub fn holds(&self, value: f64) -> bool {
        value.is_finite()
            && self.low.is_none_or(|low| value >= low)
            && self.high.is_none_or(|high| value <= high)
    }
}

/// The source of what is normal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A paper, or the code that set the convention.
    Literature,
    /// It follows from the definition.
    Derived,
    #[default]
    RuleOfThumb,
}

impl Origin {
    /// As text, for docs and screens.
    pub fn words(self) -> &'static str {
        match self {
            Origin::Literature => "literature",
            Origin::Derived => "derived",
            Origin::RuleOfThumb => "rule of thumb",
        }
    }
}

/// Where a metric has its chart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartPlace {
    #[default]
    Dashboard,
    /// With the other readings of the machine.
    Hardware,
    /// With the readings of probes inside the model.
    Health,
    /// Part of other readings.
    Nowhere,
}

impl ChartPlace {
    fn is_dashboard(&self) -> bool {
        *self == ChartPlace::Dashboard
    }
}

/// The best evaluation of a run so far, by the reading that its method names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "BestForm")]
pub struct Best {
    pub step: u64,
    /// Id of the reading, e.g. `val/loss`.
    pub metric: String,
    pub value: Num,
    pub direction: Direction,
}

impl Best {
    /// `val accuracy 0.8125`; `None` if the validation loss decides, which is the default.
    pub fn not_by_loss(&self) -> Option<String> {
        let value = human::number(self.value.0);
        let name = match self.metric.as_str() {
            // As the lines of evaluations have them.
            id::VAL_ACCURACIES => "val accuracy".into(),
            id::VAL_MARGINS => "val margin".into(),
            other => one_line(other),
        };
        (self.metric != id::VAL_LOSS).then(|| format!("{name} {value}"))
    }

    /// The same without the kind of reading, for a column: `accuracies 0.8125`.
    pub fn brief(&self) -> Option<String> {
        let name = self.metric.rsplit('/').next().unwrap_or(&self.metric);
        let by_loss = self.metric == id::VAL_LOSS || !self.value.0.is_finite();
        (!by_loss).then(|| format!("{} {:.4}", one_line(name), self.value.0))
    }

    /// Whether this evaluation replaces the previous best one. Of equal ones the later is kept: it trained longer.
    /// Different readings cannot be compared.
    pub fn replaces(&self, before: Option<&Best>) -> bool {
        let equals = |before: &Best| self.value.0.is_finite() && self.value == before.value;
        self.improves_on(before) || before.is_some_and(equals)
    }

    /// Whether this evaluation is better than the best one before it, by the same reading.
    pub fn improves_on(&self, before: Option<&Best>) -> bool {
        let value = self.value.0;
        value.is_finite()
            && before.is_none_or(|before| match self.direction {
                _ if self.metric != before.metric => true,
                Direction::Higher => value > before.value.0,
                _ => value < before.value.0,
            })
    }
}

/// The form of programs before 0.2: the lowest validation loss.
#[derive(Deserialize)]
#[serde(untagged)]
enum BestForm {
    Full {
        step: u64,
        metric: String,
        value: Num,
        direction: Direction,
    },
    Checkpoint {
        step: u64,
        val_loss: Num,
    },
    Loss(Num),
}

impl From<BestForm> for Best {
    fn from(form: BestForm) -> Best {
        let lowest = |step, value| Best {
            step,
            metric: id::VAL_LOSS.into(),
            value,
            direction: Direction::Lower,
        };
        match form {
            BestForm::Full {
                step,
                metric,
                value,
                direction,
            } => Best {
                step,
                metric,
                value,
                direction,
            },
            BestForm::Checkpoint { step, val_loss } => lowest(step, val_loss),
            BestForm::Loss(value) => lowest(0, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_read_in_the_forms_of_older_programs_too() {
        let read = |text: &str| serde_json::from_str::<Best>(text).unwrap();
        let lowest = Best {
            step: 7,
            metric: "val/loss".into(),
            value: Num(1.5),
            direction: Direction::Lower,
        };
        assert_eq!(read(r#"{"step": 7, "val_loss": 1.5}"#), lowest);
        assert_eq!(
            read("1.5"),
            Best {
                step: 0,
                ..lowest.clone()
            }
        );
        let highest = Best {
            metric: "val/rewards/accuracies".into(),
            direction: Direction::Higher,
            ..lowest.clone()
        };
        let text = serde_json::to_string(&highest).unwrap();
        assert_eq!(read(&text), highest);
    }

    #[test]
    fn better_is_what_the_direction_says_and_the_later_of_equals() {
        let best = |value, direction| Best {
            step: 1,
            metric: "val/x".into(),
            value: Num(value),
            direction,
        };
        let replaces =
            |new, old, direction| best(new, direction).replaces(Some(&best(old, direction)));
        assert!(replaces(1.0, 2.0, Direction::Lower) && !replaces(2.0, 1.0, Direction::Lower));
        assert!(replaces(2.0, 1.0, Direction::Higher) && !replaces(1.0, 2.0, Direction::Higher));
        assert!(replaces(1.0, 1.0, Direction::Higher) && replaces(1.0, 1.0, Direction::Lower));
        let equal = best(1.0, Direction::Higher);
        assert!(!equal.improves_on(Some(&equal)));
        assert!(!best(f64::NAN, Direction::Lower).replaces(None));
    }
}
