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
    // What NaN has destroyed no lower rate brings back.
    assert!(!ours.summary.contains("(t tunes"), "{}", ours.summary);
    let fix = "restart from before it with a lower learning rate: learning_rate=1e-3";
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

/// A log of TRL's GRPO: reward, spread of the rewards and share of groups with equal ones at each step.
fn grpo(steps: u64, at: impl Fn(u64) -> (f64, f64, f64)) -> Tape {
    let mut tape = Tape::new(Some("a model"), 0);
    tape.add(Event::Hello {
        run: "made up".into(),
        engine: "trainer_state".into(),
        pid: 0,
        host: "another program".into(),
    });
    for step in 1..=steps {
        let (reward, spread, same) = at(step);
        let values = [
            // The surrogate is about 0 and says nothing.
            ("policy_loss", noise(step * 5)),
            ("grad_norm", 0.3),
            ("reward", reward),
            ("reward_std", spread),
            ("frac_reward_zero_std", same),
            ("completions/mean_length", 40.0 + 100.0 * noise(step)),
            ("completions/clipped_ratio", 0.1),
            ("entropy", if spread == 0.0 { 1e-3 } else { 1.2 }),
        ];
        tape.step(step, &values);
    }
    tape
}

#[test]
fn rl_of_another_program_is_judged_by_its_training_reward() {
    let run = |steps: u64, first: f64, last: f64| {
        grpo(steps, move |step| {
            let share = step as f64 / steps as f64;
            (first + (last - first) * share + noise(step * 7), 0.4, 0.3)
        })
        .diagnose()
    };
    for (first, last, verdict) in [
        (0.2, 0.7, Verdict::Learning),
        (0.4, 0.4, Verdict::Stable),
        (0.6, 0.2, Verdict::NotLearning),
    ] {
        let found = run(300, first, last);
        assert_eq!(found.verdict, verdict, "{}", found.summary);
        let told = found.summary.contains("reward of training prompts");
        assert!(
            told && !found.summary.contains("--branch"),
            "{}",
            found.summary
        );
    }
    assert_eq!(run(50, 0.2, 0.7).verdict, Verdict::TooEarly);
    // What was gained and lost again.
    let found = grpo(300, |step| {
        let reward = if (101..=200).contains(&step) {
            0.8
        } else {
            0.3
        };
        (reward + noise(step * 7), 0.4, 0.3)
    });
    assert_eq!(found.diagnose().verdict, Verdict::NotLearning);
}

#[test]
fn a_policy_loss_that_is_not_finite_has_diverged() {
    let mut tape = grpo(100, |_| (0.4, 0.4, 0.3));
    tape.step(101, &[("policy_loss", f64::NAN), ("reward", 0.4)]);
    let found = tape.found("diverged").unwrap();
    assert_eq!(found.evidence.to_string(), "policy loss NaN at step 101");
    assert_eq!(tape.diagnose().verdict, Verdict::Diverged);
    // What is no reading ends a run too, until the run goes on from before it.
    let mut tape = grpo(100, |_| (0.4, 0.4, 0.3));
    tape.add(Event::Warned {
        step: 100,
        code: crate::run::state::NON_FINITE.into(),
        message: "a logit of an answer is NaN".into(),
        hint: String::new(),
    });
    let found = tape.found("diverged").unwrap();
    let said = "a logit of an answer is NaN at step 100";
    assert_eq!(found.evidence.to_string(), said);
    assert_eq!(tape.diagnose().verdict, Verdict::Diverged);
    tape.add(Event::RolledBack { step: 90 });
    assert_eq!(tape.found("diverged"), None);
}

/// Without a pass@1 it was taken for 0.00: a solved run failed.
#[test]
fn a_run_whose_reward_rose_until_it_no_longer_varies_has_solved_its_prompts() {
    let solved = grpo(300, |step| {
        let left = (1.0 - step as f64 / 150.0).max(0.0);
        (1.0 - 0.8 * left, 0.4 * left, 1.0 - 0.7 * left)
    });
    for id in ["constant_reward", "same_rewards", "entropy_collapse"] {
        let found = solved.found(id).unwrap();
        assert_eq!(found.status, Status::Pass, "{found:?}");
    }
    assert_eq!(solved.diagnose().verdict, Verdict::Learning);
    // A reward that has stayed where it was teaches nothing, and one that fell neither.
    for (begun, ends) in [(0.1, 0.1), (0.6, 0.1)] {
        let stuck = grpo(300, |step| match step {
            0..=100 => (begun, 0.3, 0.5),
            _ => (ends, 0.0, 1.0),
        });
        let found = stuck.found("constant_reward").unwrap();
        assert_eq!(found.status, Status::Fail, "{found:?}");
        let said = stuck.found("same_rewards").unwrap().evidence.to_string();
        assert!(
            said.contains("mean reward") && !said.contains("pass@1"),
            "{said}"
        );
        let collapsed = stuck.found("entropy_collapse").unwrap();
        assert_eq!(
            (collapsed.status, collapsed.evidence.0.len()),
            (Status::Warn, 1)
        );
    }
}

/// A log of another program with a loss at each step, and no more.
fn plain(steps: u64, rate: Option<f64>, loss: impl Fn(u64) -> f64) -> Tape {
    let mut tape = Tape {
        state: RunState::new(),
        seq: 0,
    };
    tape.add(Event::Hello {
        run: "made up".into(),
        engine: "jsonl".into(),
        pid: 0,
        host: "another program".into(),
    });
    for step in 1..=steps {
        let rate = rate.map(|lr| ("lr", lr));
        let values = [("train/loss", loss(step))].into_iter().chain(rate);
        tape.step(step, &values.collect::<Vec<_>>());
    }
    tape
}

/// 2,000 steps at ln V were STABLE, and so was a learning rate of 0 in every line.
#[test]
fn a_loss_that_has_never_fallen_is_reported() {
    let at = |level: f64| move |step: u64| level + noise(step);
    for loss in [at(10.82), at(10.8)] {
        let found = plain(2000, Some(1e-3), loss).diagnose();
        assert_eq!(found.verdict, Verdict::NotLearning, "{}", found.summary);
        assert!(
            found
                .basis
                .cause
                .contains("has not fallen since its first reading")
        );
    }
    let constant = plain(400, None, |_| 10.8).diagnose();
    assert_eq!(
        constant.verdict,
        Verdict::NotLearning,
        "{}",
        constant.summary
    );
    // Where the loss is one of trained weights, a rate of 0 explains it.
    let still = plain(2000, Some(0.0), at(2.0))
        .found("not_learning")
        .unwrap();
    assert_eq!(still.status, Status::Fail);
    assert!(
        still.cause.contains("learning rate of 0"),
        "{}",
        still.cause
    );
    // Else they may be at their best: a word, and no failure.
    let trained = plain(2000, Some(1e-5), at(2.0)).diagnose();
    assert_eq!(trained.verdict, Verdict::Stable);
    let row = trained
        .findings
        .iter()
        .find(|f| f.id == "train_loss")
        .unwrap();
    assert_eq!(row.status, Status::Warn);
    assert!(
        row.cause.contains("has not fallen since its first reading"),
        "{}",
        row.cause
    );
    // What falls, is young, or ends at a rate of 0 is no fault.
    let falls = plain(2000, Some(1e-3), |s| {
        9.0 - 6.0 * s as f64 / 2000.0 + noise(s)
    });
    assert_eq!(falls.diagnose().verdict, Verdict::Learning);
    assert!(!plain(60, Some(1e-3), at(10.8)).diagnose().failed());
}

/// Labels masked from step 51 on were found while the newest 60 readings held the fall, and STABLE at step 400.
#[test]
fn a_loss_of_exactly_0_remains_a_finding() {
    let masked = |last: u64| plain(last, None, |step| if step > 50 { 0.0 } else { 2.0 });
    for last in [150, 400, 9_000] {
        let diagnosis = masked(last).diagnose();
        assert_eq!(diagnosis.verdict, Verdict::NotLearning, "{last}");
        let found = diagnosis.findings.iter().find(|f| f.id == "sudden_drop");
        let said = found.unwrap().evidence.to_string();
        let exact = last > 1_000 || said.contains("since step 51");
        assert!(exact && said.contains("it was 2.000 before"), "{said}");
    }
    assert_eq!(
        plain(300, None, |_| 0.0).status("sudden_drop"),
        Some(Status::Fail)
    );
    // One that is learned ends at 0 too, where its log has four decimals.
    let learned = plain(600, None, |step| {
        (2.0 * (-(step as f64) / 40.0).exp() * 1e4).round() / 1e4
    });
    assert_eq!(learned.status("sudden_drop"), None);
}
