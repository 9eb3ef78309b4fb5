//! Answers as server-sent events: their pieces, and readers that go away or take nothing.

use super::*;

#[test]
fn a_stream_has_an_event_for_each_token_and_an_end() {
    let server = served(Some("t"), &[], None);
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let (status, text) = server.ask(
        "POST",
        "/v1/chat/completions",
        JSON,
        &body(&more).to_string(),
    );
    assert_eq!(status, 200);
    let events: Vec<&str> = text
        .split("\n\n")
        .filter_map(|e| e.strip_prefix("data: "))
        .collect();
    assert_eq!(events.last(), Some(&"[DONE]"), "{text}");
    let values: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(values[0]["choices"][0]["delta"]["role"], "assistant");
    let written: Vec<&str> = values[1..4]
        .iter()
        .map(|value| value["choices"][0]["delta"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(written, ["c", "b", "a"]);
    assert_eq!(values[4]["choices"][0]["finish_reason"], "stop");
    assert_eq!(values[5]["usage"]["completion_tokens"], 3);
    assert_eq!(values.len(), 6);
}

#[test]
fn a_reader_that_goes_away_ends_its_answer() {
    let server = served(None, &[], None);
    let asked = json!({"prompt": ENDLESS, "stream": true}).to_string();
    let mut stream = server.begin("POST", "/v1/completions", JSON, &asked);
    let mut first = [0; 64];
    stream.read_exact(&mut first).unwrap();
    drop(stream);
    let commands: Vec<Command> = server.commands.iter().take(2).collect();
    assert!(
        matches!(commands[1], Command::Cancel { .. }),
        "{commands:?}"
    );
    let (status, _) = server.post("/v1/completions", &json!({"prompt": "next"}));
    assert_eq!(status, 200, "the next one is answered");
}

#[test]
fn a_reader_that_takes_nothing_ends_its_answer_and_hears_of_it() {
    let server = served_with(None, &[], None, Duration::from_millis(100));
    let asked = json!({"prompt": ENDLESS, "stream": true}).to_string();
    let mut stream = server.begin("POST", "/v1/completions", JSON, &asked);
    let wait = Duration::from_secs(60);
    let mut commands = (0..2).map(|_| server.commands.recv_timeout(wait).unwrap());
    assert!(matches!(commands.next(), Some(Command::Generate { .. })));
    assert!(matches!(commands.next(), Some(Command::Cancel { .. })));
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("the reader was too slow"));
    assert!(!reply.contains("[DONE]"));
}

#[test]
fn pieces_that_end_without_a_last_one_are_an_error_and_no_wait() {
    let (link, _commands) = engine(None, &[]);
    let model = Arc::new(Model::start(link, "tiny", 0).unwrap());
    let (send, pieces) = mpsc::unbounded_channel();
    drop(send);
    let echo = answer::Echo::default();
    let mut answer = answer::Answer::begin("a".into(), true, model, pieces, None, echo);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let next = async { tokio::time::timeout(Duration::from_secs(10), answer.next()).await };
    let next = runtime.block_on(next).expect("it waits for ever");
    assert!(matches!(next, Err(failed::Failed::Slow)));
}
