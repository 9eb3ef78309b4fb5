//! From text spans to supervised tokens, and the assistant's spans if a template does not mark them.

use super::ANSWER;
use crate::data::Message;
use crate::data::chat::{GenerationPrompt, Template};
use serde_json::Value;
use std::ops::Range;

pub const UNSTABLE_FIX: &str = "use a template with {% generation %} around the assistant's text, a built-in one if it fits, or data.train_on: all";

/// Whether each token is supervised: those that contain a byte of a span, as in transformers' assistant masks.
/// The first token of a document never is: nothing precedes it.
pub fn supervised_in(offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
    let mut spans = spans.iter().filter(|s| !s.is_empty()).peekable();
    let mut supervised = Vec::with_capacity(offsets.len());
    for token in offsets {
        // A token without bytes counts by its position.
        let end = token.end.max(token.start + 1);
        while spans.next_if(|span| span.end <= token.start).is_some() {}
        supervised.push(spans.peek().is_some_and(|span| span.start < end));
    }
    if let Some(first) = supervised.first_mut() {
        *first = false;
    }
    supervised
}

/// How many elements two lists begin with in common.
pub fn common_prefix<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The assistant's bytes of `text`, the rendering of all `messages`, found by rendering the turns up to each answer
/// without and with it.
///
/// # Errors
/// The template prints earlier turns otherwise once others follow.
pub fn by_growth(
    template: &Template,
    messages: &[Message],
    tools: Option<&Value>,
    text: &str,
) -> Result<Vec<Range<usize>>, String> {
    let mut spans = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if message.role != "assistant" {
            continue;
        }
        let before = before_answer(template, &messages[..at], tools)?;
        let after = template
            .render(&messages[..=at], tools, GenerationPrompt::Without)
            .map_err(|e| unstable(template, at, &e.to_string()))?;
        let shared = common_prefix(after.as_bytes(), text.as_bytes());
        // Some templates end a finished conversation with one more token; what follows then takes its place.
        let rest = after[floor(&after, shared)..].trim();
        let ends_alike = rest.is_empty() || Some(rest) == template.token("eos_token");
        let start = match text.starts_with(&before) {
            true => Some(before.len()),
            false => behind_header(template, (&messages[..at], tools), &before, text),
        };
        let Some(start) = start.filter(|start| shared >= *start && ends_alike) else {
            return Err(unstable(
                template,
                at,
                "it renders earlier turns differently once others follow",
            ));
        };
        let end = turn_end(template, text, start, floor(text, shared));
        spans.push(start..end);
    }
    Ok(spans)
}

/// Where the answer to `turns` begins in `text`, if their generation prompt, `before`, goes on beyond the header of an answer,
/// as DeepSeek-R1's does with `<think>`: behind what the prompt shares with this answer and with another one. `None` where
/// earlier turns are rendered differently.
fn behind_header(
    template: &Template,
    (turns, tools): (&[Message], Option<&Value>),
    before: &str,
    text: &str,
) -> Option<usize> {
    let render = |turns: &[Message]| {
        template
            .render(turns, tools, GenerationPrompt::Without)
            .ok()
    };
    let asked = render(turns)?;
    let asked = asked.trim_end();
    // Some templates end any conversation with one more token.
    let asked = asked
        .strip_suffix(template.token("eos_token").unwrap_or_default())
        .unwrap_or(asked);
    let mut other = turns.to_vec();
    other.push(Message::new("assistant", ANSWER));
    let other = render(&other)?;
    let shared = |answered: &str| common_prefix(before.as_bytes(), answered.as_bytes());
    let start = floor(text, shared(text).min(shared(&other)));
    (text.starts_with(asked) && start >= asked.len()).then_some(start)
}

/// The text up to the answer of turn `turns.len()`, its header included.
fn before_answer(
    template: &Template,
    turns: &[Message],
    tools: Option<&Value>,
) -> Result<String, String> {
    if turns.is_empty() {
        return Err(
            "the assistant has the first turn, and the template does not mark its text".into(),
        );
    }
    template
        .render(turns, tools, GenerationPrompt::With)
        .map_err(|e| unstable(template, turns.len(), &e.to_string()))
}

/// Spaces after the token that ends a turn are the template's, not the assistant's.
fn turn_end(template: &Template, text: &str, start: usize, end: usize) -> usize {
    let said = &text[start..end];
    let cut = template.turn_end().and_then(|token| {
        let at = said.rfind(token)? + token.len();
        said[at..].trim().is_empty().then_some(start + at)
    });
    cut.unwrap_or(end)
}

fn unstable(template: &Template, at: usize, why: &str) -> String {
    format!(
        "what the assistant wrote in turn {} cannot be located with {}: {why}",
        at + 1,
        template.place()
    )
}

/// The last character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_touch_a_span_are_supervised() {
        let offsets = [0..2, 2..4, 4..4, 4..7, 7..7, 7..9];
        assert_eq!(
            supervised_in(&offsets, std::slice::from_ref(&(3..5))),
            [false, true, true, true, false, false]
        );
        assert_eq!(
            supervised_in(&offsets, &[0..1, 7..8]),
            [false, false, false, false, true, true]
        );
        assert!(supervised_in(&offsets, &[]).iter().all(|l| !l));
        assert!(supervised_in(&[], &[0..3, 4..5]).is_empty());
    }

    fn conversation() -> Vec<Message> {
        ["user", "assistant", "user", "assistant"]
            .map(|role| Message::new(role, format!("{role} speaks")))
            .to_vec()
    }

    fn grown(source: &str, eos: &str) -> Result<Vec<String>, String> {
        let template = Template::from_jinja("t", source)
            .unwrap()
            .with_variable("eos_token", eos);
        let messages = conversation();
        let text = template
            .render(&messages, None, GenerationPrompt::Without)
            .unwrap();
        let spans = by_growth(&template, &messages, None, &text)?;
        Ok(spans
            .into_iter()
            .map(|span| text[span].to_string())
            .collect())
    }

    #[test]
    fn growth_tells_what_the_assistant_wrote_with_the_token_that_ends_it() {
        let chatml = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
        assert_eq!(
            grown(chatml, "</>").unwrap(),
            ["assistant speaks</>", "assistant speaks</>"]
        );
        // No header to ask for an answer with, and one token at the very end.
        let plain = "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if not add_generation_prompt %}.{% endif %}";
        assert_eq!(
            grown(plain, ".").unwrap(),
            ["[assistant speaks]", "[assistant speaks]."]
        );
    }

    #[test]
    fn a_generation_prompt_that_goes_on_beyond_the_header_changes_no_earlier_turn() {
        let thinking = "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% else %}<A>{{ m.content }}</>{% endif %}{% endfor %}{% if add_generation_prompt %}<A><think>\n{% endif %}";
        let answers = ["assistant speaks</>", "assistant speaks</>"];
        assert_eq!(grown(thinking, "</>").unwrap(), answers);
        // The answer begins as that end does.
        let template = Template::from_jinja("t", thinking).unwrap();
        let turns = [
            Message::new("user", "?"),
            Message::new("assistant", "<thanks"),
        ];
        let text = template
            .render(&turns, None, GenerationPrompt::Without)
            .unwrap();
        let spans = by_growth(&template, &turns, None, &text).unwrap();
        assert_eq!(&text[spans[0].clone()], "<thanks</>");
        // Earlier turns do change here.
        let counting = thinking.replace("<U>", "<U>{{ messages | length }}");
        assert!(grown(&counting, "</>").is_err());
    }

    #[test]
    fn templates_that_rewrite_earlier_turns_are_refused() {
        let forgetful = "{% for m in messages %}{{ m.role }}:{% if m.role == 'user' or loop.last %}{{ m.content }}{% else %}…{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
        let error = grown(forgetful, "x").unwrap_err();
        assert!(
            error.contains("turn 2") && error.contains("differently"),
            "{error}"
        );
        let moving = "{% for m in messages %}{{ m.content }};{% endfor %}{{ messages | length }}";
        assert!(grown(moving, "x").is_err());
    }

    #[test]
    fn an_assistant_that_speaks_first_is_refused() {
        let template = Template::from_jinja("t", "{{ messages[0].content }}").unwrap();
        let messages = [Message::new("assistant", "hi")];
        let error = by_growth(&template, &messages, None, "hi").unwrap_err();
        assert!(error.contains("has the first turn"), "{error}");
    }
}
