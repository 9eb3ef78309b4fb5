//! What a run's spec changes of another one's, as a person would say it: no value that only follows from another change.

use crate::base::text::one_line;
use crate::run::compare::settings;
use crate::spec::{choices, follows, is_default, shown};
use serde_json::{Value, json};

/// A change of a run against its parent: path, the parent's value, its own; `None` where one has no such setting.
pub type Change = (String, Option<Value>, Option<Value>);

/// Settings that describe a run and change nothing of it.
const NAMES: [&str; 3] = ["name", "about", "group"];

/// A changed method, optimizer or adapter comes first. Settings of the parent's choice, defaults of the new one, and derived settings
/// are not listed one by one.
pub fn of_specs(was: &Value, is: &Value) -> Vec<Change> {
    let specs = [was, is];
    let pair = |values: Vec<Option<Value>>| <[Option<Value>; 2]>::try_from(values).ok();
    let chosen = choices(&specs).into_iter().filter_map(|(path, values)| {
        let [was, is] = pair(values)?;
        // Of a tokenizer or a source that the parent's choice had, nothing is left to choose.
        is.is_some().then_some((path, was, is))
    });
    let mut found: Vec<Change> = chosen.collect();
    let others: Vec<String> = found.iter().map(|(path, ..)| format!("{path}.")).collect();
    let went_along = |path: &str, is: &Option<Value>| {
        let left = |is: &Value| is.is_null() || is_default(path, is);
        is.as_ref().is_none_or(left) && others.iter().any(|section| path.starts_with(section))
    };
    for setting in settings(&specs) {
        let follows = follows(&setting.path, &setting.values, &specs);
        let Some([was, is]) = pair(setting.values) else {
            continue;
        };
        // A key that is not there and one that is null are both left to the program.
        let told = word(&was) != word(&is) && !NAMES.contains(&&*setting.path);
        let known = found.iter().any(|(path, ..)| *path == setting.path);
        if told && !known && !follows && !went_along(&setting.path, &is) {
            found.push((setting.path, was, is));
        }
    }
    found
}

/// A value as it is shown.
pub fn word(value: &Option<Value>) -> String {
    one_line(&shown(value.as_ref().unwrap_or(&Value::Null)))
}

/// Each as `{path, was, is}`; null stands for what is not set.
pub fn objects(changes: &[Change]) -> Vec<Value> {
    let object = |(path, was, is): &Change| json!({"path": path, "was": was, "is": is});
    changes.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_the_rate_and_the_steps_is_no_change_of_its_own() {
        let spec = |lr: f64, min_lr: f64, warmup: u64, ratio: Value| {
            json!({
                "optimizer": {"adamw": {"lr": lr}}, "train": {"warmup_ratio": ratio},
                "schedule": {"cosine": {"min_lr": min_lr, "warmup_steps": warmup}},
            })
        };
        let paths = |was: &Value, is: &Value| -> Vec<String> {
            let told = of_specs(was, is).into_iter();
            told.map(|change| change.0).collect()
        };
        let was = spec(1e-3, 1e-4, 10, json!(0.1));
        let lower = spec(2e-4, 2e-5, 5, json!(0.1));
        assert_eq!(paths(&was, &lower), ["optimizer.adamw.lr"]);
        // What a user set stays.
        let said = spec(2e-4, 1e-6, 5, Value::Null);
        assert_eq!(
            paths(&was, &said),
            [
                "optimizer.adamw.lr",
                "train.warmup_ratio",
                "schedule.cosine.min_lr",
                "schedule.cosine.warmup_steps"
            ]
        );
    }

    #[test]
    fn another_method_is_one_change_and_what_went_with_the_first_is_not_told() {
        let was = json!({
            "about": "KTO teaches", "group": "demo", "method": {"kto": {"beta": 0.1, "reference": null}},
            "model": {"head_dim": null}, "optimizer": {"adamw": {"lr": 1e-3}},
        });
        let is = json!({
            "about": "SFT", "group": "template", "method": {"sft": {"neftune_alpha": 5.0}},
            "model": {}, "optimizer": {"adamw": {"lr": 1e-4}},
        });
        let told = of_specs(&was, &is);
        let told: Vec<String> = told
            .iter()
            .map(|(path, was, is)| format!("{path} {} {}", word(was), word(is)))
            .collect();
        assert_eq!(
            told,
            [
                "method kto sft",
                "method.sft.neftune_alpha auto 5",
                "optimizer.adamw.lr 0.001 1e-4",
            ]
        );
        assert_eq!(of_specs(&is, &is), []);
        // What a method has where nobody asks is no change of this run.
        let settings = json!({"beta": 0.1, "loss": ["sigmoid"], "nll_weight": 0, "mix": [], "label_smoothing": 0.2});
        let dpo = json!({"method": {"dpo": settings}, "optimizer": {"adamw": {"lr": 1e-4}}});
        let told = of_specs(&is, &dpo);
        let paths: Vec<&str> = told.iter().map(|change| &*change.0).collect();
        assert!(paths.contains(&"method.dpo.label_smoothing"), "{paths:?}");
        assert!(
            !paths.contains(&"method.dpo.mix") && !paths.contains(&"method.dpo.beta"),
            "{paths:?}"
        );
    }

    #[test]
    fn what_a_child_takes_over_from_its_parents_files_is_no_change() {
        let was = json!({
            "model": {"d_model": 128, "n_head": 4, "head_dim": null, "vocab_size": null},
            "adapter": null, "data": {"synthetic": {"sort": {"min_length": 5}}},
        });
        let lora = json!({"rank": 8, "rslora": false, "custom": [], "patterns": [], "dora": false});
        let is = json!({
            "model": {"d_model": 128, "n_head": 4, "head_dim": 32, "vocab_size": 13},
            "adapter": {"lora": lora}, "data": {"synthetic": null},
        });
        let told: Vec<String> = of_specs(&was, &is)
            .iter()
            .map(|(path, was, is)| format!("{path} {} {}", word(was), word(is)))
            .collect();
        assert_eq!(told, ["adapter none lora", "data.synthetic sort none"]);
    }
}
