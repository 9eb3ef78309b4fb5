//! A value on top of words of `-s` that are read as one layer, such as the `set` of a pipeline's stage: it counts as the newest
//! word, and what it replaces in a layer below it goes.

use super::implied;
use super::layer::setting_path;
use super::schema::{Kind, root};
use serde_json::{Map, Value};

/// Sets `key`, by any of its names, as the last of `words`.
pub fn set_over(words: &mut Map<String, Value>, key: &str, value: Value) {
    if let Some(path) = setting_path(key) {
        let replaced = match value.is_null() {
            true => Vec::new(),
            false => implied::replaced_by(&path.join(".")),
        };
        let chosen = choices(&path, &value);
        let stays = |other: &str, old: &mut Value| {
            let Some(at) = setting_path(other) else {
                return true;
            };
            let other_choice = || chosen.iter().any(|choice| choice.excludes(&at, old));
            at != path && !other_choice() && !replaced.iter().any(|gone| take(gone, &at, old))
        };
        words.retain(|other, old| stays(other, old));
    }
    words.shift_remove(key);
    words.insert(key.into(), value);
}

/// Whether setting `path` replaces a value that an earlier word gave `other` (full paths).
pub(super) fn replaces(path: &str, other: &str) -> bool {
    let at: Vec<String> = other.split('.').map(String::from).collect();
    let replaced = implied::replaced_by(path);
    replaced
        .iter()
        .any(|gone| take(gone, &at, &mut Value::Null))
}

/// Whether one of `words` says the setting at `path`, or one below it.
pub fn says(words: &Map<String, Value>, path: &str) -> bool {
    let whole: Vec<&str> = path.split('.').collect();
    words.iter().any(|(key, value)| {
        let at = setting_path(key).unwrap_or_default();
        let mut names = at.iter().zip(&whole);
        let agree = !at.is_empty() && names.all(|(name, other)| is_same(name, other));
        agree
            && match whole.get(at.len()..) {
                None | Some([]) => true,
                Some(below) => remove(&mut value.clone(), below),
            }
    })
}

/// A member of a registry that a word selects.
struct Choice {
    registry: Vec<String>,
    member: String,
}

impl Choice {
    /// Whether the word at `at` selects another member.
    fn excludes(&self, at: &[String], value: &Value) -> bool {
        let Some(below) = at.strip_prefix(&self.registry[..]) else {
            return false;
        };
        match below.first() {
            Some(member) => member != "*" && *member != self.member,
            None => selected(&self.registry, value).is_some_and(|member| member != self.member),
        }
    }
}

fn choices(path: &[String], value: &Value) -> Vec<Choice> {
    let within = (1..path.len()).map(|depth| (path[..depth].to_vec(), Some(path[depth].clone())));
    let itself = (path.to_vec(), selected(path, value));
    let of = |(registry, member): (Vec<String>, Option<String>)| {
        let member = member.filter(|member| member != "*" && is_registry(&registry))?;
        Some(Choice { registry, member })
    };
    within.chain([itself]).filter_map(of).collect()
}

fn is_registry(path: &[String]) -> bool {
    let node = root().at(&path.join("."));
    node.is_some_and(|node| matches!(node.kind, Kind::Registry(_)))
}

/// The member that a value of a registry selects; settings alone select none.
fn selected(registry: &[String], value: &Value) -> Option<String> {
    let word = match value {
        Value::String(word) => word,
        Value::Object(map) => map.keys().next()?,
        _ => return None,
    };
    let word = word.replace('-', "_");
    let node = root().at(&registry.join("."))?;
    node.child(&word).is_some().then_some(word)
}

/// Takes the setting at `gone` out of what a word at `at` says; true where nothing is left of it.
fn take(gone: &str, at: &[String], value: &mut Value) -> bool {
    let gone: Vec<&str> = gone.split('.').collect();
    let names = at.iter().map(String::as_str);
    if !names.zip(&gone).all(|(name, gone)| is_same(name, gone)) {
        return false;
    }
    match gone.get(at.len()..) {
        None | Some([]) => true,
        Some(below) => remove(value, below) && value.as_object().is_some_and(Map::is_empty),
    }
}

/// `*` stands for any member.
fn is_same(name: &str, other: &str) -> bool {
    name == "*" || other == "*" || name.replace('-', "_") == other
}

/// Removes the value at a path; true if there was one.
fn remove(value: &mut Value, path: &[&str]) -> bool {
    let (Some(map), [first, below @ ..]) = (value.as_object_mut(), path) else {
        return false;
    };
    let before = map.len();
    if below.is_empty() {
        map.retain(|name, _| !is_same(name, first));
        return map.len() < before;
    }
    let inside = map.iter_mut().filter(|(name, _)| is_same(name, first));
    let removed = inside.map(|(_, inside)| remove(inside, below));
    removed.fold(false, |any, one| any | one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The words after `key=value` on top of them.
    fn over(before: Value, key: &str, value: Value) -> Value {
        let Value::Object(mut words) = before else {
            panic!("words are a map");
        };
        set_over(&mut words, key, value);
        assert_eq!(words.keys().next_back().unwrap(), key, "the newest is last");
        Value::Object(words)
    }

    #[test]
    fn the_newest_word_is_last_and_takes_the_place_of_its_other_names() {
        let said = over(
            json!({"lr": 1, "seed": 2, "learning-rate": 3}),
            "lr",
            json!(4),
        );
        assert_eq!(said, json!({"seed": 2, "lr": 4}));
        let said = over(json!({"batch_size": 1}), "micro_batch_size", json!(2));
        assert_eq!(said, json!({"micro_batch_size": 2}));
        // It also selects the optimizer.
        let said = over(json!({"optimizer.adamw.lr": 1}), "lr", json!(2));
        assert_eq!(said, json!({"optimizer.adamw.lr": 1, "lr": 2}));
    }

    #[test]
    fn a_setting_is_said_by_any_name_and_inside_a_map() {
        for (words, expected) in [
            (json!({"tokenizer": "char"}), true),
            (json!({"data.tokenizer.bpe.vocab_size": 300}), true),
            (json!({"data": {"tokenizer": "char"}}), true),
            (json!({"data": {"path": "a"}}), false),
            (json!({"data.path": "a", "unknown": 1}), false),
        ] {
            let said = says(words.as_object().unwrap(), "data.tokenizer");
            assert_eq!(said, expected, "{words}");
        }
    }

    #[test]
    fn what_a_higher_layer_replaces_goes() {
        for (before, key, value) in [
            (json!({"max_steps": 30}), "epochs", json!(2)),
            (json!({"train": {"max_steps": 30}}), "epochs", json!(2)),
            (json!({"num_train_epochs": 3}), "steps", json!(30)),
            (
                json!({"data.path": "a", "data.curriculum": []}),
                "data.sources",
                json!(["b"]),
            ),
            (
                json!({"data.synthetic": "sort"}),
                "dataset",
                json!("a.jsonl"),
            ),
            (json!({"val_rows": 9}), "data.val_fraction", json!(0.1)),
            (
                json!({"schedule.cosine.warmup_steps": 9}),
                "warmup_ratio",
                json!(0.1),
            ),
            (json!({"warmup_ratio": 0.1}), "warmup_steps", json!(9)),
            (
                json!({"schedule": {"cosine": {"warmup_steps": 9}}}),
                "warmup_ratio",
                json!(0.1),
            ),
            (
                json!({"optimizer.adamw.lr": 1, "optimizer": "adamw"}),
                "optimizer",
                json!("lion"),
            ),
            (
                json!({"optimizer": {"adamw": {"lr": 1}}}),
                "optimizer.lion.lr",
                json!(2),
            ),
            (
                json!({"data.tokenizer": "char"}),
                "data.tokenizer.bpe.vocab_size",
                json!(300),
            ),
        ] {
            let schedule = json!({"cosine": {}});
            let said = over(before.clone(), key, value.clone());
            let mut words = said.as_object().unwrap().clone();
            // Of a section the rest stays.
            words.retain(|_, left| *left != schedule);
            assert_eq!(Value::Object(words), json!({key: value}), "{before}");
        }
        let before = json!({"train": {"max_steps": 30, "seed": 1}, "data.path": "a"});
        let said = over(before, "epochs", json!(2));
        assert_eq!(
            said,
            json!({"train": {"seed": 1}, "data.path": "a", "epochs": 2})
        );
        // Nothing is said by null.
        let said = over(json!({"max_steps": 30}), "epochs", Value::Null);
        assert_eq!(said, json!({"max_steps": 30, "epochs": null}));
    }
}
