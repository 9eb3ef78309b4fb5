//! A conversation as files: Markdown to read, and rows of `messages` that a run can learn from. Writing them is a job's
//! matter.

use super::column::{Column, Conversation};
use crate::base::sampling::Sampling;
use crate::ui::effect::SavedChat;
use serde_json::{Value, json};

/// `None` while nobody has answered anything.
pub fn save(
    conversation: &Conversation,
    columns: &[Column],
    sampling: &Sampling,
) -> Option<SavedChat> {
    let answered = |column: &&Column| column.n_answers() > 0;
    let columns: Vec<&Column> = columns.iter().filter(answered).collect();
    let name = columns.first()?.model.short();
    let rows = columns.iter().map(|c| row(conversation, c, sampling));
    Some(SavedChat {
        name: format!("chat-{name}"),
        jsonl: rows.map(|row| format!("{row}\n")).collect(),
        markdown: markdown(conversation, &columns, sampling),
    })
}

/// The turns that a model answered, as messages, and where they come from.
fn row(conversation: &Conversation, column: &Column, sampling: &Sampling) -> Value {
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let mut messages = Vec::new();
    if column.converses() && !conversation.system.is_empty() {
        messages.push(message("system", &conversation.system));
    }
    for (said, reply) in conversation.said.iter().zip(&column.replies) {
        if reply.has_answer() {
            messages.push(message("user", said));
            messages.push(message("assistant", &reply.text));
        }
    }
    json!({
        "messages": messages,
        "model": column.model.path.display().to_string(),
        "sampling": sampling,
    })
}

fn markdown(conversation: &Conversation, columns: &[&Column], sampling: &Sampling) -> String {
    let mut out = String::from("# Chat\n\n");
    for column in columns {
        let path = column.model.path.display();
        out.push_str(&format!("- {}: `{path}`\n", column.model.name("·")));
    }
    out.push_str(&format!(
        "- temperature {}, top-k {}, top-p {}, min-p {}, repetition penalty {}, at most {} tokens, seed {}\n",
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
        sampling.repetition_penalty,
        sampling.max_new_tokens,
        sampling.seed
    ));
    if !conversation.system.is_empty() {
        out.push_str(&format!("\n## system\n\n{}\n", conversation.system.trim()));
    }
    for (turn, said) in conversation.said.iter().enumerate() {
        out.push_str(&format!("\n## user\n\n{}\n", said.trim()));
        for column in columns {
            let Some(reply) = column.replies.get(turn).filter(|r| r.has_answer()) else {
                continue;
            };
            let who = match columns.len() {
                1 => "assistant".to_string(),
                _ => format!("assistant: {}", column.model.name("·")),
            };
            out.push_str(&format!("\n## {who}\n\n{}\n", reply.text.trim()));
        }
    }
    out
}
