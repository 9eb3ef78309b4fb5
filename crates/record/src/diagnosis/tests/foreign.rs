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
