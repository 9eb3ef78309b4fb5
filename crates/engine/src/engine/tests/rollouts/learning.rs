//! What is learned: texts in a cold start, and completions by the policy that samples them.

use super::{opened, readings, run_of};
use crate::engine::eval::measure::EvalScope;

#[test]
fn a_cold_start_is_supervised_learning() {
    let words = [
        "rollout.cold_start_steps=150",
        "max_steps=150",
        "optimizer.adamw.lr=0.01",
        "model.d_model=32",
    ];
    let events = run_of(&words).go();
    let loss = readings(&events, "train/loss");
    assert!(
        loss.len() == 150 && loss[149] < 0.6 * loss[0],
        "{} {}",
        loss[0],
        loss[149]
    );
    assert!(readings(&events, "reward").is_empty());
}

/// Whatever the method divides its own loss by, and with a reference or an entropy bonus: a cold start logs nats per token.
#[test]
fn a_cold_start_is_the_same_by_every_method() {
    let loss = |method: &[&str]| {
        let words = [
            "rollout.cold_start_steps=3",
            "max_steps=3",
            "eval.every=0",
            "checkpoint.every=0",
        ];
        readings(&run_of(&[&words[..], method].concat()).go(), "train/loss")
    };
    let expected = loss(&["method=ppo"]);
    assert_eq!(expected.len(), 3);
    for method in [
        &["method=ppo", "method.ppo.entropy_coef=0.1"][..],
        &["method=rloo"],
        &["method=grpo", "method.grpo.beta=0.1"],
        &["method=grpo", "method.grpo.aggregation=dr_grpo"],
    ] {
        assert_eq!(loss(method), expected, "{method:?}");
    }
}

/// Prompts at the same place of their batches shared their draws, so pass@1 depended on the size of batches.
#[test]
fn an_evaluation_draws_the_same_answers_in_batches_of_any_size() {
    let values = |size: &str| {
        let run = run_of(&["rollout.eval_temperature=1", size]);
        opened(&run, |cx, stepper, _| {
            let rollouts = stepper.experience().rollouts().unwrap();
            let models = &mut cx.state.models;
            let found = rollouts.evaluate(models, EvalScope::Whole, &mut || false);
            found.unwrap().unwrap().values
        })
    };
    let [small, large] = ["train.micro_batch_size=4", "train.micro_batch_size=16"].map(values);
    assert!(small.len() > 2, "{small:?}");
    for ((id, small), (_, large)) in small.iter().zip(&large) {
        assert!((small - large).abs() < 1e-9, "{id}: {small} {large}");
    }
}

/// Where policy and reference are the same and no answer is better than another there is nothing to learn. The sampler's
/// rounding was charged as KL, from which Adam makes steps of the full learning rate.
#[test]
fn a_kl_in_the_reward_is_exactly_0_while_the_policy_is_its_reference() {
    let nothing = [
        "max_steps=3",
        "eval.every=0",
        "checkpoint.every=0",
        "rewards=[{exact: {}, weight: 0}]",
        "optimizer.adamw.weight_decay=0",
    ];
    let events = |method: &[&str]| run_of(&[&nothing[..], method].concat()).go();
    let rloo = ["method=rloo", "method.rloo.beta=0.1"];
    for more in [&[][..], &["rollout.steps=2"], &["adapter=lora"]] {
        let events = events(&[&rloo[..], more].concat());
        for id in ["kl", "grad_norm", "update_ratio"] {
            assert_eq!(readings(&events, id), [0.0; 3], "{more:?} {id}");
        }
    }
    let ppo = events(&["method=ppo", "method.ppo.beta=0.1"]);
    assert_eq!(readings(&ppo, "objective/kl")[0], 0.0);
}

/// The policy that samples is the one that learns: ratios of fresh completions are 1, and both tell the same log-probabilities.
#[test]
fn a_temperature_holds_for_sampling_and_learning_alike() {
    for temperature in [0.6, 1.0, 1.5] {
        let words = [
            format!("rollout.temperature={temperature}"),
            "max_steps=3".into(),
            "rollout.steps=2".into(),
            "method.grpo.beta=0.1".into(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let events = run_of(&words).go();
        let apart = readings(&events, "sampling/logp_difference");
        // The second step of a rollout learns by other weights than those that wrote it.
        assert!(
            apart[0] < 1e-5 && apart[2] < 1e-5,
            "{temperature}: {apart:?}"
        );
        assert!(readings(&events, "kl")[0].abs() < 1e-6, "{temperature}");
    }
}
