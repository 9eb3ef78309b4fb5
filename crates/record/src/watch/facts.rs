//! Facts of a log about its run as a whole, wherever they are in it: arguments of a trainer, the configuration of a tracker.

use serde_json::Value;

/// Absent where the log does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    pub name: Option<String>,
    pub max_steps: Option<u64>,
    /// Passes over the data, of a program that counts the steps of each.
    pub passes: Option<u64>,
    /// The peak learning rate.
    pub lr: Option<f64>,
    pub warmup_steps: Option<u64>,
    /// The warm-up as a share of all steps, where the log does not count it.
    pub warmup_share: Option<f64>,
    pub clip_norm: Option<f64>,
    pub n_params: Option<u64>,
    pub vocab_size: Option<u64>,
}

/// Keys by which trainers know them: transformers and TRL, nanochat, nanoGPT, torchtitan, litgpt.
const MAX_STEPS: &[&str] = &["max_steps", "num_iterations", "max_iters", "total_steps"];
const LR: &[&str] = &["learning_rate", "lr"];
const WARMUP: &[&str] = &["warmup_steps", "warmup_iters"];
/// transformers 4; since transformers 5 `warmup_steps` below 1 is that share.
const WARMUP_SHARE: &[&str] = &["warmup_ratio"];
const CLIP: &[&str] = &["max_grad_norm", "grad_clip", "clip_norm", "max_norm"];
const PARAMS: &[&str] = &["n_params", "num_params", "num_parameters"];
const VOCABULARY: &[&str] = &["vocab_size"];

impl Facts {
    /// From an object of arguments; keys that are unknown here are left alone.
    pub fn of(config: &Value) -> Facts {
        let number = |keys: &[&str]| {
            let value = keys.iter().find_map(|key| config[*key].as_f64());
            value.filter(|x| x.is_finite() && *x > 0.0)
        };
        let count = |keys: &[&str]| number(keys).map(|x| x as u64);
        let warmup = number(WARMUP);
        let share = warmup.or_else(|| number(WARMUP_SHARE));
        Facts {
            name: None,
            max_steps: count(MAX_STEPS),
            passes: None,
            lr: number(LR),
            warmup_steps: warmup.filter(|x| *x >= 1.0).map(|x| x as u64),
            warmup_share: share.filter(|x| *x < 1.0),
            clip_norm: number(CLIP),
            n_params: count(PARAMS),
            vocab_size: count(VOCABULARY),
        }
    }

    /// Takes over what `newer` says; true where that changed something.
    pub fn absorb(&mut self, newer: Facts) -> bool {
        let before = self.clone();
        let warmup = match newer.warmup_steps.is_some() || newer.warmup_share.is_some() {
            true => (newer.warmup_steps, newer.warmup_share),
            false => (self.warmup_steps, self.warmup_share),
        };
        *self = Facts {
            name: newer.name.or(self.name.take()),
            max_steps: newer.max_steps.or(self.max_steps),
            passes: newer.passes.or(self.passes),
            lr: newer.lr.or(self.lr),
            warmup_steps: warmup.0,
            warmup_share: warmup.1,
            clip_norm: newer.clip_norm.or(self.clip_norm),
            n_params: newer.n_params.or(self.n_params),
            vocab_size: newer.vocab_size.or(self.vocab_size),
        };
        *self != before
    }

    /// The steps of the warm-up. A share is rounded up to whole steps, as transformers does.
    fn warmup(&self) -> Option<u64> {
        let of_share = || Some((self.warmup_share? * self.max_steps? as f64).ceil() as u64);
        self.warmup_steps.or_else(of_share)
    }

    /// In the form of a spec, as far as rules and screens read one.
    pub fn as_spec(&self) -> Value {
        // What the log does not say is no setting: beside a run of this program it would read as one that differs.
        let known = |key: &str, fact: Option<Value>| match fact {
            Some(fact) => serde_json::json!({key: fact}),
            None => serde_json::json!({}),
        };
        serde_json::json!({
            "optimizer": {"of the log": known("lr", self.lr.map(Value::from))},
            "schedule": {"of the log": known("warmup_steps", self.warmup().map(Value::from))},
            "train": known("clip_norm", self.clip_norm.map(Value::from)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_log_does_not_say_is_no_setting() {
        let leaves = |facts: Facts| facts.as_spec().to_string().matches(':').count();
        let groups = leaves(Facts::default());
        assert!(!Facts::default().as_spec().to_string().contains("null"));
        let facts = Facts {
            lr: Some(5e-5),
            ..Facts::default()
        };
        assert_eq!(facts.as_spec()["optimizer"]["of the log"]["lr"], 5e-5);
        assert_eq!(leaves(facts), groups + 1);
    }
    #[test]
    fn a_warm_up_below_one_is_a_share_of_all_steps() {
        let warmup = |config: Value, max_steps: Option<u64>| {
            let mut facts = Facts::of(&config);
            facts.absorb(Facts {
                max_steps,
                ..Facts::default()
            });
            facts.as_spec()["schedule"]["of the log"]["warmup_steps"].as_u64()
        };
        // transformers 5 and 4; 0.25 of 42 is 10.5.
        assert_eq!(warmup(json!({"warmup_steps": 0.25}), Some(42)), Some(11));
        let ratio = json!({"warmup_steps": 0, "warmup_ratio": 0.1});
        assert_eq!(warmup(ratio, Some(42)), Some(5));
        assert_eq!(warmup(json!({"warmup_steps": 0.25}), None), None);
        let both = json!({"warmup_steps": 7, "warmup_ratio": 0.5});
        assert_eq!(warmup(both, Some(42)), Some(7));
        assert_eq!(
            warmup(json!({"max_steps": 8, "warmup_ratio": 0.5}), None),
            Some(4)
        );
    }
}
