//! A small random model that answers in messages, as gpt-oss does.

use super::*;
use crate::data::Tokenizer;
use crate::data::chat::tool_calls::{ReadAnswer, read_all};
use crate::wire::Calling;
use serde_json::json;

const TEMPLATE: &str = include_str!("../../../../../../../tests/fixtures/chat/gpt_oss.jinja");
const TOKENIZER: &str = include_str!("../../../../../../../tests/fixtures/chat/tokenizer.json");

/// The model's folder, whose files say that messages end a text, too.
fn held() -> LoadedModel {
    let marks = [
        ("<|im_start|>", "<|start|>"),
        ("<|im_end|>", "<|channel|>"),
        ("<|begin_of_text|>", "<|message|>"),
        ("<|start_header_id|>", "<|return|>"),
        ("<|end_header_id|>", "<|call|>"),
        ("<|eot_id|>", "<|constrain|>"),
    ];
    let spelt = marks
        .iter()
        .fold(TOKENIZER.to_string(), |json, (old, new)| {
            json.replace(old, new)
        });
    let tokenizer = Tokenizer::from_json(&spelt).unwrap();
    let ends = ["<|return|>", "<|end|>"].map(|end| tokenizer.id(end).unwrap());
    let ends = json!({"eos_token_id": ends}).to_string();
    with_template(&spelt, TEMPLATE, "<|return|>", &[(hf::GENERATION, &ends)])
}

/// Its answers to a question, as far as they come to an end.
fn answers(held: &mut LoadedModel, prompt: &Prompt, wanted: &Wanted) -> Vec<(String, ReadAnswer)> {
    let mut answers = Vec::new();
    for seed in 0..8 {
        let sampling = Sampling {
            seed,
            temperature: 1.0,
            top_k: 0,
            max_new_tokens: 3000,
            ..Sampling::default()
        };
        let reading = held.read(prompt, &sampling).unwrap();
        let mut text = String::new();
        let end = held.answer(&reading, &sampling, wanted, &mut |step| {
            if let Step::Wrote(piece) = step {
                text.push_str(&piece.text);
            }
            ControlFlow::Continue(())
        });
        if end.unwrap().reason == StopReason::Stop {
            let format = Format::named("harmony").unwrap();
            let read = read_all(format, &Tools::default(), &text);
            answers.push((text, read));
        }
    }
    answers
}

#[test]
fn a_request_sets_variables_that_the_template_names() {
    let held = held();
    let read = |variables: serde_json::Value| {
        let prompt = Prompt::Turns(vec![Turn::new("user", "So?")]);
        let variables = variables.as_object().unwrap().clone();
        let reading = held.read_with(&prompt, &Sampling::default(), &variables);
        reading.map(|reading| reading.text)
    };
    assert!(read(json!({})).unwrap().contains("Reasoning: medium"));
    let high = read(json!({"reasoning_effort": "high"})).unwrap();
    assert!(high.contains("Reasoning: high"));
    let why = read(json!({"enable_thinking": false})).unwrap_err();
    assert!(why.contains("no variable `enable_thinking`"), "{why}");
    let text = held.read_with(&"So?".into(), &Sampling::default(), &Map::new());
    assert_eq!(text.unwrap().text, "So?");
    let effort = json!({"reasoning_effort": "high"});
    let why = held.read_with(
        &"So?".into(),
        &Sampling::default(),
        effort.as_object().unwrap(),
    );
    assert!(why.unwrap_err().contains("a text has no template"));
}

#[test]
fn only_the_marks_of_a_turn_end_an_answer() {
    let held = held();
    let active = held.conventions.active();
    let mut ends: Vec<String> = active
        .ends
        .iter()
        .map(|id| active.tokenizer.token(*id).unwrap())
        .collect();
    ends.sort();
    assert_eq!(ends, ["<|call|>", "<|return|>"]);
}

#[test]
fn a_form_holds_for_the_answer_and_not_for_what_is_thought_before() {
    let mut held = held();
    let schema = json!({"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"], "additionalProperties": false});
    let asked = vec![Turn::new("user", "So?")];
    let json = Wanted {
        json_schema: Some(Box::new(schema)),
        ..Wanted::default()
    };
    let written = answers(&mut held, &Prompt::Turns(asked.clone()), &json);
    assert!(written.len() > 3);
    for (text, answer) in &written {
        let is_it = ["{\"n\": true}", "{\"n\": false}"].contains(&answer.text.as_str());
        assert!(is_it && answer.calls.is_empty(), "{text}");
    }
    assert!(written.iter().any(|(_, answer)| !answer.thought.is_empty()));
    // An answer that the question has begun is in its final message.
    let mut begun = asked.clone();
    begun.push(Turn::new("assistant", "So: "));
    let reading = held.read(&Prompt::Turns(begun.clone()), &Sampling::default());
    let end = "<|start|>assistant<|channel|>final<|message|>So: ";
    assert!(reading.unwrap().text.ends_with(end));
    for (text, _) in answers(&mut held, &Prompt::Turns(begun), &json) {
        assert!(
            ["{\"n\": true}", "{\"n\": false}"].contains(&text.as_str()),
            "{text}"
        );
    }
    let called = Prompt::WithTools {
        messages: asked,
        tools: vec![
            json!({"type": "function", "function": {"name": "now", "description": "The time."}}),
        ],
    };
    let required = Wanted {
        calls: Some(Calling {
            required: true,
            ..Calling::default()
        }),
        ..Wanted::default()
    };
    let written = answers(&mut held, &called, &required);
    assert!(!written.is_empty());
    for (text, answer) in written {
        assert_eq!(
            (answer.calls.len(), answer.calls[0].name.as_str()),
            (1, "now"),
            "{text}"
        );
        assert!(text.contains("to=functions.now"), "{text}");
    }
}
