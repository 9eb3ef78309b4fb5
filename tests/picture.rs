//! The image in the README: the workbench at 120×36 in the middle of the standard tape, drawn by the program itself. After
//! a change of the screen, `cargo test --test picture -- --ignored` rewrites it.

use llmtui::{base, run, wire};

#[path = "support/tape.rs"]
mod tape;

use llmtui::link::Incoming;
use llmtui::ui::app::{App, AppOptions, StartScreen};
use llmtui::ui::keymap::Keymap;
use llmtui::ui::msg::{Holder, Msg, Opened};
use llmtui::ui::theme::{ColorDepth, Themes, svg};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use std::path::PathBuf;

const WIDTH: u16 = 120;
const HEIGHT: u16 = 36;
/// Step of the tape: after the changed learning rate, before the NaN.
const STEP: u64 = 1_240;
const RUN: &str = "runs/2026-11-21-1040-shakespeare-k3qf";

/// The screen while watching the run of the tape.
fn frame() -> Buffer {
    let options = AppOptions {
        runs_dir: "runs".into(),
        home: None,
        presets: Vec::new(),
        keymap: Keymap::embedded(),
        themes: Themes::embedded(),
        theme: "dark".into(),
        depth: ColorDepth::True,
        ascii: false,
        utc_offset: 0,
        complaints: Vec::new(),
    };
    let events = tape::until(1, STEP);
    let now = events.last().map_or(base::clock::UnixMillis(0), |e| e.t);
    let at = base::clock::Moment {
        now,
        ..Default::default()
    };
    let (mut app, _) = App::new(options, StartScreen::Run(RUN.into()), now);
    let slot = app.run_slot().expect("a run is open");
    let result = Ok(Opened::new(RUN, Holder::Detached));
    app.update(Msg::Opened { slot, result }, at);
    let events = events.into_iter().map(|e| Incoming::Event(Box::new(e)));
    let batch = events.chain([Incoming::CaughtUp]).collect();
    app.update(Msg::Incoming { slot, batch }, at);
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, HEIGHT)).expect("a test backend");
    terminal.draw(|frame| app.draw(frame)).expect("a frame");
    terminal.backend().buffer().clone()
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/dashboard.svg")
}

#[test]
fn the_image_exists_and_is_complete() {
    let svg = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "cargo test --test picture -- --ignored"
    );
    let fresh = svg::svg(&frame(), "llmtui", &svg::DARK);
    assert!(
        fresh.matches("<text ").count() > 50 && fresh.len() < 300_000,
        "{} bytes",
        fresh.len()
    );
    assert!(svg.contains("grad norm") && svg.contains("KING RICHARD"));
    assert_eq!(wire::VERSION, 1);
}

#[test]
#[ignore = "writes docs/dashboard.svg"]
fn write_the_picture() {
    let title = "The llmtui dashboard: charts of loss, gradient norm, entropy, learning rate and speed of a live run";
    let picture = svg::svg(&frame(), title, &svg::DARK);
    std::fs::create_dir_all(file().with_file_name("")).unwrap_or_else(|e| panic!("{e}"));
    std::fs::write(file(), picture).unwrap_or_else(|e| panic!("{}: {e}", file().display()));
}
