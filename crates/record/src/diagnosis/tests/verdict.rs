//! The verdict in words, and as a finding with its parts.

use super::*;

/// Three losses on one screen were called the training loss.
#[test]
fn the_number_of_the_verdict_is_that_of_the_row_below_it() {
    let mut tape = fresh().steps(1, 1000, learning);
    tape.evaluate(1000, learning(1000));
    let diagnosis = tape.diagnose();
    let row = diagnosis.findings[0].evidence.to_string();
    let now = row.split_once(' ').unwrap().0;
    let told = format!(" → {now}, val ");
    assert!(diagnosis.summary.contains(&told), "{}", diagnosis.summary);
}

/// JSON had the fix at the end of the evidence, and nothing in its own field.
#[test]
fn a_fault_is_told_in_its_parts() {
    let tape = fresh().steps(1, 300, |step| 4.0 + noise(step));
    let diagnosis = tape.diagnose();
    let list = diagnosis.list();
    let named = tape.found("not_learning").unwrap();
    let told = &list[0];
    assert_eq!(
        (&told.cause, &told.fix, &told.expected, &told.source),
        (&named.cause, &named.fix, &named.expected, &named.source)
    );
    assert!(!named.fix.is_empty() && told.evidence == named.evidence);
    let sentence = format!("{}; {}", named.evidence, named.fix);
    assert_eq!(diagnosis.summary, sentence);
}

/// 53 times the loss of guessing, falling from what the branch began with, was LEARNING; the initial weights were blamed.
#[test]
fn a_branch_of_a_run_that_diverged_is_not_learning() {
    let branch = |loss: fn(u64) -> f64| {
        let mut tape = fresh();
        tape.state.base_step = 1000;
        tape.steps(1001, 1600, loss)
    };
    let sick = branch(|step| 346.0 - (step - 1000) as f64 * 0.2 + noise(step));
    let diagnosis = sick.diagnose();
    assert_eq!(diagnosis.verdict, Verdict::Diverged);
    let found = sick.found("diverged").unwrap();
    assert!(found.fix.contains("earlier checkpoint"), "{}", found.fix);
    let others = ["initial_loss", "lr_too_low", "lr_too_high"];
    assert_eq!(
        others.map(|id| sick.status(id) == Some(Status::Warn)),
        [false; 3]
    );
    // One that came back, and one of a healthy run.
    let back = branch(|step| if step < 1100 { 300.0 } else { learning(step) });
    assert_eq!(
        back.diagnose().verdict,
        Verdict::Stable,
        "{:#?}",
        back.diagnose()
    );
    let healthy = branch(|step| 1.6 + learning(step));
    assert_ne!(healthy.status("diverged"), Some(Status::Fail));
}

/// A branch of step 1,000 was judged after 20 of its own steps, and one that its rate ruined was told that its checkpoint was.
#[test]
fn a_branch_is_judged_from_its_own_beginning() {
    let branch = |last: u64, loss: fn(u64) -> f64| {
        let mut tape = fresh();
        tape.state.base_step = 1000;
        tape.steps(1001, last, loss)
    };
    let worse = |step: u64| if step <= 1020 { 2.0 } else { 2.3 } + noise(step);
    assert_ne!(
        branch(1060, worse).status("not_learning"),
        Some(Status::Warn)
    );
    assert_eq!(
        branch(1400, worse).status("not_learning"),
        Some(Status::Warn)
    );
    // A little above a uniform guess at the start.
    let ruined = branch(
        1400,
        |step| if step <= 1020 { 4.25 } else { 9.0 } + noise(step),
    );
    let found = ruined.found("diverged").unwrap();
    assert_eq!(found.status, Status::Fail);
    assert!(found.fix.contains("learning rate"), "{}", found.fix);
}
