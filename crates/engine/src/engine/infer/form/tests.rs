//! Forms over a vocabulary of letters and some longer tokens.

mod calls;
mod messages;
mod thoughts;

use super::*;
use crate::data::tokenizer::TokenizerConfig;
use crate::engine::infer::NoAnswer;
use crate::nn::generate::Constraint;
use serde_json::json;

const TEXT: &str =
    "{\"name\": \"Ada\", \"age\": 36, \"tags\": [true, null]} ä abcdefghijklmnopqrstuvwxyz";

fn forms() -> (Tokenizer, Forms, usize) {
    let kind = json!({"bpe": {"vocab_size": 330}});
    let config: TokenizerConfig = serde_json::from_value(kind).unwrap();
    let tokenizer = config.build(&TEXT.repeat(30), TEXT).unwrap();
    let end = tokenizer.eos().unwrap();
    // Models have rows that no token has.
    let vocab_size = tokenizer.vocab_size() + 5;
    let forms = Forms::new(&tokenizer, &tokenizer.token_bytes(), &[end], vocab_size).unwrap();
    (tokenizer, forms, vocab_size)
}

/// What comes next: ids.
fn next(form: &mut Form, vocab_size: usize) -> Vec<u32> {
    let mut logits = vec![1.0; vocab_size];
    form.mask(&mut logits).unwrap();
    let allowed = (0..).zip(&logits).filter(|(_, logit)| **logit == 1.0);
    allowed.map(|(id, _)| id).collect()
}

/// Whether the text has the form: each of its tokens is allowed, and then the end.
fn has_form(schema: &Value, text: &str) -> bool {
    let (tokenizer, forms, vocab_size) = forms();
    let form = forms.json(schema).unwrap();
    follows(form, &tokenizer, vocab_size, text)
}

fn follows(mut form: Form, tokenizer: &Tokenizer, vocab_size: usize, text: &str) -> bool {
    for id in tokenizer.encode(text).unwrap() {
        if !next(&mut form, vocab_size).contains(&id) {
            return false;
        }
        form.accept(id).unwrap();
    }
    let end = tokenizer.eos().unwrap();
    let ends = next(&mut form, vocab_size).contains(&end);
    ends && form.accept(end).is_ok()
}

#[test]
fn texts_of_the_schema_go_through_and_others_do_not() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "kind": {"$ref": "#/$defs/kind"},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
        "$defs": {"kind": {"enum": ["a", "b"]}},
    });
    for (text, expected) in [
        (r#"{"name": "Ada", "age": 36}"#, true),
        (r#"{"name": "ä\n", "age": 0, "kind": "b"}"#, true),
        (r#"{"name": "Ada", "age": 36"#, false),
        (r#"{"name": "Ada"}"#, false),
        (r#"{"name": "Adalbert", "age": 36}"#, false),
        (r#"{"name": "Ada", "age": 121}"#, false),
        (r#"{"name": "Ada", "age": 3, "kind": "c"}"#, false),
        (r#"{"name": "Ada", "age": 3, "more": 1}"#, false),
        (r#"{"name":   "Ada", "age": 3}"#, false),
        (r#"Sure: {"name": "Ada", "age": 3}"#, false),
        ("[]", false),
    ] {
        assert_eq!(has_form(&schema, text), expected, "{text}");
    }
    let object = json!({"type": "object"});
    assert!(has_form(
        &object,
        r#"{"a": [1.5, {"b": "x"}, null, true], "c": {}}"#
    ));
    assert!(!has_form(&object, "[1]"));
    assert!(has_form(&json!({}), "[1]"));
}

#[test]
fn rows_without_a_token_and_marks_in_texts_are_forbidden() {
    let (tokenizer, forms, vocab_size) = forms();
    let mut form = forms.json(&json!({"type": "string"})).unwrap();
    form.accept(tokenizer.id("\"").unwrap()).unwrap();
    let allowed = next(&mut form, vocab_size);
    assert!(allowed.contains(&tokenizer.id("a").unwrap()));
    assert!(!allowed.contains(&tokenizer.eos().unwrap()));
    assert!(
        allowed
            .iter()
            .all(|id| (*id as usize) < tokenizer.vocab_size())
    );
    let forbidden = tokenizer.eos().unwrap();
    assert!(form.accept(forbidden).is_ok(), "the generation ends there");
    let mut number = forms.json(&json!({"type": "number"})).unwrap();
    assert!(number.accept(tokenizer.id("a").unwrap()).is_err());
}

#[test]
fn schemas_that_cannot_be_used_say_why_and_where() {
    let (tokenizer, forms, _) = forms();
    for (schema, part) in [
        (json!({"type": "nonsense"}), "nonsense"),
        (json!({"$ref": "#/$defs/gone"}), "gone"),
        (json!({"type": "integer", "minimum": 5, "maximum": 4}), "5"),
        (
            json!({"properties": {"x": {"type": "string", "pattern": "("}}, "required": ["x"]}),
            "regex",
        ),
        (json!([1]), "must be an object"),
        (
            json!({"properties": {"x": {"anyOf": [{"type": "null"}, {"items": {"type": "odd"}, "type": "array"}]}}}),
            "cannot be used: properties.x.anyOf[1].items: ",
        ),
        (json!({"type": "nonsense"}), "cannot be used: its root: "),
        // References lead to any part of the whole, and to what they name alone.
        (
            json!({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}, "c": {"type": "odd"}}}),
            "cannot be used: properties.c: ",
        ),
        (
            json!({"properties": {"a": {"items": {"$ref": "#"}}, "b": {"type": "odd"}}}),
            "cannot be used: properties.b: ",
        ),
        (
            json!({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "odd"}}}),
            "cannot be used: $defs.b: ",
        ),
        (
            json!({"type": "odd", "$defs": {"b": {"type": "strange"}}}),
            "cannot be used: its root: ",
        ),
        (
            json!({"properties": {"a": {"$ref": "#/$defs/gone"}}}),
            "cannot be used: properties.a: ",
        ),
        // Its last digit would be another one.
        (
            json!({"enum": [1, 9_007_199_254_740_993_u64]}),
            "the number 9007199254740993",
        ),
        (
            json!({"type": "number", "maximum": 1e30}),
            "the number 1e+30",
        ),
    ] {
        let why = forms.json(&schema).err().unwrap();
        assert!(why.contains(part), "{schema}: {why}");
        assert!(!why.contains("whole"), "{why}");
        assert!(
            why.chars().count() < MAX_ERROR + 100 && !why.contains('\n'),
            "{why}"
        );
    }
    let none = Forms::new(&tokenizer, &tokenizer.token_bytes(), &[], 400);
    assert!(none.err().unwrap().contains("no token that ends a text"));
    let kind = json!({"wordpiece": {"vocab_size": 330}});
    let config: TokenizerConfig = serde_json::from_value(kind).unwrap();
    let words = config.build(&TEXT.repeat(30), TEXT).unwrap();
    let spaced = Forms::new(&words, &words.token_bytes(), &[0], words.vocab_size());
    let why = spaced.err().unwrap();
    assert!(why.contains("WordPiece") && why.contains("BPE"), "{why}");
}

/// Of generated schemas: no limit that anything comes near.
#[test]
fn bounds_of_integer_types_are_taken() {
    let whole = json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX});
    assert!(has_form(&whole, "42") && has_form(&whole, "-7"));
}

#[test]
fn references_may_lead_to_names_with_slashes() {
    let schema = json!({
        "type": "object",
        "properties": {"a/b": {"$ref": "#/$defs/x~1y"}, "c": {"$ref": "#/properties/a~1b"}},
        "required": ["a/b", "c"],
        "additionalProperties": false,
        "$defs": {"x/y": {"type": "array", "items": {"$ref": "#/$defs/t~0"}}, "t~": {"enum": ["u", 1]}},
    });
    assert!(has_form(&schema, r#"{"a/b": ["u", 1], "c": [1]}"#));
    assert!(!has_form(&schema, r#"{"a/b": ["v"], "c": []}"#));
    let (_, forms, _) = forms();
    let why = |schema: Value| forms.json(&schema).err().unwrap();
    let nowhere = why(json!({"$ref": "#/$defs/x~1z", "$defs": {"x/y": {}}}));
    assert!(
        nowhere.contains("`#/$defs/x~1z` leads to nothing"),
        "{nowhere}"
    );
    let inner =
        json!({"$ref": "#/$defs/x~1y", "$defs": {"x/y": {"type": "string", "pattern": "("}}});
    let inner = why(inner);
    assert!(inner.contains("$defs.x~1y"), "{inner}");
}

#[test]
fn data_in_a_schema_are_no_references_and_a_property_may_have_any_name() {
    let schema = json!({
        "type": "object",
        "properties": {
            "const": {"$ref": "#/$defs/x~1y"},
            "a": {"const": {"$ref": "#/$defs/n~1o"}, "default": {"$ref": "#/n~1o"}},
        },
        "required": ["const", "a"],
        "additionalProperties": false,
        "$defs": {"x/y": {"type": "integer"}},
    });
    let good = r##"{"const": 1, "a": {"$ref": "#/$defs/n~1o"}}"##;
    assert!(has_form(&schema, good));
    assert!(!has_form(&schema, &good.replace(": 1", ": \"u\"")));
}

#[test]
fn what_cannot_be_followed_is_said_in_words_of_json_schema() {
    let (_, forms, _) = forms();
    let why = |schema: Value| forms.json(&schema).err().unwrap();
    let overlap = why(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}));
    assert!(
        overlap.contains("`oneOf`") && overlap.contains("`anyOf` can"),
        "{overlap}"
    );
    let other = why(json!({"$ref": "other.json#/a"}));
    assert!(other.contains("another document"), "{other}");
}

/// Each overflowed the parser's stack, which ended the server.
#[test]
fn long_chains_and_wide_objects_do_not_overflow() {
    let chain = |n: usize| {
        let link = |i: usize| {
            (
                format!("d{i}"),
                json!({"$ref": format!("#/$defs/d{}", i + 1)}),
            )
        };
        let mut all: serde_json::Map<String, Value> = (0..n).map(link).collect();
        all.insert(format!("d{n}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/d0", "$defs": all})
    };
    let wide = |n: usize, required: bool| {
        let names: Vec<String> = (0..n).map(|i| format!("p{i}")).collect();
        let all = names
            .iter()
            .map(|name| (name.clone(), json!({"type": "integer"})));
        let all: serde_json::Map<String, Value> = all.collect();
        let required = if required { names } else { Vec::new() };
        json!({"type": "object", "properties": all, "required": required})
    };
    let (_, forms, _) = forms();
    let forms = std::sync::Arc::new(forms);
    for schema in [
        chain(1_000),
        chain(15_000),
        wide(7_000, false),
        wide(10_000, true),
        wide(25_000, true),
    ] {
        let forms = forms.clone();
        let made = crate::engine::infer::preparing::Pending::begin(Box::new(move || {
            forms
                .json(&schema)
                .map(|form| Box::new(form) as Box<dyn Constraint>)
        }));
        // Made or refused, but heard of.
        let made = made.unwrap().made();
        assert!(!matches!(made, Err(NoAnswer::Broken(_))));
    }
    let why = forms.json(&wide(25_000, true)).err().unwrap();
    assert!(why.contains("more than 20,000 schemas"), "{why}");
}

#[test]
fn definitions_of_references_are_their_own_and_not_too_many() {
    // Both would be named `a.b~1c`.
    let schema = json!({
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/a.b~1c"}, "q": {"$ref": "#/$defs/a/b~1c"}},
        "required": ["p", "q"],
        "additionalProperties": false,
        "$defs": {"a.b/c": {"type": "integer"}, "a": {"b/c": {"type": "string"}}},
    });
    assert!(has_form(&schema, r#"{"p": 1, "q": "u"}"#));
    assert!(!has_form(&schema, r#"{"p": 1, "q": 1}"#));
    // A tilde by itself is read as one, so that many pointers lead to the same large part.
    let pointer = |n: usize| -> String {
        (0..11)
            .map(|bit| if n >> bit & 1 == 1 { "~0" } else { "~" })
            .collect()
    };
    let all: Vec<Value> = (0..1 << 11)
        .map(|n| json!({"$ref": format!("#/$defs/{}", pointer(n))}))
        .collect();
    let many: Vec<usize> = (0..1_000).collect();
    let mut schema = json!({"anyOf": all, "$defs": {}});
    schema["$defs"]["~".repeat(11)] = json!({"enum": many});
    let (_, forms, _) = forms();
    let why = forms.json(&schema).err().unwrap();
    assert!(why.contains("too many values"), "{why}");
}

#[test]
fn forms_that_no_text_can_follow_say_so() {
    let (tokenizer, forms, vocab_size) = forms();
    let integer = |i: usize| (format!("property{i}"), json!({"type": "integer"}));
    let properties: serde_json::Map<_, _> = (0..3_000).map(integer).collect();
    for (schema, why) in [
        (json!({"$ref": "#"}), "it refers to itself without end"),
        (
            json!({"type": "object", "properties": properties}),
            "it allows too many things in one place",
        ),
    ] {
        let mut form = match forms.json(&schema) {
            Ok(form) => form,
            Err(refused) => {
                assert!(refused.contains(why), "{refused}");
                continue;
            }
        };
        let step = |id: u32| {
            form.mask(&mut vec![1.0; vocab_size])?;
            form.accept(id)
        };
        let ids = tokenizer.encode("{\"property1\": 1").unwrap();
        let said = ids.into_iter().try_for_each(step).unwrap_err();
        assert!(said.starts_with(UNFOLLOWED) && said.contains(why), "{said}");
    }
}
