//! Bodies of requests, right and wrong.

use super::*;
use crate::wire::Calling;
use serde_json::json;

fn read_as(endpoint: Endpoint, body: &Value) -> Result<Asked, String> {
    let body = body.to_string();
    read(endpoint, body.as_bytes(), &Defaults::default()).map_err(|wrong| wrong.what)
}

/// A chat with further fields.
fn chat(more: Value) -> Result<Asked, String> {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    read_as(Endpoint::Chat, &body)
}

#[test]
fn what_a_request_leaves_out_is_the_servers_default() {
    let asked = chat(json!({})).unwrap();
    let defaults = Sampling::default();
    assert_eq!(
        asked.prompts,
        [Prompt::Turns(vec![Turn::new("user", "hi")])]
    );
    assert_eq!((asked.n, asked.stream, asked.logprobs), (1, false, None));
    assert_eq!(asked.sampling.temperature, defaults.temperature);
    assert_eq!(
        asked.sampling.max_new_tokens, ANSWER,
        "an answer may be long"
    );
    let text = read_as(Endpoint::Completions, &json!({"prompt": "once"})).unwrap();
    assert_eq!(text.prompts, [Prompt::Text("once".into())]);
    assert_eq!(text.sampling.max_new_tokens, defaults.max_new_tokens);
    let limited = br#"{"messages": [{"role": "user", "content": "hi"}]}"#;
    let short = Defaults {
        limited: true,
        ..Defaults::default()
    };
    let limited = read(Endpoint::Chat, limited, &short).unwrap();
    assert_eq!(limited.sampling.max_new_tokens, defaults.max_new_tokens);
}

#[test]
fn sampling_settings_are_taken_by_their_names() {
    let asked = chat(json!({
        "model": "m", "temperature": 0, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1,
        "max_tokens": 7, "seed": 5, "stop": ["a", "b"], "n": 3, "stream": true,
        "stream_options": {"include_usage": true}, "logprobs": true,
        "user": "me", "frequency_penalty": 0.0, "response_format": {"type": "text"}, "logit_bias": null,
    }))
    .unwrap();
    let expected = Sampling {
        temperature: 0.0,
        top_k: 40,
        top_p: 0.9,
        min_p: 0.05,
        repetition_penalty: 1.1,
        max_new_tokens: 7,
        seed: 5,
        stop: vec!["a".into(), "b".into()],
        ..Sampling::default()
    };
    assert_eq!(asked.sampling, expected);
    assert_eq!(
        (asked.n, asked.stream, asked.usage_in_stream),
        (3, true, true)
    );
    assert_eq!(
        (asked.model.as_deref(), asked.logprobs),
        (Some("m"), Some(0))
    );
    let newer = chat(json!({"max_tokens": 7, "max_completion_tokens": 9.0})).unwrap();
    assert_eq!(newer.sampling.max_new_tokens, 9, "the newer name counts");
}

#[test]
fn answers_are_repeatable_where_the_request_or_the_server_has_a_seed() {
    for (asked, of_server, repeatable) in [
        (json!({"prompt": "a"}), None, false),
        (json!({"prompt": "a", "seed": null}), None, false),
        (json!({"prompt": "a", "seed": 3}), None, true),
        (json!({"prompt": "a"}), Some(4), true),
    ] {
        let defaults = Defaults {
            seed: of_server,
            ..Defaults::default()
        };
        let body = asked.to_string();
        let read = read(Endpoint::Completions, body.as_bytes(), &defaults).unwrap();
        assert_eq!(read.repeatable, repeatable, "{asked} {of_server:?}");
    }
}

#[test]
fn prompts_are_texts_or_token_ids_alone_or_in_lists() {
    let prompts = |prompt: Value| {
        let asked = read_as(Endpoint::Completions, &json!({"prompt": prompt}));
        asked.unwrap().prompts
    };
    let ids = |ids: &[u32]| Prompt::Tokens(ids.to_vec());
    assert_eq!(prompts(json!([1, 2])), [ids(&[1, 2])]);
    assert_eq!(prompts(json!([[1], [2, 3]])), [ids(&[1]), ids(&[2, 3])]);
    assert_eq!(prompts(json!(["a", "b"])), ["a".into(), "b".into()]);
    let asked = json!({"prompt": "a", "max_tokens": 0, "echo": true, "logprobs": 5});
    let asked = read_as(Endpoint::Completions, &asked).unwrap();
    assert_eq!(
        (asked.echo, asked.logprobs, asked.sampling.max_new_tokens),
        (true, Some(5), 0)
    );
}

#[test]
fn answers_have_the_form_that_is_asked_for() {
    let form = |format: Value| {
        chat(json!({"response_format": format}))
            .unwrap()
            .json_schema
    };
    assert_eq!(form(json!({"type": "text"})), None);
    assert_eq!(
        form(json!({"type": "json_object"})),
        Some(json!({"type": "object"}))
    );
    let schema = json!({"type": "array"});
    let strict = json!({"name": "n", "strict": true, "schema": schema});
    assert_eq!(
        form(json!({"type": "json_schema", "json_schema": strict})),
        Some(schema)
    );
}

#[test]
fn requests_without_a_seed_are_different_draws_unless_the_server_has_one() {
    let seed = |more| chat(more).unwrap().sampling.seed;
    assert_ne!(seed(json!({})), seed(json!({})));
    assert_eq!(seed(json!({"seed": -1})), u64::MAX);
    let with = Defaults {
        seed: Some(3),
        ..Defaults::default()
    };
    let body = br#"{"prompt": "a"}"#;
    let asked = read(Endpoint::Completions, body, &with).unwrap();
    assert_eq!(asked.sampling.seed, 3);
}

#[test]
fn messages_are_turns_whatever_the_form_of_their_content() {
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let asked = chat(json!({
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "4"},
        ],
        "tools": [tool],
    }))
    .unwrap();
    let [Prompt::WithTools { messages, tools }] = &asked.prompts[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(messages[0], Turn::new("system", "be brief"));
    assert_eq!(messages[1].extra["tool_calls"], json!([call]));
    assert_eq!(messages[2].extra["tool_call_id"], "1");
    assert_eq!(tools[..], std::slice::from_ref(&tool)[..]);
    let no_calls = json!({"messages": [{"role": "assistant", "content": "hi", "tool_calls": []}]});
    assert_eq!(
        chat(no_calls).unwrap().prompts,
        [Prompt::Turns(vec![Turn::new("assistant", "hi")])]
    );
    let none = chat(json!({"tools": [tool], "tool_choice": "none"})).unwrap();
    assert!(matches!(none.prompts[0], Prompt::Turns(_)));
}

#[test]
fn what_must_be_called_is_held_to_its_schema() {
    let tools = |strict: Value| {
        let f = json!({"type": "function", "function": {"name": "f", "strict": strict}});
        json!([f, {"name": "g"}])
    };
    let held = |more: Value| {
        let mut body = more;
        if body.get("tools").is_none() {
            body["tools"] = tools(Value::Null);
        }
        chat(body).unwrap().calls
    };
    let calling = |required, function: Option<&str>, one| {
        let function = function.map(String::from);
        Some(Calling {
            required,
            function,
            one,
        })
    };
    let allowed = |mode: &str, name: &str| {
        let tools = json!([{"type": "function", "function": {"name": name}}]);
        json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    };
    let form = json!({"type": "json_object"});
    let named = json!({"type": "function", "function": {"name": "g"}});
    for (more, expected) in [
        (json!({}), None),
        (json!({"tool_choice": "auto"}), None),
        (
            json!({"tool_choice": "none", "response_format": form}),
            None,
        ),
        (
            json!({"tool_choice": "required"}),
            calling(true, None, false),
        ),
        (
            json!({"tool_choice": "required", "parallel_tool_calls": false}),
            calling(true, None, true),
        ),
        (
            json!({"tool_choice": named}),
            calling(true, Some("g"), true),
        ),
        (
            json!({"response_format": form}),
            calling(false, None, false),
        ),
        (
            json!({"tools": tools(true.into()), "parallel_tool_calls": false}),
            calling(false, None, true),
        ),
        (json!({"tools": tools(false.into())}), None),
        (
            json!({"tool_choice": allowed("required", "f")}),
            calling(true, None, false),
        ),
        (json!({"tool_choice": allowed("auto", "g")}), None),
        (
            json!({"tool_choice": allowed("auto", "g"), "tools": tools(true.into())}),
            None,
        ),
    ] {
        let name = more.to_string();
        let calls = held(more);
        assert_eq!(calls.held, expected, "{name}");
        let is_named = name.contains(r#""tool_choice":{"type":"function""#);
        assert_eq!(calls.is_named, is_named, "{name}");
        let seen = json!(calls.tools).to_string();
        assert!(
            !seen.contains("strict"),
            "the model does not see it: {seen}"
        );
    }
}

#[test]
fn a_model_sees_only_the_tools_that_are_allowed() {
    let tools = json!([{"name": "f"}, {"type": "function", "function": {"name": "g"}}]);
    let allowed = json!([{"type": "function", "function": {"name": "g"}}]);
    let choice =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}});
    let calls = chat(json!({"tools": tools, "tool_choice": choice}))
        .unwrap()
        .calls;
    assert_eq!(json!(calls.tools), allowed);
}

#[test]
fn what_is_wrong_is_named_with_what_was_expected() {
    for (more, part) in [
        (
            json!({"temperature": -1}),
            "temperature: expected a number from 0 to 100, found -1",
        ),
        (
            json!({"temperature": "hot"}),
            "temperature: expected a number",
        ),
        (
            json!({"top_p": 0}),
            "top_p: expected a number from above 0 to 1",
        ),
        (
            json!({"max_tokens": 0}),
            "max_tokens: expected a whole number from 1 to 1000000",
        ),
        (
            json!({"max_tokens": 1.5}),
            "max_tokens: expected a whole number",
        ),
        (json!({"n": 0}), "n: expected a whole number from 1 to 128"),
        (
            json!({"max_tokens": 1_000_001}),
            "max_tokens: expected a whole number from 1 to 1000000",
        ),
        (json!({"seed": 0.5}), "seed: expected a whole number"),
        (
            json!({"stream_options": {"usage": true}}),
            "stream_options.usage: unknown",
        ),
        (
            json!({"stop": [""]}),
            "stop: an empty text would end every answer",
        ),
        (
            json!({"stop": [1]}),
            "stop: expected a text or a list of texts, found 1",
        ),
        (json!({"stream": "yes"}), "stream: expected true or false"),
        (
            json!({"frequency_penalty": 0.5}),
            "frequency_penalty: not supported; leave it out, or set it to 0",
        ),
        (
            json!({"response_format": {"type": "yaml"}}),
            "response_format: expected an object whose type is text, json_object or json_schema",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
            "response_format.json_schema.schema: expected an object, found null",
        ),
        (
            json!({"top_logprobs": 5}),
            "top_logprobs: needs logprobs, which must be true",
        ),
        (
            json!({"logprobs": true, "top_logprobs": 21}),
            "top_logprobs: expected a whole number from 0 to 20",
        ),
        (json!({"echo": true}), "echo: not supported"),
        (json!({"logit_bias": {"5": 1}}), "logit_bias: not supported"),
        (
            json!({"tool_choice": "required"}),
            "tool_choice: there are no tools to call",
        ),
        (
            json!({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [{"name": "f"}]}),
            "tool_choice: unknown tool g; available: f",
        ),
        (
            json!({"tool_choice": {"type": "custom"}, "tools": [{"name": "f"}]}),
            "tool_choice: expected `none`, `auto`, `required`, {\"type\": \"function\"",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools"}, "tools": [{"name": "f"}]}),
            "tool_choice.allowed_tools.mode: expected `auto` or `required`",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "g"}]}}, "tools": [{"name": "f"}]}),
            "tool_choice: unknown tool g; available: f",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "tools": [{"name": "f"}]}),
            "tool_choice.allowed_tools.tools: expected a list of functions",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}}, "tools": [{"name": "f"}]}),
            "tool_choice.allowed_tools.tools[0]: the function has no name",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}),
            "tools[0].function.strict: expected true or false",
        ),
        (
            json!({"temprature": 1}),
            "temprature: unknown; did you mean temperature?",
        ),
        (json!({"messages": []}), "messages: empty"),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]}),
            "messages[0]: the last message calls tools",
        ),
        (
            json!({"tools": [{"type": "function", "function": {}}]}),
            "tools[0].function.name: the function has no name",
        ),
        (
            json!({"parallel_tool_calls": "no"}),
            "parallel_tool_calls: expected true or false",
        ),
        (
            json!({"messages": ["hi"]}),
            "messages[0]: expected an object",
        ),
        (
            json!({"messages": [{"content": "hi"}]}),
            "messages[0].role: missing",
        ),
        (
            json!({"messages": [{"role": "usr", "content": "hi"}]}),
            "messages[0].role: unknown role `usr`; did you mean user?",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "parts of type image_url are not supported",
        ),
    ] {
        let wrong = chat(more).unwrap_err();
        assert!(wrong.contains(part), "{wrong}");
    }
    for (body, part) in [
        (json!({}), "prompt: missing"),
        (
            json!({"prompt": [1, -2]}),
            "prompt: expected a text, a list of token ids, or a list of these, found -2",
        ),
        (json!({"prompt": [[1], {}]}), "prompt: expected a text"),
        (json!({"prompt": [[1], []]}), "prompt[1]: no token ids"),
        (json!({"prompt": [[1, "a"]]}), "found \"a\""),
        (
            json!({"prompt": "a", "logprobs": 21}),
            "logprobs: expected a whole number from 0 to 20",
        ),
        (
            json!({"prompt": "a", "max_tokens": 0}),
            "max_tokens: expected a whole number from 1",
        ),
        (
            json!({"prompt": vec!["a"; 20], "n": 128}),
            "prompt: 20 prompts with 128 answers each; at most 2048 answers",
        ),
        (json!([]), "must be a JSON object"),
    ] {
        let wrong = read_as(Endpoint::Completions, &body).unwrap_err();
        assert!(wrong.contains(part), "{wrong}");
    }
    let broken = read(Endpoint::Chat, b"{", &Defaults::default()).unwrap_err();
    assert!(broken.what.contains("not JSON"), "{broken:?}");
}

#[test]
fn variables_of_the_template_are_passed_on() {
    let of = |more: Value| chat(more).map(|asked| Value::from(asked.template));
    assert_eq!(of(json!({})), Ok(json!({})));
    assert_eq!(
        of(json!({"reasoning_effort": "high"})),
        Ok(json!({"reasoning_effort": "high"}))
    );
    let both = json!({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false, "reasoning_effort": "high"}});
    assert_eq!(
        of(both),
        Ok(json!({"enable_thinking": false, "reasoning_effort": "low"}))
    );
    for (more, part) in [
        (
            json!({"reasoning_effort": 3}),
            "reasoning_effort: expected a text",
        ),
        (
            json!({"chat_template_kwargs": "x"}),
            "chat_template_kwargs: expected an object",
        ),
        (
            json!({"chat_template_kwargs": {"messages": []}}),
            "chat_template_kwargs.messages: the server sets it",
        ),
    ] {
        let why = of(more).unwrap_err();
        assert!(why.starts_with(part), "{why}");
    }
    let text = json!({"prompt": "x", "reasoning_effort": "high"});
    let why = read_as(Endpoint::Completions, &text).unwrap_err();
    assert!(why.starts_with("reasoning_effort: unknown"), "{why}");
}
