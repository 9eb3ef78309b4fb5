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
