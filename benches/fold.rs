//! What a viewer pays for events: folding a log, and reading a long series for a screen.

use criterion::{Criterion, criterion_group, criterion_main};
use llmtui::run::{RunState, Series};
use llmtui::{base, run, wire};
use std::hint::black_box;

#[path = "../tests/support/tape.rs"]
#[allow(dead_code)]
mod tape;

fn fold(c: &mut Criterion) {
    let events = tape::standard(1);
    c.bench_function("fold/standard tape", |b| {
        b.iter(|| RunState::from_events(black_box(&events)))
    });
    let lines: Vec<String> = events.iter().map(wire::encode).collect();
    c.bench_function("fold/decode and fold the tape", |b| {
        b.iter(|| {
            let mut state = RunState::new();
            for line in &lines {
                if let Ok(envelope) = wire::decode_envelope(line) {
                    state.apply(&envelope);
                }
            }
            state.last_t > base::clock::UnixMillis(0)
        })
    });
}

fn series(c: &mut Criterion) {
    let mut series = Series::new();
    for step in 0..10_000_000u64 {
        series.push(step, (step % 1_000) as f64);
    }
    c.bench_function("series/push", |b| {
        let mut series = Series::new();
        let mut step = 0;
        b.iter(|| {
            step += 1;
            series.push(step, black_box(1.5));
        })
    });
    for (name, from, to) in [
        ("all", 0.0, 1e7),
        ("a tenth", 3e6, 4e6),
        ("the end", 9_999_000.0, 1e7),
    ] {
        c.bench_function(&format!("series/400 columns of 10M points, {name}"), |b| {
            b.iter(|| series.columns(black_box(from), to, 400))
        });
    }
}

criterion_group!(benches, fold, series);
criterion_main!(benches);
