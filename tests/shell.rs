//! Runs of the real program, listed, controlled and ended from the shell, one verb after the other.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "support/engine.rs"]
mod engine;

use engine::{Place, until};
use llmtui::link::Incoming;
use llmtui::link::launch::EngineOptions;
use llmtui::run::log::read_all;
use llmtui::wire::{Command as Order, Event};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Output, Stdio};

fn wait_output(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{errors}");
    output
}

#[test]
fn chat_continues_text_with_the_best_checkpoint_of_a_run() {
    let place = Place::new(&["max_steps=60", "save_every=30"]);
    place.start(EngineOptions::default());
    place.await_end();
    let id = place.run.id().to_string();
    let chat = |arguments: &[&str]| {
        let child = place
            .program(&["chat", &id, "--context", "roll"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_output(child)
    };
    let printed = chat(&[
        "--prompt",
        "ROMEO:",
        "--max-new-tokens",
        "40",
        "--seed",
        "7",
    ]);
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8(printed.stdout.clone()).unwrap();
    assert_eq!(
        text.chars().count(),
        41,
        "40 characters and a newline: {text:?}"
    );
    let again = chat(&[
        "--prompt",
        "ROMEO:",
        "--max-new-tokens",
        "40",
        "--seed",
        "7",
    ]);
    assert_eq!(printed.stdout, again.stdout);
    // For a model without a template, each line of a pipe is a separate prompt.
    let mut piped = place
        .program(&[
            "chat",
            &id,
            "--context",
            "roll",
            "--max-new-tokens",
            "5",
            "--json",
            "--show-prompt",
            "--kv-cache",
            "bf16",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = piped.stdin.take().unwrap();
    Write::write_all(&mut lines, b"ROMEO:\nJULIET:\n").unwrap();
    drop(lines);
    let piped = wait_output(piped);
    let note = String::from_utf8_lossy(&piped.stderr);
    assert!(note.contains("no chat template"), "{note}");
    let answers: Vec<serde_json::Value> = String::from_utf8(piped.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[1]["rendered"], "JULIET:");
    assert_eq!(answers[1]["n_tokens"], 5);
    assert_eq!(answers[1]["kv_cache"], "bf16");
    assert_eq!(answers[1]["reason"], "length");
    let refused = chat(&["--prompt", "☃"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let missing = chat(&["--prompt", "x", "--runs-dir", "/nowhere"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}

/// The address that a server says it listens on.
fn address(server: &mut Child) -> String {
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find_map(|line| {
        let rest = line.strip_prefix("http://")?;
        rest.split_once('/').map(|(at, _)| at.to_string())
    });
    said.unwrap()
}

#[test]
fn a_served_run_continues_text_over_http_as_chat_does() {
    let place = Place::new(&["max_steps=60", "save_every=30"]);
    place.start(EngineOptions::default());
    place.await_end();
    let id = place.run.id().to_string();
    let chat = place
        .program(&["chat", &id, "--prompt", "ROMEO:", "--seed", "7"])
        .args(["--max-new-tokens", "20", "--context", "roll"])
        .output()
        .unwrap();
    let mut server = place
        .program(&["serve", &id, "--port", "0", "--context", "roll"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = TcpStream::connect(address(&mut server)).unwrap();
    let body = r#"{"prompt": "ROMEO:", "max_tokens": 20, "seed": 7}"#;
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
    let reply: serde_json::Value = serde_json::from_str(body).unwrap();
    let text = reply["choices"][0]["text"].as_str().unwrap();
    assert_eq!(format!("{text}\n"), String::from_utf8(chat.stdout).unwrap());
    assert_eq!(reply["usage"]["completion_tokens"], 20);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}

#[test]
fn runs_and_attach_show_a_finished_run() {
    let place = Place::new(&["max_steps=30"]);
    place.start(EngineOptions::default());
    place.await_end();
    let runs = place.program(&["runs", "--json"]).output().unwrap();
    let row: serde_json::Value = serde_json::from_slice(&runs.stdout).unwrap();
    assert_eq!(row["status"], "finished");
    assert_eq!((&row["step"], &row["max_steps"]), (&30.into(), &30.into()));
    let attach = place
        .program(&["attach", place.run.id(), "--headless"])
        .output()
        .unwrap();
    assert!(attach.status.success(), "{attach:?}");
    let text = String::from_utf8(attach.stdout).unwrap();
    assert!(text.contains("finished at step 30"), "{text}");
    let none = place.program(&["attach"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "no live run");
}

#[test]
fn a_run_is_paused_resumed_stopped_read_and_deleted_from_the_shell() {
    let place = Place::new(&[]);
    place.start(EngineOptions::default());
    place.await_step(60);
    let ask = |arguments: &[&str]| place.program(arguments).output().unwrap();
    let say = |arguments: &[&str]| {
        let output = ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(say(&["pause", "small"]).contains("is paused"));
    let live = ask(&["rm", "--yes", "small"]);
    assert_eq!(live.status.code(), Some(2), "a live run stays: {live:?}");
    assert!(say(&["resume", "small"]).contains("is training"));
    let paused_at = place.step();
    place.await_step(paused_at + 1);
    let stopped = say(&["stop"]);
    assert!(stopped.contains("stopped at step"), "{stopped}");
    assert!(stopped.contains("continues from step"), "{stopped}");
    assert!(!place.run.is_alive());
    let log = say(&["logs", "small"]);
    assert!(log.contains("stopped at step"), "{log}");
    let events = say(&["logs", "small", "--json"]);
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"]["type"], "Finished", "{last}");
    assert!(say(&["resume", place.run.id()]).contains("is training"));
    assert!(place.run.is_alive());
    say(&["stop", "--now", "small"]);
    let unasked = ask(&["rm", "small"]);
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    let told = say(&["rm", "--dry-run", "small"]);
    assert!(told.contains("checkpoint") && told.contains("iB"), "{told}");
    assert!(place.run.path().exists(), "a dry run deletes nothing");
    assert!(say(&["rm", "--yes", "small"]).contains("deleted"));
    assert!(!place.run.path().exists());
    assert_eq!(ask(&["stop"]).status.code(), Some(2), "no run is live");
}

#[test]
fn a_rescue_is_undone_from_the_shell_after_its_reason_was_shown() {
    let place = Place::new(&[
        "rescue.policy=act",
        "rescue.at_most=1",
        "clip_norm=0",
        "optimizer.adamw.weight_decay=10",
    ]);
    place.start(EngineOptions::default());
    place.await_step(60);
    let ask = |arguments: &[&str]| place.program(arguments).output().unwrap();
    assert_eq!(
        ask(&["undo", "small"]).status.code(),
        Some(2),
        "not rescued"
    );
    let adjust = |value: f64| {
        let mut link = place.join();
        let key = "lr".to_string();
        link.send(Order::Adjust { key, value }).unwrap();
        while !matches!(link.blocking_recv(), Incoming::Event(e) if matches!(e.event, Event::Adjusted { .. }))
        {
        }
    };
    let reported = |wanted: fn(&Event) -> bool| {
        let events = read_all(&place.run.events_path()).unwrap();
        events.iter().any(|envelope| wanted(&envelope.event))
    };
    adjust(10.0);
    until("a rescue", || {
        reported(|e| matches!(e, Event::Rescued { .. }))
    });
    let asked = ask(&["undo", "small"]);
    let text = String::from_utf8(asked.stdout).unwrap();
    for words in [
        "rescued because",
        "it continues at step",
        "10.00",
        "--yes does it",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(
        !reported(|e| matches!(e, Event::RescueUndone { .. })),
        "only shown"
    );
    let done = ask(&["undo", "--yes", "small"]);
    assert!(done.status.success(), "{done:?}");
    assert!(reported(|e| matches!(e, Event::RescueUndone { .. })));
}

#[test]
fn the_command_in_llmtui_notify_gets_the_outcome_of_a_run() {
    let place = Place::new(&["max_steps=3", "save_every=0"]);
    let news = place.run.path().join("news");
    let child = place
        .program(&["engine"])
        .arg(place.run.path())
        .env(
            "LLMTUI_NOTIFY",
            format!(
                "echo \"$LLMTUI_EVENT $LLMTUI_RUN $LLMTUI_MESSAGE\" >> '{}'; exit 7",
                news.display()
            ),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let printed = wait_output(child);
    assert!(printed.status.success(), "{printed:?}");
    let heard = std::fs::read_to_string(news).unwrap();
    let begin = format!("completed {} ", place.run.id());
    assert!(heard.starts_with(&begin), "{heard}");
    assert!(heard.contains("finished at step 3"), "{heard}");
    assert_eq!(heard.lines().count(), 1, "{heard}");
    let errors = String::from_utf8(printed.stderr).unwrap();
    assert!(
        errors.contains("the command in LLMTUI_NOTIFY failed: exit status: 7"),
        "{errors}"
    );
}
