//! Losses about the entropy of token frequencies.

use super::*;

/// Text whose tokens hardly depend on each other, such as DNA, ends a few percent below the entropy of their frequencies.
#[test]
fn a_loss_clearly_below_the_frequencies_is_a_fault_only_with_too_large_steps() {
    const ENTROPY: f64 = 1.386;
    let run = |below: f64| {
        let mut tape = fresh();
        tape.state.head.as_mut().unwrap().unigram_entropy = Some(ENTROPY);
        let ends = ENTROPY * (1.0 - below);
        tape.steps(1, 700, |s| {
            ends + (4.17 - ends) * (-(s as f64) / 20.0).exp() + 0.1 * noise(s)
        })
    };
    for (below, status) in [
        (-0.03, Some(Status::Fail)),
        (0.0, Some(Status::Fail)),
        (0.02, Some(Status::Warn)),
        (0.04, None),
    ] {
        assert_eq!(run(below).status("token_frequencies"), status, "{below}");
    }
    let diagnosis = run(0.02).diagnose();
    assert_ne!(diagnosis.verdict, Verdict::NotLearning);
    assert!(!diagnosis.failed(), "{:?}", diagnosis.list());
}

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
    let fast = || {
        let mut tape = fresh();
        let mut spec = tape.state.head.as_ref().unwrap().spec.clone();
        spec["optimizer"]["adamw"]["lr"] = 0.3.into();
        tape.begin("pretrain", spec);
        known(tape)
    };
    // At its end a decayed rate gains a little more, and the run was called LEARNING.
    let ends_below = |below: f64| {
        let mut tape = fast();
        tape.state.head.as_mut().unwrap().max_steps = 700;
        let tape = tape.steps(1, 700, |s| match s {
            0..=50 => stuck(s),
            _ => ENTROPY * (1.0 - below) + noise(s),
        });
        tape.status("token_frequencies")
    };
    assert_eq!(ends_below(0.05), Some(Status::Fail));
    assert_eq!(ends_below(0.12), None);
    let run = fast().steps(1, 700, stuck);
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

/// A branch of a run that had stood there since step 40 was stable, and its advice was a branch from step 500, "before it".
#[test]
fn a_branch_of_weights_without_context_is_judged_as_any_run_and_the_onset_is_dated() {
    const ENTROPY: f64 = 3.313;
    let begun = |base: Option<u64>| {
        let mut tape = fresh();
        let mut head = tape.state.head.clone().unwrap();
        head.unigram_entropy = Some(ENTROPY);
        head.spec["optimizer"]["adamw"]["lr"] = if base.is_some() { 1e-3 } else { 0.3 }.into();
        tape.add(Event::Started {
            name: head.name,
            method: head.method,
            spec: head.spec,
            n_params: 1,
            vocab_size: VOCAB,
            max_steps: 600,
            batch_tokens: 1,
            epoch_tokens: 1,
            resumed_from: base,
            precision: None,
            unigram_entropy: Some(ENTROPY),
        });
        tape.state.base_step = base.unwrap_or(0);
        tape
    };
    let first = |tape: &Tape| {
        let found = tape.found("token_frequencies").unwrap();
        found.evidence.0.iter().filter_map(|s| s.step).min()
    };
    let stuck = |s: u64| (4.15 - 0.02 * s as f64).max(3.3) + noise(s);
    let run = begun(None).steps(1, 600, stuck);
    let since = first(&run).unwrap();
    assert!((20..=45).contains(&since), "{since}");
    let found = run.found("token_frequencies").unwrap();
    assert!(
        found.fix.starts_with("restart from before it"),
        "{}",
        found.fix
    );
    let branch = begun(Some(500)).steps(501, 600, |s| 3.3 + noise(s));
    assert_eq!(branch.diagnose().verdict, Verdict::NotLearning);
    assert_eq!(first(&branch), Some(500));
    let fix = branch.found("token_frequencies").unwrap().fix;
    assert_eq!(fix, "train from the start: -s lr=1e-3");
    // One that learned context has no such finding, and one that is young no verdict yet.
    let learned = begun(Some(500)).steps(501, 600, |s| 2.4 + noise(s));
    assert_eq!(learned.status("token_frequencies"), None);
    let young = begun(Some(500)).steps(501, 540, |s| 3.3 + noise(s));
    assert_eq!(young.diagnose().verdict, Verdict::TooEarly);
}

/// A run that had learned context until its last third had "stayed there" since its first steps, on the way down.
#[test]
fn what_was_below_the_frequencies_before_is_not_there_since_it_passed_them() {
    const ENTROPY: f64 = 3.313;
    let run = |loss: &dyn Fn(u64) -> f64| {
        let mut tape = fresh();
        tape.state.head.as_mut().unwrap().unigram_entropy = Some(ENTROPY);
        tape.steps(1, 900, loss)
    };
    let collapsed = run(&|s| match s {
        0..=100 => 4.15 - 0.008 * s as f64 + noise(s),
        101..=600 => 2.9 + noise(s),
        _ => 3.3 + noise(s),
    });
    assert_eq!(collapsed.status("token_frequencies"), None);
    // A dip before the middle third: it is there since its end.
    let dipped = run(&|s| match s {
        0..=50 => 4.15 - 0.017 * s as f64 + noise(s),
        101..=150 => 2.9 + noise(s),
        _ => 3.3 + noise(s),
    });
    let found = dipped.found("token_frequencies").unwrap();
    let since = found.evidence.0.iter().filter_map(|s| s.step).min();
    assert!(
        since.is_some_and(|step| (140..=165).contains(&step)),
        "{found:?}"
    );
}
