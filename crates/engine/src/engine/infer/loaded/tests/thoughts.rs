//! A small random model whose template is Qwen 3's, or one that begins the thought itself.

use super::*;
use crate::data::chat::tool_calls::{ReadAnswer, read_all};
use serde_json::json;

const QWEN3: &str = include_str!("../../../../../../../assets/templates/qwen3.jinja");
/// As DeepSeek-R1 and Qwen 3.5 have it, in short.
const BEGINS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
const TOKENIZER: &str = include_str!("../../../../../../../tests/fixtures/chat/tokenizer.json");

/// The marks of thoughts are tokens, so that a random model writes them.
fn held(template: &str) -> LoadedModel {
    let spelt = TOKENIZER
        .replace("<|start_header_id|>", "<think>")
        .replace("<|end_header_id|>", "</think>");
    with_template(&spelt, template, "<|im_end|>", &[])
}

fn asked() -> Vec<Turn> {
    vec![Turn::new("user", "So?")]
}

/// The prompt's end behind the last role, and the format of its answer.
fn read(
    held: &LoadedModel,
    turns: &[Turn],
    variables: &serde_json::Value,
) -> (String, Option<&'static str>) {
    let prompt = Prompt::Turns(turns.to_vec());
    let variables = variables.as_object().unwrap();
    let reading = held.read_with(&prompt, &Sampling::default(), variables);
    let reading = reading.unwrap();
    let (_, end) = reading.text.rsplit_once("<|im_start|>assistant\n").unwrap();
    (end.into(), reading.tool_calls)
}

#[test]
fn the_prompt_says_whether_the_answer_begins_with_a_thought() {
    let (qwen3, begins) = (held(QWEN3), held(BEGINS));
    let none = json!({});
    let off = json!({"enable_thinking": false});
    let thinks = Some("think+hermes");
    assert_eq!(read(&qwen3, &asked(), &none), (String::new(), thinks));
    let empty = String::from("<think>\n\n</think>\n\n");
    assert_eq!(read(&qwen3, &asked(), &off), (empty, Some("hermes")));
    let (end, format) = read(&begins, &asked(), &none);
    assert_eq!((end.as_str(), format), ("<think>\n", Some("thinking")));
    // A turn that was begun goes on, in its thought or behind it.
    let begun = |held: &LoadedModel, text: &str, thought: Option<&str>| {
        let mut last = Turn::new("assistant", text);
        if let Some(thought) = thought {
            last.extra
                .insert("reasoning_content".into(), thought.into());
        }
        read(held, &[asked(), vec![last]].concat(), &none)
    };
    let (end, format) = begun(&qwen3, "It", Some("Hm."));
    assert_eq!(
        (end.as_str(), format),
        ("<think>\nHm.\n</think>\n\nIt", Some("hermes"))
    );
    let (end, format) = begun(&begins, "", Some("Hm"));
    assert_eq!((end.as_str(), format), ("<think>\nHm", Some("thinking")));
    let (end, format) = begun(&begins, "It", Some("Hm."));
    assert_eq!(
        (end.as_str(), format),
        ("<think>\nHm.\n</think>\n\nIt", None)
    );
    let (end, format) = begun(&qwen3, "<think>\nHm", None);
    assert_eq!(
        (end.as_str(), format),
        ("<think>\nHm", Some("thinking+hermes"))
    );
}

#[test]
fn a_form_holds_behind_the_thought() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"], "additionalProperties": false});
    let wanted = Wanted {
        json_schema: Some(Box::new(schema)),
        ..Wanted::default()
    };
    for template in [QWEN3, BEGINS] {
        let mut held = held(template);
        let mut thoughts = 0;
        let mut ended = 0;
        for seed in 0..8 {
            let sampling = Sampling {
                seed,
                temperature: 1.0,
                top_k: 0,
                max_new_tokens: 3000,
                ..Sampling::default()
            };
            let prompt = Prompt::Turns(asked());
            let reading = held.read(&prompt, &sampling).unwrap();
            let mut text = String::new();
            let end = held.answer(&reading, &sampling, &wanted, &mut |step| {
                if let Step::Wrote(piece) = step {
                    text.push_str(&piece.text);
                }
                ControlFlow::Continue(())
            });
            if end.unwrap().reason != StopReason::Stop {
                continue;
            }
            let format = Format::named(reading.tool_calls.unwrap()).unwrap();
            let read: ReadAnswer = read_all(format, &Tools::default(), &text);
            let is_it = ["{\"n\": true}", "{\"n\": false}"].contains(&read.text.as_str());
            assert!(is_it, "{text}");
            ended += 1;
            thoughts += usize::from(!read.thought.is_empty());
        }
        assert!(ended > 3 && thoughts > 0, "{ended} {thoughts}");
    }
}
