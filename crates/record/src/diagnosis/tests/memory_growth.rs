//! Memory of a run and of its child processes.

use super::*;
use crate::wire::id::machine::{RSS, STARTED};

const MIB: f64 = (1 << 20) as f64;

/// 300 steps, with the bytes of the training process and of its descendants, if any.
fn run(own: impl Fn(u64) -> f64, started: Option<&dyn Fn(u64) -> f64>) -> Option<Finding> {
    run_of(serde_json::json!({}), own, started)
}

fn run_of(
    spec: serde_json::Value,
    own: impl Fn(u64) -> f64,
    started: Option<&dyn Fn(u64) -> f64>,
) -> Option<Finding> {
    let mut tape = fresh();
    tape.begin("grpo", spec);
    for step in 1..=300 {
        let started = started.map(|bytes| (STARTED.to_string(), Num(bytes(step))));
        let own = (RSS.to_string(), Num(own(step)));
        tape.add(Event::HardwareSampled {
            values: [own].into_iter().chain(started).collect(),
        });
        tape.step(step, &[("train/loss", 3.0 + noise(step))]);
    }
    tape.found("memory_growth")
        .filter(|found| found.status == Status::Warn)
}

#[test]
fn a_leak_in_the_ranks_is_a_leak_of_the_run() {
    let steady = |_| 200.0 * MIB;
    let leak = |step| (1_000.0 + 10.0 * step as f64) * MIB;
    let found = run(steady, Some(&leak)).expect("the ranks leak");
    let evidence = found.evidence.to_string();
    assert!(evidence.contains("GiB in use"), "{evidence}");
    assert!(run(leak, None).is_some(), "no processes of its own");
    // A small growing process next to large constant ones.
    let small = |step| (100.0 + step as f64) * MIB;
    assert!(run(small, None).is_some());
    assert_eq!(run(small, Some(&|_| 20_000.0 * MIB)), None);
}

/// A leak of a program that somebody else wrote is not reported as this program's.
#[test]
fn the_program_whose_memory_grows_is_named() {
    let (steady, leak) = (|_| 200.0 * MIB, |step| (1_000.0 + 10.0 * step as f64) * MIB);
    let scored = serde_json::json!({"rewards": [{"command": {"run": "python score.py"}}]});
    let found = run_of(scored.clone(), steady, Some(&leak)).unwrap();
    let cause = found.cause.to_string();
    assert!(
        cause.contains("the reward program `python score.py`"),
        "{cause}"
    );
    assert!(
        !found.fix.to_string().contains("report it"),
        "{}",
        found.fix
    );
    let ranks = serde_json::json!({"engine": {"torch": {"ranks": 2}}});
    let found = run_of(ranks, steady, Some(&leak)).unwrap();
    assert!(found.cause.to_string().contains("a rank of PyTorch"));
    let found = run_of(scored, leak, Some(&steady)).unwrap();
    assert!(found.fix.to_string().contains("report it with the log"));
}
