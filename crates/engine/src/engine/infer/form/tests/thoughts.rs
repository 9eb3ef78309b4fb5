//! Answers behind thoughts between `<think>` and `</think>`: these are free, and the form is that of what follows.

use super::*;
use crate::data::chat::tool_calls::{Format, Tools};
use crate::data::tokenizer::Marks;
use crate::wire::Calling;

const TOKENIZER: &str = include_str!("../../../../../../../tests/fixtures/chat/tokenizer.json");
const JSON: &str = "{\"n\": 3}";
const CALL: &str = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": true}}\n</tool_call>";
const WRONG: &str = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</tool_call>";
const THOUGHT: &str = "So: <tool_call> {\"n\": no\n} < 3 </thin";

/// The tokenizer of the tests; its marks of thoughts are pieces of text, added tokens, or special ones.
fn vocabularies() -> Vec<(Tokenizer, Forms, usize)> {
    let added = TOKENIZER
        .replace("<|start_header_id|>", "<think>")
        .replace("<|end_header_id|>", "</think>");
    let mark = |json: &str, mark: &str| {
        let content = format!("\"content\":\"{mark}\"");
        let at = json.find(&content).unwrap();
        let (before, behind) = json.split_at(at);
        format!(
            "{before}{}",
            behind.replacen("\"special\":true", "\"special\":false", 1)
        )
    };
    let plain = mark(&mark(&added, "<think>"), "</think>");
    let of = |json: &str| {
        let eos = Marks {
            eos: Some("<|im_end|>".into()),
            ..Marks::default()
        };
        let tokenizer = Tokenizer::from_json(json).unwrap().with_marks(eos).unwrap();
        let (end, size) = (tokenizer.eos().unwrap(), tokenizer.vocab_size());
        let forms = Forms::new(&tokenizer, &tokenizer.token_bytes(), &[end], size).unwrap();
        (tokenizer, forms, size)
    };
    vec![of(TOKENIZER), of(&plain), of(&added)]
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})
}

fn tools() -> Tools {
    let parameters =
        json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]});
    Tools::new(vec![
        json!({"type": "function", "function": {"name": "add", "parameters": parameters}}),
    ])
}

/// Whether each of these texts has the form.
fn check(word: &str, calls: Option<Calling>, schema: Option<Value>, texts: &[(String, bool)]) {
    let tools = tools();
    for (tokenizer, forms, size) in vocabularies() {
        for (text, expected) in texts {
            let calls = calls.as_ref().map(|wanted| (&tools, wanted));
            let format = Format::named(word).unwrap();
            let form = forms.answer((format, ""), calls, schema.as_ref());
            let follows = follows(form.unwrap(), &tokenizer, size, text);
            assert_eq!(follows, *expected, "{word}: {text}");
        }
    }
}

#[test]
fn json_stands_behind_the_thought() {
    for word in ["think", "think+hermes", "think+llama3"] {
        let texts = [
            (JSON.into(), true),
            (format!("<think>\n{THOUGHT}\n</think>\n\n{JSON}"), true),
            (format!("\n<think>{THOUGHT}</think>{JSON}"), true),
            (format!("<think></think>\n{JSON}"), true),
            (format!("<think>{JSON}"), false),
            (format!("<think>a</think>So: {JSON}"), false),
            (format!("So: {JSON}"), false),
        ];
        check(word, None, Some(schema()), &texts);
    }
    let texts = [
        (format!("{THOUGHT}\n</think>\n\n{JSON}"), true),
        (format!("</think>{JSON}"), true),
        (JSON.into(), false),
        (format!("a</think>b</think>{JSON}"), false),
    ];
    check("thinking", None, Some(schema()), &texts);
    check("thinking+qwen_xml", None, Some(schema()), &texts);
}

#[test]
fn a_call_stands_behind_the_thought() {
    let must = Calling {
        required: true,
        ..Calling::default()
    };
    for (word, open) in [("think+hermes", "<think>\n"), ("thinking+hermes", "")] {
        let thought = format!("{open}{THOUGHT}\n</think>\n\n");
        let is_before = !open.is_empty();
        let texts = |may_speak: bool| {
            [
                (format!("{thought}{CALL}"), true),
                (format!("{thought}{WRONG}"), false),
                (format!("{thought}I add.\n{CALL}"), may_speak),
                (format!("{thought}I add.\n{WRONG}"), false),
                (format!("{thought}It is."), may_speak),
                (CALL.into(), is_before),
                (WRONG.into(), false),
                (format!("I add. {CALL}"), is_before && may_speak),
            ]
        };
        check(word, Some(must.clone()), None, &texts(false));
        check(word, Some(Calling::default()), None, &texts(true));
        let both = [
            (format!("{thought}{CALL}"), true),
            (format!("{thought}{JSON}"), true),
            (format!("{thought}It is."), false),
        ];
        check(word, Some(Calling::default()), Some(schema()), &both);
    }
}

#[test]
fn calls_in_an_unknown_format_are_refused() {
    let (_, forms, _) = vocabularies().remove(0);
    let (tools, must) = (tools(), Calling::default());
    let format = Format::named("thinking").unwrap();
    let form = forms.answer((format, ""), Some((&tools, &must)), None);
    assert!(form.err().unwrap().contains("a format that is not known"));
}
