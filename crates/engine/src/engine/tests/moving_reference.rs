//! A reference that moves with the policy (TR-DPO): by how much, when, and through checkpoints.

use super::preferences::{data, spec_of};
use super::*;
use crate::engine::roles::Reference;

/// A run of pairs or judged answers whose reference moves after every second step by a quarter of the way.
fn run_of(method: &str, shape: &str, words: &[&str]) -> Run {
    let usual = [
        "max_steps=8",
        "checkpoint.every=4",
        "train.sync_ref_model=true",
        "train.ref_model_sync_steps=2",
        "train.ref_model_mixup_alpha=0.25",
    ];
    let words: Vec<String> = usual.iter().chain(words).map(ToString::to_string).collect();
    let mut run = Run::new(&["max_steps=1"]);
    run.job.spec = spec_of(&format!("method: {method}\n{}", data(shape, false)), &words);
    run
}

fn reference(cx: &context::RunContext<'_, '_>) -> Vec<f32> {
    match &cx.state.models.reference {
        Reference::Frozen(model) => model.params().read_weights(<[f32]>::to_vec).unwrap(),
        _ => panic!("no frozen reference"),
    }
}

fn policy(cx: &context::RunContext<'_, '_>) -> Vec<f32> {
    let params = cx.state.models.policy.params();
    params.read_weights(<[f32]>::to_vec).unwrap()
}

/// reference ← α · policy + (1 − α) · reference, after every second step.
#[test]
fn the_reference_goes_its_share_of_the_way_at_its_steps() {
    for (method, shape) in [("dpo", "preference"), ("kto", "judged")] {
        opened(&run_of(method, shape, &[]), |cx, stepper, _| {
            let begun = reference(cx);
            stepper.one_step(cx).unwrap();
            assert!(reference(cx) == begun, "{method}: after one step");
            stepper.one_step(cx).unwrap();
            let (moved, policy) = (reference(cx), policy(cx));
            for ((moved, begun), policy) in moved.iter().zip(&begun).zip(&policy) {
                let wanted = 0.25 * policy + 0.75 * begun;
                assert!((moved - wanted).abs() < 1e-6, "{method}: {moved}, {wanted}");
            }
            assert!(moved != begun && moved != policy[..moved.len()], "{method}");
            stepper.one_step(cx).unwrap();
            assert!(reference(cx) == moved, "{method}: between two moves");
        });
    }
}

/// own + 1 · (theirs − own) is not theirs where the two are of different sizes.
#[test]
fn with_a_share_of_1_the_reference_is_the_policy_to_the_bit() {
    let run = run_of(
        "dpo",
        "preference",
        &["train.ref_model_mixup_alpha=1", "optimizer.adamw.lr=0.1"],
    );
    opened(&run, |cx, stepper, _| {
        for _ in 0..2 {
            stepper.one_step(cx).unwrap();
        }
        let (moved, policy) = (reference(cx), policy(cx));
        assert!(moved == policy[..moved.len()]);
    });
}

#[test]
fn weights_that_do_not_train_stay_to_the_bit() {
    let run = run_of("dpo", "preference", &["train.freeze=[mlp]"]);
    opened(&run, |cx, stepper, _| {
        let begun = reference(cx);
        for _ in 0..4 {
            stepper.one_step(cx).unwrap();
        }
        let (moved, policy) = (reference(cx), policy(cx));
        let frozen = (0..begun.len()).filter(|at| begun[*at] == policy[*at]);
        assert!(frozen.clone().count() > 1_000);
        assert!(frozen.into_iter().all(|at| moved[at] == begun[at]));
    });
}

#[test]
fn a_resume_takes_the_same_course_to_the_bit() {
    let cold = ["method.grpo.beta=0.1", "rollout.cold_start_steps=3"];
    type MakeRun<'a> = &'a dyn Fn(&[&str]) -> Run;
    let ppo = |critic| ["method=ppo", "method.ppo.beta=0.1", critic];
    let (separate, shared) = (
        ppo("method.ppo.critic=separate"),
        ppo("method.ppo.critic=shared"),
    );
    let runs: [MakeRun; 6] = [
        &|words| run_of("dpo", "preference", words),
        &|words| run_of("kto", "judged", words),
        &|words| of_answers(&["method.grpo.beta=0.1"], words),
        &|words| of_answers(&cold, words),
        &|words| of_answers(&separate, words),
        &|words| of_answers(&shared, words),
    ];
    for (at, run_of) in runs.iter().enumerate() {
        let whole = run_of(&[]);
        let all = whole.go();
        assert_eq!(finished(&all).0, Outcome::Completed, "{at}: {all:?}");
        for stop in [4, 5] {
            let mut parted = run_of(&[]);
            parted.job.stop_after = Some(stop);
            let first = parted.go();
            let second = parted.resumed();
            assert!(
                loss_log(&[&all]) == loss_log(&[&first, &second]),
                "{at}, {stop}"
            );
            same_files(&whole.checkpoint(8), &parted.checkpoint(8));
        }
        let kept = whole.checkpoint(8).join("reference.safetensors");
        assert!(kept.is_file(), "{at}: {:?}", whole.kept());
        checkpoint_is_as_large_as_predicted(&whole, 8);
        let still = run_of(&["train.sync_ref_model=false"]);
        assert!(
            loss_log(&[&all]) != loss_log(&[&still.go()]),
            "{at}: it moves"
        );
    }
}

fn of_answers(own: &[&str], words: &[&str]) -> Run {
    let usual = [
        "max_steps=8",
        "checkpoint.every=4",
        "train.sync_ref_model=true",
        "train.ref_model_sync_steps=2",
        // Answers of the same length would all be worth the same, and the policy would stay where it is.
        "rewards=[exact, {length: {limit: 2}}]",
    ];
    super::rollouts::run_of(&[&usual[..], own, words].concat())
}

/// Back to a checkpoint of before the first move.
#[test]
fn a_rollback_brings_the_reference_back() {
    opened(
        &run_of("dpo", "preference", &[]),
        |cx, stepper, checkpoints| {
            let begun = reference(cx);
            checkpoints.save(cx).unwrap();
            for _ in 0..2 {
                stepper.one_step(cx).unwrap();
            }
            assert!(reference(cx) != begun);
            checkpoints.roll_back(cx, 0).unwrap();
            assert!(reference(cx) == begun);
        },
    );
}

/// The parent's reference stayed, so the branch's first checkpoint has none: going back to it ended the run.
#[test]
fn back_at_the_beginning_of_a_branch_the_reference_is_the_one_that_was_attached() {
    let mut run = run_of("dpo", "preference", &["train.sync_ref_model=false"]);
    run.job.stop_after = Some(4);
    run.go();
    assert!(!run.checkpoint(4).join("reference.safetensors").exists());
    run.job.spec = run_of("dpo", "preference", &[]).job.spec.clone();
    (run.job.stop_after, run.job.resume) = (None, true);
    let mut begun = Vec::new();
    opened(&run, |cx, stepper, checkpoints| {
        begun = reference(cx);
        assert!(begun != policy(cx)[..begun.len()]);
        for _ in 0..2 {
            stepper.one_step(cx).unwrap();
        }
        assert!(reference(cx) != begun);
        checkpoints.save(cx).unwrap();
    });
    // A resume has the moved one from its checkpoint, and goes back as a run that was not interrupted does.
    opened(&run, |cx, _, checkpoints| {
        assert!(cx.step() == 6 && reference(cx) != begun);
        checkpoints.roll_back(cx, 4).unwrap();
        assert!(cx.step() == 4 && reference(cx) == begun);
        assert!(!cx.state.models.moved);
    });
}

#[test]
fn what_cannot_move_is_refused_with_its_reason() {
    let refused = |preset: &str, words: &[&str]| {
        let words = words.iter().chain(&["train.sync_ref_model=true"]);
        let words: Vec<String> = words.map(ToString::to_string).collect();
        match load(preset, &words, &SpecSources::default()) {
            Ok(_) => panic!("{words:?} was taken"),
            Err(e) => e.to_string(),
        }
    };
    for (preset, words, why) in [
        ("quickstart", &[][..], "compares with no reference model"),
        ("grpo-sort", &[][..], "compares with no reference model"),
        (
            "dpo-demo",
            &["adapter.lora.rank=4"][..],
            "the reference has only base weights",
        ),
        (
            "dpo-demo",
            &["method.dpo.reference=precomputed"][..],
            "those of a reference that stays",
        ),
    ] {
        let said = refused(preset, words);
        assert!(said.contains(why), "{preset} {words:?}: {said}");
    }
}
