//! Values as a report shows them: short, on one line, and without what opens an account.

use super::plain;
use crate::base::text::one_line;
use serde_json::Value;

/// In place of a password.
const MASK: &str = "***";
/// Before `_token`: tokens of a vocabulary, which are no secret.
const OF_VOCABULARY: [&str; 9] = [
    "bos", "eos", "pad", "unk", "sep", "cls", "mask", "image", "special",
];

/// Whether what stands behind a key opens an account: `hub_token`, `wandb_api_key`.
fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    let (before, last) = key.rsplit_once('_').unwrap_or(("", &key));
    let kind = before.rsplit('_').next().unwrap_or_default();
    match last {
        "token" => !OF_VOCABULARY.contains(&kind),
        "key" | "secret" | "password" => true,
        _ => false,
    }
}

/// The value of a key of the file.
pub(super) fn of_key(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) if is_secret(key) && !text.is_empty() => MASK.into(),
        value => brief(value),
    }
}

/// A value as a report shows it.
pub(super) fn brief(value: &Value) -> String {
    let text = one_line(&plain(&masked(value)));
    match text.chars().count() {
        0..=48 => text,
        _ => text.chars().take(47).chain(['…']).collect(),
    }
}

fn masked(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| match value {
                Value::String(_) if is_secret(key) => (key.clone(), MASK.into()),
                value => (key.clone(), masked(value)),
            };
            Value::Object(map.iter().map(entry).collect())
        }
        Value::Array(items) => items.iter().map(masked).collect(),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_opens_an_account_is_not_shown() {
        for key in [
            "hub_token",
            "wandb_api_key",
            "HF_TOKEN",
            "push_to_hub_token",
            "token",
        ] {
            assert_eq!(of_key(key, &json!("hf_abc")), MASK, "{key}");
        }
        for key in ["eos_token", "pad_token", "dataset_name", "num_tokens"] {
            assert_eq!(of_key(key, &json!("</s>")), "</s>", "{key}");
        }
        assert_eq!(of_key("hub_token", &Value::Null), "null");
        let inside = json!([{"path": "a/b", "auth_token": "hf_abc"}]);
        let shown = of_key("datasets", &inside);
        assert!(
            !shown.contains("hf_abc") && shown.contains("a/b"),
            "{shown}"
        );
    }
}
