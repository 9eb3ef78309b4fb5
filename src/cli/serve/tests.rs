//! The server with a scripted engine, over real sockets.

mod calls;
mod parallel;
mod streams;

use super::*;
use crate::base::clock::UnixMillis;
use crate::link::{Incoming, Link};
use crate::wire::{
    Command, Envelope, Event, LikelyToken, Num, Prompt, PromptToken, StopReason, VERSION,
};
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

/// Tokens of an answer that only ends when it is cancelled.
const ENDLESS: &str = "endless";

/// A prompt that the model cannot compute.
const BREAKS: &str = "break";

/// A prompt that ends the engine.
const DIES: &str = "die";

/// An engine that answers with its prompt's letters, reversed; with those in their order where there are tools.
fn engine(template: Option<&str>, adapters: &[&str]) -> (Link, std_mpsc::Receiver<Command>) {
    let (send, incoming) = mpsc::channel(64);
    let (commands, mut inbox) = mpsc::channel(4);
    let link = Link::new(incoming, Some(commands));
    let loaded = loaded(template, adapters, None);
    let (seen, asked) = std_mpsc::channel();
    std::thread::spawn(move || {
        let say = |event| {
            let envelope = Envelope {
                v: VERSION,
                seq: 1,
                t: UnixMillis(0),
                event,
            };
            let _ = send.blocking_send(Incoming::Event(Box::new(envelope)));
        };
        say(loaded);
        while let Some(request) = inbox.blocking_recv() {
            let _ = seen.send(request.command.clone());
            match request.command {
                Command::UseAdapter { name } => say(Event::AdapterUsed {
                    command: request.id,
                    name,
                }),
                Command::Generate {
                    prompt,
                    sampling,
                    wanted,
                } => {
                    let text = said(&prompt);
                    if text == DIES {
                        let why = Some("llmtui: out of memory".into());
                        let _ = send.blocking_send(Incoming::Closed(why));
                        return;
                    }
                    if text == "refuse" {
                        say(Event::Rejected {
                            id: request.id,
                            why: "it is too long".into(),
                        });
                        continue;
                    }
                    if text == BREAKS {
                        say(Event::Generated {
                            command: request.id,
                            n_tokens: 0,
                            prompt_tokens: 3,
                            kept_tokens: 0,
                            seconds: 0.5,
                            prefill_seconds: 0.0,
                            reason: StopReason::Failed,
                            message: "the model cannot compute: out of memory".into(),
                            broken: true,
                        });
                        continue;
                    }
                    let token = |text: String| Event::Token {
                        command: request.id,
                        logprob: Num(-0.5),
                        entropy: None,
                        id: Some(7),
                        bytes: wanted.logprobs.map(|_| text.clone().into_bytes()),
                        top: alternatives(wanted.logprobs.unwrap_or(0)),
                        text,
                    };
                    let mut reason = StopReason::Stop;
                    if text == ENDLESS {
                        reason = StopReason::Cancelled;
                        while inbox.try_recv().is_err() {
                            say(token("x".into()));
                        }
                        let _ = seen.send(Command::Cancel { target: request.id });
                    }
                    if wanted.prompt_logprobs {
                        let token = |(at, c): (usize, char)| PromptToken {
                            id: 5,
                            bytes: c.to_string().into_bytes(),
                            logprob: (at > 0).then_some(Num(-0.25)),
                            top: alternatives(if at > 0 {
                                wanted.logprobs.unwrap_or(0)
                            } else {
                                0
                            }),
                        };
                        say(Event::PromptScored {
                            command: request.id,
                            tokens: text.chars().enumerate().map(token).collect(),
                        });
                    }
                    let mut letters: Vec<char> = text.chars().rev().collect();
                    if matches!(prompt, Prompt::WithTools { .. }) {
                        letters.reverse();
                        say(Event::Prompted {
                            command: request.id,
                            text: text.clone(),
                            prompt_tokens: 3,
                            tool_calls: Some("hermes".into()),
                        });
                    }
                    if letters.len() > sampling.max_new_tokens {
                        letters.truncate(sampling.max_new_tokens);
                        reason = StopReason::Length;
                    }
                    for letter in letters {
                        say(token(letter.to_string()));
                    }
                    say(Event::Generated {
                        command: request.id,
                        n_tokens: text.len() as u64,
                        prompt_tokens: 3,
                        kept_tokens: 0,
                        seconds: 0.5,
                        prefill_seconds: 0.1,
                        reason,
                        message: String::new(),
                        broken: false,
                    });
                }
                _ => {}
            }
        }
    });
    (link, asked)
}

fn loaded(template: Option<&str>, adapters: &[&str], parallel: Option<u64>) -> Event {
    Event::Loaded {
        architecture: "llama".into(),
        n_params: 1,
        vocab_size: 1,
        context: 64,
        template: template.map(String::from),
        quantized: None,
        kv_cache: None,
        seconds: 0.1,
        notes: Vec::new(),
        adapters: adapters.iter().map(|a| (*a).to_string()).collect(),
        stop: Vec::new(),
        trained_by: None,
        parallel,
    }
}

/// The first is a part of a character, and the second its other part.
fn alternatives(n: usize) -> Vec<LikelyToken> {
    let of = |(id, bytes): (u32, &[u8])| LikelyToken {
        id,
        logprob: Num(-0.125 * f64::from(id)),
        bytes: bytes.to_vec(),
    };
    let all: [(u32, &[u8]); 3] = [(1, &[0xc3]), (2, &[0xa4]), (3, b"z")];
    all.into_iter().map(of).take(n).collect()
}

fn said(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(ids) => format!("{ids:?}"),
        Prompt::Turns(messages) | Prompt::WithTools { messages, .. } => messages
            .last()
            .map(|turn| turn.content.clone())
            .unwrap_or_default(),
    }
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
    served_over(link, commands, key, slow)
}

fn served_over(
    link: Link,
    commands: std_mpsc::Receiver<Command>,
    key: Option<&str>,
    slow: Duration,
) -> Served {
    let server = routes::Server {
        model: Arc::new(Model::start(link, "tiny".into()).unwrap()),
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
fn tokens_have_alternatives_with_the_bytes_of_parts_of_characters() {
    let server = served(Some("t"), &[], None);
    let (_, reply) = server.chat(&json!({"logprobs": true, "top_logprobs": 2}));
    let first = &reply["choices"][0]["logprobs"]["content"][0];
    assert_eq!(
        (&first["token"], &first["bytes"]),
        (&json!("c"), &json!([99]))
    );
    let top = json!([
        {"token": "bytes:\\xc3", "logprob": -0.125, "bytes": [0xc3]},
        {"token": "bytes:\\xa4", "logprob": -0.25, "bytes": [0xa4]},
    ]);
    assert_eq!(first["top_logprobs"], top);
    let asked = json!({"prompt": "abz", "logprobs": 3});
    let (_, reply) = server.post("/v1/completions", &asked);
    let logprobs = &reply["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["z", "b", "a"]));
    let with_itself = json!({"bytes:\\xc3": -0.125, "bytes:\\xa4": -0.25, "z": -0.375, "b": -0.5});
    assert_eq!(logprobs["top_logprobs"][1], with_itself);
    let once = &logprobs["top_logprobs"][0];
    assert_eq!(once["z"], -0.375, "of two of the same text the likelier");
}

/// As lm-evaluation-harness asks for the log-likelihood of an answer, and reads it.
#[test]
fn an_echo_has_the_log_probabilities_of_the_prompt() {
    let server = served(None, &[], None);
    let asked = json!({"prompt": ["xä", [1, 2]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true});
    let (status, reply) = server.post("/v1/completions", &asked);
    assert_eq!(status, 200, "{reply}");
    let choice = &reply["choices"][0];
    assert_eq!(choice["text"], "xää", "the prompt, and one token");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["x", "ä", "ä"]));
    assert_eq!(logprobs["token_logprobs"], json!([null, -0.25, -0.5]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    assert_eq!(logprobs["top_logprobs"][0], Value::Null);
    assert_eq!(
        logprobs["top_logprobs"][1],
        json!({"bytes:\\xc3": -0.125, "ä": -0.25})
    );
    // The scripted engine's text for token ids is their list.
    assert_eq!(reply["choices"][1]["text"], "[1, 2]]");
    let Command::Generate { prompt, wanted, .. } = server.commands.try_iter().nth(1).unwrap()
    else {
        panic!("the engine was asked for something else");
    };
    assert_eq!(
        (prompt, wanted.logprobs, wanted.prompt_logprobs),
        (Prompt::Tokens(vec![1, 2]), Some(1), true)
    );
    let nothing_new = json!({"prompt": "ab", "max_tokens": 0, "logprobs": 0, "echo": true});
    let (_, reply) = server.post("/v1/completions", &nothing_new);
    let choice = &reply["choices"][0];
    assert_eq!(
        (&choice["text"], &choice["finish_reason"]),
        (&json!("ab"), &json!("length"))
    );
    assert_eq!(choice["logprobs"]["token_logprobs"], json!([null, -0.25]));
    assert_eq!(choice["logprobs"]["top_logprobs"], Value::Null);
    let without = json!({"prompt": "ab", "max_tokens": 1, "echo": true});
    let (_, reply) = server.post("/v1/completions", &without);
    assert_eq!(reply["choices"][0]["text"], "abb");
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
        (404, "model: there is no gpt-4; there is tiny, poet, lawyer")
    );
}

#[test]
fn what_cannot_be_answered_says_why() {
    let server = served(None, &[], None);
    let chat = server.chat(&json!({}));
    assert_eq!(
        error(&chat),
        (400, "this model has no chat template: use /v1/completions")
    );
    let refused = server.post("/v1/completions", &json!({"prompt": "refuse"}));
    assert_eq!(error(&refused), (400, "it is too long"));
    let broken = server.post("/v1/completions", &json!({"prompt": BREAKS}));
    assert_eq!(
        error(&broken),
        (500, "the model cannot compute: out of memory")
    );
    assert_eq!(broken.1["error"]["type"], "server_error");
    for (method, path, headers, body, status, part) in [
        ("POST", "/v1/completions", "", "{}", 400, "Content-Type"),
        ("POST", "/v1/completions", JSON, "{", 400, "not JSON"),
        ("GET", "/v1/completions", "", "", 405, "does not take GET"),
        (
            "POST",
            "/v1/embeddings",
            JSON,
            "{}",
            404,
            "there is no POST /v1/embeddings",
        ),
    ] {
        let (found, text) = server.ask(method, path, headers, body);
        assert_eq!(found, status, "{text}");
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn pages_of_other_sites_get_no_answer() {
    let server = served(None, &[], None);
    for (headers, status) in [
        ("Origin: http://localhost:3000\r\n", 200),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        let (found, _) = server.ask("GET", "/v1/models", headers, "");
        assert_eq!(found, status, "{headers}");
    }
    let mut stream = TcpStream::connect(server.at).unwrap();
    let asked = "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    stream.write_all(asked.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
}

#[test]
fn a_stream_that_is_refused_has_the_status_of_the_refusal() {
    let server = served(None, &[], None);
    let asked = json!({"prompt": "refuse", "stream": true});
    let refused = server.post("/v1/completions", &asked);
    assert_eq!(error(&refused), (400, "it is too long"));
    let long = json!({"prompt": "a".repeat(1 << 20), "stream": true});
    let refused = server.post("/v1/completions", &long);
    let (status, what) = error(&refused);
    assert_eq!(status, 400);
    assert!(what.contains("too long to send"), "{what}");
    let (status, _) = server.post("/v1/completions", &json!({"prompt": "next"}));
    assert_eq!(status, 200);
}

#[test]
fn a_model_whose_process_is_gone_is_said_to_be_in_every_reply() {
    let server = served(None, &[], None);
    for _ in 0..2 {
        let reply = server.post("/v1/completions", &json!({"prompt": DIES}));
        let (status, what) = error(&reply);
        assert_eq!(status, 500);
        assert!(
            what.contains("the model's process is gone: out of memory"),
            "{what}"
        );
    }
}

#[test]
fn a_server_with_a_key_answers_nobody_without_it() {
    let server = served(Some("t"), &[], Some("secret"));
    let asked = body(&json!({})).to_string();
    for headers in ["", "Authorization: Bearer wrong\r\n"] {
        let headers = format!("{JSON}{headers}");
        let (status, text) = server.ask("POST", "/v1/chat/completions", &headers, &asked);
        assert_eq!(status, 401, "{text}");
    }
    assert_eq!(server.ask("GET", "/v1/models", "", "").0, 401);
    assert_eq!(
        server.ask("GET", "/health", "", "").0,
        200,
        "it says nothing about the model"
    );
    let headers = format!("{JSON}Authorization: Bearer secret\r\n");
    let (status, _) = server.ask("POST", "/v1/chat/completions", &headers, &asked);
    assert_eq!(status, 200);
}

#[test]
fn the_name_is_that_of_the_file_or_the_hub_id() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("Tiny.Q4_1.gguf");
    std::fs::write(&file, "").unwrap();
    assert_eq!(name_of(file.to_str().unwrap()), "Tiny.Q4_1");
    assert_eq!(name_of("org/name"), "org/name");
}
