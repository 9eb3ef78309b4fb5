//! Idle GPUs.

use super::*;

/// A run of 200 steps whose GPU was busy for this percentage of the time, with this much memory of the run on it.
fn run(busy: f64, own: f64, spec: &serde_json::Value) -> Tape {
    let mut tape = Tape::new(None, 0);
    if let Some(head) = tape.state.head.as_mut() {
        head.spec = spec.clone();
    }
    for step in 1..=200 {
        tape.add(Event::HardwareSampled {
            values: [("gpu/0/util", busy), ("gpu/0/own_memory_bytes", own)]
                .map(|(id, x)| (id.to_string(), Num(x)))
                .into(),
        });
        tape.step(step, &[("train/loss", 2.0), ("grad_norm", 1.0)]);
    }
    tape
}

#[test]
fn an_idle_gpu_is_reported_with_settings_that_fill_it() {
    let spec = serde_json::json!({
        "train": {"micro_batch_size": 4, "grad_accum_steps": 6},
        "engine": {"torch": {"compile": false}},
    });
    let found = run(20.0, 6e9, &spec).found("idle_gpu").unwrap();
    assert_eq!(found.status, Status::Warn);
    let all = "-s micro_batch_size=8 -s grad_accum_steps=3";
    assert!(found.fix.contains(all), "{}", found.fix);
    assert!(found.fix.contains("compile=true"), "{}", found.fix);
    assert!(
        found.evidence.to_string().contains("20 %"),
        "{}",
        found.evidence
    );
    let whole = serde_json::json!({
        "train": {"micro_batch_size": 8, "grad_accum_steps": 1},
        "engine": {"torch": {"compile": true}},
    });
    let found = run(20.0, 6e9, &whole).found("idle_gpu").unwrap();
    assert!(!found.fix.contains("-s"), "{}", found.fix);
    assert_eq!(run(90.0, 6e9, &spec).found("idle_gpu"), None);
    let on_processor = run(0.0, 0.0, &spec);
    assert_eq!(on_processor.found("idle_gpu"), None);
}

#[test]
fn a_gpu_that_computes_little_of_what_it_could_is_named() {
    let judged = |n_params: u64, mfu: f64, gpu: f64| {
        let mut tape = fresh();
        tape.state.head.as_mut().unwrap().n_params = n_params;
        let values = [
            ("train/loss", 4.0),
            ("mfu", mfu),
            ("gpu/0/own_memory_bytes", gpu),
        ];
        (1..=60).for_each(|s| tape.step(s, &values));
        tape.found("low_mfu")
            .map(|found| found.evidence.to_string())
    };
    let said = judged(1_000_000_000, 0.084, 2e9);
    assert_eq!(said.as_deref(), Some("8.4 % of the GPUs' FLOP/s"));
    assert_eq!(judged(1_000_000_000, 0.38, 2e9), None);
    assert_eq!(judged(800_000, 0.01, 2e9), None);
    assert_eq!(judged(1_000_000_000, 0.084, 0.0), None, "a processor's");
}
