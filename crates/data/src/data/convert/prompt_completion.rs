//! TRL's columns `prompt` and `completion`, `chosen` and `rejected`, `label`: plain texts if the example is plain text, lists
//! of turns if it is a conversation. As texts, turns would lose their roles and their chat template.

use super::{PLAIN_TEXT, Writer, into_completion, no_tools, turns};
use crate::data::{Content, Example, Message, Turns};
use serde_json::{Map, Value, json};

pub const WRITER: Writer = Writer {
    id: "prompt_completion",
    about: "prompt and completion (or chosen, rejected, label) as TRL reads them: texts, or turns of a conversation",
    write,
    changes,
};

fn write(example: &Example) -> Result<Map<String, Value>, String> {
    let mut fields = Map::new();
    match &example.content {
        Content::Text(_) => return Err(PLAIN_TEXT.into()),
        Content::Chat(messages) => {
            let (prompt, answer) = last_answer(messages)?;
            let prompt = Turns::Messages(prompt.to_vec());
            let answer = Turns::Messages(vec![answer.clone()]);
            put(&mut fields, example, &prompt, &[("completion", &answer)])?;
        }
        Content::Completion { prompt, completion } => {
            put(&mut fields, example, prompt, &[("completion", completion)])?;
        }
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => {
            let answers = [("chosen", chosen), ("rejected", rejected)];
            put(&mut fields, example, prompt, &answers)?;
        }
        Content::Labelled {
            prompt,
            completion,
            desirable,
        } => {
            put(&mut fields, example, prompt, &[("completion", completion)])?;
            fields.insert("label".into(), (*desirable).into());
        }
        Content::Prompt { prompt, answer } => {
            put(&mut fields, example, prompt, &[])?;
            if let Some(answer) = answer {
                fields.insert("answer".into(), Value::from(answer.clone()));
            }
        }
    }
    Ok(fields)
}

/// A prompt and what answers it: texts where all of them are, else turns in every column, as TRL wants them.
fn put(
    fields: &mut Map<String, Value>,
    example: &Example,
    prompt: &Turns,
    answers: &[(&str, &Turns)],
) -> Result<(), String> {
    let columns = || {
        [("prompt", prompt)]
            .into_iter()
            .chain(answers.iter().copied())
    };
    let texts: Option<Vec<&String>> = columns()
        .map(|(_, side)| match side {
            Turns::Text(text) => Some(text),
            Turns::Messages(_) => None,
        })
        .collect();
    if let Some(texts) = texts {
        no_tools(example)?;
        for ((column, _), text) in columns().zip(texts) {
            fields.insert(column.into(), text.clone().into());
        }
        return Ok(());
    }
    for (column, side) in columns() {
        let role = if column == "prompt" {
            "user"
        } else {
            "assistant"
        };
        fields.insert(column.into(), json!(turns(side, role)));
    }
    if let Some(tools) = &example.tools {
        fields.insert("tools".into(), tools.clone());
    }
    Ok(())
}

/// Everything before a conversation's last turn, and that turn, which must be an answer.
fn last_answer(messages: &[Message]) -> Result<(&[Message], &Message), String> {
    match messages.split_last() {
        Some((answer, prompt)) if answer.role == "assistant" && !prompt.is_empty() => {
            Ok((prompt, answer))
        }
        Some((last, _)) if last.role != "assistant" => Err(format!(
            "it ends with a turn of {}, but the completion must be an answer",
            last.role
        )),
        _ => Err("nothing precedes its answer, but this format needs a prompt".into()),
    }
}

fn changes(example: &Example) -> Vec<&'static str> {
    match &example.content {
        Content::Chat(messages) => into_completion(
            messages,
            "earlier answers become part of the prompt: only the last one is trained on",
        ),
        _ => Vec::new(),
    }
}
