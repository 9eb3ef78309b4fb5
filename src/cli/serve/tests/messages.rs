//! Thoughts, text and calls apart: in messages, as gpt-oss writes them, and behind `<think>`.

use super::*;

const THOUGHT: &str = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant";
const PLAN: &str = "<|channel|>commentary<|message|>I add.<|end|><|start|>assistant";
const CALL: &str = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}";
const FINAL: &str = "<|channel|>final<|message|>It is 4.";

/// A request whose answer is `text`.
fn answered(text: &str, more: &Value) -> Value {
    let mut asked = body(&json!({"messages": [{"role": "user", "content": text}]}));
    for (key, value) in more.as_object().unwrap() {
        asked[key] = value.clone();
    }
    asked
}

fn tools() -> Value {
    json!({"tools": [{"type": "function", "function": {"name": "add"}}]})
}

#[test]
fn thoughts_are_reasoning_content_and_calls_are_calls() {
    let server = served(Some("t"), &[], None);
    let chat = |text: &str, more: &Value| {
        let (status, reply) = server.post("/v1/chat/completions", &answered(text, more));
        assert_eq!(status, 200, "{reply}");
        reply["choices"][0].clone()
    };
    let choice = chat(&format!("{THOUGHT}{FINAL}"), &json!({"logprobs": true}));
    let message = json!({"role": "assistant", "content": "It is 4.", "reasoning_content": "Easy."});
    assert_eq!(choice["message"], message);
    assert_eq!(choice["finish_reason"], "stop");
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), THOUGHT.len() + FINAL.len(), "all of them");
    let choice = chat(&format!("{THOUGHT}{PLAN}{CALL}"), &tools());
    let message = &choice["message"];
    assert_eq!(message["reasoning_content"], "Easy.");
    assert_eq!(message["content"], "I add.");
    let function = json!({"name": "add", "arguments": "{\"a\":1}"});
    assert_eq!(message["tool_calls"][0]["function"], function);
    assert_eq!(choice["finish_reason"], "tool_calls");
    let choice = chat(&format!("{THOUGHT}{CALL}"), &tools());
    assert_eq!(choice["message"]["content"], Value::Null);
    // A limit in the thoughts: no answer yet.
    let cut = chat(&format!("{THOUGHT}{FINAL}"), &json!({"max_tokens": 33}));
    let message = json!({"role": "assistant", "content": "", "reasoning_content": "Eas"});
    assert_eq!(
        (&cut["message"], &cut["finish_reason"]),
        (&message, &json!("length"))
    );
    // Without tools nothing is a call.
    let none = chat(&format!("{THOUGHT}{CALL}"), &json!({}));
    assert_eq!(none["message"]["content"], CALL);
    assert_eq!(none["finish_reason"], "stop");
}

#[test]
fn a_stream_has_them_as_deltas_of_their_own() {
    let server = served(Some("t"), &[], None);
    let mut more = tools();
    more["stream"] = true.into();
    let asked = answered(&format!("{THOUGHT}{PLAN}{CALL}"), &more).to_string();
    let (status, text) = server.ask("POST", "/v1/chat/completions", JSON, &asked);
    assert_eq!(status, 200);
    let deltas: Vec<Value> = text
        .split("\n\n")
        .filter_map(|e| serde_json::from_str::<Value>(e.strip_prefix("data: ")?).ok())
        .map(|event| event["choices"][0].clone())
        .collect();
    let joined = |key: &str| -> String {
        let parts = deltas.iter().filter_map(|c| c["delta"][key].as_str());
        parts.collect()
    };
    assert_eq!(joined("reasoning_content"), "Easy.");
    assert_eq!(joined("content"), "I add.");
    let thoughts = deltas
        .iter()
        .filter(|c| c["delta"]["reasoning_content"].is_string());
    assert_eq!(thoughts.count(), 5, "a letter each");
    let calls: Vec<&Value> = deltas
        .iter()
        .filter_map(|c| c["delta"]["tool_calls"].get(0))
        .collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["function"]["arguments"], "{\"a\":1}");
    assert_eq!(deltas.last().unwrap()["finish_reason"], "tool_calls");
    assert!(!text.contains("<|"), "no mark is shown");
}

const HERMES: &str = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>";

#[test]
fn what_stands_before_the_end_of_a_thought_is_reasoning_content() {
    let server = served(Some("t"), &[], None);
    let chat = |text: &str, more: &Value| {
        let (status, reply) = server.post("/v1/chat/completions", &answered(text, more));
        assert_eq!(status, 200, "{reply}");
        reply["choices"][0].clone()
    };
    for begun in ["<think>\n", ""] {
        let thought = format!("{begun}Easy <b>.\n</think>\n\n");
        let all = format!("{thought}It is 4.");
        let choice = chat(&all, &json!({"logprobs": true}));
        let message =
            json!({"role": "assistant", "content": "It is 4.", "reasoning_content": "Easy <b>."});
        assert_eq!(choice["message"], message);
        assert_eq!(choice["finish_reason"], "stop");
        let tokens = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(tokens.len(), all.len(), "all of them");
        // A limit in the thoughts: no answer yet.
        let most = json!({"max_tokens": begun.len() + 3});
        let cut = chat(&all, &most);
        let message = json!({"role": "assistant", "content": "", "reasoning_content": "Eas"});
        assert_eq!(
            (&cut["message"], &cut["finish_reason"]),
            (&message, &json!("length"))
        );
        let choice = chat(&format!("{thought}{HERMES}"), &tools());
        let message = &choice["message"];
        assert_eq!(message["reasoning_content"], "Easy <b>.");
        assert_eq!(message["content"], Value::Null);
        let function = json!({"name": "add", "arguments": "{\"a\":1}"});
        assert_eq!(message["tool_calls"][0]["function"], function);
        assert_eq!(choice["finish_reason"], "tool_calls");
        // Without tools nothing is a call.
        let none = chat(&format!("{thought}{HERMES}"), &json!({}));
        assert_eq!(none["message"]["content"], HERMES);
        assert_eq!(none["message"]["reasoning_content"], "Easy <b>.");
        let mut more = tools();
        more["stream"] = true.into();
        let asked = answered(&format!("{thought}I add.\n{HERMES}"), &more).to_string();
        let (status, text) = server.ask("POST", "/v1/chat/completions", JSON, &asked);
        assert_eq!(status, 200);
        let events = text.split("\n\n");
        let deltas: Vec<Value> = events
            .filter_map(|e| serde_json::from_str::<Value>(e.strip_prefix("data: ")?).ok())
            .map(|event| event["choices"][0].clone())
            .collect();
        let joined = |key: &str| -> String {
            let parts = deltas.iter().filter_map(|c| c["delta"][key].as_str());
            parts.collect()
        };
        assert_eq!(joined("reasoning_content"), "Easy <b>.");
        assert_eq!(joined("content"), "I add.");
        let calls = deltas
            .iter()
            .filter(|c| c["delta"]["tool_calls"].is_array());
        assert_eq!(calls.count(), 1);
    }
}
