//! Per-turn loss weights (0 or 1): OpenAI's and Axolotl's `weight`, LLaMA-Factory's `loss_weight`, Axolotl's `train` and
//! `training`. Fractional weights are refused, not rounded.

use crate::data::{Content, Message, Turns};
use serde_json::Value;

const WEIGHTS: [&str; 2] = ["weight", "loss_weight"];
const FLAGS: [&str; 2] = ["train", "training"];
/// Supervision of parts of a turn, in characters: not supported.
const PARTS: &str = "train_detail";

pub(super) const FIX: &str =
    "write 1 for a turn that is trained on and 0 for context only, or remove the key";

/// A turn's own setting; `None` if it has none.
///
/// # Errors
/// In words: a weight that is neither 0 nor 1.
pub(in crate::data) fn said(message: &Message) -> Result<Option<bool>, String> {
    if message.extra.contains_key(PARTS) {
        return Err(format!(
            "`{PARTS}` trains on parts of a turn; here a turn is trained on whole or not at all"
        ));
    }
    for key in WEIGHTS {
        match message.extra.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Bool(learned)) => return Ok(Some(*learned)),
            Some(value) if value.as_f64() == Some(0.0) => return Ok(Some(false)),
            Some(value) if value.as_f64() == Some(1.0) => return Ok(Some(true)),
            Some(other) => {
                return Err(format!(
                    "its `{key}` is {other}; use 1 (trained on) or 0 (context only)"
                ));
            }
        }
    }
    let mut flags = FLAGS
        .iter()
        .filter_map(|key| message.extra.get(*key)?.as_bool());
    Ok(flags.next())
}

/// For each turn of the assistant whether its row leaves it out of the loss; empty where none is.
pub(in crate::data) fn only_read(messages: &[Message]) -> Vec<bool> {
    let answers = messages.iter().filter(|m| m.role == "assistant");
    let read: Vec<bool> = answers.map(|m| said(m) == Ok(Some(false))).collect();
    match read.contains(&true) {
        true => read,
        false => Vec::new(),
    }
}

/// Whether supervision of another role's turn is requested, which is never done.
pub(in crate::data) fn of_others(messages: &[Message]) -> bool {
    let mut others = messages.iter().filter(|m| m.role != "assistant");
    others.any(|m| said(m) == Ok(Some(true)))
}

/// Whether any turn of a row says so.
pub(in crate::data) fn occur_in(content: &Content) -> bool {
    let of = |messages: &[Message]| messages.iter().any(|m| said(m) != Ok(None));
    let side = |turns: &Turns| matches!(turns, Turns::Messages(messages) if of(messages));
    match content {
        Content::Text(_) => false,
        Content::Chat(messages) => of(messages),
        Content::Completion { prompt, completion }
        | Content::Labelled {
            prompt, completion, ..
        } => side(prompt) || side(completion),
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => side(prompt) || side(chosen) || side(rejected),
        Content::Prompt { prompt, .. } => side(prompt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn turn(role: &str, key: &str, value: Value) -> Message {
        let mut message = Message::new(role, "a");
        message.extra.insert(key.into(), value);
        message
    }

    #[test]
    fn a_turn_counts_or_does_not() {
        let said = |key, value| said(&turn("assistant", key, value));
        assert_eq!(said("weight", json!(0)), Ok(Some(false)));
        assert_eq!(said("loss_weight", json!(1.0)), Ok(Some(true)));
        assert_eq!(said("train", json!(false)), Ok(Some(false)));
        assert_eq!(said("training", json!("first half")), Ok(None));
        assert_eq!(said("name", json!(0)), Ok(None));
        let error = said("loss_weight", json!(0.5)).unwrap_err();
        assert!(error.contains("`loss_weight` is 0.5"), "{error}");
        assert!(said("weight", json!("0")).is_err());
        assert!(said("train_detail", json!([])).is_err());
    }

    #[test]
    fn weights_are_asked_of_answers_and_told_of_others() {
        let mut turns = vec![
            turn("user", "train", json!(false)),
            turn("assistant", "weight", json!(0)),
            turn("assistant", "weight", json!(1)),
        ];
        assert_eq!(only_read(&turns), [true, false]);
        assert!(!of_others(&turns) && occur_in(&Content::Chat(turns.clone())));
        turns[0] = turn("user", "weight", json!(1));
        assert!(of_others(&turns));
        assert!(only_read(&turns[2..]).is_empty());
    }
}
