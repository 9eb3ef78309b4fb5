//! Since when a divergence is there: checkpoints from before it are good.

use super::*;

/// The first step that the finding names.
fn since(tape: &Tape) -> u64 {
    let found = tape.found("diverged").unwrap();
    assert_eq!(found.status, Status::Fail);
    let steps = found.evidence.0.iter().filter_map(|s| s.step);
    steps.min().unwrap()
}

/// Every checkpoint behind a spike of the warm-up counted as broken.
#[test]
fn a_spike_that_a_run_recovered_from_is_no_part_of_its_divergence() {
    let run = |end: f64| {
        fresh().steps(1, 1_200, move |s| match s {
            0..=40 => 4.17 + noise(s),
            41..=80 => 6.0 + noise(s),
            81..=1_000 => 2.0 + noise(s),
            _ => end + noise(s),
        })
    };
    // Above a uniform guess, and below it but not recovered.
    for end in [7.0, 4.3] {
        let since = since(&run(end));
        assert!((990..=1_010).contains(&since), "{end}: {since}");
    }
    // Of one that never recovered it is the spike.
    let never = fresh().steps(1, 600, |s| match s {
        0..=40 => 4.17 + noise(s),
        41..=80 => 6.0 + noise(s),
        _ => 4.3 + noise(s),
    });
    let since = since(&never);
    assert!((41..=60).contains(&since), "{since}");
}

/// The checkpoint at the end of the best window was not offered.
#[test]
fn the_best_reading_is_no_sign_of_what_was_lost_after_it() {
    let lost = fresh()
        .steps(1, 1_000, learning)
        .steps(1_001, 1_100, |s| 3.4 + noise(s));
    let since = since(&lost);
    assert!((995..=1_010).contains(&since), "{since}");
}
