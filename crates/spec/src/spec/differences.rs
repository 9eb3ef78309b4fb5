//! Which differences between specs to report: which method, optimizer, adapter … was chosen, and no setting that only follows from
//! such a choice or from another setting, or was left to the program.

use super::layer::is_default;
use super::schema::{Kind, Node, root};
use crate::nn::ModelConfig;
use serde_json::Value;

/// A setting by its path, and its value in each spec; `None` where a spec has no such setting.
pub type Row = (String, Vec<Option<Value>>);

/// The choices of one among several (`method`, `optimizer`, `adapter`, `data.tokenizer` …) that specs make differently, as the
/// word of each; `none` where a spec chose none of them. A spec that does not know the choice, such as that of another
/// program's log, is no difference where the others chose as always.
pub fn choices(specs: &[&Value]) -> Vec<Row> {
    let mut rows = Vec::new();
    root().walk("", &mut |path, node| {
        if !matches!(node.kind, Kind::Registry(_)) {
            return;
        }
        let words: Vec<_> = specs.iter().map(|spec| chosen(spec, path, node)).collect();
        let mut known = words.iter().flatten();
        let first = known.next();
        let differs = known.any(|word| Some(word) != first);
        let missing = words.iter().any(Option::is_none);
        let usual = node.default_member().unwrap_or("none");
        if differs || (missing && first.is_some_and(|word| *word != usual)) {
            let values = words.into_iter().map(|word| word.map(Value::from));
            rows.push((path.to_string(), values.collect()));
        }
    });
    rows
}

fn chosen<'a>(spec: &'a Value, path: &str, node: &Node) -> Option<&'a str> {
    match at(spec, path)? {
        Value::Null => Some("none"),
        Value::Object(members) => {
            let mut words = members.keys();
            words
                .find(|word| node.child(word).is_some())
                .map(String::as_str)
        }
        _ => None,
    }
}

fn at<'a>(spec: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(spec, |value, key| value.get(key))
}

/// Whether a setting's difference only follows from others that are reported: from a choice (it is missing in some, and as it always
/// is in the others), from the learning rate and the number of steps, or from the model where a spec leaves it to the program.
pub fn follows(path: &str, values: &[Option<Value>], specs: &[&Value]) -> bool {
    is_dependent(path, values) || of_the_rate(path, specs) || of_the_model(path, values, specs)
}

fn is_dependent(path: &str, values: &[Option<Value>]) -> bool {
    let usual = |value: &Value| value.is_null() || is_default(path, value);
    values.iter().any(Option::is_none) && values.iter().flatten().all(usual)
}

/// Whether a value of the schedule was filled in, in every spec.
fn of_the_rate(path: &str, specs: &[&Value]) -> bool {
    let rate = |spec: &Value| {
        let chosen = spec["optimizer"].as_object()?.values().next()?;
        chosen["lr"].as_f64()
    };
    let value = |spec: &Value| at(spec, path).cloned().unwrap_or(Value::Null);
    // Where the spec has no such schedule nothing speaks against it.
    let of = |spec: &&Value| match (path.rsplit('.').next(), value(spec)) {
        (Some("min_lr" | "warmup_steps"), Value::Null) => true,
        (Some("min_lr"), min) => rate(spec)
            .zip(min.as_f64())
            .is_some_and(|(lr, min)| (min - lr / 10.0).abs() <= 1e-6 * lr),
        (Some("warmup_steps"), _) => !spec["train"]["warmup_ratio"].is_null(),
        _ => false,
    };
    path.starts_with("schedule.") && specs.iter().all(of)
}

/// Whether the models are alike in what some leave to the program (`head_dim: null`) and others say, as one read from a
/// checkpoint's config.json does.
fn of_the_model(path: &str, values: &[Option<Value>], specs: &[&Value]) -> bool {
    let Some(key) = path.strip_prefix("model.") else {
        return false;
    };
    let mut said = values.iter().flatten().filter(|value| !value.is_null());
    let first = said.next();
    let alike = said.all(|value| Some(value) == first);
    let left = values
        .iter()
        .any(|value| value.as_ref().is_none_or(Value::is_null));
    if !left || !alike {
        return false;
    }
    match key {
        // The tokenizer's size, and what the method learns: reported by those. The name of the same model.
        "vocab_size" | "head" | "value_head" | "family" => true,
        "head_dim" | "n_kv_head" | "d_ff" | "context_len" => {
            let sizes = specs.iter().map(|spec| resolved(spec, key));
            let sizes: Vec<Option<usize>> = sizes.collect();
            sizes[0].is_some() && sizes.windows(2).all(|pair| pair[0] == pair[1])
        }
        _ => false,
    }
}

/// A size of the model as the program fills it in.
fn resolved(spec: &Value, key: &str) -> Option<usize> {
    let model: ModelConfig = serde_json::from_value(spec.get("model")?.clone()).ok()?;
    match key {
        "head_dim" => Some(model.shape(1).head_dim),
        "n_kv_head" => Some(model.kv_heads()),
        "d_ff" => Some(model.shape(1).d_ff),
        "context_len" => Some(model.context_len.unwrap_or(model.seq_len)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};
    use serde_json::json;

    /// A preset with settings, as recorded in a run's log.
    fn spec(name: &str, words: &[&str]) -> Value {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let loaded = load(name, &words, &SpecSources::default()).unwrap();
        loaded.spec.to_value()
    }

    fn words(specs: &[&Value]) -> Vec<String> {
        let word = |value: Option<Value>| match value {
            Some(Value::String(word)) => word,
            _ => "-".into(),
        };
        let line = |(path, values): Row| {
            let values: Vec<String> = values.into_iter().map(word).collect();
            format!("{path} {}", values.join(" "))
        };
        choices(specs).into_iter().map(line).collect()
    }

    #[test]
    fn what_was_chosen_is_the_first_difference() {
        let plain = spec("smoke", &[]);
        let told = |set: &[&str]| words(&[&plain, &spec("smoke", set)]);
        assert_eq!(told(&["optimizer=lion"]), ["optimizer adamw lion"]);
        assert_eq!(told(&["schedule=wsd"]), ["schedule cosine wsd"]);
        assert_eq!(told(&["adapter=lora"]), ["adapter none lora"]);
        assert_eq!(told(&["lr=1e-5"]), [""; 0]);
        let pair = [spec("simpo-demo", &[]), spec("cpo-demo", &[])];
        let pair = words(&[&pair[0], &pair[1]]);
        assert_eq!(pair.first().map(String::as_str), Some("method simpo cpo"));
        // A log of another program knows none of them.
        let log = json!({"optimizer": {"of the log": {"lr": 0.1}}});
        assert_eq!(words(&[&log, &plain]), [""; 0]);
        let lion = spec("smoke", &["optimizer=lion"]);
        assert_eq!(words(&[&log, &lion]), ["optimizer - lion"]);
    }

    #[test]
    fn what_only_goes_along_with_another_choice_is_no_difference() {
        let goes = |path: &str, one: Value| is_dependent(path, &[None, Some(one)]);
        assert!(goes("method.dpo.mix", json!([])) && goes("method.dpo.beta", json!(0.1)));
        assert!(
            goes("adapter.lora.rslora", json!(false)) && goes("adapter.lora.custom", json!([]))
        );
        assert!(!goes("method.dpo.beta", json!(0.3)));
        let both = [Some(json!(0.1)), Some(json!(0.3))];
        assert!(!is_dependent("method.dpo.beta", &both));
    }

    #[test]
    fn sizes_that_the_program_fills_in_are_no_difference() {
        let left =
            json!({"model": {"d_model": 128, "n_head": 4, "head_dim": null, "vocab_size": null}});
        let said =
            json!({"model": {"d_model": 128, "n_head": 4, "head_dim": 32, "vocab_size": 13}});
        let specs = [&left, &said];
        let follows = |path: &str, is: Value| follows(path, &[Some(Value::Null), Some(is)], &specs);
        assert!(follows("model.head_dim", json!(32)) && follows("model.vocab_size", json!(13)));
        assert!(!follows("model.sliding_window", json!(64)));
        let wide = json!({"model": {"d_model": 128, "n_head": 4, "head_dim": 64}});
        let values = [Some(Value::Null), Some(json!(64))];
        assert!(!super::follows("model.head_dim", &values, &[&left, &wide]));
    }
}
