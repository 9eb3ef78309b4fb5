//! Settings of a model that by themselves make its first logits or attention scores too large, or all of its weights 0: a rule
//! names the one that is set, and suspects the weights only where none is.

use super::fix::{Reader, render};
use serde_json::Value;

/// What is set, and how to set it back.
#[derive(Debug, Clone, PartialEq)]
pub struct Excess {
    /// `model.logit_scale is 10000, where 1 is usual`.
    pub said: String,
    /// The change, marked as `fix` has it.
    pub(super) change: String,
}

impl Excess {
    /// The change as a setting of this program: `-s model.logit_scale=1`.
    pub fn fix(&self) -> String {
        render(&self.change, Reader::Ours(""))
    }
}

/// Standard deviation of initial weights in GPT-2 and most models since.
const STD: f64 = 0.02;
/// A setting whose effect is this many times the usual one is named.
const ODD: f64 = 2.5;

/// The setting of a spec's `model` that makes fresh logits too large, if one does: the one with the largest effect.
pub fn of_logits(model: &Value) -> Option<Excess> {
    // Embeddings as long as a normalized vector, as Gemma has them, are sound.
    let width = number(model, "d_model").map_or(1.0, f64::sqrt);
    let embeddings = Set::of(model, "embedding_scale", 1.0).map(|set| Set {
        effect: set.effect / width,
        ..set
    });
    largest([
        Set::of(model, "logit_scale", 1.0),
        Set::of(model, "init_std", STD),
        Set::of(model, "residual_scale", 1.0),
        embeddings,
    ])
}

/// The setting that makes fresh attention scores too large, if one does.
pub fn of_scores(model: &Value) -> Option<Excess> {
    let of_head = number(model, "head_dim")
        .or_else(|| Some(number(model, "d_model")? / number(model, "n_head")?))?;
    let usual = 1.0 / of_head.sqrt();
    // Queries and keys both grow with the weights; where they are normalized neither does.
    let spread = Set::of(model, "init_std", STD).filter(|_| model["qk_norm"] != true);
    let spread = spread.map(|set| Set {
        effect: set.effect.powi(2),
        ..set
    });
    largest([Set::of(model, "attention_scale", usual), spread])
}

/// Whether all weights that are drawn begin, and so remain, at 0.
pub(super) fn begins_at_zero(model: &Value) -> bool {
    model["init_std"] == 0.0
}

/// The change that gives weights the usual spread.
pub(super) const USUAL_SPREAD: &str = "<initializer_range=0.02>";

/// A setting that is there: its key, its value, the usual one, and its effect relative to that one's.
struct Set {
    key: &'static str,
    value: f64,
    usual: f64,
    effect: f64,
}

impl Set {
    fn of(model: &Value, key: &'static str, usual: f64) -> Option<Set> {
        let value = number(model, key)?;
        let effect = value / usual;
        Some(Set {
            key,
            value,
            usual,
            effect,
        })
    }
}

fn largest<const N: usize>(settings: [Option<Set>; N]) -> Option<Excess> {
    let odd = settings
        .into_iter()
        .flatten()
        .filter(|set| set.effect > ODD);
    let Set {
        key, value, usual, ..
    } = odd.max_by(|a, b| a.effect.total_cmp(&b.effect))?;
    let theirs = if key == "init_std" {
        "initializer_range"
    } else {
        key
    };
    // Short enough to be typed: 1 / √16 is 0.25, 1 / √48 is 0.1443.
    let usual = (usual * 1e4).round() / 1e4;
    Some(Excess {
        said: format!("model.{key} is {value}, where {usual} is usual"),
        change: format!("<{theirs}={usual}>"),
    })
}

/// A positive number of the model's settings.
fn number(model: &Value, key: &str) -> Option<f64> {
    model[key].as_f64().filter(|x| *x > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Initial weights of 0.02 were called too large, where the logits were multiplied by 10,000.
    #[test]
    fn the_setting_with_the_largest_effect_is_named() {
        let with = |key: &str, value: f64| {
            let mut model = json!({"d_model": 64, "n_head": 4, "init_std": 0.02});
            model[key] = value.into();
            model
        };
        let logits = |key, value| of_logits(&with(key, value)).map(|found| found.fix());
        let scores = |key, value| of_scores(&with(key, value)).map(|found| found.fix());
        for (key, value, fix) in [
            ("logit_scale", 1e4, Some("-s model.logit_scale=1")),
            ("init_std", 1.0, Some("-s model.init_std=0.02")),
            ("embedding_scale", 1e5, Some("-s model.embedding_scale=1")),
            ("residual_scale", 100.0, Some("-s model.residual_scale=1")),
            // Gemma's, and Granite's.
            ("embedding_scale", 8.0, None),
            ("logit_scale", 0.125, None),
            ("attention_scale", 1e3, None),
            ("init_std", 0.0, None),
        ] {
            assert_eq!(logits(key, value).as_deref(), fix, "{key} {value}");
        }
        let usual = Some("-s model.attention_scale=0.25");
        assert_eq!(scores("attention_scale", 1e3).as_deref(), usual);
        let usual = Some("-s model.init_std=0.02");
        assert_eq!(scores("init_std", 1.0).as_deref(), usual);
        assert_eq!(scores("attention_scale", 0.25), None);
        assert_eq!(scores("logit_scale", 1e4), None);
        let said = of_logits(&with("logit_scale", 1e4)).unwrap().said;
        assert_eq!(said, "model.logit_scale is 10000, where 1 is usual");
        assert_eq!(of_logits(&Value::Null), None);
        assert_eq!(of_scores(&Value::Null), None);
    }
}
