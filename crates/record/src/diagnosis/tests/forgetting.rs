//! Side effects of training: on another validation set, on a task.

use super::*;
use crate::wire::{Direction, MetricInfo};

#[test]
fn forgetting_is_another_set_getting_worse_while_the_own_one_gets_better() {
    let run = |own: &[f64], other: &[f64]| {
        let mut tape = Tape::new(Some("base"), 0).steps(1, 500, |_| 2.0);
        for (i, (own, other)) in own.iter().zip(other).enumerate() {
            let values = [("val/loss", own), ("extra/general", other)];
            tape.add(Event::Evaluated {
                step: 100 * i as u64,
                tokens: 0,
                values: values.map(|(id, x)| (id.to_string(), Num(*x))).into(),
                n_windows: 40,
                whole: false,
                seconds: 0.0,
            });
        }
        tape
    };
    let falling = [2.0, 1.9, 1.8, 1.7];
    let forgets = run(&falling, &[1.5, 1.5, 1.6, 1.7]);
    let found = forgets.found("forgetting").unwrap();
    assert_eq!(found.status, Status::Warn);
    assert!(
        found.evidence.to_string().contains("general"),
        "{}",
        found.evidence
    );
    let status = |own: &[f64], other: &[f64]| run(own, other).status("forgetting");
    assert_eq!(
        status(&falling, &[1.5, 1.49, 1.5, 1.51]),
        Some(Status::Pass),
        "within the margin"
    );
    assert_eq!(
        status(&falling, &[1.5, 1.5, 1.5, 1.7]),
        Some(Status::Pass),
        "once is not enough"
    );
    assert_eq!(
        status(&[2.0; 4], &[1.5, 1.5, 1.6, 1.7]),
        Some(Status::Pass),
        "nothing is gained"
    );
}

#[test]
fn a_task_below_its_start_by_more_than_chance_is_reported() {
    let run = |scores: &[f64]| {
        let mut tape = Tape::new(Some("base"), 0).steps(1, 500, |_| 2.0);
        let score = MetricInfo {
            id: "eval/piqa".into(),
            direction: Direction::Higher,
            ..MetricInfo::default()
        };
        tape.add(Event::MetricsDeclared {
            metrics: vec![score],
        });
        for (i, score) in scores.iter().enumerate() {
            let values = [("eval/piqa", *score), ("eval_stderr/piqa", 0.03)];
            tape.add(Event::Evaluated {
                step: 100 * i as u64,
                tokens: 0,
                values: values.map(|(id, x)| (id.to_string(), Num(x))).into(),
                n_windows: 100,
                whole: false,
                seconds: 0.0,
            });
        }
        tape
    };
    let fell = run(&[0.7, 0.69, 0.57, 0.56]);
    let found = fell.found("task_drop").unwrap();
    assert_eq!(found.status, Status::Warn);
    let told = found.evidence.to_string();
    assert!(
        told.contains("piqa is 0.56") && told.contains("0.7"),
        "{told}"
    );
    let status = |scores: &[f64]| run(scores).status("task_drop");
    let pass = Some(Status::Pass);
    assert_eq!(status(&[0.7, 0.64, 0.64]), pass, "1.4 standard errors");
    assert_eq!(status(&[0.7, 0.69, 0.57]), pass, "once is not enough");
    assert_eq!(
        status(&[0.7, 0.56]),
        Some(Status::Warn),
        "3.3 standard errors"
    );
    assert_eq!(status(&[0.7, 0.8, 0.9]), pass);
    assert_eq!(status(&[0.7]), None, "nothing to compare it with");
}
