//! Tools that a row offers or calls and that the template does not render: the model sees results of calls that were never
//! made, and a turn that only calls a tool becomes an empty answer.

use super::{Renderer, thoughts, turns};
use crate::data::chat::{GenerationPrompt, Template};
use crate::data::{Content, Example, Message, Turns};
use serde_json::Value;

/// What the chat template omits of a row's tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Supervised turns of the assistant: those of a prompt are context.
    pub answers: u64,
    /// Those that call a tool, say nothing else, and come out empty.
    pub empty: u64,
    /// Tools or calls that the text does not hold.
    pub tools: bool,
    /// Nor does it hold the thoughts of the answer to learn.
    pub thoughts: bool,
}

impl Unwritten {
    pub fn add(&mut self, other: Unwritten) {
        self.answers += other.answers;
        self.empty += other.empty;
        self.tools |= other.tools;
        self.thoughts |= other.thoughts;
    }
}

impl Renderer {
    /// What the template omits from a row.
    pub fn unwritten(&self, example: &Example) -> Unwritten {
        let mut found = Unwritten::default();
        for (turns, learned_from) in conversations(&example.content) {
            let answers = turns[learned_from..].iter();
            found.answers += answers.filter(|m| m.role == "assistant").count() as u64;
            let called = turns.iter().any(|message| calls(message).is_some());
            let Some(template) = self.template.as_ref() else {
                continue;
            };
            found.thoughts |=
                drops_thoughts(template, &turns, learned_from, example.tools.as_ref());
            if called || example.tools.is_some() {
                let turns = (&*turns, learned_from);
                look(template, turns, example.tools.as_ref(), &mut found);
            }
        }
        found
    }
}

/// Whether the thoughts of the last answer, which is to be learned, are not in the text. Those of earlier ones are left out by most
/// templates, as in chat.
fn drops_thoughts(
    template: &Template,
    turns: &[Message],
    learned_from: usize,
    tools: Option<&Value>,
) -> bool {
    let last = turns.iter().rposition(|m| m.role == "assistant");
    if last.is_none_or(|at| at < learned_from) {
        return false;
    }
    let mut silent = turns.to_vec();
    if !thoughts::take_last(&mut silent) {
        return false;
    }
    let render = |all: &[Message]| {
        let all = turns::decoded(all);
        let text = template.render(&all, tools, GenerationPrompt::Without);
        text.ok()
    };
    let text = render(turns);
    text.is_some() && text == render(&silent)
}

/// Whatever changes nothing of the text when it is taken away is not in it.
fn look(
    template: &Template,
    (turns, learned_from): (&[Message], usize),
    tools: Option<&Value>,
    found: &mut Unwritten,
) {
    let turns = turns::decoded(turns);
    let render = |turns: &[Message], tools| {
        template
            .render(turns, tools, GenerationPrompt::Without)
            .ok()
    };
    let Some(text) = render(&turns, tools) else {
        return;
    };
    found.tools |= tools.is_some() && render(&turns, None).as_ref() == Some(&text);
    let mut silent = turns.clone();
    for message in &mut silent {
        message.extra.remove("tool_calls");
    }
    if silent != turns && render(&silent, tools) == Some(text) {
        found.tools = true;
        let empty = |message: &&Message| {
            let said = message.content.trim().is_empty();
            message.role == "assistant" && said && calls(message).is_some()
        };
        found.empty += turns[learned_from..].iter().filter(empty).count() as u64;
    }
}

pub(super) fn calls(message: &Message) -> Option<&Vec<Value>> {
    let calls = message.extra.get("tool_calls")?.as_array();
    calls.filter(|calls| !calls.is_empty())
}

/// The turns of an example, and the first that may be supervised; texts have none.
fn conversations(content: &Content) -> Vec<(Vec<Message>, usize)> {
    let joined = |prompt: &Turns, answer: Option<&Turns>| {
        if matches!(prompt, Turns::Text(_)) && !matches!(answer, Some(Turns::Messages(_))) {
            return Vec::new();
        }
        let mut all = turns::as_turns(prompt, "user");
        let asked = all.len();
        all.extend(answer.iter().flat_map(|a| turns::as_turns(a, "assistant")));
        vec![(all, asked)]
    };
    match content {
        Content::Text(_) => Vec::new(),
        Content::Chat(messages) => vec![(messages.clone(), 0)],
        Content::Completion { prompt, completion }
        | Content::Labelled {
            prompt, completion, ..
        } => joined(prompt, Some(completion)),
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => [joined(prompt, Some(chosen)), joined(prompt, Some(rejected))].concat(),
        Content::Prompt { prompt, .. } => joined(prompt, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TrainOn;
    use crate::data::render::tests::renderer;
    use serde_json::json;

    #[test]
    fn tools_that_a_template_passes_over_and_calls_that_become_nothing_are_counted() {
        let mut call = Message::new("assistant", "");
        let calls = json!([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
        call.extra.insert("tool_calls".into(), calls);
        let turns = vec![
            Message::new("user", "f of 1?"),
            call,
            Message::new("tool", "2"),
            Message::new("assistant", "It is 2."),
        ];
        let mut example = Example::new(Content::Chat(turns));
        example.tools = Some(json!([{"type": "function", "function": {"name": "f"}}]));
        let of = |template, example: &Example| renderer(template, TrainOn::Auto).unwritten(example);
        let lost = Unwritten {
            answers: 2,
            empty: 1,
            tools: true,
            ..Unwritten::default()
        };
        assert_eq!(of("chatml", &example), lost);
        assert_eq!(
            of("qwen", &example),
            Unwritten {
                answers: 2,
                ..Unwritten::default()
            }
        );
        // In a prompt they are context, not supervised.
        let Content::Chat(turns) = &example.content else {
            unreachable!()
        };
        let mut prompted = example.clone();
        prompted.content = Content::Completion {
            prompt: Turns::Messages(turns[..3].to_vec()),
            completion: Turns::Messages(turns[3..].to_vec()),
        };
        let read = Unwritten {
            answers: 1,
            empty: 0,
            tools: true,
            ..Unwritten::default()
        };
        assert_eq!(of("chatml", &prompted), read);
        // Tools alone, which no turn calls.
        let turns = vec![
            Message::new("user", "hi"),
            Message::new("assistant", "hello"),
        ];
        example.content = Content::Chat(turns);
        let lost = Unwritten {
            answers: 1,
            empty: 0,
            tools: true,
            ..Unwritten::default()
        };
        assert_eq!(of("chatml", &example), lost);
        example.tools = None;
        assert!(!of("chatml", &example).tools);
    }

    #[test]
    fn thoughts_of_the_last_answer_that_a_template_passes_over_are_told() {
        let drops = |template: &str, turns: &[Message]| {
            let example = Example::new(Content::Chat(turns.to_vec()));
            renderer(template, TrainOn::Auto)
                .unwritten(&example)
                .thoughts
        };
        let answer = |text: &str, field: Option<&str>| {
            let mut answer = Message::new("assistant", text);
            if let Some(field) = field {
                answer.extra.insert(field.into(), "2 and 2.".into());
            }
            answer
        };
        let ask = Message::new("user", "2+2?");
        for field in ["reasoning_content", "thinking", "reasoning"] {
            let row = [ask.clone(), answer("4", Some(field))];
            assert!(drops("chatml", &row), "{field}");
            assert!(!drops("qwen3", &row), "{field}");
            // Those of an earlier answer are left out by Qwen's, too, as in chat.
            let later = [&row[..], &[ask.clone(), answer("4", None)]].concat();
            assert!(
                !drops("qwen3", &later) && !drops("chatml", &later),
                "{field}"
            );
        }
        let written = answer("<think>\n2 and 2.\n</think>\n\n4", None);
        let row = [ask.clone(), written];
        assert!(!drops("chatml", &row), "they stand in the text");
        assert!(!drops("qwen3", &row));
        assert!(!drops("chatml", &[ask, answer("4", None)]));
    }
}
