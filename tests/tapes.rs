//! The standard tape on disk equals its generator's output. After a change of the generator,
//! `cargo test --test tapes -- --ignored` rewrites it.

use llmtui::{base, run, wire};

#[path = "support/tape.rs"]
mod tape;

use llmtui::run::RunState;
use std::path::PathBuf;

/// Stride of the tape on disk.
const STRIDE: u64 = 5;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tapes/standard.jsonl")
}

fn written() -> String {
    tape::standard(STRIDE).iter().map(wire::encode).collect()
}

#[test]
fn the_tape_on_disk_is_the_generated_one() {
    let on_disk = std::fs::read_to_string(file()).unwrap_or_default();
    assert!(
        on_disk == written(),
        "run `cargo test --test tapes -- --ignored`"
    );
    assert!(on_disk.len() < 500_000, "{} bytes", on_disk.len());
}

#[test]
fn the_tape_reads_back_and_contains_every_kind_of_event() {
    let text = std::fs::read_to_string(file()).unwrap_or_default();
    let events: Vec<wire::Envelope> = text
        .lines()
        .filter_map(|line| wire::decode_envelope(line).ok())
        .collect();
    assert_eq!(events.len(), text.lines().count());
    let state = RunState::from_events(&events);
    assert_eq!(
        (state.step, state.missed, state.unknown),
        (tape::MAX_STEPS, 0, 0)
    );
    assert_eq!(state.checkpoints.len(), 4);
    // The second engine skipped preflight: the first one's findings remain.
    assert_eq!(state.checks.len(), 8);
    assert_eq!(state.series["train/loss"].non_finite(), 1);
    assert!(
        state
            .finished
            .is_some_and(|f| f.val_loss.is_some_and(|x| x < 1.9))
    );
    assert_eq!(
        state.last_t,
        base::clock::UnixMillis(events.last().map_or(0, |e| e.t.0))
    );
}

#[test]
fn a_part_of_the_tape_ends_at_its_step() {
    let state = RunState::from_events(&tape::until(1, 1_240));
    assert_eq!(
        (state.step, state.tokens),
        (1_240, 1_240 * tape::BATCH_TOKENS)
    );
    assert!(state.running());
    assert_eq!(tape::STEP_MS, 40);
}

#[test]
#[ignore = "writes tests/tapes/standard.jsonl"]
fn write_the_tape() {
    std::fs::write(file(), written()).unwrap_or_else(|e| panic!("{}: {e}", file().display()));
}
