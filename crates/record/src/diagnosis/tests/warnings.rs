//! The newest warning of the engine, and what it advises.

use super::*;

/// `read the log of the run` replaced what the warning itself advised.
#[test]
fn a_warning_keeps_its_own_advice() {
    let mut tape = fresh();
    let mut fix = |step: u64, message: &str, hint: &str| {
        tape.step(step, &[("train/loss", 4.0)]);
        tape.add(Event::Warned {
            step,
            code: "x".into(),
            message: message.into(),
            hint: hint.into(),
        });
        tape.found("warnings").unwrap().fix
    };
    assert_eq!(
        fix(1, "the loss jumped", "lower the rate"),
        "lower the rate"
    );
    assert_eq!(fix(2, "the disk is full", ""), "read the log of the run");
    tape.add(Event::RolledBack { step: 1 });
    let found = tape.found("warnings").unwrap();
    assert!(
        found.evidence.to_string().starts_with("the loss jumped"),
        "{found:?}"
    );
    assert_eq!(found.fix, "read the log of the run");
}
