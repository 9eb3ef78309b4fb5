//! The picture in the README: the dashboard at 120×36 in the middle of the standard tape, drawn by the program itself. After
//! a change of the screen: `cargo test --test picture -- --ignored` writes it anew.

use llmtui::{base, wire};

#[path = "support/tape.rs"]
mod tape;

use llmtui::run::RunState;
use llmtui::ui::panes::dashboard::Dashboard;
use llmtui::ui::theme::{ColorDepth, Meaning, Theme, Themes, svg};
use llmtui::ui::widgets::hints;
use llmtui::ui::widgets::text::{self, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::path::PathBuf;

const WIDTH: u16 = 120;
const HEIGHT: u16 = 36;
/// Of the tape: past the changed learning rate, before the NaN.
const STEP: u64 = 1_240;

fn frame() -> Buffer {
    let theme = Themes::embedded().get("dark", ColorDepth::True, false);
    let state = RunState::from_events(&tape::until(1, STEP));
    let area = Rect::new(0, 0, WIDTH, HEIGHT);
    let mut buffer = Buffer::empty(area);
    chrome(&mut buffer, &theme);
    let body = Rect {
        y: 1,
        height: HEIGHT - 2,
        ..area
    };
    let now = base::clock::UnixMillis(state.last_t.0);
    Dashboard::new().render(&mut buffer, body, &state, &theme, now);
    buffer
}

/// The line of tabs above the dashboard and the line of keys below it.
fn chrome(buffer: &mut Buffer, theme: &Theme) {
    let tabs = [
        word("llmtui  ", Meaning::Accent),
        word(" 1 Home ", Meaning::Muted),
        word(" 2 Run ", Meaning::Selected),
        word(" 3 Chat ", Meaning::Muted),
    ];
    text::draw(buffer, 1, 0, WIDTH - 2, &tabs, theme);
    let run = [
        word("shakespeare-k3qf · pretrain · ", Meaning::Muted),
        word("● training", Meaning::Good),
    ];
    text::draw_right(buffer, WIDTH - 1, 0, WIDTH, &run, theme);
    let keys = [
        ("p", "pause"),
        ("c", "checkpoint"),
        ("e", "evaluate"),
        ("s", "sample"),
        ("t", "tune"),
        ("n", "note"),
        ("z", "zoom"),
        ("/", "filter"),
        (":", "palette"),
        ("?", "help"),
        ("q", "leave"),
    ];
    hints::draw(buffer, 1, HEIGHT - 1, WIDTH - 2, &keys, theme);
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/dashboard.svg")
}

#[test]
fn the_picture_exists_and_is_whole() {
    let svg = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "cargo test --test picture -- --ignored"
    );
    let fresh = svg::svg(&frame(), "llmtui");
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
    let picture = svg::svg(&frame(), title);
    std::fs::create_dir_all(file().with_file_name("")).unwrap_or_else(|e| panic!("{e}"));
    std::fs::write(file(), picture).unwrap_or_else(|e| panic!("{}: {e}", file().display()));
}
