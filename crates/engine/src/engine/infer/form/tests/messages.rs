//! Answers in messages: the form is that of the final one, or of the call, and thoughts before it are free.

use super::*;
use crate::data::chat::tool_calls::{Format, Tools};
use crate::data::tokenizer::Marks;
use crate::wire::Calling;

/// The tokenizer of the tests with gpt-oss's marks, of which `<|return|>` and `<|call|>` end a text.
fn vocabulary() -> (Tokenizer, Forms, usize) {
    const TOKENIZER: &str = include_str!("../../../../../../../tests/fixtures/chat/tokenizer.json");
    let marks = [
        ("<|im_start|>", "<|start|>"),
        ("<|im_end|>", "<|channel|>"),
        ("<|begin_of_text|>", "<|message|>"),
        ("<|start_header_id|>", "<|return|>"),
        ("<|end_header_id|>", "<|call|>"),
        ("<|eot_id|>", "<|constrain|>"),
    ];
    let json = marks
        .iter()
        .fold(TOKENIZER.to_string(), |json, (old, new)| {
            json.replace(old, new)
        });
    let eos = Marks {
        eos: Some("<|return|>".into()),
        ..Marks::default()
    };
    let tokenizer = Tokenizer::from_json(&json)
        .unwrap()
        .with_marks(eos)
        .unwrap();
    let ends = ["<|return|>", "<|call|>"].map(|end| tokenizer.id(end).unwrap());
    let size = tokenizer.vocab_size();
    let forms = Forms::new(&tokenizer, &tokenizer.token_bytes(), &ends, size).unwrap();
    (tokenizer, forms, size)
}

const THOUGHT: &str = "<|channel|>analysis<|message|>{\"n\": no\n}<|end|><|start|>assistant";
const PLAN: &str = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
const FINAL: &str = "<|channel|>final<|message|>";
const JSON: &str = "{\"n\": 3}";

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})
}

fn tools() -> Tools {
    let parameters =
        json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]});
    Tools::new(vec![
        json!({"type": "function", "function": {"name": "add", "parameters": parameters}}),
        json!({"name": "now"}),
    ])
}

struct Case<'a> {
    prompt: &'a str,
    calls: Option<Calling>,
    schema: Option<Value>,
}

/// Whether each of these texts has the form.
fn check(case: &Case, texts: &[(String, bool)]) {
    let (tokenizer, forms, size) = vocabulary();
    let tools = tools();
    for (text, expected) in texts {
        let calls = case.calls.as_ref().map(|wanted| (&tools, wanted));
        let format = Format::named("harmony").unwrap();
        let form = forms.answer((format, case.prompt), calls, case.schema.as_ref());
        let follows = follows(form.unwrap(), &tokenizer, size, text);
        assert_eq!(follows, *expected, "{text}");
    }
}

fn asked<'a>(calls: Option<Calling>, schema: Option<Value>) -> Case<'a> {
    Case {
        prompt: "<|start|>user<|message|>So?<|end|><|start|>assistant",
        calls,
        schema,
    }
}

#[test]
fn json_is_the_final_message() {
    check(
        &asked(None, Some(schema())),
        &[
            (format!("{FINAL}{JSON}"), true),
            (format!("{THOUGHT}{FINAL}{JSON}"), true),
            (format!("{THOUGHT}{THOUGHT}{FINAL}{JSON}"), true),
            (
                format!("{THOUGHT}<|channel|>final <|constrain|>json<|message|>{JSON}"),
                true,
            ),
            (JSON.into(), false),
            (format!("{FINAL}So: {JSON}"), false),
            (format!("{PLAN}{FINAL}{JSON}"), false),
            (format!("<|channel|>analysis<|message|>{JSON}"), false),
        ],
    );
}

#[test]
fn a_call_has_arguments_of_its_schema() {
    let call = |arguments: &str| {
        format!("<|channel|>commentary to=functions.add <|constrain|>json<|message|>{arguments}")
    };
    let now = " to=functions.now<|channel|>commentary json<|message|>{}";
    let must = Calling {
        required: true,
        ..Calling::default()
    };
    let texts = |may_speak: bool, may_json: bool| {
        [
            (call("{\"a\": true}"), true),
            (format!("{THOUGHT}{}", call("{\"a\": true}")), true),
            (format!("{THOUGHT}{PLAN}{now}"), !may_json),
            (format!("{THOUGHT}{now}"), true),
            (call("{\"a\": 3}"), false),
            (call("{}"), false),
            (now.replace("now", "new"), false),
            (format!("{THOUGHT}{FINAL}It is."), may_speak),
            (format!("{THOUGHT}{FINAL}{JSON}"), may_speak || may_json),
        ]
    };
    check(&asked(Some(must), None), &texts(false, false));
    check(&asked(Some(Calling::default()), None), &texts(true, false));
    let both = asked(Some(Calling::default()), Some(schema()));
    check(&both, &texts(false, true));
}

#[test]
fn an_answer_that_was_begun_goes_on_with_the_rest_of_its_form() {
    let begun = |prompt| Case {
        prompt,
        calls: None,
        schema: Some(schema()),
    };
    let text = [(JSON.to_string(), true), (format!("{FINAL}{JSON}"), false)];
    check(
        &begun("<|start|>assistant<|channel|>final<|message|>"),
        &text,
    );
    let thought = "<|start|>assistant<|channel|>analysis<|message|>Hm";
    let rest = format!("m.<|end|><|start|>assistant{FINAL}{JSON}");
    check(&begun(thought), &[(rest, true), (JSON.into(), false)]);
}
