//! Passes over the answers of a rollout, and a stop while they are written. What is learned from them is elsewhere.

use super::*;

/// Between the passes of a rollout over two updates, too, a resume deals answers as the whole run does.
#[test]
fn a_resume_at_the_end_of_a_pass_goes_on_with_the_same_answers() {
    let extra = ["rollout.epochs=2", "rollout.steps=2", "max_steps=8"];
    let straight = run_of(&extra);
    let whole = straight.go();
    let mut parted = run_of(&extra);
    parted.job.stop_after = Some(6);
    let (first, second) = (parted.go(), parted.resumed());
    let parts = [&first, &second].map(|events| readings(events, "grad_norm"));
    assert_eq!(readings(&whole, "grad_norm"), parts.concat());
    same_files(&straight.checkpoint(8), &parted.checkpoint(8));
}

/// A stop while answers are written leaves the step undone; the same answers are written at the resume.
#[test]
fn a_stop_breaks_a_rollout_off() {
    let run = run_of(&["max_steps=3"]);
    opened(&run, |cx, stepper, _| {
        let mut asked = 0;
        let mut broken_off = || {
            asked += 1;
            asked > 5
        };
        let experience = stepper.experience();
        let step = experience.step(0, &mut cx.state, &mut broken_off).unwrap();
        assert!(step.is_none() && cx.state.in_use.is_none());
        let step = experience.step(0, &mut cx.state, &mut || false).unwrap();
        assert!(step.is_some());
        // No more is asked than there are tokens of one answer each.
        assert!(asked < 40, "{asked}");
    });
}
