//! Memory of a run and of its child processes.

use super::*;
use crate::wire::id::machine::{RSS, STARTED};

const MIB: f64 = (1 << 20) as f64;

/// 300 steps, with the bytes of the training process and of its descendants, if any.
fn run(own: impl Fn(u64) -> f64, started: Option<&dyn Fn(u64) -> f64>) -> Option<Finding> {
    let mut tape = fresh();
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
