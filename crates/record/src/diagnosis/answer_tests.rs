//! Rules on RL runs: each fault planted in a synthetic history, and healthy histories for comparison.

mod unfinished;

use super::*;
use crate::base::clock::UnixMillis;
use crate::wire::{Envelope, Event, Num, Values};

const STEPS: u64 = 400;
/// Steps between evaluations.
const EVERY: u64 = 50;

/// The readings of a history at a step, as in a healthy run.
#[derive(Clone, Copy)]
struct At {
    reward: f64,
    spread: f64,
    same: f64,
    length: f64,
    cut: f64,
    entropy: f64,
    pass: f64,
    repetition: f64,
    unread: f64,
    unfinished: f64,
    kl: f64,
}

/// From 0.2 towards 0.9 with progress, with the noise of a batch.
fn healthy(step: u64) -> At {
    let learned = 1.0 - (-(step as f64) / 150.0).exp();
    let noise = [0.01, -0.03, 0.015, -0.005, 0.03, -0.02][step as usize % 6];
    At {
        reward: 0.2 + 0.7 * learned + noise,
        spread: 0.4 - 0.2 * learned,
        same: 0.3 + 0.4 * learned + noise,
        length: 12.0 + 40.0 * noise,
        cut: 0.05 + noise.abs(),
        entropy: 1.2 - 0.9 * learned + noise,
        pass: 0.2 + 0.7 * learned,
        repetition: 0.1 + noise,
        unread: 0.4 * (1.0 - learned) + noise.abs(),
        unfinished: noise.abs(),
        kl: 0.2 * learned + noise.abs(),
    }
}

fn history(at: impl Fn(u64) -> At) -> Diagnosis {
    history_of("grpo", 0.0, at)
}

/// The same for a run of a method with a KL penalty to the reference.
fn history_of(method: &str, beta: f64, at: impl Fn(u64) -> At) -> Diagnosis {
    diagnose(&state_of(method, beta, at))
}

fn state_of(method: &str, beta: f64, at: impl Fn(u64) -> At) -> RunState {
    let mut state = RunState::new();
    let mut seq = 0;
    let mut add = |event| {
        seq += 1;
        let (v, t) = (1, UnixMillis(seq));
        state.apply(&Envelope { v, seq, t, event });
    };
    add(Event::Started {
        name: "made up".into(),
        method: method.into(),
        spec: serde_json::json!({"method": {method: {"beta": beta}}}),
        n_params: 1,
        vocab_size: 100,
        max_steps: 10_000,
        batch_tokens: 1,
        epoch_tokens: 1,
        resumed_from: None,
        precision: None,
        unigram_entropy: None,
    });
    for step in 0..=STEPS {
        let now = at(step);
        let values = |pairs: &[(&str, f64)]| -> Values {
            let pairs = pairs.iter();
            pairs.map(|(id, x)| (id.to_string(), Num(*x))).collect()
        };
        if step > 0 {
            add(Event::Stepped {
                step,
                tokens: step,
                values: values(&[
                    ("policy_loss", 0.01),
                    ("grad_norm", 0.3),
                    ("reward", now.reward),
                    ("reward_std", now.spread),
                    ("frac_reward_zero_std", now.same),
                    ("completions/mean_length", now.length),
                    ("completions/clipped_ratio", now.cut),
                    ("entropy", now.entropy),
                    ("completions/repetition", now.repetition),
                    ("completions/unread_ratio", now.unread),
                    ("completions/unfinished_thoughts", now.unfinished),
                    ("kl", now.kl),
                ]),
            });
        }
        if step.is_multiple_of(EVERY) {
            add(Event::Evaluated {
                step,
                tokens: step,
                values: values(&[("eval/pass@1", now.pass)]),
                n_windows: 100,
                whole: false,
                seconds: 0.0,
            });
        }
    }
    state
}

/// The findings that did not pass.
fn faults(diagnosis: &Diagnosis) -> Vec<(&str, Status)> {
    let found = diagnosis.findings.iter();
    let found = found.filter(|f| f.status != Status::Pass);
    found.map(|f| (f.id.as_str(), f.status)).collect()
}

/// The evaluation at the end of a run, of all its prompts.
fn evaluate_all(state: &mut RunState, share: f64) {
    state.apply(&Envelope {
        v: 1,
        seq: 1_000_000,
        t: UnixMillis(1_000_000),
        event: Event::Evaluated {
            step: STEPS + 1,
            tokens: 1,
            values: [("eval/pass@1".to_string(), Num(share))].into(),
            n_windows: 400,
            whole: true,
            seconds: 0.0,
        },
    });
}

/// The page of the end showed another pass@1 beside it.
#[test]
fn a_share_of_a_part_is_told_with_its_step_and_that_of_all_prompts() {
    let mut state = state_of("grpo", 0.0, healthy);
    evaluate_all(&mut state, 0.81);
    let told = diagnose(&state).summary;
    let steps = [STEPS, STEPS + 1].map(crate::base::human::grouped);
    let [part, all] = steps.map(|step| format!("at step {step}"));
    assert!(
        told.contains(&format!("{part} (0.81 on all 400 {all})")),
        "{told}"
    );
}

const RULES_OF_ANSWERS: [&str; 9] = [
    "empty_answers",
    "repeated_answers",
    "kl_runaway",
    "unread_answers",
    "constant_reward",
    "reward_hacking",
    "same_rewards",
    "entropy_collapse",
    "answer_length",
];

#[test]
fn healthy_histories_pass_every_rule() {
    let solved = |step| At {
        // All answers are right and certain: groups are alike and entropy is zero, which is not a fault.
        reward: 1.0,
        spread: 0.0,
        same: 1.0,
        entropy: 0.001,
        pass: 1.0,
        ..healthy(step)
    };
    let noisy = |step: u64| {
        let now = healthy(step);
        // Held-out results fluctuate by chance.
        let chance = [0.0, -0.04, 0.03][(step / EVERY) as usize % 3];
        At {
            pass: now.pass + chance,
            ..now
        }
    };
    let late = |step| {
        if step < 200 {
            healthy(step)
        } else {
            solved(step)
        }
    };
    let histories: [&dyn Fn(u64) -> At; 3] = [&healthy, &noisy, &late];
    for (i, at) in histories.into_iter().enumerate() {
        let diagnosis = history(at);
        assert_eq!(faults(&diagnosis), [], "history {i}");
        for id in RULES_OF_ANSWERS {
            assert!(diagnosis.findings.iter().any(|f| f.id == id), "{id}, {i}");
        }
    }
}

#[test]
fn evidence_agrees_with_its_title() {
    let diagnosis = history(healthy);
    let found = |id: &str| diagnosis.findings.iter().find(|f| f.id == id).unwrap();
    let same = found("same_rewards");
    let said = same.evidence.to_string();
    assert!(said.ends_with(" % of groups"), "{said}");
    assert_eq!(same.title, "equal rewards");
    // The best evaluation is the newest: it is stated once.
    let said = found("reward_hacking").evidence.to_string();
    assert_eq!(said, "pass@1 0.85 at step 400");
}

#[test]
fn a_rising_reward_with_worse_held_out_answers_is_reward_hacking() {
    let at = |step: u64| {
        let now = healthy(step);
        let fallen = (step as f64 - 150.0).max(0.0) / 500.0;
        At {
            pass: healthy(step.min(150)).pass - fallen,
            reward: now.reward + fallen,
            ..now
        }
    };
    let diagnosis = history(at);
    assert_eq!(faults(&diagnosis), [("reward_hacking", Status::Fail)]);
    let found = diagnosis.findings.iter().find(|f| f.id == "reward_hacking");
    let evidence = found.unwrap().evidence.to_string();
    assert!(
        evidence.contains("pass@1 0.64 at step 150") && evidence.contains("mean reward"),
        "{evidence}"
    );
}

/// The best of several evaluations is lucky: those after it are below it by chance.
#[test]
fn a_fall_within_chance_is_no_reward_hacking() {
    let lucky = |step: u64| At {
        pass: [0.2, 0.56, 0.55, 0.57, 0.56, 0.55, 0.65, 0.53, 0.54][(step / EVERY) as usize],
        ..healthy(step)
    };
    assert_eq!(faults(&history(lucky)), []);
}

#[test]
fn a_share_of_other_prompts_is_no_reward_hacking() {
    let mut state = state_of("grpo", 0.0, healthy);
    for n in 1..=2 {
        let values: Values = [("eval/pass@1".to_string(), Num(0.3))].into();
        state.apply(&Envelope {
            v: 1,
            seq: 1_000_000 + n,
            t: UnixMillis(1_000_000 + n),
            event: Event::Evaluated {
                step: STEPS + n,
                tokens: 1,
                values,
                n_windows: 400,
                whole: true,
                seconds: 0.0,
            },
        });
    }
    let diagnosis = diagnose(&state);
    let found = diagnosis.findings.iter().find(|f| f.id == "reward_hacking");
    assert_eq!(found.unwrap().status, Status::Pass);
}

#[test]
fn falling_reward_and_held_out_answers_are_not_hacking_but_a_warning() {
    let at = |step: u64| {
        let best = healthy(step.min(150));
        let fallen = (step as f64 - 150.0).max(0.0) / 500.0;
        At {
            pass: best.pass - fallen,
            reward: best.reward - fallen,
            ..best
        }
    };
    assert_eq!(faults(&history(at)), [("reward_hacking", Status::Warn)]);
}

#[test]
fn a_reward_that_never_varies_fails_and_groups_of_one_reward_warn() {
    let never = |step| At {
        reward: 0.0,
        spread: 0.0,
        same: 1.0,
        pass: 0.0,
        ..healthy(step)
    };
    // As f32 rounds the deviation of equal values.
    let rounded = |step| At {
        reward: 0.1,
        spread: 2e-9,
        ..never(step)
    };
    let found = history(rounded);
    let found = faults(&found);
    assert!(
        found.contains(&("constant_reward", Status::Fail)),
        "{found:?}"
    );
    let found = history(never);
    let found = faults(&found);
    assert!(
        found.contains(&("constant_reward", Status::Fail)),
        "{found:?}"
    );
    assert!(found.contains(&("same_rewards", Status::Warn)), "{found:?}");
    let hard = |step| At {
        reward: 0.04,
        spread: 0.03,
        same: 0.93,
        pass: 0.05,
        ..healthy(step)
    };
    let easy = |step| At {
        reward: 0.85,
        spread: 0.03,
        same: 0.93,
        pass: 0.85,
        ..healthy(step)
    };
    let said = |diagnosis: &Diagnosis| {
        assert_eq!(faults(diagnosis), [("same_rewards", Status::Warn)]);
        let found = diagnosis.findings.iter().find(|f| f.id == "same_rewards");
        found.unwrap().clone()
    };
    let words = |diagnosis: &Diagnosis| said(diagnosis).cause;
    assert!(words(&history(hard)).contains("too hard"));
    // More supervised training makes prompts that are too easy easier still.
    let (harder, easier) = (said(&history(easy)).fix, said(&history(hard)).fix);
    assert!(
        harder.contains("harder prompts") && !harder.contains("supervised"),
        "{harder}"
    );
    assert!(easier.contains("supervised fine-tuning"), "{easier}");
    let nearly = |step| At {
        pass: 0.8998,
        ..easy(step)
    };
    let shown = said(&history(nearly)).evidence.to_string();
    assert!(shown.contains("pass@1 0.8998"), "{shown}");
    // Rewards of 0.2 and 0.6 by the prompt, the same for all its completions.
    let by_prompt = |step| At {
        reward: 0.4,
        spread: 0.2,
        same: 1.0,
        pass: 0.4,
        ..healthy(step)
    };
    assert!(words(&history(by_prompt)).contains("never between completions of one prompt"));
    assert!(words(&history(easy)).contains("too easy"));
}

#[test]
fn answers_of_one_token_are_reported_instead_of_the_reward_that_never_varies() {
    let ended = |step| At {
        reward: 0.0,
        spread: 0.0,
        same: 1.0,
        pass: 0.0,
        length: 1.0,
        cut: 0.0,
        ..healthy(step)
    };
    let fault = |at: &dyn Fn(u64) -> At| {
        let found = history(at);
        let found: Vec<_> = found.findings.into_iter().collect();
        assert!(found.iter().all(|f| f.id != "constant_reward"), "{found:?}");
        let found = found.into_iter().find(|f| f.id == "empty_answers").unwrap();
        assert_eq!(found.status, Status::Fail);
        (found.cause, found.fix)
    };
    let (cause, fix) = fault(&ended);
    assert!(cause.contains("template") && fix.contains("`question`"));
    let (cause, fix) = fault(&|step| At {
        cut: 1.0,
        ..ended(step)
    });
    assert!(cause.contains("truncated") && fix.contains("max_new_tokens"));
    // One token is all that is asked for: a digit, a label.
    let digit = |step| At {
        length: 1.0,
        cut: 1.0,
        ..healthy(step)
    };
    assert_eq!(faults(&history(digit)), []);
    // Short answers that earn a reward are answers.
    let short = |step| At {
        length: 1.2,
        ..healthy(step)
    };
    assert_eq!(faults(&history(short)), []);
}

#[test]
fn vanishing_entropy_before_answers_are_right_is_a_collapse() {
    let at = |step: u64| At {
        entropy: 1.2 * (-(step as f64) / 40.0).exp(),
        reward: 0.4,
        pass: 0.4,
        ..healthy(step)
    };
    assert_eq!(faults(&history(at)), [("entropy_collapse", Status::Warn)]);
}

#[test]
fn truncated_answers_warn_and_growth_is_distinguished_from_no_end() {
    let at = |grows: f64| {
        move |step: u64| At {
            length: 20.0 + grows * step as f64,
            cut: 0.7,
            ..healthy(step)
        }
    };
    for (grows, words) in [(0.1, "answers grow"), (0.0, "does not end")] {
        let diagnosis = history(at(grows));
        assert_eq!(faults(&diagnosis), [("answer_length", Status::Warn)]);
        let found = diagnosis.findings.iter().find(|f| f.id == "answer_length");
        let cause = &found.unwrap().cause;
        assert!(cause.contains(words), "{cause}");
    }
}

/// The one finding that did not pass.
fn only(diagnosis: &Diagnosis, id: &str) -> Finding {
    let found = faults(diagnosis);
    assert!(
        matches!(&found[..], [(name, _)] if *name == id),
        "{found:?}"
    );
    diagnosis
        .findings
        .iter()
        .find(|f| f.id == id)
        .unwrap()
        .clone()
}

#[test]
fn rewarded_repetition_fails_and_loops_warn() {
    let repeats = |step: u64| 0.1 + 0.6 * step as f64 / STEPS as f64;
    let liked = history(|step| At {
        repetition: repeats(step),
        ..healthy(step)
    });
    let found = only(&liked, "repeated_answers");
    assert_eq!(found.status, Status::Fail);
    assert!(
        found.evidence.to_string().contains("mean reward"),
        "{}",
        found.evidence
    );
    let loops = history(|step| At {
        repetition: repeats(step),
        length: 12.0 + step as f64 / 40.0,
        reward: 0.5 - 0.0002 * step as f64,
        pass: 0.5,
        ..healthy(step)
    });
    let found = only(&loops, "repeated_answers");
    assert!(
        found.status == Status::Warn && found.cause.contains("loops"),
        "{found:?}"
    );
    // A single signal is not a diagnosis: the reward falls and lengths stay.
    let alone = history(|step| At {
        repetition: repeats(step),
        reward: 0.5 - 0.0002 * step as f64,
        pass: 0.5,
        ..healthy(step)
    });
    assert_eq!(faults(&alone), []);
    // Naturally repetitive texts.
    let rhymes = history(|step| At {
        repetition: 0.45,
        ..healthy(step)
    });
    assert_eq!(faults(&rhymes), []);
}

#[test]
fn a_growing_kl_with_a_rising_reward_warns() {
    let away = history(|step| At {
        kl: 0.02 * (step as f64 / 80.0).exp2().powi(2),
        ..healthy(step)
    });
    let found = only(&away, "kl_runaway");
    assert!(found.fix.contains("beta"), "{found:?}");
    let straight = history(|step| At {
        kl: 1.5 * step as f64 / STEPS as f64,
        ..healthy(step)
    });
    only(&straight, "kl_runaway");
    // Slower and slower.
    let slows = history(|step| At {
        kl: (step as f64 / STEPS as f64).sqrt(),
        ..healthy(step)
    });
    assert_eq!(faults(&slows), []);
    // Far from the reference, but settled.
    let settled = history(|step| At {
        kl: 1.2 * (1.0 - (-(step as f64) / 60.0).exp()),
        ..healthy(step)
    });
    assert_eq!(faults(&settled), []);
}

#[test]
fn unscorable_answers_warn_with_the_reason() {
    let form = history(|step| At {
        unread: 0.8,
        ..healthy(step)
    });
    let found = only(&form, "unread_answers");
    assert!(found.cause.contains("form"), "{found:?}");
    let cut = history(|step| At {
        unread: 0.8,
        cut: 0.8,
        ..healthy(step)
    });
    let found = cut
        .findings
        .iter()
        .find(|f| f.id == "unread_answers")
        .unwrap();
    assert!(found.cause.contains("truncated before"), "{found:?}");
}

#[test]
fn too_large_updates_and_useless_critics_warn() {
    let history = |clipped: f64, moved: f64, explained: f64, loss: &dyn Fn(u64) -> f64| {
        let mut state = RunState::new();
        for step in 1..=STEPS {
            let values = [
                ("policy/clipfrac_avg", clipped),
                ("policy/approxkl_avg", moved),
                ("val/var_explained", explained),
                ("loss/value_avg", loss(step)),
            ];
            let values = values.map(|(id, x)| (id.to_string(), Num(x)));
            state.apply(&Envelope {
                v: 1,
                seq: step,
                t: UnixMillis(step),
                event: Event::Stepped {
                    step,
                    tokens: step,
                    values: values.into(),
                },
            });
        }
        diagnose(&state)
    };
    let flat = |_| 0.25;
    assert_eq!(faults(&history(0.1, 0.1, 0.4, &flat)), []);
    assert_eq!(
        faults(&history(0.4, 0.01, 0.4, &flat)),
        [],
        "clipping alone"
    );
    only(&history(0.4, 0.1, 0.4, &flat), "big_steps");
    let found = only(&history(0.1, 0.01, -0.1, &flat), "critic");
    let said = found.evidence.to_string();
    assert!(said.starts_with("explained variance −0.10;"), "{said}");
    let falls = |step: u64| 1.0 / step as f64;
    assert_eq!(
        faults(&history(0.1, 0.01, -0.1, &falls)),
        [],
        "it still learns"
    );
}

/// Setting a key of another method would turn the run into one of that method.
#[test]
fn advice_names_the_settings_of_the_run_s_method_and_larger_values() {
    let away = |step: u64| At {
        kl: 0.02 * (step as f64 / 80.0).exp2().powi(2),
        ..healthy(step)
    };
    let collapsed = |step: u64| At {
        entropy: 1.2 * (-(step as f64) / 40.0).exp(),
        reward: 0.4,
        pass: 0.4,
        ..healthy(step)
    };
    let grows = |step: u64| At {
        length: 20.0 + 0.1 * step as f64,
        cut: 0.7,
        ..healthy(step)
    };
    let loops = |step: u64| At {
        repetition: 0.1 + 0.6 * step as f64 / STEPS as f64,
        length: 12.0 + step as f64 / 40.0,
        reward: 0.5 - 0.0002 * step as f64,
        pass: 0.5,
        ..healthy(step)
    };
    for (method, beta, pull) in [
        ("grpo", 0.0, "method.grpo.beta=0.04"),
        ("rloo", 0.05, "method.rloo.beta=0.1"),
        ("ppo", 0.05, "method.ppo.beta=0.1"),
    ] {
        let histories: [(&dyn Fn(u64) -> At, &str); 4] = [
            (&away, "kl_runaway"),
            (&collapsed, "entropy_collapse"),
            (&grows, "answer_length"),
            (&loops, "repeated_answers"),
        ];
        for (at, id) in histories {
            let fix = only(&history_of(method, beta, at), id).fix;
            let others = ["method.grpo.", "method.rloo.", "method.ppo."];
            let others = others.iter().filter(|key| !key.contains(method));
            let strange: Vec<_> = others.filter(|key| fix.contains(**key)).collect();
            assert!(strange.is_empty(), "{method}: {fix}");
            if matches!(id, "kl_runaway" | "repeated_answers") {
                assert!(fix.contains(pull), "{method}: {fix}");
            }
            // Only runs of GRPO get a key of GRPO's.
            assert_eq!(fix.contains("method.grpo."), method == "grpo", "{fix}");
        }
    }
}

/// Comparing only the first and last evaluation called it learning, or stable.
#[test]
fn a_policy_that_loses_its_gain_is_not_learning() {
    let falls = |from: f64, to: f64| {
        history(move |step| At {
            pass: match step {
                0 => from,
                1..=250 => 0.95,
                _ => to,
            },
            // Held-out answers are the only evidence.
            reward: 0.5,
            ..healthy(step)
        })
    };
    for (from, to) in [(0.1, 0.3), (0.62, 0.3)] {
        let found = falls(from, to);
        assert_eq!(found.verdict, Verdict::NotLearning, "{from} {to}");
        assert!(found.summary.contains("now 0.30"), "{}", found.summary);
    }
    assert_eq!(falls(0.1, 0.8).verdict, Verdict::Learning);
}

/// The newest of many evaluations is below the best one by chance: two presets that had solved their task failed.
#[test]
fn a_solved_policy_has_not_lost_its_gain() {
    let ends = |before: f64, last: f64| {
        move |step: u64| At {
            pass: match step {
                0 => 0.93,
                350 => before,
                400 => last,
                _ => 1.0,
            },
            reward: 0.9,
            ..healthy(step)
        }
    };
    let verdict = |before, last| history(ends(before, last)).verdict;
    assert_eq!(verdict(0.95, 0.94), Verdict::Stable);
    assert_eq!(verdict(1.0, 0.88), Verdict::Stable, "once, by three errors");
    assert_eq!(verdict(0.8, 0.8), Verdict::NotLearning);
    assert_eq!(verdict(1.0, 0.6), Verdict::NotLearning, "far");
    // The last evaluation of a run reads all prompts.
    let with_all = |before, last, all| {
        let mut state = state_of("grpo", 0.0, ends(before, last));
        evaluate_all(&mut state, all);
        diagnose(&state)
    };
    assert_eq!(with_all(1.0, 0.6, 0.99).verdict, Verdict::Stable);
    let confirmed = with_all(1.0, 0.85, 0.8);
    assert_eq!(confirmed.verdict, Verdict::NotLearning);
    assert!(
        confirmed.summary.contains("0.80 on all 400"),
        "{}",
        confirmed.summary
    );
}
