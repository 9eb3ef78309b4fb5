//! Answers with thoughts: in messages, as gpt-oss writes them, and behind `<think>`.

use super::*;

const THOUGHT: &str = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant";
const FINAL: &str = "<|channel|>final<|message|>It is 4.";
const CALL: &str = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}";

fn answer(text: &str) -> Vec<Event> {
    answer_in("harmony", text)
}

fn answer_in(word: &str, text: &str) -> Vec<Event> {
    let prompted = Event::Prompted {
        command: 0,
        text: "<|start|>assistant".into(),
        prompt_tokens: 10,
        tool_calls: Some(word.into()),
    };
    let pieces = text.as_bytes().chunks(3);
    let pieces = pieces.map(|piece| token(0, std::str::from_utf8(piece).unwrap()));
    let mut events = vec![prompted];
    events.extend(pieces);
    events.push(end(StopReason::Stop));
    events
}

#[test]
fn a_terminal_shows_the_thought_before_the_answer_and_a_pipe_gets_the_answer() {
    let written = format!("{THOUGHT}{FINAL}");
    let said = |terminal| {
        let options = ChatOptions {
            terminal,
            ..ChatOptions::default()
        };
        let heard = talked(Some("t"), vec![answer(&written)], options, &["2 + 2?"]);
        heard.result.unwrap();
        heard.out
    };
    assert_eq!(said(true), "thinking: Easy.\n\nIt is 4.\n");
    assert_eq!(said(false), "It is 4.\n");
}

#[test]
fn json_has_thought_text_and_calls_apart() {
    let options = ChatOptions {
        json: true,
        tools: vec![json!({"name": "add"})],
        ..ChatOptions::default()
    };
    let answers = vec![
        answer(&format!("{THOUGHT}{CALL}")),
        answer(&format!("{THOUGHT}{FINAL}")),
    ];
    let heard = talked(Some("t"), answers, options, &["1?", "/tool 4"]);
    heard.result.unwrap();
    let objects: Vec<Value> = heard
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects[0]["text"], "");
    assert_eq!(objects[0]["reasoning_content"], "Easy.");
    assert_eq!(
        objects[0]["tool_calls"][0]["function"],
        json!({"name": "add", "arguments": {"a": 1}})
    );
    assert_eq!(
        (&objects[1]["text"], &objects[1]["reasoning_content"]),
        (&json!("It is 4."), &json!("Easy."))
    );
    // The thought goes back: the template says what of it is written.
    let Command::Generate {
        prompt: Prompt::WithTools { messages, .. },
        ..
    } = &heard.asked[1]
    else {
        panic!("{:?}", heard.asked)
    };
    assert_eq!(messages[1].content, "");
    assert_eq!(messages[1].extra["reasoning_content"], "Easy.");
    assert_eq!(
        messages[1].extra["tool_calls"][0]["function"]["name"],
        "add"
    );
    assert_eq!(
        (messages[2].role.as_str(), messages[2].content.as_str()),
        ("tool", "4")
    );
}

#[test]
fn a_thought_in_the_text_stands_before_the_answer() {
    const CALL: &str = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    for (word, begun) in [("think+hermes", "<think>\n"), ("thinking+hermes", "")] {
        let said = |terminal, json, text: &str| {
            let options = ChatOptions {
                terminal,
                json,
                tools: vec![json!({"name": "add"})],
                ..ChatOptions::default()
            };
            let written = format!("{begun}Easy.\n</think>\n\n{text}");
            let heard = talked(Some("t"), vec![answer_in(word, &written)], options, &["?"]);
            heard.result.unwrap();
            heard.out
        };
        assert_eq!(
            said(true, false, "It is 4."),
            "thinking: Easy.\n\nIt is 4.\n"
        );
        assert_eq!(said(false, false, "It is 4."), "It is 4.\n");
        assert_eq!(said(true, false, CALL), "thinking: Easy.\ncall add\n");
        // A pipe gets a call as the model wrote it.
        assert_eq!(said(false, false, CALL), format!("{CALL}\n"));
        let object: Value = serde_json::from_str(&said(false, true, CALL)).unwrap();
        assert_eq!(object["text"], "");
        assert_eq!(object["reasoning_content"], "Easy.");
        assert_eq!(object["tool_calls"][0]["function"]["name"], "add");
    }
}
