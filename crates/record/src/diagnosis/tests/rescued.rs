//! What a rescue is put down to.

use super::*;

fn cause(lr: f64, tuned: bool) -> (String, String) {
    let mut tape = Tape::new(None, 0).steps(1, 400, |_| 2.0);
    if tuned {
        tape.add(Event::Adjusted {
            step: 390,
            key: "lr".into(),
            old: Num(0.01),
            new: Num(lr),
        });
    }
    tape.add(Event::RolledBack { step: 380 });
    tape.add(Event::Rescued {
        step: 380,
        from: 395,
        why: "loss 802".into(),
        skipped: (380, 396),
        lr: (Num(lr), Num(lr / 2.0)),
        moments_reset: true,
        count: 1,
        at_most: 3,
        undo: None,
    });
    let found = tape.found("rescued").unwrap();
    (found.cause, found.fix)
}

/// A rate that somebody raised to 500 times was called a matter of the batches.
#[test]
fn a_rescue_after_the_learning_rate_was_raised_names_that() {
    let (why, fix) = cause(5.0, true);
    assert!(why.contains("was raised while it trained"), "{why}");
    assert!(!fix.contains("data batches"), "{fix}");
    let (why, fix) = cause(0.01, false);
    assert!(why.contains("outlier batches") && fix.contains("data batches"));
    // One that was lowered is not what the spike comes from.
    assert!(cause(0.005, true).0.contains("outlier batches"));
}
