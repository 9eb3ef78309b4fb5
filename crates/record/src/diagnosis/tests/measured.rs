//! Readings of experts, ranks, samplers and reward models that have a rule each.

use super::*;

/// 200 steps with these readings.
fn with(values: &[(&str, f64)]) -> Tape {
    let mut tape = fresh();
    for step in 1..=200 {
        let all = [&[("train/loss", learning(step))], values].concat();
        tape.step(step, &all);
    }
    tape
}

fn said(tape: &Tape, id: &str) -> Option<String> {
    tape.found(id).map(|found| found.evidence.to_string())
}

#[test]
fn a_collapsed_router_is_named() {
    let collapsed = with(&[("expert_entropy", 0.31), ("expert_load", 5.2)]);
    let text = said(&collapsed, "expert_collapse").unwrap();
    assert!(text.contains("5.2 times the mean"), "{text}");
    let fix = collapsed.found("expert_collapse").unwrap().fix;
    assert!(fix.contains("-s model.moe.aux_loss_coef="), "{fix}");
    let balanced = with(&[("expert_entropy", 0.97), ("expert_load", 1.4)]);
    assert_eq!(said(&balanced, "expert_collapse"), None);
}

#[test]
fn a_sampler_that_differs_from_the_trainer_is_named() {
    let apart = |x: f64| {
        said(
            &with(&[("sampling/logp_difference", x)]),
            "sampler_mismatch",
        )
    };
    assert_eq!(apart(0.004), None);
    assert_eq!(
        apart(0.05).as_deref(),
        Some("log-probabilities 0.050 nats apart")
    );
}

#[test]
fn the_rank_that_all_wait_for_is_named() {
    let ranks = |slowest: f64| {
        let of = [("rank/0/forward_ms", 40.0), ("rank/1/forward_ms", slowest)];
        let step = [("step_ms", 100.0)];
        said(&with(&[&of[..], &step].concat()), "slow_rank")
    };
    assert_eq!(ranks(44.0), None);
    assert_eq!(
        ranks(80.0).as_deref(),
        Some("rank 1 takes 2.00 times as long as the others")
    );
}

#[test]
fn a_reward_model_that_knows_lengths_alone_is_named() {
    let judged = |accuracy: f64, by_length: f64| {
        let mut tape = fresh();
        tape.begin("reward", serde_json::json!({"method": {"reward": {}}}));
        let mut tape = tape.steps(1, 200, learning);
        let values = [
            ("val/loss", 0.3),
            ("val/rewards/accuracies", accuracy),
            ("val/rewards/length_accuracies", by_length),
        ];
        tape.add(Event::Evaluated {
            step: 200,
            tokens: 200,
            values: values.map(|(id, x)| (id.to_string(), Num(x))).into(),
            n_windows: 200,
            whole: false,
            seconds: 0.0,
        });
        said(&tape, "length_bias")
    };
    let text = judged(1.0, 1.0).unwrap();
    assert!(text.contains("by preferring the longer answer"), "{text}");
    assert_eq!(judged(0.99, 0.91), None, "more than lengths is learned");
    assert_eq!(judged(0.7, 0.66), None);
}

/// SFT answered "Fair winds! Fair winds! …" to the limit, and everything was ok.
#[test]
fn samples_that_loop_are_named_where_the_start_could_speak() {
    let sampled = |from: Option<&str>, texts: [&str; 2]| {
        let mut tape = Tape::new(from, 0).steps(1, 200, learning);
        for (step, text) in [100, 200].into_iter().zip(texts) {
            tape.add(Event::Sampled {
                step,
                prompt: "How do I return a book?".into(),
                text: text.into(),
                thought: None,
                seconds: 1.0,
            });
        }
        said(&tape, "looping_samples")
    };
    let loops = "Fair winds, reader! ".repeat(40);
    let ends = "Bring it to the desk.";
    assert!(sampled(Some("base"), [&loops, &loops]).is_some());
    assert_eq!(sampled(Some("base"), [&loops, ends]), None);
    assert_eq!(sampled(None, [&loops, &loops]), None);
}

/// Targets that are not shifted are learned as an identity, which is wrong of all held-out text: 140 steps before the loss is near zero.
#[test]
fn targets_that_held_out_text_does_not_have_are_named_in_the_first_epoch() {
    let run = |epochs: f64, val: f64| {
        let mut tape = fresh();
        for step in 1..=150 {
            let loss = 4.0 * (-(step as f64) / 80.0).exp();
            let values = [("train/loss", loss), ("entropy", loss), ("epochs", epochs)];
            tape.step(step, &values);
        }
        tape.evaluate(150, val);
        said(&tape, "leak")
    };
    let guessing = (VOCAB as f64).ln();
    let text = run(0.2, 1.4 * guessing).unwrap();
    assert!(text.contains("a uniform guess gives"), "{text}");
    assert_eq!(run(3.0, 1.4 * guessing), None, "it may have overfitted");
    assert_eq!(run(0.2, 0.5 * guessing), None);
}
