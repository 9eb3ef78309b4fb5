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
    pub clip_norm: Option<f64>,
    pub n_params: Option<u64>,
    pub vocab_size: Option<u64>,
}

/// Keys by which trainers know them: transformers and TRL, nanochat, nanoGPT, torchtitan, litgpt.
const MAX_STEPS: &[&str] = &["max_steps", "num_iterations", "max_iters", "total_steps"];
const LR: &[&str] = &["learning_rate", "lr"];
const WARMUP: &[&str] = &["warmup_steps", "warmup_iters"];
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
        Facts {
            name: None,
            max_steps: count(MAX_STEPS),
            passes: None,
            lr: number(LR),
            warmup_steps: count(WARMUP),
            clip_norm: number(CLIP),
            n_params: count(PARAMS),
            vocab_size: count(VOCABULARY),
        }
    }

    /// Takes over what `newer` says; true where that changed something.
    pub fn absorb(&mut self, newer: Facts) -> bool {
        let before = self.clone();
        *self = Facts {
            name: newer.name.or(self.name.take()),
            max_steps: newer.max_steps.or(self.max_steps),
            passes: newer.passes.or(self.passes),
            lr: newer.lr.or(self.lr),
            warmup_steps: newer.warmup_steps.or(self.warmup_steps),
            clip_norm: newer.clip_norm.or(self.clip_norm),
            n_params: newer.n_params.or(self.n_params),
            vocab_size: newer.vocab_size.or(self.vocab_size),
        };
        *self != before
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
            "schedule": {"of the log": known("warmup_steps", self.warmup_steps.map(Value::from))},
            "train": known("clip_norm", self.clip_norm.map(Value::from)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
