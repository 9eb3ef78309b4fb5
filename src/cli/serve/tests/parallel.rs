//! Several answers at once, with a scripted engine that has rows.

use super::*;
use crate::cli::serve::model::{AHEAD, Piece, Reply};
use std::collections::BTreeMap;
use tokio::sync::Semaphore;

/// An engine with so many rows, which says the nth token of every answer after a word from the test.
struct Rows {
    served: Served,
    /// A pass over the rows.
    pass: std_mpsc::Sender<()>,
}

/// Bytes of a long token: a few of them are more than connections hold.
const LONG: usize = 1 << 17;

/// Answers of a prompt are its letters, one in a pass; `!` goes on for ever, and so does `#` with long tokens.
fn rows(parallel: usize, adapters: &[&str]) -> Rows {
    let (send, incoming) = mpsc::channel(1 << 12);
    let (commands, mut inbox) = mpsc::channel(64);
    let link = Link::new(incoming, Some(commands));
    let loaded = loaded(Some("t"), adapters, Some(parallel as u64));
    let (seen, asked) = std_mpsc::channel();
    let (pass, passes) = std_mpsc::channel::<()>();
    std::thread::spawn(move || {
        let say = |event| say(&send, event);
        say(loaded);
        let mut running: BTreeMap<u64, Vec<char>> = BTreeMap::new();
        while passes.recv().is_ok() {
            while let Ok(request) = inbox.try_recv() {
                let _ = seen.send(request.command.clone());
                match request.command {
                    Command::UseAdapter { name } => {
                        assert!(running.is_empty(), "answers are being written");
                        let command = request.id;
                        say(Event::AdapterUsed { command, name });
                    }
                    Command::Generate { prompt, .. } => {
                        let letters: Vec<char> = said(&prompt).chars().rev().collect();
                        running.insert(request.id, letters);
                        assert!(running.len() <= parallel, "more than there are rows");
                    }
                    Command::Cancel { target } if running.remove(&target).is_some() => {
                        say(ended(target, 1, StopReason::Cancelled));
                    }
                    _ => {}
                }
            }
            running.retain(|id, letters| {
                let endless = letters.first().copied();
                let endless = endless.filter(|letter| ['!', '#'].contains(letter));
                let Some(letter) = endless.or_else(|| letters.pop()) else {
                    say(ended(*id, 1, StopReason::Stop));
                    return false;
                };
                say(Event::Token {
                    command: *id,
                    logprob: Num(-0.5),
                    entropy: None,
                    id: Some(7),
                    bytes: None,
                    top: Vec::new(),
                    text: match letter {
                        '#' => "#".repeat(LONG),
                        letter => letter.into(),
                    },
                });
                true
            });
        }
    });
    Rows {
        served: served_over(link, asked, None, model::SLOW, adapters.len()),
        pass,
    }
}

impl Rows {
    /// Passes, until there was this command of the server's; all those until then.
    fn until(&self, is_it: impl Fn(&Command) -> bool) -> Vec<Command> {
        let mut all = Vec::new();
        for _ in 0..2000 {
            self.pass.send(()).unwrap();
            let wait = Duration::from_millis(5);
            while let Ok(command) = self.served.commands.recv_timeout(wait) {
                let found = is_it(&command);
                all.push(command);
                if found {
                    return all;
                }
            }
        }
        panic!("it never came: {all:?}");
    }

    /// Passes until the reply is there.
    fn reply(&self, mut stream: TcpStream) -> String {
        let (send, done) = std_mpsc::channel();
        std::thread::spawn(move || {
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            let _ = send.send(reply);
        });
        for _ in 0..2000 {
            self.pass.send(()).unwrap();
            if let Ok(reply) = done.recv_timeout(Duration::from_millis(5)) {
                return reply;
            }
        }
        panic!("no reply");
    }

    fn ask(&self, body: &Value) -> TcpStream {
        (self.served).begin("POST", "/v1/completions", JSON, &body.to_string())
    }
}

fn asks(text: &'static str) -> impl Fn(&Command) -> bool {
    move |command| matches!(command, Command::Generate { prompt, .. } if said(prompt) == text)
}

#[test]
fn requests_share_the_rows_and_the_next_begins_when_one_ends() {
    let rows = rows(2, &[]);
    let endless = rows.ask(&json!({"prompt": "!", "stream": true}));
    rows.until(asks("!"));
    let one = rows.ask(&json!({"prompt": "one"}));
    rows.until(asks("one"));
    // It waits, as there is no third row, and is answered beside the one that never ends.
    let two = rows.ask(&json!({"prompt": "two"}));
    let one = rows.reply(one);
    assert!(one.contains("\"text\":\"one\""), "{one}");
    let two = rows.reply(two);
    assert!(two.contains("\"text\":\"two\""), "{two}");
    drop(endless);
    rows.until(|command| matches!(command, Command::Cancel { .. }));
}

#[test]
fn a_reader_that_takes_nothing_holds_up_nobody() {
    let rows = rows(2, &[]);
    let mut asleep = rows.ask(&json!({"prompt": "#", "stream": true}));
    rows.until(asks("#"));
    // Its connection and its stream are full, and then so is the room for what waits: long before it is too slow by the clock.
    rows.until(|command| matches!(command, Command::Cancel { .. }));
    // The stream still waits for it.
    let other = rows.reply(rows.ask(&json!({"prompt": "other"})));
    assert!(other.contains("\"text\":\"other\""), "{other}");
    let mut reply = String::new();
    asleep.read_to_string(&mut reply).unwrap();
    assert!(reply.len() > AHEAD, "what waited arrives");
    assert!(reply.contains("the reader was too slow"));
    assert!(!reply.contains("[DONE]"));
}

#[test]
fn what_waits_for_a_reader_is_bounded_in_bytes() {
    let room = Arc::new(Semaphore::new(AHEAD));
    let (reply, mut pieces) = Reply::new(&room);
    let long = || Piece::Token {
        text: "x".repeat(AHEAD / 4),
        score: None,
    };
    let taken = (0..9).take_while(|_| reply.put(long())).count();
    assert_eq!(taken, 3, "a piece is more than its text");
    drop(pieces.try_recv().unwrap());
    assert!(reply.put(long()), "one was read");
    let (other, _others) = Reply::new(&room);
    assert!(!other.put(long()), "answers of a request share it");
    drop(pieces);
    assert!(reply.is_unread() && !reply.put(long()));
    assert!(other.put(long()), "what nobody reads is gone");
}

#[test]
fn the_answers_of_one_request_are_written_at_once_and_stay_in_their_order() {
    let rows = rows(3, &[]);
    let asked = json!({"prompt": ["abcdef", "g", "hi", "j"], "seed": 5});
    let reply = rows.reply(rows.ask(&asked));
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let texts: Vec<&str> = (0..4)
        .map(|i| body["choices"][i]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["abcdef", "g", "hi", "j"]);
    assert_eq!(body["usage"]["prompt_tokens"], 12);
    let asked = json!({"prompt": ["abcdef", "g"], "stream": true, "stream_options": {"include_usage": true}});
    let reply = rows.reply(rows.ask(&asked));
    let events = reply.split("data: ").skip(1);
    let events: Vec<Value> = events
        .filter_map(|event| serde_json::from_str(event.split("\n\n").next()?.trim()).ok())
        .collect();
    let of = |index: u64| -> String {
        let own = events.iter().map(|event| &event["choices"][0]);
        let own = own.filter(|choice| choice["index"] == index);
        own.filter_map(|choice| choice["text"].as_str()).collect()
    };
    assert_eq!((of(0), of(1)), ("abcdef".into(), "g".into()));
    let indices: Vec<u64> = events
        .iter()
        .filter_map(|event| event["choices"][0]["index"].as_u64())
        .collect();
    // The short one begins before the long one ends; several tokens of one may be a piece on a busy machine.
    let first_short = indices.iter().position(|index| *index == 1);
    let last_long = indices.iter().rposition(|index| *index == 0);
    assert!(first_short < last_long, "side by side: {indices:?}");
    assert_eq!(events.last().unwrap()["usage"]["prompt_tokens"], 6);
}

#[test]
fn another_adapter_waits_until_the_rows_are_empty() {
    let rows = rows(2, &["poet"]);
    let first = rows.ask(&json!({"model": "poet", "prompt": "abcdefgh"}));
    rows.until(asks("abcdefgh"));
    let other = rows.ask(&json!({"model": "tiny", "prompt": "xy"}));
    let commands = rows.until(asks("xy"));
    assert!(
        matches!(commands[0], Command::UseAdapter { name: None }),
        "{commands:?}"
    );
    assert!(rows.reply(first).contains("abcdefgh"));
    assert!(rows.reply(other).contains("\"text\":\"xy\""));
}
