//! The form in which a template writes tool calls. Most take an empty content and arguments as an object; DeepSeek's and some others
//! write calls only where the content is none, or join the arguments to text as JSON. Which one is found out with one call.

use super::{GenerationPrompt, Template, json};
use crate::data::Message;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// What a call looks like to a template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CallForm {
    /// The content of a turn that only calls tools is none instead of an empty text.
    content_is_none: bool,
    /// Arguments are the text of JSON instead of an object.
    arguments_are_text: bool,
    /// A turn that calls has a thought or a text, not both: gpt-oss's template refuses such a turn, and writes either as a thought.
    one_of_thought_and_text: bool,
    /// A turn has one call: gpt-oss's template leaves out further ones, and Llama 3.1's refuses them.
    one_call: bool,
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
            one_call: false,
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
        form.one_call = CallForm::takes_one_call(template, form);
        form
    }

    /// Whether a template that writes a call does not write a second one beside it.
    fn takes_one_call(template: &Template, form: CallForm) -> bool {
        const OTHER: &str = "find_wombat";
        let mut turns = example();
        let written = |turns: &[Message]| {
            let rendered = template.render_in(form, turns, None, GenerationPrompt::Without);
            rendered.map_or_else(|_| String::new(), |rendered| rendered.text)
        };
        if !written(&turns).contains(NAME) {
            return false;
        }
        let calls = turns[1].extra.get_mut("tool_calls");
        if let Some(calls) = calls.and_then(Value::as_array_mut) {
            let mut other = calls[0].clone();
            other["id"] = "bcdefghij".into();
            other["function"]["name"] = OTHER.into();
            calls.push(other);
        }
        !written(&turns).contains(OTHER)
    }

    /// The turns as this form has them: where a turn has one call, further ones are turns of their own, each with its result
    /// behind it.
    pub fn turns<'a>(self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        let is_split = |message: &Message| calls(message).is_some_and(|calls| calls.len() > 1);
        if !self.one_call || !messages.iter().any(is_split) {
            return messages.into();
        }
        let mut turns = Vec::with_capacity(messages.len());
        let mut rest = messages;
        while let [message, behind @ ..] = rest {
            rest = behind;
            let Some(calls) = calls(message).filter(|calls| calls.len() > 1) else {
                turns.push(message.clone());
                continue;
            };
            let n = behind.iter().take_while(|m| m.role == "tool").count();
            let (results, behind) = behind.split_at(n);
            rest = behind;
            let mut results: Vec<&Message> = results.iter().collect();
            for (at, call) in calls.iter().enumerate() {
                let mut turn = match at {
                    0 => message.clone(),
                    _ => Message::new("assistant", ""),
                };
                let one = Value::Array(vec![call.clone()]);
                turn.extra.insert("tool_calls".into(), one);
                turns.push(turn);
                let id = call.get("id").filter(|id| !id.is_null());
                let is_its = |m: &&Message| id.is_some() && m.extra.get("tool_call_id") == id;
                let own = results.iter().position(is_its);
                if own.is_some() || !results.is_empty() {
                    turns.push(results.remove(own.unwrap_or(0)).clone());
                }
            }
            turns.extend(results.into_iter().cloned());
        }
        turns.into()
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
    calls(message).is_some_and(|calls| !calls.is_empty())
}

fn calls(message: &Message) -> Option<&Vec<Value>> {
    message.extra.get("tool_calls").and_then(Value::as_array)
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

    /// gpt-oss's template wrote the first call alone, and all results as its.
    #[test]
    fn further_calls_are_turns_of_their_own_where_a_template_writes_one() {
        const ONE: &str = "{% for m in messages %}{% if m.tool_calls %}{{ m.content }}<call>{{ m.tool_calls[0].function.name + '|' + m.tool_calls[0].function.arguments|tojson }}</call>{% else %}{{ m.content }};{% endif %}{% endfor %}";
        let refuses = ONE.replace("{{ m.content }}<", "{% if m.tool_calls|length != 1 %}{{ raise_exception('one') }}{% endif %}{{ m.content }}<");
        let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": {}}});
        let mut both = Message::new("assistant", "Both.");
        let calls = json!([call("1", "add"), call("2", "now")]);
        both.extra.insert("tool_calls".into(), calls);
        let result = |id: &str, text: &str| {
            let mut result = Message::new("tool", text);
            result.extra.insert("tool_call_id".into(), id.into());
            result
        };
        let user = Message::new("user", "?");
        let turns = [
            user.clone(),
            both.clone(),
            result("2", "noon"),
            result("1", "3"),
            user,
        ];
        for source in [ONE, &refuses] {
            let template = Template::from_jinja("t", source).unwrap();
            let written = template.render(&turns, None, GenerationPrompt::Without);
            let expected = "?;Both.<call>add|{}</call>3;<call>now|{}</call>noon;?;";
            assert_eq!(written.unwrap(), expected);
            let written = template.render(&turns[..2], None, GenerationPrompt::Without);
            assert_eq!(
                written.unwrap(),
                "?;Both.<call>add|{}</call><call>now|{}</call>"
            );
        }
        let several = Template::builtin("qwen").unwrap();
        assert!(!CallForm::of(&several).one_call);
    }
}
