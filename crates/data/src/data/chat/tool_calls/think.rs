//! Answers of models that think before they answer, in the same text: `<think>` thoughts `</think>` answer, as Qwen 3, DeepSeek-R1,
//! GLM and SmolLM 3 write it. Some templates begin the thought in the prompt, or write an empty one there where none is wanted. The
//! marks may be tokens or pieces of text.

mod reader;

pub(super) use reader::Reader;

use super::{
    Begins, Block, Callable, Format, Grammar, hermes, lfm, llama, mistral, unknown_calls, xml,
};
use crate::data::Tokenizer;
use crate::data::chat::Template;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// A format of calls, and the same behind thoughts.
struct Thinking {
    calls: Option<&'static Format>,
    before: Format,
    in_thought: Format,
}

const fn thinking(
    calls: Option<&'static Format>,
    base: Format,
    before: &'static str,
    in_thought: &'static str,
) -> Thinking {
    Thinking {
        calls,
        before: Format {
            word: before,
            thinks: Some(Begins::Before),
            ..base
        },
        in_thought: Format {
            word: in_thought,
            thinks: Some(Begins::InThought),
            ..base
        },
    }
}

/// An answer without calls.
const ALONE: Format = Format {
    word: "",
    marks: &[],
    bare: None,
    read: |_, _| Block::Text,
    write: no_call,
    turn_ends: &[],
    thinks: None,
};

fn no_call(_: &Callable) -> Result<Grammar, String> {
    Err(unknown_calls())
}

static ALL: [Thinking; 6] = [
    thinking(None, ALONE, "think", "thinking"),
    thinking(
        Some(&hermes::FORMAT),
        hermes::FORMAT,
        "think+hermes",
        "thinking+hermes",
    ),
    thinking(
        Some(&xml::FORMAT),
        xml::FORMAT,
        "think+qwen_xml",
        "thinking+qwen_xml",
    ),
    thinking(
        Some(&mistral::FORMAT),
        mistral::FORMAT,
        "think+mistral",
        "thinking+mistral",
    ),
    thinking(
        Some(&lfm::FORMAT),
        lfm::FORMAT,
        "think+lfm2",
        "thinking+lfm2",
    ),
    thinking(
        Some(&llama::FORMAT),
        llama::FORMAT,
        "think+llama3",
        "thinking+llama3",
    ),
];

/// The format of that name, of those with thoughts.
pub(super) fn named(word: &str) -> Option<&'static Format> {
    let mut all = ALL.iter().flat_map(|row| [&row.before, &row.in_thought]);
    all.find(|format| format.word == word)
}

/// Whether answers of a model may have thoughts: its template knows their end, or its vocabulary both marks.
pub(super) fn knows(template: &Template, tokenizer: &Tokenizer) -> bool {
    let is_token = |mark: &str| tokenizer.id(mark).is_some();
    template.source().contains(CLOSE) || is_token(OPEN) && is_token(CLOSE)
}

/// Thoughts, and behind them calls of this format.
pub(super) fn with(calls: Option<&'static Format>) -> &'static Format {
    let word = calls.map(|format| format.word);
    let row = ALL
        .iter()
        .find(|row| row.calls.map(|format| format.word) == word);
    &row.unwrap_or(&ALL[0]).before
}

/// The same without calls.
pub(super) fn without_calls(begins: Begins) -> &'static Format {
    match begins {
        Begins::Before => &ALL[0].before,
        Begins::InThought => &ALL[0].in_thought,
    }
}

/// See [`Format::behind`].
pub(super) fn behind(
    format: &'static Format,
    prompt: &str,
    begun: &str,
) -> Option<&'static Format> {
    let row = ALL
        .iter()
        .find(|row| [row.before.word, row.in_thought.word].contains(&format.word))?;
    match place(prompt, begun) {
        Some(Begins::Before) => Some(&row.before),
        Some(Begins::InThought) => Some(&row.in_thought),
        None => row.calls,
    }
}

/// Where an answer goes on; none: behind its thoughts.
fn place(prompt: &str, begun: &str) -> Option<Begins> {
    let prompt = prompt.trim_end();
    let is_in_thought = match begun.trim_start() {
        _ if prompt.ends_with(CLOSE) => return None,
        _ if prompt.ends_with(OPEN) => true,
        "" => return Some(Begins::Before),
        begun => begun.starts_with(OPEN),
    };
    (is_in_thought && !begun.contains(CLOSE)).then_some(Begins::InThought)
}

/// An assistant's turn that goes on: behind its thought, or in it where there is no text yet.
pub(super) fn begun(text: &str, thought: &str, prompt: &str) -> String {
    let open = match place(prompt, "") {
        _ if text.contains(CLOSE) || text.trim_start().starts_with(OPEN) => return text.into(),
        Some(Begins::Before) => "<think>\n",
        Some(Begins::InThought) => "",
        // The prompt says that there are no thoughts.
        None => return text.into(),
    };
    match (thought.is_empty(), text.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("{open}{thought}"),
        (_, false) => format!("{open}{thought}\n{CLOSE}\n\n{text}"),
    }
}

/// The rest of a thought, in which all is free, and this behind it.
pub(super) fn thought_and(answer: Grammar) -> Grammar {
    let thought = Grammar::Until {
        end: CLOSE.into(),
        without: &[CLOSE],
        least: 0,
        most: None,
    };
    let space = Grammar::maybe(Grammar::Pattern(r"\n{1,2}"));
    Grammar::All(vec![thought, space, answer])
}

/// The same with the beginning of the thought.
pub(super) fn begun_thought_and(answer: Grammar) -> Grammar {
    Grammar::All(vec![
        Grammar::line_break(),
        Grammar::Mark(OPEN),
        thought_and(answer),
    ])
}

#[cfg(test)]
mod tests;
