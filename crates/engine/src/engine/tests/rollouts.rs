//! RL runs: reproducibility, resumes, and what is reported.

mod learning;
mod passes;
mod prompts;
mod thoughts;

use super::*;

/// A small model on sums of two digits, four answers each; by a file: a made-up source has no short words on a command line.
fn made(extra: &[&str]) -> RunSpec {
    loaded(extra).unwrap_or_else(|e| panic!("{e}"))
}

fn loaded(extra: &[&str]) -> Result<RunSpec, String> {
    let text = "method: grpo
model: {n_layer: 1, n_head: 2, d_model: 16, seq_len: 16, init_std: 0.3}
data:
  sources: [{synthetic: {arithmetic: {digits: 1, operations: [add, subtract]}}, as: prompt, rows: 150}]
  tokenizer: char
  val_fraction: 0.2
rollout: {group_size: 4, max_new_tokens: 4, side_by_side: 8}
rewards: [exact, {length: {limit: 4}, weight: 0.5}]
train: {max_steps: 12, micro_batch_size: 8, grad_accum_steps: 2, threads: 1, precision: f32}
optimizer: {adamw: {lr: 0.003}}
eval: {every: 6, batches: 2}
sample: {every: 0}
checkpoint: {every: 4, keep_last: 2}
preflight: {enabled: false}
";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.yaml");
    std::fs::write(&path, text).unwrap();
    let extra: Vec<String> = extra.iter().map(ToString::to_string).collect();
    let loaded = load(&path.display().to_string(), &extra, &SpecSources::default());
    loaded.map(|l| l.spec).map_err(|e| e.to_string())
}

pub(super) fn run_of(extra: &[&str]) -> Run {
    let mut run = Run::new(&["max_steps=1"]);
    run.job.spec = made(extra);
    run
}

fn readings(events: &[Event], id: &str) -> Vec<f64> {
    let found = events.iter().filter_map(|event| match event {
        Event::Stepped { values, .. } | Event::Evaluated { values, .. } => {
            values.get(id).map(|x| x.0)
        }
        _ => None,
    });
    found.collect()
}

/// 120 prompts to learn from, four to a step.
#[test]
fn an_epoch_is_a_pass_over_the_prompts() {
    let epochs = |extra: &[&str]| {
        let words = ["max_steps=5", "eval.every=0"];
        let events = run_of(&[&words[..], extra].concat()).go();
        readings(&events, "epochs")
            .into_iter()
            .map(|x| (120.0 * x).round())
            .collect::<Vec<_>>()
    };
    assert_eq!(epochs(&[]), [4.0, 8.0, 12.0, 16.0, 20.0]);
    // A rollout is learned from twice, in two steps each time.
    let cycle = ["rollout.steps=2", "rollout.epochs=2"];
    assert_eq!(epochs(&cycle), [8.0, 8.0, 8.0, 8.0, 16.0]);
    // A cold start reads sixteen rows a step.
    let cold = ["rollout.cold_start_steps=2"];
    assert_eq!(epochs(&cold), [16.0, 32.0, 36.0, 40.0, 44.0]);
}

#[test]
fn samples_end_where_answers_do() {
    let text = |extra: &[&str]| {
        let words = [
            "max_steps=1",
            "sample.every=1",
            "sample.prompt=1+2=",
            "sample.sampling.temperature=0",
        ];
        let run = run_of(&[&words[..], extra].concat());
        let found = run.go().into_iter().find_map(|event| match event {
            Event::Sampled { text, .. } => Some(text),
            _ => None,
        });
        found.expect("a sample")
    };
    let all = text(&["sample.sampling.stop=[\"never\"]"]);
    let first = all.chars().next().expect("the tiny model writes something");
    let stop = format!("rollout.stop=[\"{}\"]", first.escape_default());
    assert_eq!(text(&[&stop]), "", "of {all:?}");
}

#[test]
fn answers_are_a_function_of_weights_seed_and_step_and_a_resume_writes_the_same() {
    for extra in [
        &[][..],
        &["rollout.cold_start_steps=5"],
        &["method=rloo", "method.rloo.beta=0.1"],
        &[
            "method.grpo.beta=0.1",
            "method.grpo.aggregation=dr_grpo",
            "rollout.mask_truncated=true",
        ],
        // Stopped between the steps of a rollout: its answers come from the checkpoint.
        &["rollout.epochs=2", "rollout.steps=2"],
        &[
            "method=rloo",
            "method.rloo.beta=0.1",
            "rollout.epochs=3",
            "rollout.refill=2",
        ],
        // A critic with its moments, the KL controller, and a reference that a cold start has moved.
        &[
            "method=ppo",
            "method.ppo.kl_target=0.5",
            "method.ppo.critic_warmup_steps=2",
            "rollout.cold_start_steps=3",
            "rollout.group_size=1",
            "rollout.epochs=2",
        ],
        &[
            "method=ppo",
            "method.ppo.beta=0",
            "method.ppo.entropy_coef=0.01",
            "method.ppo.missing_eos_penalty=0.5",
            "method.ppo.whiten_rewards=true",
            "optimizer=schedule_free",
        ],
        &["method=ppo", "adapter.lora.rank=2", "rollout.steps=2"],
        // A critic on the policy's trunk: no second model, its vector beside the checkpoint's model.
        &[
            "method=ppo",
            "method.ppo.critic=shared",
            "method.ppo.kl_target=0.5",
            "rollout.cold_start_steps=3",
            "rollout.group_size=1",
            "rollout.epochs=2",
        ],
        &[
            "method=ppo",
            "method.ppo.critic=shared",
            "adapter.lora.rank=2",
            "optimizer=schedule_free",
        ],
    ] {
        let straight = run_of(extra);
        let whole = straight.go();
        assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
        let mut parted = run_of(extra);
        parted.job.stop_after = Some(7);
        let (first, second) = (parted.go(), parted.resumed());
        for id in [
            "policy_loss",
            "reward",
            "rewards/exact/mean",
            "completions/mean_length",
            "grad_norm",
        ] {
            let parts = [readings(&first, id), readings(&second, id)].concat();
            assert_eq!(readings(&whole, id), parts, "{id} {extra:?}");
        }
        same_files(&straight.checkpoint(12), &parted.checkpoint(12));
    }
}

/// The critic's file is in a checkpoint from the first rollout on; the policy waits while the critic warms up.
#[test]
fn a_critic_learns_beside_the_policy_and_before_it() {
    let run = run_of(&[
        "method=ppo",
        "method.ppo.critic_warmup_steps=4",
        "rollout.cold_start_steps=4",
        "rollout.epochs=2",
    ]);
    let events = run.go();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    let values = readings(&events, "loss/value_avg");
    assert_eq!(
        values.len(),
        8,
        "one for each step that learns from answers"
    );
    assert!(
        values.iter().all(|x| x.is_finite() && *x > 0.0),
        "{values:?}"
    );
    // Two rollouts of two epochs before the policy moves: its ratio is still 1 in the second epoch.
    let ratios = readings(&events, "policy/approxkl_avg");
    assert!(ratios[..5].iter().all(|x| *x < 1e-9), "{ratios:?}");
    assert!(ratios[5..].iter().any(|x| *x > 1e-9), "{ratios:?}");
    // The reference is the policy as the cold start left it.
    let kl = readings(&events, "objective/kl");
    assert!(kl[..5].iter().all(|x| x.abs() < 1e-4), "{kl:?}");
    assert!(kl[6..].iter().any(|x| x.abs() > 1e-5), "{kl:?}");
    let files = |step: u64| {
        let folder = run.checkpoint(step);
        ["critic.safetensors", "reference.safetensors"].map(|name| folder.join(name).is_file())
    };
    assert_eq!(files(12), [true; 2]);
    checkpoint_is_as_large_as_predicted(&run, 12);
}

/// On the policy's trunk the critic's file is the value head alone, and the model beside it has none.
#[test]
fn a_critic_on_the_policys_trunk_learns_by_the_same_backward() {
    for adapter in [&[][..], &["adapter.lora.rank=2"]] {
        let base = [
            "method=ppo",
            "method.ppo.critic=shared",
            "rollout.epochs=2",
            "method.ppo.beta=0",
        ];
        let run = run_of(&[&base, adapter].concat());
        let events = run.go();
        assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
        let values = readings(&events, "loss/value_avg");
        assert_eq!(values.len(), 12, "{values:?}");
        assert!(
            values.iter().all(|x| x.is_finite() && *x > 0.0),
            "{values:?}"
        );
        assert_eq!(readings(&events, "val/var_explained").len(), 12);
        assert!(readings(&events, "critic/grad_norm").is_empty());
        let tensors = |name: &str| {
            let file =
                crate::hf::safetensors::TensorFile::open(&run.checkpoint(12).join(name)).unwrap();
            file.names().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(tensors("critic.safetensors"), ["v_head.summary.weight"]);
        let of_model = tensors("model.safetensors");
        assert!(
            of_model.iter().all(|name| !name.contains("v_head")),
            "{of_model:?}"
        );
        // The model is GPT-2 to any program that reads the folder: by its name, and by GPT-2's zero biases and layouts.
        let config = std::fs::read_to_string(run.checkpoint(12).join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["model_type"], "gpt2");
        let own = &config["llmtui"]["model"];
        assert!(own.is_object() && own["value_head"].is_null(), "{own}");
        assert!(
            of_model
                .iter()
                .any(|name| name == "transformer.h.0.attn.c_attn.bias"),
            "{of_model:?}"
        );
        let read = crate::hf::load(&run.checkpoint(12)).unwrap();
        assert!(read.params().value_head().is_none());
        checkpoint_is_as_large_as_predicted(&run, 12);
    }
}

#[test]
fn a_critic_that_cannot_be_is_refused_with_the_reason() {
    for (extra, reason) in [
        (
            &[
                "method=ppo",
                "method.ppo.critic=shared",
                "method.ppo.critic_warmup_steps=2",
            ][..],
            "cannot be warmed up alone",
        ),
        (
            &[
                "method=ppo",
                "method.ppo.critic=shared",
                "method.ppo.critic_from=/nowhere",
            ],
            "is initialized from the policy",
        ),
        (&["model.value_head=true"], "has no critic"),
        (
            &["method=grpo", "rollout.group_size=1"],
            "there is only one",
        ),
        (
            &["method=ppo", "rollout.group_size=1", "rollout.refill=1"],
            "every prompt would be replaced",
        ),
        (
            &["method=ppo", "method.ppo.beta=0", "method.ppo.kl_target=6"],
            "needs a KL coefficient to adapt",
        ),
        (
            &["method=ppo", "method.ppo.critic_from=/nowhere"],
            "/nowhere",
        ),
        (
            &["method=ppo", "method.ppo.critic_warmup_steps=12"],
            "none of 12 steps is left",
        ),
    ] {
        let error = loaded(extra).unwrap_err();
        assert!(error.contains(reason), "{extra:?}: {error}");
    }
    // A model that writes has no score.
    let writer = run_of(&[]);
    writer.go();
    let place = writer.checkpoint(12);
    let from = format!("method.ppo.critic_from={}", place.display());
    let events = run_of(&["method=ppo", &from]).go();
    let (_, _, told) = finished(&events);
    assert!(told.contains("it has no score"), "{told}");
}

/// How many are written at once is a matter of memory alone.
#[test]
fn answers_side_by_side_are_those_written_alone() {
    let log = |width: &str| {
        let events = run_of(&[width, "max_steps=3"]).go();
        (readings(&events, "grad_norm"), readings(&events, "reward"))
    };
    let one = log("rollout.side_by_side=1");
    assert_eq!(one, log("rollout.side_by_side=5"));
    assert_eq!(one, log("rollout.side_by_side=64"));
}

#[test]
fn a_run_reports_rewards_and_how_held_out_prompts_are_answered() {
    let events = run_of(&[]).go();
    // Before the first step, at the cadence and at the end.
    assert_eq!(readings(&events, "eval/pass@1").len(), 3);
    assert!(readings(&events, "val/loss").is_empty());
    assert!(readings(&events, "train/loss").is_empty());
    // The sampler and the trainer see the same weights.
    let apart = readings(&events, "sampling/logp_difference");
    assert!(
        apart.len() == 12 && apart.iter().all(|x| *x < 1e-5),
        "{apart:?}"
    );
    let [reward, exact, length] =
        ["reward", "rewards/exact/mean", "rewards/length/mean"].map(|id| readings(&events, id));
    for ((reward, exact), length) in reward.iter().zip(&exact).zip(&length) {
        assert!((reward - (exact + 0.5 * length)).abs() < 1e-9);
    }
    let declared = events.iter().find_map(|event| match event {
        Event::MetricsDeclared { metrics } => Some(metrics),
        _ => None,
    });
    let declared: Vec<&str> = declared.unwrap().iter().map(|m| m.id.as_str()).collect();
    for event in &events {
        if let Event::Stepped { values, .. } | Event::Evaluated { values, .. } = event {
            let unknown: Vec<_> = values
                .keys()
                .filter(|id| !declared.contains(&id.as_str()))
                .collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
    }
    let examined = events.iter().rev().find_map(|event| match event {
        Event::Examined { examples, .. } => Some(examples),
        _ => None,
    });
    let groups = examined.unwrap();
    assert!(groups[0].sequences.len() == 4 && groups[0].sequences[0].advantage.is_some());
    assert!(groups.last().unwrap().sequences[0].label == "held out");
}

/// A critic judges every token: what is shown of an answer is their mean, not its reward beside the step's mean.
#[test]
fn the_advantage_that_is_kept_of_an_answer_is_the_critics() {
    use crate::run::rollouts::{RolloutQuery, find, mean};
    let run = run_of(&["method=ppo", "rollout.keep=2", "max_steps=4"]);
    run.go();
    let found = find(run.job.run_dir.path(), &RolloutQuery::Upto(4)).unwrap();
    let last = found.rollouts.last().unwrap();
    let answers = || last.groups.iter().flat_map(|group| &group.answers);
    let average = mean(answers().map(|answer| answer.reward.0));
    assert!(answers().any(|answer| answer.advantage.0 != 0.0));
    let apart = answers().filter(|a| (a.advantage.0 - (a.reward.0 - average)).abs() > 1e-3);
    assert!(apart.count() > 0);
}

#[test]
fn answers_are_kept_in_files_of_which_there_are_never_too_many() {
    use crate::run::rollouts::{RolloutQuery, find, mean};
    let run = run_of(&["rollout.keep=4", "method.grpo.beta=0.1"]);
    let events = run.go();
    let found = find(run.job.run_dir.path(), &RolloutQuery::Upto(12)).unwrap();
    assert!(
        found.steps.len() == 4 && found.steps[2..] == [11, 12],
        "{:?}",
        found.steps
    );
    let last = &found.rollouts[0];
    assert_eq!((last.step, last.groups.len(), last.left_out), (12, 4, 0));
    // What the file holds is what the log sums up.
    let answers = || last.groups.iter().flat_map(|group| &group.answers);
    let reward = *readings(&events, "reward").last().unwrap();
    assert!((mean(answers().map(|a| a.reward.0)) - reward).abs() < 1e-9);
    let length = *readings(&events, "completions/mean_length").last().unwrap();
    assert!((mean(answers().map(|a| a.tokens.len() as f64)) - length).abs() < 1e-9);
    for group in &last.groups {
        assert!(
            group.prompt.ends_with('=') && group.right.is_some(),
            "{group:?}"
        );
        assert_eq!(group.answers.len(), 4);
        let numbers = group.answers.iter().map(|answer| answer.index);
        assert!(numbers.eq(0..4) && group.source.is_some(), "{group:?}");
        let advantages: f64 = group.answers.iter().map(|a| a.advantage.0).sum();
        assert!(advantages.abs() < 1e-6);
    }
    for answer in answers() {
        assert_eq!(answer.rewards.len(), 2);
        assert!(
            answer
                .tokens
                .iter()
                .all(|token| token.1 <= 0.0 && token.2.is_some())
        );
    }
    // A row is the same prompt in whichever step it is answered.
    let mut prompts = std::collections::BTreeMap::new();
    for step in found.steps {
        for group in crate::run::rollouts::read(run.job.run_dir.path(), step)
            .unwrap()
            .groups
        {
            let known = prompts
                .entry(group.row.unwrap())
                .or_insert(group.prompt.clone());
            assert_eq!(*known, group.prompt);
        }
    }
    assert!(prompts.len() > 1);
    let none = run_of(&["rollout.keep=0"]);
    none.go();
    assert!(!none.job.run_dir.path().join("rollouts").exists());
}

/// Of an easy reward: an answer is worth more the shorter it is.
#[test]
fn rewards_rise_by_either_method() {
    for method in ["method=grpo", "method=rloo"] {
        let short = [
            method,
            "rewards=[{length: {limit: 4}}]",
            "max_steps=60",
            "eval.every=0",
            "optimizer.adamw.lr=0.01",
            if method == "method=rloo" {
                "method.rloo.beta=0"
            } else {
                "method.grpo.scale=group"
            },
        ];
        let events = run_of(&short).go();
        let reward = readings(&events, "reward");
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let (first, last) = (mean(&reward[..5]), mean(&reward[55..]));
        assert!(last > first + 0.2, "{method}: {first} → {last}");
    }
}

#[test]
fn a_reward_program_that_fails_ends_the_run_with_its_line_or_scores_zero() {
    let events = run_of(&["rewards=[{command: {run: 'echo no'}}]"]).go();
    let text = format!("{:?}", events.last());
    assert!(
        text.contains("reward `command`") && text.contains("no"),
        "{text}"
    );
    let zero = "rewards=[{command: {run: 'echo no', on_failure: zero}}]";
    let events = run_of(&[zero, "max_steps=2", "eval.every=0"]).go();
    assert_eq!(finished(&events).0, Outcome::Completed);
    assert_eq!(readings(&events, "rewards/command/failed"), [1.0, 1.0]);
}

#[test]
fn answers_that_are_learnt_from_again_have_ratios_that_clip() {
    let words = [
        "rollout.epochs=3",
        "optimizer.adamw.lr=0.05",
        "method.grpo.clip_low=0.02",
        "method.grpo.clip_high=0.02",
        "max_steps=9",
        "eval.every=0",
        "rewards=[{length: {limit: 4}}]",
    ];
    let events = run_of(&words).go();
    let [low, high, reward] =
        ["clip_ratio/low_mean", "clip_ratio/high_mean", "reward"].map(|id| readings(&events, id));
    assert_eq!((low.len(), high.len(), reward.len()), (9, 9, 9));
    for rollout in [0, 3, 6] {
        // The first pass sees the policy that answered.
        assert_eq!((low[rollout], high[rollout]), (0.0, 0.0));
        assert!(
            reward[rollout..rollout + 3]
                .windows(2)
                .all(|r| r[0] == r[1])
        );
    }
    let later = (0..9).filter(|step| step % 3 > 0);
    let clipped: f64 = later.map(|step| low[step] + high[step]).sum();
    assert!(clipped > 0.1, "{low:?} {high:?}");
    assert!(
        reward[0] != reward[3] && reward[3] != reward[6],
        "{reward:?}"
    );
    // Without the old policy's word nothing would ever be clipped.
    let once = run_of(&["max_steps=3", "eval.every=0"]).go();
    assert!(
        readings(&once, "clip_ratio/low_mean")
            .iter()
            .all(|x| *x == 0.0)
    );
}

#[test]
fn groups_of_one_reward_are_replaced_where_the_spec_says_so() {
    // About one answer in ten begins like that by chance.
    let words = [
        "rewards=[{regex: {pattern: '^1'}}]",
        "max_steps=4",
        "eval.every=0",
    ];
    let same = |extra: &[&str]| {
        let events = run_of(&[&words, extra].concat()).go();
        (
            readings(&events, "frac_reward_zero_std"),
            readings(&events, "rollout/refilled"),
        )
    };
    let (plain, none) = same(&[]);
    assert!(none.is_empty());
    let (fewer, refilled) = same(&["rollout.refill=8"]);
    assert!(refilled.iter().all(|x| *x > 0.0), "{refilled:?}");
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    assert!(mean(&fewer) < mean(&plain), "{plain:?} {fewer:?}");
}

#[test]
fn pass_at_k_needs_as_many_answers_and_some_chance() {
    let several = [
        "rollout.eval_answers=4",
        "rollout.eval_temperature=1",
        "rollout.pass_at=[2, 4]",
    ];
    let events = run_of(&several).go();
    let [one, two, four] =
        ["eval/pass@1", "eval/pass@2", "eval/pass@4"].map(|id| readings(&events, id));
    assert_eq!((one.len(), two.len(), four.len()), (3, 3, 3));
    for ((one, two), four) in one.iter().zip(&two).zip(&four) {
        assert!(one <= two && two <= four, "{one} {two} {four}");
    }
    let refused = |extra: &[&str]| loaded(extra).map(|_| ()).unwrap_err();
    assert!(
        refused(&["rollout.pass_at=[4]"]).contains("pass@4 cannot be estimated from 1 completions")
    );
    assert!(refused(&several[..1]).contains("are identical"));
    let odd = ["rollout.group_size=5", "rollout.steps=2"];
    assert!(refused(&odd).contains("32 completions per rollout is not a multiple of group_size 5"));
    let low = refused(&["method.grpo.delta=1.1"]);
    assert!(
        low.contains("a cap of 1.1 lies below the clipping at 1.2"),
        "{low}"
    );
}

/// Phases go by the steps that were done, and the data cursor runs ahead of them where a rescue passed over batches.
#[test]
fn a_rescue_at_the_end_of_a_cold_start_leaves_its_length_and_the_reference() {
    use crate::run::rollouts::{RolloutQuery, find};
    let run = run_of(&["rollout.cold_start_steps=3", "method.grpo.beta=0.1"]);
    opened(&run, |cx, stepper, _| {
        let experience = stepper.experience();
        for (done, learns_from_answers) in [(2, false), (3, true)] {
            cx.state.progress.step = done;
            // Two micro-steps make a step: those of the fourth step were passed over.
            experience
                .step(8, &mut cx.state, &mut || false)
                .unwrap()
                .unwrap();
            let rollouts = experience.rollouts().unwrap();
            assert_eq!(rollouts.readings().is_some(), learns_from_answers);
            assert_eq!(cx.state.models.anchored, learns_from_answers);
            rollouts.keep(run.job.run_dir.path()).unwrap();
        }
    });
    let kept = find(run.job.run_dir.path(), &RolloutQuery::Upto(12)).unwrap();
    assert_eq!(kept.steps, [4]);
}

#[test]
fn a_critic_counts_in_what_must_be_finite() {
    use crate::engine::update::Rates;
    let spec = made(&["method=ppo"]);
    let data = spec.open_data(&DataEnv::default()).unwrap();
    let mut state = TrainState::fresh(&spec, &data).unwrap();
    let finite = |state: &TrainState| {
        let weights = state.weights_are_finite().unwrap();
        (weights, state.moments_are_finite().unwrap())
    };
    assert_eq!(finite(&state), (true, true));
    let rates = Rates {
        lr: 1e-3,
        clip_norm: 1.0,
    };
    state
        .critic
        .as_mut()
        .unwrap()
        .update(f64::NAN, rates, None)
        .unwrap();
    assert_eq!(finite(&state), (false, false));
    state.reset_optimizer(&spec).unwrap();
    assert_eq!(finite(&state), (false, true));
}

#[test]
fn an_evaluation_reads_no_more_prompts_than_it_may() {
    let read = |rows: &str| {
        let events = run_of(&["max_steps=1", "eval.every=0", rows]).go();
        let found = events.iter().rev().find_map(|event| match event {
            Event::Evaluated {
                n_windows, whole, ..
            } => Some((*n_windows, *whole)),
            _ => None,
        });
        found.unwrap()
    };
    assert_eq!(read("eval.rows=10"), (10, false));
    assert!(read("eval.rows=1000").1, "a limit above all rows is none");
}

/// Prompts to learn from whose number is no multiple of those of a rollout: the last batch of an epoch is short.
fn few_prompts(rows: usize) -> String {
    format!(
        "data.sources=[{{synthetic: {{arithmetic: {{digits: 1, operations: [add, subtract]}}}}, as: prompt, rows: {rows}}}]"
    )
}

/// The short batch made a rollout of too few answers: its later steps learned from none, or ended the run with a panic.
#[test]
fn every_step_has_all_its_answers_where_prompts_do_not_come_out_even() {
    use crate::run::rollouts::{RolloutQuery, find};
    for rows in [3, 10, 11, 12, 13] {
        let words = [
            &few_prompts(rows),
            "train.micro_batch_size=4",
            "train.grad_accum_steps=1",
            "rollout.steps=4",
            "rollout.keep=16",
            "max_steps=16",
            "eval.every=0",
        ];
        let run = run_of(&words);
        let events = run.go();
        assert_eq!(
            finished(&events).0,
            Outcome::Completed,
            "{rows}: {events:?}"
        );
        for step in [1, 5, 9, 13] {
            let found = find(run.job.run_dir.path(), &RolloutQuery::Upto(step)).unwrap();
            let rollout = &found.rollouts[0];
            assert_eq!((rollout.step, rollout.groups.len()), (step, 4), "{rows}");
        }
    }
}

/// Rollouts and what replaces groups of them are as many prompts as were asked for, of data of any size.
#[test]
fn prompts_are_drawn_until_there_are_enough() {
    use crate::engine::rollouts::Asked;
    for rows in [3, 11] {
        let spec = made(&[&few_prompts(rows)]);
        let data = spec.open_data(&DataEnv::default()).unwrap();
        for (seed, first, wanted) in [(0, 0, 4), (1, 2, 4), (2, 7, 5), (3, 0, 1), (4, 1, 40)] {
            let drawn = Asked::drawn(&data, seed, first, wanted);
            assert_eq!(drawn.len(), wanted, "{rows} {seed}");
        }
    }
}

#[test]
fn a_resume_with_longer_rollouts_writes_new_answers() {
    use crate::run::rollouts::{RolloutQuery, find};
    let words = ["rollout.steps=2", "eval.every=0", "max_steps=8"];
    let mut run = run_of(&words);
    run.job.stop_after = Some(1);
    run.go();
    run.job.spec = made(&[&["rollout.steps=4"], &words[1..]].concat());
    let events = run.resumed();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    let found = find(run.job.run_dir.path(), &RolloutQuery::Upto(4)).unwrap();
    let newest = &found.rollouts[0];
    assert_eq!((newest.step, newest.groups.len()), (2, 16));
}
