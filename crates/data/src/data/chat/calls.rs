//! The form in which a template writes tool calls. Most take an empty content and arguments as an object; DeepSeek's and some others
//! write calls only where the content is none, or join the arguments to text as JSON. Which one is found out with one call.

use super::{GenerationPrompt, Template, json};
use crate::data::Message;
use serde_json::{Map, Value, json};

/// What a call looks like to a template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CallForm {
    /// The content of a turn that only calls tools is none instead of an empty text.
    content_is_none: bool,
    /// Arguments are the text of JSON instead of an object.
    arguments_are_text: bool,
    /// A turn that calls has a thought or a text, not both: gpt-oss's template refuses such a turn, and writes either as a thought.
    one_of_thought_and_text: bool,
}

/// A function's name and an argument that no template has text like.
pub(super) const NAME: &str = "find_quokka";
pub(super) const ARGUMENT: &str = "Rottnest";

/// A question, and a turn that calls a tool.
pub(super) fn example() -> [Message; 2] {
    let mut call = Message::new("assistant", "");
    let calls = json!([{
        // Nine letters, as Mistral's templates require.
        "id": "abcdefghi",
        "type": "function",
        "function": {"name": NAME, "arguments": {"island": ARGUMENT}},
    }]);
    call.extra.insert("tool_calls".into(), calls);
    [Message::new("user", "Where is one?"), call]
}

impl CallForm {
    /// The usual form first, so that a template which writes several keeps it.
    const ALL: [CallForm; 4] = [
        CallForm::new(false, false),
        CallForm::new(true, false),
        CallForm::new(false, true),
        CallForm::new(true, true),
    ];

    const fn new(content_is_none: bool, arguments_are_text: bool) -> CallForm {
        CallForm {
            content_is_none,
            arguments_are_text,
            one_of_thought_and_text: false,
        }
    }

    /// The first form of which the template writes both name and argument; the usual one if there is none.
    pub fn of(template: &Template) -> CallForm {
        let turns = example();
        let writes = |form: &CallForm| {
            let rendered = template.render_in(*form, &turns, None, GenerationPrompt::Without);
            rendered.is_ok_and(|r| r.text.contains(NAME) && r.text.contains(ARGUMENT))
        };
        let mut form = CallForm::ALL.into_iter().find(writes).unwrap_or_default();
        let mut thoughtful = turns.clone();
        let thought = Value::from("A thought.");
        thoughtful[1]
            .extra
            .insert("reasoning_content".into(), thought);
        let is_refused = |turns: &[Message], form: CallForm| {
            let rendered = template.render_in(form, turns, None, GenerationPrompt::Without);
            rendered.is_err()
        };
        let has_thoughts = !is_refused(&thoughtful, form);
        thoughtful[1].content = "A text.".into();
        let joined = CallForm {
            one_of_thought_and_text: true,
            ..form
        };
        if has_thoughts && is_refused(&thoughtful, form) && !is_refused(&thoughtful, joined) {
            form = joined;
        }
        form
    }

    /// Gives a turn that calls tools this form.
    pub fn apply(self, message: &mut Map<String, Value>) {
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        let (thought, said) = (text("thinking"), text("content"));
        if self.one_of_thought_and_text && !thought.is_empty() && !said.is_empty() {
            let both = format!("{thought}\n\n{said}");
            message.insert("thinking".into(), both.into());
            message.insert("content".into(), "".into());
        }
        if self.content_is_none && message.get("content").is_some_and(|c| c == "") {
            message.insert("content".into(), Value::Null);
        }
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls
            .into_iter()
            .flatten()
            .filter(|_| self.arguments_are_text)
        {
            let holder = match call.get_mut("function") {
                Some(function) => function,
                None => call,
            };
            if let Some(arguments @ Value::Object(_)) = holder.get_mut("arguments")
                && let Some(text) = json::dumps(arguments)
            {
                *arguments = text.into();
            }
        }
    }
}

/// Whether a turn calls a tool.
pub(super) fn has_calls(message: &Message) -> bool {
    let calls = message.extra.get("tool_calls").and_then(Value::as_array);
    calls.is_some_and(|calls| !calls.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chat::BUILTIN;

    const CALL: &str = "{% for m in messages %}{% if CONDITION and m.tool_calls %}{% for call in m.tool_calls %}<call>{{ call.function.name + '|' + ARGUMENTS }}</call>{% endfor %}{% else %}{{ m.content }};{% endif %}{% endfor %}";

    fn template(condition: &str, arguments: &str) -> Template {
        let source = CALL.replace("CONDITION", condition);
        Template::from_jinja("t", &source.replace("ARGUMENTS", arguments)).unwrap()
    }

    fn written(template: &Template) -> String {
        let mut call = Message::new("assistant", "");
        let calls = json!([{"type": "function", "function": {"name": "add", "arguments": {"b": [1, "é"], "a": null}}}]);
        call.extra.insert("tool_calls".into(), calls);
        let turns = [
            Message::new("user", "?"),
            call,
            Message::new("assistant", ""),
        ];
        template
            .render(&turns, None, GenerationPrompt::Without)
            .unwrap()
    }

    #[test]
    fn each_template_gets_the_form_that_it_writes() {
        let (none, any) = ("m.content is none", "true");
        let (text, object) = ("call.function.arguments", "call.function.arguments|tojson");
        let said = "?;<call>add|{\"b\": [1, \"é\"], \"a\": null}</call>;";
        for (condition, arguments, form) in [
            (any, object, CallForm::new(false, false)),
            (none, object, CallForm::new(true, false)),
            (any, text, CallForm::new(false, true)),
            (none, text, CallForm::new(true, true)),
        ] {
            let template = template(condition, arguments);
            assert_eq!(CallForm::of(&template), form, "{condition} {arguments}");
            assert_eq!(written(&template), said);
        }
        // A variable may decide.
        let template = template("m.content is none and said", text).with_variable("said", true);
        assert_eq!(written(&template), said);
    }

    #[test]
    fn templates_that_write_calls_as_most_do_keep_the_usual_form() {
        for builtin in BUILTIN {
            let template = Template::builtin(builtin.name).unwrap();
            assert_eq!(
                CallForm::of(&template),
                CallForm::default(),
                "{}",
                builtin.name
            );
        }
    }
}
