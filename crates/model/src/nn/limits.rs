//! Whether the numbers of a [`ModelConfig`] are within the ranges that its fields declare. A spec is checked key by key as it
//! is read; model files are checked here, before anything is allocated.

use super::ModelConfig;
use serde_json::Value;
use std::sync::LazyLock;

/// Maximum experts of all blocks together: each has several tensors, which are listed before any is allocated.
const MAX_EXPERTS: usize = 100_000;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(ModelConfig).to_value());

impl ModelConfig {
    /// # Errors
    /// The first number out of its range, with the range; more experts than a model can have.
    pub fn within_limits(&self) -> Result<(), String> {
        let of_width = self.d_model.checked_div(self.n_head);
        let config = ModelConfig {
            // Derived sizes are not checked.
            head_dim: self.head_dim.filter(|n| Some(*n) != of_width),
            ..self.clone()
        };
        let value = serde_json::to_value(&config).map_err(|e| e.to_string())?;
        if let Some(what) = out_of_range(&SCHEMA, &value, "") {
            return Err(what);
        }
        // JSON cannot represent them.
        let back = serde_json::from_value::<ModelConfig>(value);
        if back.ok().as_ref() != Some(&config) {
            return Err("a number is not finite".into());
        }
        let experts = self.moe.as_ref().map_or(0, |moe| moe.n_expert);
        match experts.saturating_mul(self.n_layer) {
            n if n > MAX_EXPERTS => Err(format!(
                "moe.n_expert, n_layer: {n} experts in all blocks; the limit is {MAX_EXPERTS}"
            )),
            _ => Ok(()),
        }
    }
}

/// The first number of `value` that the schema part `here` does not allow.
fn out_of_range(here: &Value, value: &Value, path: &str) -> Option<String> {
    let target = here["$ref"]
        .as_str()
        .and_then(|name| name.strip_prefix('#'));
    let target = target.and_then(|name| SCHEMA.pointer(name));
    let options = ["anyOf", "oneOf", "allOf"].into_iter();
    let options = options.filter_map(|key| here[key].as_array()).flatten();
    let mut same = target.into_iter().chain(options);
    if let Some(found) = same.find_map(|part| out_of_range(part, value, path)) {
        return Some(found);
    }
    match value {
        Value::Number(number) => {
            let number = number.as_f64()?;
            let (min, max) = (here["minimum"].as_f64(), here["maximum"].as_f64());
            let good = min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max);
            let range = match (min, max) {
                (Some(min), Some(max)) => format!("from {min} to {max}"),
                (Some(min), None) => format!("of at least {min}"),
                (_, max) => format!("of at most {}", max.unwrap_or_default()),
            };
            (!good).then(|| format!("{path}: {number} is not a number {range}"))
        }
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let path = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            out_of_range(here["properties"].get(key)?, value, &path)
        }),
        Value::Array(list) => list
            .iter()
            .find_map(|value| out_of_range(&here["items"], value, path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::MoeConfig;
    use serde_json::json;

    fn checked(change: Value) -> Result<(), String> {
        let config: ModelConfig = serde_json::from_value(change).unwrap();
        config.within_limits()
    }

    #[test]
    fn numbers_out_of_range_are_named_at_any_depth() {
        for (change, key) in [
            (json!({"n_layer": 0}), "n_layer"),
            (json!({"d_model": 1 << 20}), "d_model"),
            (json!({"head_dim": 4096}), "head_dim"),
            (json!({"n_kv_head": 0}), "n_kv_head"),
            (json!({"sliding_window": 0}), "sliding_window"),
            (json!({"global_every": 0}), "global_every"),
            (json!({"dropout": 1.0}), "dropout"),
            (json!({"attention_softcap": 0.0}), "attention_softcap"),
            (json!({"logit_softcap": -30.0}), "logit_softcap"),
            (json!({"attention_scale": -1.0}), "attention_scale"),
            (json!({"residual_scale": 0.0}), "residual_scale"),
            (json!({"residual_scale": -0.22}), "residual_scale"),
            (json!({"logit_scale": 0.0}), "logit_scale"),
            (json!({"logit_scale": -8.0}), "logit_scale"),
            (json!({"moe": {"top_k": 0}}), "moe.top_k"),
            (json!({"moe": {"n_expert": 4096}}), "moe.n_expert"),
            (json!({"moe": {"every": 0}}), "moe.every"),
            (
                json!({"moe": {"balancing": {"bias": {"rate": 2.0}}}}),
                "rate",
            ),
            (
                json!({"norm": {"rmsnorm": {"eps": -1.0}}}),
                "norm.rmsnorm.eps",
            ),
            (
                json!({"position": {"rope": {"theta": 0.5}}}),
                "position.rope.theta",
            ),
            (
                json!({"position": {"rope": {"fraction": 1.5}}}),
                "rope.fraction",
            ),
            (
                json!({"position": {"rope": {"nope_every": 0}}}),
                "rope.nope_every",
            ),
            (
                json!({"position": {"rope": {"scaling": {"yarn": {"factor": 0.0}}}}}),
                "scaling.yarn.factor",
            ),
        ] {
            let error = checked(change.clone()).expect_err(&change.to_string());
            assert!(
                error.contains(key) && error.contains(" is not a number "),
                "{error}"
            );
        }
    }

    #[test]
    fn what_follows_from_other_sizes_is_in_range_and_what_is_not_finite_is_not() {
        assert_eq!(ModelConfig::default().within_limits(), Ok(()));
        let one = json!({"d_model": 4096, "n_head": 1, "head_dim": 4096});
        assert_eq!(checked(one), Ok(()));
        let config = ModelConfig {
            attention_scale: Some(f64::NAN),
            ..ModelConfig::default()
        };
        assert!(config.within_limits().is_err());
        let many = ModelConfig {
            n_layer: 1000,
            moe: Some(MoeConfig {
                n_expert: 1000,
                ..MoeConfig::default()
            }),
            ..ModelConfig::default()
        };
        assert!(
            many.within_limits()
                .unwrap_err()
                .contains("1000000 experts")
        );
    }
}
