//! The same answers as a grammar: what a model thinks is free, and the form is that of its final message or of its call.

use super::super::{Body, Callable, Grammar};
use super::reader::{Place, Reader};
use super::{
    ANALYSIS, ASSISTANT, CHANNEL, COMMENTARY, CONSTRAIN, END, FINAL, FUNCTIONS, MARKS, MESSAGE,
    START, TO,
};

/// An answer that goes on where `prompt` ends: thoughts, then a final message of this body, or a call.
///
/// # Errors
/// A sentence: a tool's schema cannot be used.
pub(in super::super) fn answer(
    body: Body,
    callable: Option<&Callable>,
    prompt: &str,
) -> Result<Grammar, String> {
    let calls = callable.map(call).transpose()?;
    let may_speak = !matches!(body, Body::Json(_)) && calls.is_some();
    let body = match body {
        Body::None => None,
        Body::Text => Some(Grammar::Without(MARKS)),
        Body::Json(schema) => Some(Grammar::Json(schema.clone())),
    };
    let last: Vec<Grammar> = body.iter().map(final_message).chain(calls).collect();
    let mut before = vec![message(ANALYSIS)];
    if may_speak {
        before.push(message(COMMENTARY));
    }
    let all = Grammar::All(vec![
        Grammar::Many(Box::new(Grammar::One(before))),
        Grammar::One(last),
    ]);
    Ok(match (Reader::behind(prompt, true).place(), body) {
        (Place::Header { .. } | Place::Call { .. }, _) => all,
        (Place::Text, Some(body)) => body,
        (Place::Thought | Place::Text, _) => Grammar::All(vec![rest(), all]),
        (Place::Behind, _) => Grammar::All(vec![next(), all]),
    })
}

/// A message that is not the last one, and the beginning of the next.
fn message(channel: &'static str) -> Grammar {
    let header = [
        Grammar::Mark(CHANNEL),
        Grammar::text(channel),
        Grammar::Mark(MESSAGE),
    ];
    Grammar::All(header.into_iter().chain([rest()]).collect())
}

/// The rest of such a message.
fn rest() -> Grammar {
    let content = Grammar::Until {
        end: END.into(),
        without: MARKS,
        least: 0,
        most: None,
    };
    Grammar::All(vec![content, next()])
}

fn next() -> Grammar {
    Grammar::All(vec![Grammar::Mark(START), Grammar::text(ASSISTANT)])
}

fn final_message(body: &Grammar) -> Grammar {
    let json = matches!(body, Grammar::Json(_)).then(|| {
        let parts = vec![
            Grammar::text(" "),
            Grammar::Mark(CONSTRAIN),
            Grammar::text("json"),
        ];
        Grammar::maybe(Grammar::All(parts))
    });
    let header = [Grammar::Mark(CHANNEL), Grammar::text(FINAL)];
    let content = [Grammar::Mark(MESSAGE), body.clone()];
    Grammar::All(header.into_iter().chain(json).chain(content).collect())
}

/// A call: one, as the mark behind it ends the turn. Its recipient stands before the channel or behind it.
pub(super) fn call(callable: &Callable) -> Result<Grammar, String> {
    let json = Grammar::One(vec![
        Grammar::All(vec![
            Grammar::text(" "),
            Grammar::Mark(CONSTRAIN),
            Grammar::text("json"),
        ]),
        Grammar::text(" json"),
        Grammar::All(vec![Grammar::Mark(CONSTRAIN), Grammar::text("json")]),
        Grammar::All(Vec::new()),
    ]);
    callable.any(|function| {
        let to = || Grammar::Text(format!("{TO}{FUNCTIONS}{}", function.name));
        let channel = || [Grammar::Mark(CHANNEL), Grammar::text(COMMENTARY)];
        let behind = channel().into_iter().chain([to()]).collect();
        let before = std::iter::once(to()).chain(channel()).collect();
        Ok(Grammar::All(vec![
            Grammar::One(vec![Grammar::All(behind), Grammar::All(before)]),
            json.clone(),
            Grammar::Mark(MESSAGE),
            Grammar::Json(function.arguments()?),
        ]))
    })
}
