//! Writes examples in a chosen format: the inverse of reading formats. What a format cannot represent is an error with its
//! reason, never omitted silently; columns that no format uses are copied.

mod alpaca;
mod messages;
mod prompt_completion;
mod sharegpt;
mod text;
mod trees;

use super::{Content, Example, Message, Turns};
use serde_json::{Map, Value};
pub use trees::{Joined, Trees};

/// One format to write.
#[derive(Debug, Clone, Copy)]
pub struct Writer {
    /// The word of `--to`.
    pub id: &'static str,
    pub about: &'static str,
    /// An example's columns, or why it cannot be said.
    write: fn(&Example) -> Result<Map<String, Value>, String>,
    /// What training makes of the example afterwards that it did not before, each in a sentence.
    changes: fn(&Example) -> Vec<&'static str>,
}

macro_rules! writers {
    ($($id:ident)+) => {
        /// Every format that can be written.
        pub const WRITERS: &[Writer] = &[$($id::WRITER),+];
    };
}

writers! { messages sharegpt alpaca prompt_completion text }

/// Looks a format up by its word.
pub fn find(id: &str) -> Option<&'static Writer> {
    WRITERS.iter().find(|writer| writer.id == id)
}

impl Writer {
    /// The columns of an example.
    ///
    /// # Errors
    /// Why this format cannot say it.
    pub fn write(&self, example: &Example) -> Result<Map<String, Value>, String> {
        let mut fields = (self.write)(example)?;
        for (column, value) in &example.extra {
            if !fields.contains_key(column) {
                fields.insert(column.clone(), value.clone());
            }
        }
        Ok(fields)
    }

    /// What training will do differently with the example in this format.
    pub fn changes(&self, example: &Example) -> Vec<&'static str> {
        (self.changes)(example)
    }
}

fn answers(messages: &[Message]) -> usize {
    messages.iter().filter(|m| m.role == "assistant").count()
}

/// Formats of a prompt and its completion: of a conversation the answer alone was learned up to its end token; of a completion
/// all that follows the prompt is. `earlier` says what becomes of the answers before the last one.
fn into_completion(messages: &[Message], earlier: &'static str) -> Vec<&'static str> {
    let behind = "what the chat template writes behind the last answer (a line break, with ChatML) is trained on too, unless \
                  data.train_on is assistant";
    let told = [
        (answers(messages) > 1, earlier),
        (answers(messages) > 0, behind),
    ];
    let told = told.into_iter().filter(|(is_so, _)| *is_so);
    told.map(|(_, what)| what).collect()
}

/// Formats of whole conversations: the other way round.
fn into_conversation(example: &Example) -> Vec<&'static str> {
    let Content::Completion {
        prompt: Turns::Messages(prompt),
        ..
    } = &example.content
    else {
        return into_turns(example).into_iter().collect();
    };
    let mut told = vec![
        "what the chat template writes behind the answer (a line break, with ChatML) is no longer trained on",
    ];
    if answers(prompt) > 0 {
        told.push("earlier answers are trained on too");
    }
    told
}

/// Texts that follow each other become turns.
fn into_turns(example: &Example) -> Option<&'static str> {
    let prompt = match &example.content {
        Content::Completion { prompt, .. }
        | Content::Labelled { prompt, .. }
        | Content::Preference { prompt, .. }
        | Content::Prompt { prompt, .. } => prompt,
        Content::Text(_) | Content::Chat(_) => return None,
    };
    matches!(prompt, Turns::Text(_)).then_some(
        "plain prompts and answers become turns of a conversation: a chat template will wrap them",
    )
}

/// Turns of a side; a plain text is one turn of `role`.
fn turns(side: &Turns, role: &str) -> Vec<Message> {
    match side {
        Turns::Text(text) => vec![Message::new(role, text)],
        Turns::Messages(messages) => messages.clone(),
    }
}

/// A prompt and an answer as one conversation.
fn joined(prompt: &Turns, answer: &Turns) -> Vec<Message> {
    let mut messages = turns(prompt, "user");
    messages.extend(turns(answer, "assistant"));
    messages
}

/// The conversation of an example that has one answer at most.
fn conversation(example: &Example) -> Option<Vec<Message>> {
    match &example.content {
        Content::Chat(messages) => Some(messages.clone()),
        Content::Completion { prompt, completion } => Some(joined(prompt, completion)),
        Content::Prompt { prompt, answer } => {
            let mut messages = turns(prompt, "user");
            messages.extend(answer.iter().map(|a| Message::new("assistant", a)));
            Some(messages)
        }
        Content::Labelled {
            prompt, completion, ..
        } => Some(joined(prompt, completion)),
        Content::Text(_) | Content::Preference { .. } => None,
    }
}

/// A side that is one text: a plain text, or a single turn without tools.
fn one_text(side: &Turns, what: &str) -> Result<String, String> {
    match side {
        Turns::Text(text) => Ok(text.clone()),
        Turns::Messages(messages) => match messages.as_slice() {
            [message] => plain(message),
            messages => Err(format!(
                "its {what} has {} turns, but this format has one text for it",
                messages.len()
            )),
        },
    }
}

/// The text of a turn that is nothing but text.
fn plain(message: &Message) -> Result<String, String> {
    match message.extra.keys().next() {
        None => Ok(message.content.clone()),
        Some(key) => Err(format!(
            "a turn of {} has `{key}`, which this format cannot represent",
            message.role
        )),
    }
}

fn no_tools(example: &Example) -> Result<(), String> {
    match example.tools {
        None => Ok(()),
        Some(_) => Err("it offers tools, which this format cannot represent".into()),
    }
}

const PLAIN_TEXT: &str = "plain text has no turns";

#[cfg(test)]
mod tests;
