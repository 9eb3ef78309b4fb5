//! Untrusted bytes in the child process: limits that hold, and crafted tokenizers that end in an error message.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

#[path = "child/programs.rs"]
mod programs;
#[path = "child/sandbox.rs"]
mod sandbox;

use llmtui::base::child::{Child, ChildError, Limits, Parser, Request};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn child() -> Child {
    Child {
        program: Some(env!("CARGO_BIN_EXE_llmtui").into()),
    }
}

/// Only the name is passed; the child has its own list of parsers.
fn named(id: &'static str) -> Parser {
    Parser {
        id,
        parse: |_, _| Err("this ran in the parent".into()),
    }
}

fn limits() -> Limits {
    Limits {
        memory: 1 << 30,
        cpu_seconds: 1,
        silence: Duration::from_secs(30),
        line_bytes: 1 << 20,
        total_bytes: 1 << 20,
    }
}

fn probe(what: &str, limits: Limits) -> Result<Vec<String>, ChildError> {
    let request = Request::bytes(b"hello".to_vec()).with(json!(what));
    child().collect(&named("probe"), request, &limits)
}

#[test]
fn bytes_are_parsed_into_lines() {
    assert_eq!(probe("echo", limits()), Ok(vec!["hello".into()]));
    assert_eq!(
        probe("nonsense", limits()),
        Err(ChildError::Refused("no probe is called `nonsense`".into()))
    );
}

#[test]
fn every_limit_holds_and_is_reported() {
    assert_eq!(probe("memory", limits()), Err(ChildError::Memory(1 << 30)));
    assert_eq!(probe("processor", limits()), Err(ChildError::Processor(1)));
    assert_eq!(probe("flood", limits()), Err(ChildError::Output(1 << 20)));
    let silence = Duration::from_millis(300);
    let quick = Limits {
        silence,
        ..limits()
    };
    assert_eq!(probe("wait", quick), Err(ChildError::Silent(silence)));
    let error = probe("stack", limits()).unwrap_err();
    assert!(
        matches!(&error, ChildError::Crashed(words) if words.contains("overflowed its stack")),
        "{error}"
    );
}

#[test]
fn a_child_cannot_write_files_or_see_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let request = Request::file(&path).with(json!("write"));
    assert!(
        child()
            .collect(&named("probe"), request, &limits())
            .is_err()
    );
    assert!(std::fs::read(&path).unwrap_or_default().is_empty());
    let seen = probe("secret", limits()).unwrap().concat();
    assert!(!seen.contains("PATH=") && !seen.contains("HOME"), "{seen}");
}

#[test]
fn dropped_lines_end_the_child() {
    let request = Request::default().with(json!("flood"));
    let endless = Limits {
        total_bytes: u64::MAX,
        ..limits()
    };
    let mut lines = child().run(&named("probe"), request, &endless).unwrap();
    assert!(lines.next().unwrap().is_ok());
    let pid = lines.process_id().unwrap();
    drop(lines);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_missing_program_is_named_in_the_error() {
    let child = Child {
        program: Some("/no/such/program".into()),
    };
    let error = child
        .collect(&named("probe"), Request::default(), &limits())
        .unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

fn vet(tokenizer: &serde_json::Value) -> Result<Vec<String>, ChildError> {
    let request = Request::bytes(tokenizer.to_string().into_bytes());
    child().collect(&named("tokenizer"), request, &Limits::default())
}

/// A word-level tokenizer with some parts replaced.
fn tokenizer(parts: serde_json::Value) -> serde_json::Value {
    let mut whole = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "Hello": 1}, "unk_token": "[UNK]"},
    });
    for (key, value) in parts.as_object().unwrap() {
        whole[key] = value.clone();
    }
    whole
}

#[test]
fn crafted_tokenizers_end_in_an_error_message() {
    assert_eq!(
        vet(&tokenizer(json!({}))),
        Ok(vec![r#"{"vocab_size":2}"#.into()])
    );
    // The library panics on these bytes: a trie of garbage, a trie that points outside, an empty one.
    let charsmaps = [
        "AAAA",
        "BAAAAP////8=",
        "BAAAAAAAAAA=",
        "/////w==",
        "CAAAAAEAAAD//38A",
    ];
    let mut crashes = 0;
    for map in charsmaps {
        let crafted = tokenizer(json!({
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": map},
        }));
        match vet(&crafted) {
            Ok(_) | Err(ChildError::Refused(_)) => {}
            Err(ChildError::Crashed(_) | ChildError::Memory(_)) => crashes += 1,
            Err(other) => panic!("{map}: {other}"),
        }
    }
    assert!(
        crashes > 0,
        "the library mends its ways: this list needs a new bad map"
    );
    let unknown_special = tokenizer(json!({"post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[NOBODY]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {},
    }}));
    let error = vet(&unknown_special).unwrap_err();
    assert!(
        matches!(error, ChildError::Crashed(_) | ChildError::Refused(_)),
        "{error}"
    );
}

#[test]
fn crafted_truncation_and_padding_have_no_effect() {
    let crafted = tokenizer(json!({
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 9},
        "padding": {"strategy": {"Fixed": 50_000_000}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
    }));
    assert!(vet(&crafted).is_ok());
}

/// Not bounded by fuel: thirty doublings are a few hundred instructions, but gigabytes.
#[test]
fn a_chat_template_that_allocates_gigabytes_is_stopped_by_the_child() {
    use llmtui::data::Tokenizer;
    use llmtui::data::chat::Template;
    let tokenizer = Tokenizer::from_json(include_str!("fixtures/chat/tokenizer.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let choose = |template: &str| {
        let path = dir.path().join("t.jinja");
        std::fs::write(&path, template).unwrap();
        Template::choose(path.to_str().unwrap(), &tokenizer, &child()).map(|t| t.is_some())
    };
    assert!(choose("{{ messages[0].content }}").unwrap());
    let doubling = "{% set ns = namespace(a='xxxxxxxx') %}{% for i in range(40) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}";
    let error = choose(doubling).unwrap_err();
    assert!(error.to_string().contains("malicious"), "{error}");
    let replacing = "{% set ns = namespace(a='x' * 9) %}{% for i in range(12) %}{% set ns.a = ns.a | replace('x', 'xxxxxxxxxx') %}{% endfor %}";
    assert!(choose(replacing).is_err());
}
