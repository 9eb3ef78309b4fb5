//! Links under real conditions: many viewers, slow viewers, killed processes, wrong backends. The engine here is a script of
//! events: their content does not matter, only that every viewer receives all of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "support/script.rs"]
mod script;

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::link::{Host, Incoming, Link, connect, open};
use llmtui::run::log::read_all;
use llmtui::wire::{Command, Event, Outcome, Request, StopWhen};
use script::{Place, Script, play};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Everything until the link closes: (sequence numbers, position of `CaughtUp` among them, reason for closing).
fn drain(mut link: Link) -> (Vec<u64>, Option<usize>, Option<String>) {
    let mut seqs = Vec::new();
    let mut caught_up = None;
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) if envelope.seq > 0 => seqs.push(envelope.seq),
            Incoming::Event(_) => {}
            Incoming::CaughtUp => caught_up = Some(seqs.len()),
            Incoming::Closed(why) => return (seqs, caught_up, why),
        }
    }
}

/// The next event that `wanted` accepts.
fn await_event<T>(link: &mut Link, wanted: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) => {
                if let Some(found) = wanted(&envelope.event) {
                    return found;
                }
            }
            Incoming::CaughtUp => {}
            Incoming::Closed(why) => panic!("closed: {why:?}"),
        }
    }
}

fn whole(n: usize) -> Vec<u64> {
    (1..=n as u64).collect()
}

#[test]
fn every_viewer_receives_every_event_once_on_any_link() {
    let place = Place::new();
    // Held at its end too: the run stays open to join until all have joined, however fast it is.
    let script = Script::steps(3_000).release_after(500).hold_at_end();
    let mut host = place.host(script);
    host.serve(&place.env).unwrap();
    let go = host.commands();
    let mut viewers = vec![drain_later(host.link())];
    for _ in 0..4 {
        viewers.push(drain_later(open(&place.run, &place.env).unwrap()));
    }
    go.send(Script::go()).unwrap();
    for _ in 0..4 {
        viewers.push(drain_later(open(&place.run, &place.env).unwrap()));
    }
    go.send(Script::go()).unwrap();
    assert_eq!(host.wait().unwrap(), Outcome::Completed);
    let total = read_all(&place.run.events_path()).unwrap().len();
    for viewer in viewers {
        let (seqs, caught_up, why) = viewer.join().unwrap();
        assert_eq!(seqs, whole(total));
        assert!(caught_up.is_some());
        assert_eq!(why, None);
    }
    assert!(!place.run.is_alive());
    let (seqs, caught_up, why) = drain(open(&place.run, &place.env).unwrap());
    assert_eq!((seqs, caught_up, why), (whole(total), Some(total), None));
}

fn drain_later(link: Link) -> std::thread::JoinHandle<(Vec<u64>, Option<usize>, Option<String>)> {
    std::thread::spawn(move || drain(link))
}

#[test]
fn a_viewer_that_does_not_read_blocks_no_other_and_misses_nothing() {
    let place = Place::new();
    let steps = 60_000;
    let mut host = place.host(Script::steps(steps).hold_at_end());
    host.serve(&place.env).unwrap();
    let go = host.commands();
    let asleep = open(&place.run, &place.env).unwrap();
    let mut awake = open(&place.run, &place.env).unwrap();
    // The other viewer reaches the last step although the first has read nothing.
    await_event(&mut awake, |event| {
        matches!(event, Event::Stepped { step, .. } if *step == steps).then_some(())
    });
    let lazy = drain_later(asleep);
    go.send(Script::go()).unwrap();
    host.wait().unwrap();
    let (seqs, _, why) = lazy.join().unwrap();
    let total = read_all(&place.run.events_path()).unwrap().len();
    // What the slow viewer had not read when the engine closed its connection is in the log, and it got the reason.
    assert_eq!(seqs, whole(seqs.len()));
    assert!(
        seqs.len() == total || why.is_some(),
        "{} of {total}: {why:?}",
        seqs.len()
    );
}

#[test]
fn commands_are_answered_and_logged_for_every_viewer() {
    let place = Place::new();
    let mut host = place.host(Script::steps(5).hold_at_end());
    host.serve(&place.env).unwrap();
    let mut commander = open(&place.run, &place.env).unwrap();
    let mut watcher = open(&place.run, &place.env).unwrap();
    let note = commander
        .send(Command::Note {
            text: "hello".into(),
        })
        .unwrap();
    let refused = commander.send(Command::Rollback { step: 9 }).unwrap();
    let accepted = |id| move |event: &Event| (*event == Event::Accepted { id }).then_some(());
    let rejected = |id| {
        move |event: &Event| match event {
            Event::Rejected { id: i, why } if *i == id => Some(why.clone()),
            _ => None,
        }
    };
    for link in [&mut commander, &mut watcher] {
        await_event(link, accepted(note));
        assert!(await_event(link, rejected(refused)).contains("script"));
    }
    let ping = commander.send(Command::Ping).unwrap();
    await_event(&mut commander, accepted(ping));
    let theirs = watcher.send(Command::Ping).unwrap();
    assert_ne!(theirs, ping, "ids of two viewers must not collide");
    drop(commander);
    watcher
        .send(Command::Stop {
            when: StopWhen::Now,
        })
        .unwrap();
    assert_eq!(host.wait().unwrap(), Outcome::Stopped);
    let log = read_all(&place.run.events_path()).unwrap();
    assert!(log.iter().all(|e| e.event != Event::Accepted { id: ping }));
}

#[test]
fn an_engine_that_does_not_read_is_reported_busy() {
    let place = Place::new();
    let mut host = place.host(Script::steps(1).ignoring_commands());
    host.serve(&place.env).unwrap();
    let mut link = open(&place.run, &place.env).unwrap();
    let busy = loop {
        // The viewer's own queue may be full for a moment; the engine's stays full.
        if let Ok(id) = link.send(Command::Pause)
            && id % 2 == 0
        {
            let mut reported = None;
            while let Some(Incoming::Event(envelope)) = link.try_recv() {
                if let Event::Rejected { why, .. } = envelope.event {
                    assert_eq!(envelope.seq, 0);
                    reported = Some(why);
                }
            }
            if let Some(why) = reported {
                break why;
            }
        }
        llmtui::base::clock::pause(Duration::from_millis(1));
    };
    assert!(busy.contains("busy"), "{busy}");
    host.stop_flag()
        .store(true, std::sync::atomic::Ordering::Relaxed);
    host.wait().unwrap();
}

#[test]
fn a_hundred_thousand_events_arrive_in_seconds() {
    let place = Place::new();
    let mut host = place.host(Script::steps(100_000).hold_at_end());
    host.serve(&place.env).unwrap();
    let clock = SystemClock::new();
    let mut link = open(&place.run, &place.env).unwrap();
    await_event(&mut link, |event| {
        matches!(event, Event::Stepped { step: 100_000, .. }).then_some(())
    });
    let took = clock.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    host.commands().send(Script::go()).unwrap();
    drop(link);
    host.wait().unwrap();
}

/// Writes to the socket without the client: (first line, the rest up to `n` lines).
fn raw(place: &Place, say: &[u8], n: usize) -> Vec<String> {
    let path = llmtui::link::socket_path(&place.env, &place.run).unwrap();
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.write_all(say).unwrap();
    let mut text = String::new();
    let mut byte = [0];
    while text.lines().count() < n || !text.ends_with('\n') {
        match stream.read(&mut byte) {
            Ok(1) => text.push(char::from(byte[0])),
            _ => break,
        }
    }
    text.lines().map(String::from).collect()
}

#[test]
fn invalid_lines_are_answered_and_a_later_subscription_starts_where_it_says() {
    let place = Place::new();
    let mut host = place.host(Script::steps(50).hold_at_end());
    host.serve(&place.env).unwrap();
    let lines = raw(
        &place,
        b"{\"id\":7,\"command\":\"levitate\"}\nnonsense\n",
        3,
    );
    assert!(lines[0].contains("Hello"), "{lines:?}");
    assert!(lines[1].contains("Rejected") && lines[1].contains("\"id\":7"));
    assert!(lines[2].contains("Rejected") && lines[2].contains("\"id\":0"));
    let mut link = connect(&place.env, &place.run, 20).unwrap();
    let first = loop {
        match link.blocking_recv() {
            Incoming::Event(first) => break first,
            // The script may not have reached that point yet.
            Incoming::CaughtUp => {}
            Incoming::Closed(why) => panic!("{why:?}"),
        }
    };
    assert_eq!(first.seq, 20);
    let long = vec![b'x'; llmtui::wire::MAX_LINE + 100];
    let lines = raw(&place, &long, 2);
    assert!(lines[1].contains("limited"), "{lines:?}");
    host.commands().send(Script::go()).unwrap();
    host.wait().unwrap();
}

#[test]
fn a_socket_directory_open_to_others_is_used_by_neither_side() {
    let place = Place::new();
    let mut host = place.host(Script::steps(1).hold_at_end());
    std::fs::create_dir_all(&place.env.runtime_dir).unwrap();
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&place.env.runtime_dir, mode(0o755)).unwrap();
    // The run's own folder is used instead.
    host.serve(&place.env).unwrap();
    let socket = llmtui::link::socket_path(&place.env, &place.run).unwrap();
    assert!(!socket.exists());
    let inside = place.run.path().join("engine.sock");
    let permissions = std::fs::metadata(&inside).unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o600);
    assert!(open(&place.run, &place.env).unwrap().live());
    host.commands().send(Script::go()).unwrap();
    host.wait().unwrap();
    assert!(!inside.exists());

    std::fs::set_permissions(&place.env.runtime_dir, mode(0o700)).unwrap();
    let mut host = place.host(Script::steps(1).hold_at_end());
    host.serve(&place.env).unwrap();
    let permissions = std::fs::metadata(&socket).unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o600);
    // Opened to others meanwhile: the viewer does not trust it, and follows the log.
    std::fs::set_permissions(&place.env.runtime_dir, mode(0o711)).unwrap();
    let mut watching = open(&place.run, &place.env).unwrap();
    assert!(watching.is_read_only() && !watching.live());
    let why = await_event(&mut watching, |event| match event {
        Event::Warned { code, message, .. } if code == "read_only" => Some(message.clone()),
        _ => None,
    });
    assert!(why.contains("711"), "{why}");
    host.commands().send(Script::go()).unwrap();
    host.wait().unwrap();
    let (_, caught_up, why) = drain(watching);
    assert!(caught_up.is_some() && why.is_none(), "{why:?}");
    assert!(!socket.exists());
}

#[test]
fn runs_below_long_paths_have_sockets_too() {
    let place = Place::below(&"deep-".repeat(20));
    assert!(place.run.path().as_os_str().len() > 108);
    let mut host = place.host(Script::steps(5).hold_at_end());
    host.serve(&place.env).unwrap();
    let mut link = open(&place.run, &place.env).unwrap();
    await_event(&mut link, |event| {
        matches!(event, Event::Stepped { step: 5, .. }).then_some(())
    });
    link.send(Command::Stop {
        when: StopWhen::Now,
    })
    .unwrap();
    assert_eq!(host.wait().unwrap(), Outcome::Stopped);
}

#[test]
fn a_second_engine_can_start_right_after_the_first() {
    let place = Place::new();
    for round in 1..=3 {
        let mut host = place.host(Script::steps(20));
        host.serve(&place.env).unwrap();
        // Never reads: must not prevent the run from being released.
        let _silent = connect(&place.env, &place.run, 1);
        host.wait().unwrap();
        let n = read_all(&place.run.events_path()).unwrap().len();
        assert_eq!(n, round * (20 + 2));
    }
}

#[test]
fn a_panicking_engine_is_an_error_and_releases_the_run() {
    let place = Place::new();
    let claim = place.run.claim().unwrap();
    let door = llmtui::link::Endpoint::open(&place.env, &place.run).unwrap();
    let host: Host<Outcome> = Host::start(&place.run, claim, Some(door), |mut io| {
        io.emitter.emit(script::hello());
        panic!("on purpose")
    })
    .unwrap();
    let link = host.link();
    assert!(host.wait().is_err());
    let (seqs, _, why) = drain(link);
    assert_eq!(seqs, [1]);
    assert!(why.unwrap().contains("final event"));
    assert!(!place.run.is_alive());
}

#[test]
fn a_scripted_engine_answers_commands() {
    // Tests the script itself, which the tests above rely on.
    let place = Place::new();
    let host = place.host(Script::steps(2).hold_at_end());
    let request = Request {
        id: 5,
        command: Command::Note { text: "x".into() },
    };
    host.commands().send(request).unwrap();
    host.commands().send(Script::go()).unwrap();
    host.wait().unwrap();
    let log = read_all(&place.run.events_path()).unwrap();
    assert!(log.iter().any(|e| e.event == Event::Accepted { id: 5 }));
    let _ = play;
}
