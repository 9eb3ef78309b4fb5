//! Runs of other programs: fixes do not mention settings and keys of this one.

use super::*;

#[test]
fn advice_on_a_run_of_another_program_names_nothing_of_this_one() {
    let run = |pid: u32| {
        let mut tape = Tape::new(Some("a model"), 0);
        tape.add(Event::Hello {
            run: "made up".into(),
            engine: "csv".into(),
            pid,
            host: "another program".into(),
        });
        tape.steps(1, 300, |s| if s < 200 { learning(s) } else { f64::NAN })
    };
    let (ours, theirs) = (run(42).diagnose(), run(0).diagnose());
    assert!(ours.summary.contains("-s lr=1e-3"), "{}", ours.summary);
    assert!(ours.summary.contains("(t tunes"), "{}", ours.summary);
    let fix = "lower the learning rate: learning_rate=1e-3";
    assert!(theirs.summary.ends_with(fix), "{}", theirs.summary);
    let found = theirs.findings.iter().find(|f| f.id == "diverged");
    assert_eq!(found.unwrap().fix, fix);
    for finding in &theirs.findings {
        assert!(
            !finding.expected.contains("rollout."),
            "{}",
            finding.expected
        );
    }
}
