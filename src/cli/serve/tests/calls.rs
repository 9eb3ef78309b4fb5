//! Calls of tools in answers and streams.

use super::*;

const CALL: &str = r#"<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>"#;

/// A request whose answer calls a tool twice.
fn calling(more: &Value) -> Value {
    let mut asked = body(&json!({
        "messages": [{"role": "user", "content": format!("So: {CALL}\n{CALL}")}],
        "tools": [{"type": "function", "function": {"name": "add"}}],
    }));
    for (key, value) in more.as_object().unwrap() {
        asked[key] = value.clone();
    }
    asked
}

#[test]
fn calls_of_tools_are_read_out_of_the_answer() {
    let server = served(Some("t"), &[], None);
    let chat = |more: &Value| {
        let (status, reply) = server.post("/v1/chat/completions", &calling(more));
        assert_eq!(status, 200, "{reply}");
        reply["choices"][0].clone()
    };
    let choice = chat(&json!({"logprobs": true}));
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "So:");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    let function = json!({"name": "add", "arguments": "{\"a\":1}"});
    for call in calls {
        assert_eq!(
            (&call["type"], &call["function"]),
            (&json!("function"), &function)
        );
        assert_eq!(call["id"].as_str().map(str::len), Some(9));
    }
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    assert!(tokens.len() > 100, "those of the calls as well");
    let one = calling(&json!({"parallel_tool_calls": false}));
    let (_, reply) = server.post("/v1/chat/completions", &one);
    let one = &reply["choices"][0];
    assert_eq!(one["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(one["finish_reason"], "tool_calls");
    let up_to_the_call = "So: ".len() + CALL.len();
    let usage = &reply["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(3), &json!(up_to_the_call)),
        "it ends at the call"
    );
    let none = chat(&json!({"tool_choice": "none"}));
    assert_eq!(
        (&none["message"]["tool_calls"], &none["finish_reason"]),
        (&Value::Null, &json!("stop"))
    );
    let only = json!([{"role": "user", "content": "<tool_call>{\"name\": \"add\"}</tool_call>"}]);
    let only = chat(&json!({"messages": only}));
    assert_eq!(only["message"]["content"], Value::Null);
    let wrong = json!([{"role": "user", "content": "<tool_call>add</tool_call>"}]);
    let wrong = chat(&json!({"messages": wrong}));
    assert_eq!(
        wrong["message"],
        json!({"role": "assistant", "content": "<tool_call>add</tool_call>"})
    );
    assert_eq!(wrong["finish_reason"], "stop");
}

#[test]
fn a_stream_has_each_call_as_a_piece() {
    let server = served(Some("t"), &[], None);
    let asked = calling(&json!({"stream": true})).to_string();
    let (status, text) = server.ask("POST", "/v1/chat/completions", JSON, &asked);
    assert_eq!(status, 200);
    let choices: Vec<Value> = text
        .split("\n\n")
        .filter_map(|e| serde_json::from_str::<Value>(e.strip_prefix("data: ")?).ok())
        .map(|event| event["choices"][0].clone())
        .collect();
    let content = choices
        .iter()
        .filter_map(|c| c["delta"]["content"].as_str());
    assert_eq!(content.collect::<String>(), "So:");
    let calls: Vec<&Value> = choices
        .iter()
        .filter_map(|c| c["delta"]["tool_calls"].get(0))
        .collect();
    assert_eq!(
        (calls[0]["index"].as_u64(), calls[1]["index"].as_u64()),
        (Some(0), Some(1))
    );
    assert_eq!(calls[1]["function"]["arguments"], "{\"a\":1}");
    assert_eq!(choices.last().unwrap()["finish_reason"], "tool_calls");
}

#[test]
fn a_call_that_must_be_ends_as_openais_do_and_its_rules_reach_the_engine() {
    let server = served(Some("t"), &[], None);
    let named = json!({"type": "function", "function": {"name": "add"}});
    for (choice, finish, n) in [(json!("required"), "tool_calls", 2), (named, "stop", 1)] {
        let asked = calling(&json!({"tool_choice": choice}));
        let (_, reply) = server.post("/v1/chat/completions", &asked);
        let choice = &reply["choices"][0];
        assert_eq!(choice["finish_reason"], finish);
        assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), n);
        let mut asked = asked;
        asked["stream"] = true.into();
        let (_, text) = server.ask("POST", "/v1/chat/completions", JSON, &asked.to_string());
        let last = text
            .split("\n\n")
            .filter(|event| event.contains("finish_reason"))
            .last();
        let last: Value =
            serde_json::from_str(last.unwrap().strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], finish);
    }
    let wanted: Vec<_> = server
        .commands
        .try_iter()
        .filter_map(|command| match command {
            Command::Generate { wanted, .. } => wanted.calls,
            _ => None,
        })
        .collect();
    assert_eq!(wanted.len(), 4);
    assert!(wanted.iter().all(|calls| calls.required));
    assert_eq!((wanted[0].one, wanted[2].one), (false, true));
    assert_eq!(wanted[2].function.as_deref(), Some("add"));
}
