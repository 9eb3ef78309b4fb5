//! Losses about the entropy of token frequencies.

use super::*;

#[test]
fn a_run_that_only_knows_token_frequencies_is_not_learning() {
    const ENTROPY: f64 = 3.313;
    let known = |mut tape: Tape| {
        tape.state.head.as_mut().unwrap().unigram_entropy = Some(ENTROPY);
        tape
    };
    // As lr 0.3 trained the quickstart: frequencies within 50 steps, and a final tenth of a nat at the schedule's end.
    let stuck = |s: u64| match s {
        0..=50 => 4.15 - 0.017 * s as f64 + noise(s),
        _ => 3.32 - 0.08 * s as f64 / 700.0 + noise(s),
    };
    let run = known(fresh()).steps(1, 700, stuck);
    let found = run.found("token_frequencies").unwrap();
    assert_eq!(found.status, Status::Fail);
    assert!(found.fix.contains("-s lr="), "{}", found.fix);
    assert_eq!(run.diagnose().verdict, Verdict::NotLearning);
    assert_eq!(run.status("train_loss"), None);
    // Runs that go below it, or whose frequencies were not counted, are not judged by it.
    for step in [150, 300, 600, 1_000] {
        let run = known(fresh()).steps(1, step, learning);
        assert_eq!(run.status("token_frequencies"), None, "{step}");
    }
    let unknown = fresh().steps(1, 700, stuck);
    assert_eq!(unknown.status("token_frequencies"), None);
    // Pretrained weights may begin anywhere.
    let tuned = known(Tape::new(Some("base"), 0)).steps(1, 700, |s| 3.3 + noise(s));
    assert_eq!(tuned.status("token_frequencies"), None);
}
