//! Every format writes what it can represent and rejects the rest with a reason.

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
    let columns = written("prompt_completion", &example).unwrap();
    let roles = |column: &str| -> Vec<String> {
        let turns = columns[column].as_array().unwrap().iter();
        turns
            .map(|turn| turn["role"].as_str().unwrap().into())
            .collect()
    };
    assert_eq!(roles("prompt"), ["system", "user", "assistant", "user"]);
    assert_eq!(
        columns["completion"],
        json!([{"role": "assistant", "content": "bye bye"}])
    );
    let changes = |id: &str| find(id).unwrap().changes(&example);
    for id in ["prompt_completion", "alpaca"] {
        let [earlier, behind] = changes(id)[..] else {
            panic!("{id}: {:?}", changes(id));
        };
        assert!(earlier.contains("only the last one"), "{id}");
        assert!(behind.contains("behind the last answer"), "{id}");
    }
    for id in ["messages", "sharegpt"] {
        assert!(changes(id).is_empty(), "{id}");
    }
    // And back: of a prompt's turns only the completion was trained on.
    let (question, answer) = (Message::new("user", "q"), Message::new("assistant", "a"));
    let prompt = vec![question.clone(), answer.clone(), question];
    let completed = Example::new(Content::Completion {
        prompt: Turns::Messages(prompt),
        completion: Turns::Messages(vec![answer]),
    });
    for id in ["messages", "sharegpt"] {
        let told = find(id).unwrap().changes(&completed).join("; ");
        assert!(
            told.contains("no longer trained on; earlier answers"),
            "{told}"
        );
    }
    assert!(find("alpaca").unwrap().changes(&completed).is_empty());
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
        json!({
            "prompt": [{"role": "user", "content": "q"}],
            "chosen": [{"role": "assistant", "content": "good"}],
            "rejected": [{"role": "assistant", "content": "bad"}],
        })
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
fn a_question_and_its_answer_stay_turns_and_texts_stay_texts() {
    let example = chat(&[("user", "hi"), ("assistant", "hello")]);
    assert_eq!(
        written("prompt_completion", &example).unwrap(),
        json!({
            "prompt": [{"role": "user", "content": "hi"}],
            "completion": [{"role": "assistant", "content": "hello"}],
        })
    );
    let told = find("prompt_completion").unwrap().changes(&example);
    assert!(
        told.len() == 1 && told[0].contains("line break"),
        "{told:?}"
    );
    let mut texts = Example::new(Content::Completion {
        prompt: Turns::Text("2 + 2 = ".into()),
        completion: Turns::Text("4".into()),
    });
    let columns = json!({"prompt": "2 + 2 = ", "completion": "4"});
    assert_eq!(written("prompt_completion", &texts).unwrap(), columns);
    assert!(
        find("prompt_completion")
            .unwrap()
            .changes(&texts)
            .is_empty()
    );
    for id in ["messages", "sharegpt", "alpaca"] {
        let said = find(id).unwrap().changes(&texts).join("; ");
        assert!(said.contains("a chat template will wrap"), "{id}: {said}");
    }
    texts.tools = Some(json!([{"name": "f"}]));
    assert!(
        written("prompt_completion", &texts)
            .unwrap_err()
            .contains("tools")
    );
    for (turns, why) in [
        (
            vec![("user", "hi"), ("assistant", "hello"), ("user", "bye")],
            "ends with a turn of user",
        ),
        (vec![("assistant", "hello")], "precedes its answer"),
    ] {
        let refused = written("prompt_completion", &chat(&turns)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

/// Read back as no system prompt at all, it got the template's own.
#[test]
fn an_empty_system_prompt_stays_one_or_is_refused() {
    let example = chat(&[("system", ""), ("user", "hi"), ("assistant", "hello")]);
    let sharegpt = written("sharegpt", &example).unwrap();
    assert_eq!(
        sharegpt["conversations"][0],
        json!({"from": "system", "value": ""})
    );
    assert!(sharegpt.get("system").is_none(), "{sharegpt}");
    let refused = written("alpaca", &example).unwrap_err();
    assert!(refused.contains("empty system prompt"), "{refused}");
    let columns = written("prompt_completion", &example).unwrap();
    assert_eq!(
        columns["prompt"][0],
        json!({"role": "system", "content": ""})
    );
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
    let columns = written("prompt_completion", &example).unwrap();
    assert_eq!(columns["tools"][0]["name"], "f");
    assert!(columns["prompt"][1]["tool_calls"].is_array(), "{columns}");
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
