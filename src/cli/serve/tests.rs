//! The server with a scripted engine, over real sockets.

mod access;
mod calls;
mod engine;
mod failures;
mod logprobs;
mod messages;
mod parallel;
mod streams;

use super::*;
use crate::base::clock::UnixMillis;
use crate::link::{Incoming, Link};
use crate::wire::{
    Command, Envelope, Event, LikelyToken, Num, Prompt, PromptToken, StopReason, VERSION,
};
use engine::*;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc as std_mpsc;
use tokio::sync::mpsc;

/// A served model: its address, and the commands that its engine gets.
struct Served {
    at: SocketAddr,
    commands: std_mpsc::Receiver<Command>,
}

fn served(template: Option<&str>, adapters: &[&str], key: Option<&str>) -> Served {
    served_with(template, adapters, key, model::SLOW)
}

/// With a time that streams wait for a reader that takes nothing.
fn served_with(
    template: Option<&str>,
    adapters: &[&str],
    key: Option<&str>,
    slow: Duration,
) -> Served {
    let (link, commands) = engine(template, adapters);
    served_over(link, commands, key, slow, adapters.len())
}

fn served_over(
    link: Link,
    commands: std_mpsc::Receiver<Command>,
    key: Option<&str>,
    slow: Duration,
    named: usize,
) -> Served {
    let server = routes::Server {
        model: Arc::new(Model::start(link, "tiny", named).unwrap()),
        defaults: Defaults::default(),
        access: Access::of(None, key).unwrap(),
        clock: crate::base::clock::SystemClock::new(),
        slow,
    };
    let (send, at) = std_mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            axum::serve(listener, routes::router(server)).await.unwrap();
        });
    });
    Served {
        at: at.recv().unwrap(),
        commands,
    }
}

impl Served {
    fn begin(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// Status and body; chunks of a stream are put together.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut reply = String::new();
        self.begin(method, path, headers, body)
            .read_to_string(&mut reply)
            .unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
            true => body.split("\r\n").skip(1).step_by(2).collect(),
            false => body.to_string(),
        };
        (status, body)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.ask("POST", path, JSON, &body.to_string());
        (status, serde_json::from_str(&text).unwrap())
    }

    fn chat(&self, more: &Value) -> (u16, Value) {
        self.post("/v1/chat/completions", &body(more))
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

fn body(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "abc"}]});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn error(reply: &(u16, Value)) -> (u16, &str) {
    (reply.0, reply.1["error"]["message"].as_str().unwrap())
}

#[test]
fn a_chat_gets_one_answer_with_its_count_of_tokens() {
    let server = served(Some("t"), &[], None);
    let (status, reply) = server.chat(&json!({"logprobs": true, "seed": 4}));
    assert_eq!((status, &reply["object"]), (200, &json!("chat.completion")));
    assert_eq!(reply["model"], "tiny");
    let choice = &reply["choices"][0];
    assert_eq!(
        choice["message"],
        json!({"role": "assistant", "content": "cba"})
    );
    assert_eq!(choice["finish_reason"], "stop");
    let token = json!({"token": "c", "logprob": -0.5, "bytes": [99], "top_logprobs": []});
    assert_eq!(choice["logprobs"]["content"][0], token);
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6});
    assert_eq!(reply["usage"], usage);
    let Command::Generate { sampling, .. } = server.commands.recv().unwrap() else {
        panic!("the engine was asked for something else");
    };
    assert_eq!(sampling.seed, 4);
}

#[test]
fn texts_are_completed_each_n_times() {
    let server = served(None, &[], None);
    let asked = json!({"prompt": ["ab", "cde"], "n": 2, "seed": 10, "logprobs": 0});
    let (status, reply) = server.post("/v1/completions", &asked);
    assert_eq!((status, &reply["object"]), (200, &json!("text_completion")));
    let texts: Vec<&str> = (0..4)
        .map(|i| reply["choices"][i]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["ba", "ba", "edc", "edc"]);
    assert_eq!(
        reply["choices"][2]["logprobs"]["text_offset"],
        json!([0, 1, 2])
    );
    assert_eq!(reply["usage"]["prompt_tokens"], 6, "each prompt once");
    let seeds: Vec<u64> = server
        .commands
        .try_iter()
        .map(|command| match command {
            Command::Generate { sampling, .. } => sampling.seed,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seeds, [10, 11, 12, 13]);
}

#[test]
fn the_name_of_an_adapter_chooses_it() {
    let server = served(Some("t"), &["poet", "lawyer"], None);
    let names = server.ask("GET", "/v1/models", "", "").1;
    let names: Value = serde_json::from_str(&names).unwrap();
    let ids: Vec<&str> = (0..3)
        .map(|i| names["data"][i]["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["tiny", "poet", "lawyer"]);
    assert_eq!(server.ask("GET", "/v1/models/poet", "", "").0, 200);
    assert_eq!(server.ask("GET", "/v1/models/painter", "", "").0, 404);
    for (model, switched) in [
        ("poet", None),
        ("lawyer", Some(Some("lawyer".to_string()))),
        ("tiny", Some(None)),
    ] {
        let (status, reply) = server.chat(&json!({"model": model}));
        assert_eq!((status, reply["model"].as_str()), (200, Some(model)));
        let adapter = server
            .commands
            .try_iter()
            .find_map(|command| match command {
                Command::UseAdapter { name } => Some(name),
                _ => None,
            });
        assert_eq!(adapter, switched, "{model}");
    }
    let unknown = server.chat(&json!({"model": "gpt-4"}));
    assert_eq!(
        error(&unknown),
        (404, "unknown model gpt-4; available: tiny, poet, lawyer")
    );
}

/// A run with an adapter answers as it was trained, asked by its name or by none; its base has a name of its own.
#[test]
fn a_run_with_its_own_adapter_is_served_tuned() {
    let (link, commands) = engine(Some("t"), &["poet", "2026-12-01-tiny"]);
    let server = served_over(link, commands, None, model::SLOW, 1);
    let names = server.ask("GET", "/v1/models", "", "").1;
    let names: Value = serde_json::from_str(&names).unwrap();
    let ids: Vec<&str> = (0..3)
        .map(|i| names["data"][i]["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["tiny", "tiny-base", "poet"]);
    let own = Some("2026-12-01-tiny".to_string());
    for (asked, said, switched) in [
        (json!({}), "tiny", Some(own)),
        (json!({"model": "tiny"}), "tiny", None),
        (json!({"model": "tiny-base"}), "tiny-base", Some(None)),
        (
            json!({"model": "poet"}),
            "poet",
            Some(Some("poet".to_string())),
        ),
    ] {
        let (status, reply) = server.chat(&asked);
        assert_eq!((status, reply["model"].as_str()), (200, Some(said)));
        let adapter = server
            .commands
            .try_iter()
            .find_map(|command| match command {
                Command::UseAdapter { name } => Some(name),
                _ => None,
            });
        assert_eq!(adapter, switched, "{asked}");
    }
}

/// A run named by its folder is called like its own adapter, which has no name of its own here; another adapter may not be.
#[test]
fn names_that_meet_are_refused_unless_it_is_the_runs_own() {
    let (link, _) = engine(None, &["tiny"]);
    let model = Model::start(link, "tiny", 0).unwrap();
    assert_eq!(model.adapter_named("tiny"), Some(Some("tiny".into())));
    for taken in ["tiny", "tiny-base"] {
        let (link, _) = engine(None, &[taken, "own"]);
        let refused = Model::start(link, "tiny", 1).err().unwrap();
        let refused = refused.to_string();
        assert!(
            refused.contains(&format!("both called {taken}")),
            "{refused}"
        );
    }
}

#[test]
fn the_name_is_that_of_the_file_or_the_hub_id() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("Tiny.Q4_1.gguf");
    std::fs::write(&file, "").unwrap();
    assert_eq!(name_of(file.to_str().unwrap()), "Tiny.Q4_1");
    assert_eq!(name_of("org/name"), "org/name");
}
