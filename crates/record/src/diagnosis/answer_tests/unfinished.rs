//! Completions that end inside their thoughts.

use super::*;

#[test]
fn completions_that_end_inside_their_thoughts_are_told_with_the_longer_limit() {
    let at = |step| At {
        unfinished: 0.3,
        ..healthy(step)
    };
    let diagnosis = history(at);
    assert_eq!(faults(&diagnosis), [("answer_length", Status::Warn)]);
    let found = diagnosis.findings.iter().find(|f| f.id == "answer_length");
    let words = found.map(|f| format!("{} {}", f.evidence, f.fix)).unwrap();
    assert!(words.contains("30 % end inside") && words.contains("max_new_tokens"));
}
