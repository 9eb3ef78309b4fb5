//! The pane with machines made by hand.

use super::*;
use crate::base::clock::UnixMillis;
use crate::fleet::{Host, FleetMessage, Run, ConnectionEvent};
use crate::ui::panes::bench::TestContext;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const NOW: UnixMillis = UnixMillis(10_000_000);

fn pane(around: &mut TestContext) -> FleetPane {
    around.store.now = NOW;
    let host = |name: &str, place: Place| Host {
        name: name.into(),
        place,
        program: "llmtui".into(),
        runs_dir: Some("runs".into()),
    };
    let hosts = vec![host("here", Place::Here), host("lab", Place::Ssh("lab".into()))];
    let mut pane = FleetPane::default();
    pane.incoming(&Msg::FleetOpened(hosts), &mut around.context());
    let run = |id: &str, status: &str| FleetMessage::Run {
        run: Box::new(Run {
            id: id.into(),
            status: status.into(),
            step: 50,
            max_steps: 200,
            seconds: 60.0,
            train_loss: Some(1.25),
            verdict: Some("LEARNING".into()),
            curve: vec![4.0, 2.0, 1.25],
            ..Run::default()
        }),
    };
    let begin = || FleetMessage::Begin {
        version: 1,
        program: String::new(),
    };
    let beat = FleetMessage::Beat {
        machine: [("host/cpu_percent".to_string(), 40.0), ("gpu/0/util".to_string(), 97.0)].into(),
    };
    for (at, news) in [
        (0, begin()),
        (0, run("2026-11-21-1422-mine-k3qf", "finished")),
        (1, begin()),
        (1, run("2026-11-22-1000-theirs\x1b[31m-aaaa", "live")),
        (1, beat),
    ] {
        let said = ConnectionEvent::FleetMessage(news);
        pane.incoming(&Msg::Fleet { at, said }, &mut around.context());
    }
    pane
}

fn screen(pane: &mut FleetPane, around: &mut TestContext) -> String {
    let mut terminal = Terminal::new(TestBackend::new(120, 14)).unwrap();
    terminal
        .draw(|frame| pane.draw(frame, frame.area(), &mut around.context()))
        .unwrap();
    terminal.backend().to_string()
}

#[test]
fn machines_and_all_their_runs_stand_in_one_list() {
    let mut around = TestContext::new();
    let mut pane = pane(&mut around);
    let shown = screen(&mut pane, &mut around);
    for words in ["2 runs", "1 live", "CPU 40 %", "GPU 97 %", "mine-k3qf", "3:00 left", "LEARNING", "25 %"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "{shown}");
    let said = ConnectionEvent::Lost("Connection refused".into());
    pane.incoming(&Msg::Fleet { at: 1, said }, &mut around.context());
    around.store.elapsed = std::time::Duration::from_secs(120);
    let shown = screen(&mut pane, &mut around);
    assert!(shown.contains("unreachable for 2 min") && shown.contains("Connection refused"), "{shown}");
    assert!(shown.contains("0 live"), "{shown}");
}

/// "`llmtui fleet` shows …", and no key did anything.
#[test]
fn enter_watches_the_machines_of_the_file() {
    let mut around = TestContext::new();
    let mut pane = FleetPane::default();
    let shown = screen(&mut pane, &mut around);
    for words in ["No other machine is watched. enter connects", "hosts.yaml", "me@gpu-box"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    let asked = pane.act(Action::Accept, &mut around.context());
    assert!(matches!(&asked[..], [Request::Do(Effect::WatchFleet)]), "{asked:?}");
}

#[test]
fn enter_shows_a_run_here_or_over_ssh() {
    let mut around = TestContext::new();
    let mut pane = pane(&mut around);
    // The live one stands first.
    let there = pane.act(Action::Accept, &mut around.context());
    assert!(
        matches!(&there[..], [Request::Do(Effect::AttachThere { host: 1, run })] if run.contains("theirs")),
        "{there:?}"
    );
    pane.act(Action::Down, &mut around.context());
    let here = pane.act(Action::Accept, &mut around.context());
    assert!(
        matches!(&here[..], [Request::OpenRun(path)] if path.ends_with("runs/2026-11-21-1422-mine-k3qf")),
        "{here:?}"
    );
    // The mark stays with its run when rows change places.
    pane.act(Action::FleetSort, &mut around.context());
    assert_eq!(pane.marked.as_ref().map(|(at, _)| *at), Some(0));
    let said = ConnectionEvent::Lost("x".into());
    pane.incoming(&Msg::Fleet { at: 1, said }, &mut around.context());
    pane.marked = Some((1, "2026-11-22-1000-theirs\x1b[31m-aaaa".into()));
    let gone = pane.act(Action::Accept, &mut around.context());
    assert!(matches!(&gone[..], [Request::Toast(Level::Warn, _)]), "{gone:?}");
}
