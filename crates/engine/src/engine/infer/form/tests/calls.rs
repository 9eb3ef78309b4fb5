//! Answers that call tools, in each format of calls.

use super::*;
use crate::data::chat::tool_calls::{FORMATS, ReadAnswer, read_all};
use crate::data::tokenizer::Marks;

const WORDS: &str = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call> <function=add><parameter=a>1</parameter></function> [TOOL_CALLS] <|tool_call_start|>[add(a=1)]<|tool_call_end|> parameters text note";

fn definitions() -> Vec<Value> {
    vec![
        json!({"type": "function", "function": {"name": "add", "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "minimum": -20, "maximum": 20},
                "note": {"type": "string", "maxLength": 4},
                "kind": {"enum": ["x", "y"]},
                "maybe": {"anyOf": [{"enum": ["long"], "type": "string"}, {"type": "null"}]},
                "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
            },
            "required": ["a", "list"],
        }}}),
        json!({"name": "now"}),
    ]
}

fn vocabulary() -> (Tokenizer, Forms, usize) {
    let kind = json!({"bpe": {"vocab_size": 400}});
    let config: TokenizerConfig = serde_json::from_value(kind).unwrap();
    let text = format!("{TEXT}{WORDS}");
    let tokenizer = config.build(&text.repeat(30), &text).unwrap();
    let (end, size) = (tokenizer.eos().unwrap(), tokenizer.vocab_size());
    let forms = Forms::new(&tokenizer, &tokenizer.token_bytes(), &[end], size).unwrap();
    (tokenizer, forms, size)
}

fn required() -> Calling {
    Calling {
        required: true,
        ..Calling::default()
    }
}

/// A text that a form allows: of the tokens that may come next some, by `seed`, until the end.
fn drawn(
    mut form: Form,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    mut seed: u64,
) -> Option<String> {
    let end = tokenizer.eos().unwrap();
    let mut ids = Vec::new();
    for _ in 0..400 {
        let allowed = next(&mut form, vocab_size);
        if allowed.contains(&end) {
            return Some(tokenizer.decode(&ids));
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let id = allowed[(seed >> 33) as usize % allowed.len()];
        form.accept(id).unwrap();
        ids.push(id);
    }
    None
}

#[test]
fn a_required_call_has_arguments_of_its_schema_whatever_is_drawn() {
    let (tokenizer, forms, size) = vocabulary();
    let tools = Tools::new(definitions());
    let one = Calling {
        one: true,
        ..required()
    };
    for format in FORMATS {
        let mut names = std::collections::BTreeSet::new();
        for seed in 0..12 {
            let form = forms
                .answer((format, ""), Some((&tools, &one)), None)
                .unwrap();
            let Some(text) = drawn(form, &tokenizer, size, seed) else {
                continue;
            };
            let ReadAnswer {
                text: rest, calls, ..
            } = read_all(format, &tools, &text);
            assert_eq!(
                (rest.as_str(), calls.len()),
                ("", 1),
                "{}: {text}",
                format.word
            );
            let arguments: Value = serde_json::from_str(&calls[0].arguments).unwrap();
            let inside = arguments.as_object().unwrap();
            names.insert(calls[0].name.clone());
            if calls[0].name == "now" {
                assert!(inside.is_empty(), "{text}");
                continue;
            }
            assert!(
                inside["a"]
                    .as_i64()
                    .is_some_and(|a| (-20..=20).contains(&a)),
                "{text}"
            );
            assert!(
                inside["list"]
                    .as_array()
                    .is_some_and(|list| list.len() <= 2),
                "{text}"
            );
            let note = inside
                .get("note")
                .map(|note| note.as_str().unwrap().chars().count());
            assert!(note.unwrap_or(0) <= 4, "{text}");
            let kind = inside
                .get("kind")
                .is_none_or(|kind| kind == "x" || kind == "y");
            let maybe = inside
                .get("maybe")
                .is_none_or(|maybe| maybe == "long" || maybe.is_null());
            assert!(kind && maybe, "{text}");
        }
        assert_eq!(names.len(), 2, "{}: {names:?}", format.word);
    }
}

#[test]
fn calls_are_written_as_templates_write_them() {
    let (tokenizer, forms, size) = vocabulary();
    let tools = Tools::new(definitions());
    let follows = |word: &str, wanted: &Calling, schema: Option<&Value>, text: &str| {
        let form = forms
            .answer(
                (Format::named(word).unwrap(), ""),
                Some((&tools, wanted)),
                schema,
            )
            .unwrap();
        super::follows(form, &tokenizer, size, text)
    };
    let hermes =
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"list\": []}}\n</tool_call>";
    let now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let xml = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=note>\na\nb\n</parameter>\n<parameter=list>\n[true]\n</parameter>\n</function>\n</tool_call>";
    let lfm = "<|tool_call_start|>[add(a=1, kind=\"x\", list=[]), now()]<|tool_call_end|>";
    let llama = "{\"name\": \"add\", \"parameters\": {\"a\": 1, \"list\": []}}; {\"name\": \"now\", \"parameters\": {}}";
    let mistral = "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1, \"list\": []}}, {\"name\": \"now\", \"arguments\": {}}]";
    for (word, text) in [
        ("hermes", hermes.to_string()),
        ("hermes", format!("{hermes}\n{now}")),
        ("qwen_xml", xml.into()),
        ("lfm2", lfm.into()),
        ("llama3", llama.into()),
        ("mistral", mistral.into()),
    ] {
        assert!(follows(word, &required(), None, &text), "{word}: {text}");
    }
    let one = Calling {
        one: true,
        ..required()
    };
    let named = Calling {
        function: Some("now".into()),
        ..one.clone()
    };
    for (wanted, text, expected) in [
        (&one, hermes.to_string(), true),
        (&one, format!("{hermes}\n{now}"), false),
        (&named, now.into(), true),
        (&named, hermes.into(), false),
        (&required(), format!("Well. {now}"), false),
        (&required(), now.replace("{}", "{\"a\": 1}"), false),
    ] {
        assert_eq!(follows("hermes", wanted, None, &text), expected, "{text}");
    }
    // Text, with calls of the schema behind it.
    let may = Calling::default();
    for (word, text, expected) in [
        ("hermes", "It is noon.".to_string(), true),
        ("hermes", format!("It is {now}"), true),
        ("hermes", now.to_string(), true),
        ("hermes", now.replace("now", "new"), false),
        ("qwen_xml", format!("Sum: {xml}"), true),
        ("qwen_xml", "a <function=".into(), false),
        ("llama3", "Text { with a brace".into(), true),
        ("llama3", llama.into(), true),
        ("llama3", "{\"name\": \"add\"}".into(), false),
    ] {
        assert_eq!(follows(word, &may, None, &text), expected, "{word}: {text}");
    }
    // An answer of a form, or a call.
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    for (text, expected) in [("{\"n\": 3}", true), (now, true), ("noon", false)] {
        assert_eq!(
            follows("hermes", &may, Some(&schema), text),
            expected,
            "{text}"
        );
    }
}

/// Marks that are tokens of their own stand for no text.
#[test]
fn marks_that_are_tokens_come_as_these() {
    const TOKENIZER: &str = include_str!("../../../../../../../tests/fixtures/chat/tokenizer.json");
    let json = TOKENIZER
        .replace("<|im_start|>", "[TOOL_CALLS]")
        .replace("<|im_end|>", "[ARGS]");
    let marks = Marks {
        eos: Some("<|endoftext|>".into()),
        ..Marks::default()
    };
    let tokenizer = Tokenizer::from_json(&json)
        .unwrap()
        .with_marks(marks)
        .unwrap();
    let (end, size) = (tokenizer.eos().unwrap(), tokenizer.vocab_size());
    let forms = Forms::new(&tokenizer, &tokenizer.token_bytes(), &[end], size).unwrap();
    let tools = Tools::new(definitions());
    let format = Format::named("mistral").unwrap();
    let form = forms
        .answer((format, ""), Some((&tools, &required())), None)
        .unwrap();
    let text = "[TOOL_CALLS]add[ARGS]{\"a\": 1, \"list\": [true]}[TOOL_CALLS]now[ARGS]{}";
    assert_eq!(
        tokenizer.encode(text).unwrap()[0],
        tokenizer.id("[TOOL_CALLS]").unwrap()
    );
    assert!(follows(form, &tokenizer, size, text));
    let form = forms
        .answer((format, ""), Some((&tools, &Calling::default())), None)
        .unwrap();
    assert!(follows(form, &tokenizer, size, &format!("So: {text}")));
}

#[test]
fn what_a_format_cannot_hold_is_refused_with_the_tool() {
    let (_, forms, _) = vocabulary();
    let why = |word: &str, parameters: Value| {
        let tools = Tools::new(vec![
            json!({"name": "now"}),
            json!({"name": "f", "parameters": parameters}),
        ]);
        forms
            .answer(
                (Format::named(word).unwrap(), ""),
                Some((&tools, &required())),
                None,
            )
            .err()
            .unwrap()
    };
    for (word, parameters, parts) in [
        (
            "hermes",
            json!({"properties": {"x": {"type": "string", "pattern": "("}}}),
            ["the parameters of f", "properties.x"],
        ),
        (
            "qwen_xml",
            json!({"properties": {"x": {"type": "string", "pattern": "a"}}}),
            ["f: x: `pattern`", "is text"],
        ),
        (
            "lfm2",
            json!({"properties": {"x y": {}}}),
            ["`x y`", "Python"],
        ),
        (
            "lfm2",
            json!({"properties": {"x": {}}, "oneOf": [{}]}),
            ["`oneOf`", "by itself"],
        ),
    ] {
        let why = why(word, parameters);
        assert!(
            parts.iter().all(|part| why.contains(part)) && !why.contains('\n'),
            "{why}"
        );
    }
}
