//! Every format writes what it can say and refuses the rest with a reason.

use super::*;
use serde_json::json;

fn chat(turns: &[(&str, &str)]) -> Example {
    let messages = turns.iter().map(|(r, t)| Message::new(*r, *t)).collect();
    Example::new(Content::Chat(messages))
}

fn pair() -> Example {
    Example::new(Content::Preference {
        prompt: Turns::Messages(vec![Message::new("user", "q")]),
        chosen: Turns::Messages(vec![Message::new("assistant", "good")]),
        rejected: Turns::Text("bad".into()),
    })
}

fn written(id: &str, example: &Example) -> Result<Value, String> {
    find(id).unwrap().write(example).map(Value::Object)
}

#[test]
fn a_conversation_in_every_format_that_can_say_it() {
    let example = chat(&[
        ("system", "be kind"),
        ("user", "hi"),
        ("assistant", "hello"),
        ("user", "bye"),
        ("assistant", "bye bye"),
    ]);
    let messages = written("messages", &example).unwrap();
    assert_eq!(messages["messages"][4]["content"], "bye bye");
    let sharegpt = written("sharegpt", &example).unwrap();
    assert_eq!(sharegpt["system"], "be kind");
    assert_eq!(
        sharegpt["conversations"][0],
        json!({"from": "human", "value": "hi"})
    );
    assert_eq!(sharegpt["conversations"].as_array().unwrap().len(), 4);
    assert_eq!(
        written("alpaca", &example).unwrap(),
        json!({"instruction": "bye", "input": "", "output": "bye bye", "system": "be kind", "history": [["hi", "hello"]]})
    );
    assert!(
        written("prompt_completion", &example)
            .unwrap_err()
            .contains("5 turns")
    );
    assert!(
        written("text", &example)
            .unwrap_err()
            .contains("chat template")
    );
}

#[test]
fn pairs_labels_and_prompts_keep_their_columns() {
    let pair = pair();
    assert_eq!(
        written("prompt_completion", &pair).unwrap(),
        json!({"prompt": "q", "chosen": "good", "rejected": "bad"})
    );
    assert_eq!(
        written("sharegpt", &pair).unwrap(),
        json!({
            "conversations": [{"from": "human", "value": "q"}],
            "chosen": {"from": "gpt", "value": "good"},
            "rejected": {"from": "gpt", "value": "bad"},
        })
    );
    assert_eq!(written("alpaca", &pair).unwrap()["rejected"], "bad");
    assert_eq!(
        written("messages", &pair).unwrap()["rejected"][0]["role"],
        "assistant"
    );
    let judged = Example::new(Content::Labelled {
        prompt: Turns::Text("q".into()),
        completion: Turns::Text("a".into()),
        desirable: false,
    });
    assert_eq!(written("alpaca", &judged).unwrap()["kto_tag"], false);
    assert_eq!(written("messages", &judged).unwrap()["label"], false);
    let prompt = Example::new(Content::Prompt {
        prompt: Turns::Text("2 + 2".into()),
        answer: Some("4".into()),
    });
    for id in ["messages", "sharegpt", "alpaca", "prompt_completion"] {
        assert_eq!(written(id, &prompt).unwrap()["answer"], "4", "{id}");
    }
}

#[test]
fn tools_go_where_there_is_a_place_for_them() {
    let mut call = Message::new("assistant", "");
    let calls = json!([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
    call.extra.insert("tool_calls".into(), calls);
    let mut example = Example::new(Content::Chat(vec![
        Message::new("user", "go"),
        call,
        Message::new("tool", "done"),
        Message::new("assistant", "it is done"),
    ]));
    example.tools = Some(json!([{"name": "f"}]));
    let sharegpt = written("sharegpt", &example).unwrap();
    assert_eq!(sharegpt["conversations"][1]["from"], "function_call");
    assert_eq!(
        sharegpt["conversations"][1]["value"],
        r#"{"name":"f","arguments":{"x":1}}"#
    );
    assert_eq!(sharegpt["conversations"][2]["from"], "observation");
    assert_eq!(
        written("messages", &example).unwrap()["tools"][0]["name"],
        "f"
    );
    assert!(written("alpaca", &example).unwrap_err().contains("tools"));
    example.tools = None;
    assert!(written("alpaca", &example).is_err());
}

#[test]
fn unclaimed_columns_are_carried_along_and_plain_text_stays_text() {
    let mut example = Example::new(Content::Text("hello".into()));
    example.extra.insert("url".into(), "x".into());
    assert_eq!(
        written("text", &example).unwrap(),
        json!({"text": "hello", "url": "x"})
    );
    for id in ["messages", "sharegpt", "alpaca", "prompt_completion"] {
        assert!(written(id, &example).is_err(), "{id}");
    }
}
