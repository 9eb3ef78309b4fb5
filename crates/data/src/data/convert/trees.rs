//! Trees of messages, one a row with the id of the message that it answers (OpenAssistant's), as conversations: one for each reply
//! that no further reply follows, from the first message on.

use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Longest conversation; a longer one is a circle.
const MOST_TURNS: usize = 1_000;
/// Columns of a conversation's last reply that are kept.
const KEPT: [&str; 3] = ["message_tree_id", "lang", "rank"];

struct Message {
    parent: Option<String>,
    role: &'static str,
    text: String,
    kept: Map<String, Value>,
}

/// The messages of all trees of a file.
#[derive(Default)]
pub struct Trees {
    messages: Vec<Message>,
    by_id: HashMap<String, usize>,
    /// Messages that are marked as deleted; what answers them has no beginning.
    pub deleted: u64,
}

/// What came of the trees.
pub struct Joined {
    pub conversations: Vec<Map<String, Value>>,
    /// Replies whose first messages are not in the file.
    pub without_beginning: u64,
}

impl Trees {
    /// Adds a row.
    ///
    /// # Errors
    /// What it lacks to be a message of a tree.
    pub fn add(&mut self, row: &Map<String, Value>) -> Result<(), String> {
        if row.get("deleted") == Some(&Value::Bool(true)) {
            self.deleted += 1;
            return Ok(());
        }
        let text = |name: &str| {
            let found = row.get(name).and_then(Value::as_str);
            found.ok_or_else(|| format!("it has no text in the column {name}"))
        };
        let role = match text("role")? {
            "prompter" | "user" | "human" => "user",
            "assistant" => "assistant",
            "system" => "system",
            other => {
                return Err(format!(
                    "its role {other} is none of prompter, user, assistant, system"
                ));
            }
        };
        let parent = row.get("parent_id").filter(|id| !id.is_null());
        let parent = match parent {
            Some(id) => Some(
                id.as_str()
                    .ok_or("its parent_id is neither text nor null")?
                    .to_string(),
            ),
            None => None,
        };
        let kept = KEPT.iter().filter_map(|name| {
            let value = row.get(*name).filter(|value| !value.is_null())?;
            Some(((*name).to_string(), value.clone()))
        });
        let message = Message {
            parent,
            role,
            text: text("text")?.to_string(),
            kept: kept.collect(),
        };
        let id = text("message_id")?.to_string();
        if self.by_id.insert(id, self.messages.len()).is_some() {
            return Err("another message has its message_id".into());
        }
        self.messages.push(message);
        Ok(())
    }

    /// The conversations, in the order of their last replies.
    pub fn join(&self) -> Joined {
        let mut answered = vec![false; self.messages.len()];
        for (at, message) in self.messages.iter().enumerate() {
            if message.role == "assistant" {
                for above in self.path(at).0.into_iter().skip(1) {
                    // The way further up was gone before.
                    if std::mem::replace(&mut answered[above], true) {
                        break;
                    }
                }
            }
        }
        let mut joined = Joined {
            conversations: Vec::new(),
            without_beginning: 0,
        };
        for (at, message) in self.messages.iter().enumerate() {
            if message.role != "assistant" || answered[at] {
                continue;
            }
            let (path, is_whole) = self.path(at);
            if !is_whole {
                joined.without_beginning += 1;
                continue;
            }
            let turns: Vec<Value> = path
                .iter()
                .rev()
                .map(|at| &self.messages[*at])
                .map(|turn| json!({"role": turn.role, "content": turn.text}))
                .collect();
            let mut row = Map::new();
            row.insert("messages".into(), turns.into());
            row.extend(message.kept.clone());
            joined.conversations.push(row);
        }
        joined
    }

    /// A message and those above it, the nearest first, and whether the last of them begins a conversation.
    fn path(&self, from: usize) -> (Vec<usize>, bool) {
        let mut path = vec![from];
        while let Some(parent) = path
            .last()
            .and_then(|at| self.messages[*at].parent.as_ref())
        {
            match self.by_id.get(parent) {
                Some(above) if path.len() < MOST_TURNS => path.push(*above),
                _ => return (path, false),
            }
        }
        (path, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees(rows: Value) -> Trees {
        let mut trees = Trees::default();
        for row in rows.as_array().unwrap() {
            trees.add(row.as_object().unwrap()).unwrap();
        }
        trees
    }

    fn message(id: &str, parent: Option<&str>, role: &str) -> Value {
        json!({"message_id": id, "parent_id": parent, "role": role, "text": format!("text {id}"), "lang": "en"})
    }

    #[test]
    fn each_reply_that_nobody_answers_ends_a_conversation() {
        let trees = trees(json!([
            message("a", None, "prompter"),
            message("b", Some("a"), "assistant"),
            message("c", Some("a"), "assistant"),
            message("d", Some("b"), "prompter"),
            message("e", Some("d"), "assistant"),
            // A question that nobody answered: the conversation ends before it.
            message("f", Some("c"), "prompter"),
            message("lost", Some("gone"), "assistant"),
        ]));
        let joined = trees.join();
        let words: Vec<String> = joined
            .conversations
            .iter()
            .map(|row| {
                let turns = row["messages"].as_array().unwrap().iter();
                let word = |turn: &Value| {
                    let role = turn["role"].as_str().unwrap();
                    format!("{}{}", &role[..1], &turn["content"].as_str().unwrap()[5..])
                };
                turns.map(word).collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(words, ["ua ac", "ua ab ud ae"]);
        assert_eq!(joined.without_beginning, 1);
        assert_eq!(joined.conversations[0]["lang"], "en");
    }

    #[test]
    fn deleted_messages_and_circles_have_no_conversation() {
        let mut rows = vec![
            message("a", Some("b"), "prompter"),
            message("b", Some("a"), "assistant"),
            message("x", None, "prompter"),
            message("y", Some("x"), "assistant"),
        ];
        rows[2]["deleted"] = json!(true);
        let trees = trees(Value::Array(rows));
        let joined = trees.join();
        assert!(joined.conversations.is_empty());
        assert_eq!((trees.deleted, joined.without_beginning), (1, 1));
    }

    #[test]
    fn a_row_that_is_no_message_is_named() {
        let mut trees = Trees::default();
        let mut add = |row: Value| trees.add(row.as_object().unwrap());
        assert_eq!(add(message("a", None, "prompter")), Ok(()));
        for (row, words) in [
            (message("a", None, "prompter"), "another message"),
            (message("b", None, "robot"), "role robot"),
            (json!({"message_id": "c", "role": "user"}), "column text"),
            (json!({"role": "user", "text": "x"}), "column message_id"),
        ] {
            let why = add(row).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
