//! A conversation as files: Markdown to read, and rows of `messages` that a run can learn from. Writing them is a job's
//! matter.

use super::column::{Column, Conversation};
use super::reply::{Answer, Reply};
use super::said::Said;
use crate::base::sampling::{ContextLimit, Sampling};
use crate::base::text::one_line;
use crate::ui::effect::SavedChat;
use crate::data::chat::tool_calls::Part;
use crate::wire::Turn;
use serde_json::{Value, json};

/// `None` while nobody has answered anything.
pub fn save(conversation: &Conversation, columns: &[Column]) -> Option<SavedChat> {
    let answered = |column: &&Column| column.n_answers() > 0;
    let columns: Vec<&Column> = columns.iter().filter(answered).collect();
    let name = columns.first()?.model.short();
    let rows = columns.iter().map(|c| row(conversation, c));
    Some(SavedChat {
        name: format!("chat-{name}"),
        jsonl: rows.map(|row| format!("{row}\n")).collect(),
        markdown: markdown(conversation, &columns),
    })
}

fn answers(column: &Column) -> impl Iterator<Item = &Reply> {
    column.replies.iter().filter(|reply| reply.has_answer())
}

/// The turns that a model answered, as it was sent them, and where they come from. Answers with settings of their own, as one
/// that was drawn again by the next seed, have these by answer.
fn row(conversation: &Conversation, column: &Column) -> Value {
    let mut messages = Vec::new();
    if column.converses() && !conversation.system.is_empty() {
        messages.push(Turn::new("system", conversation.system.as_str()));
    }
    let mut samplings = Vec::new();
    let tools = &conversation.tools.definitions;
    for (at, reply) in column.replies.iter().enumerate() {
        if reply.has_answer() {
            messages.extend(reply.sent.iter().cloned());
            messages.push(reply.turn(tools, at));
            samplings.push(&reply.sampling);
        }
    }
    let mut row = json!({
        "messages": messages,
        "model": column.model.path.display().to_string(),
        "sampling": samplings.last(),
    });
    if !tools.is_empty() {
        row["tools"] = json!(tools);
    }
    if samplings.windows(2).any(|pair| pair[0] != pair[1]) {
        row["sampling_of_answers"] = json!(samplings);
    }
    row
}

fn markdown(conversation: &Conversation, columns: &[&Column]) -> String {
    let mut out = String::from("# Chat\n\n");
    for column in columns {
        let path = column.model.path.display();
        out.push_str(&format!("- {}: `{path}`\n", column.model.name("·")));
    }
    let mut all = columns.iter().flat_map(|column| answers(column)).map(|reply| settings(&reply.sampling));
    let first = all.next().unwrap_or_default();
    let one_for_all = all.all(|other| other == first);
    if one_for_all {
        out.push_str(&format!("- {first}\n"));
    }
    if !conversation.system.is_empty() {
        out.push_str(&format!("\n## system\n\n{}\n", conversation.system.trim()));
    }
    for (turn, said) in conversation.said.iter().enumerate() {
        let who = match said {
            Said::Text(_) => "user",
            Said::Results(_) => "tool",
        };
        out.push_str(&format!("\n## {who}\n\n{}\n", said.text().trim()));
        for column in columns {
            let Some(reply) = column.replies.get(turn).filter(|r| r.has_answer()) else {
                continue;
            };
            let who = match columns.len() {
                1 => "assistant".to_string(),
                _ => format!("assistant: {}", column.model.name("·")),
            };
            out.push_str(&format!("\n## {who}\n\n"));
            if !one_for_all {
                out.push_str(&format!("*{}*\n\n", settings(&reply.sampling)));
            }
            out.push_str(&format!("{}\n", text_of(reply, &conversation.tools.definitions)));
            if let Answer::Failed(why) = &reply.answer {
                out.push_str(&format!("\n*broken off: {}*\n", one_line(why)));
            }
        }
    }
    out
}

/// The answer to read: each thought as a quotation, each call as a block of its own.
fn text_of(reply: &Reply, tools: &[Value]) -> String {
    let part = |part| match part {
        Part::Thought(text) => {
            let lines = text.trim().lines().map(|line| format!("> {line}"));
            lines.collect::<Vec<_>>().join("\n")
        }
        Part::Text(text) => text.trim().to_string(),
        Part::Call(call) => {
            let lines = call.lines().into_iter();
            let lines = lines.map(|line| format!("{}{}\n", " ".repeat(2 + line.indent), line.text));
            format!("```\ncall {}\n{}```", one_line(&call.name), lines.collect::<String>())
        }
    };
    let parts: Vec<String> = reply.parts(tools).into_iter().map(part).collect();
    parts.join("\n\n").trim().into()
}

fn settings(sampling: &Sampling) -> String {
    let stop: Vec<String> = sampling.stop.iter().map(|stop| format!("{stop:?}")).collect();
    let stop = match stop.is_empty() {
        true => String::new(),
        false => format!(", stop at {}", stop.join(" or ")),
    };
    let context = match sampling.context {
        ContextLimit::Auto => "auto",
        ContextLimit::Stop => "stop",
        ContextLimit::Roll => "roll",
    };
    format!(
        "temperature {}, top-k {}, top-p {}, min-p {}, repetition penalty {}, at most {} tokens{stop}, context {context}, seed {}",
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
        sampling.repetition_penalty,
        sampling.max_new_tokens,
        sampling.seed
    )
}
