//! PPO with a critic on the policy's trunk, or a separate one, on ranks of real PyTorch against this program's own engine.

use super::hybrid::{COMMON, run, set, values};
use super::real::{largest_difference, real};
use super::{Bench, text};
use llmtui::run::RunState;

/// A cold start, whose loss has no values; then several updates of each rollout, with an entropy bonus and a reference, all weights or adapters.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn a_shared_critic_gives_the_same_losses() {
    let python = format!("engine=torch engine.torch.python={}", real());
    let rollout = "max_steps=10 train.micro_batch_size=16 eval.every=5 rollout.cold_start_steps=3 rollout.epochs=2 rollout.side_by_side=7 \
                   rewards=[{regex: {pattern: '[1-4]'}}]";
    let ids = [
        "train/loss",
        "grad_norm",
        "reward",
        "loss/value_avg",
        "policy/entropy_avg",
    ];
    for method in [
        "method={ppo: {critic: shared, critic_warmup_steps: 0, beta: 0.02, entropy_coef: 0.01}}",
        "method={ppo: {critic: shared, critic_warmup_steps: 0, kl_target: null, beta: 0.0}} adapter={lora: {rank: 4, targets: all, dropout: 0.0}}",
    ] {
        let here = [method, COMMON, rollout];
        let own = values(&run("ppo-demo", &here), &ids);
        for ranks in [
            "engine.torch.ranks=2",
            "engine.torch.ranks=2 engine.torch.shard=fsdp2",
        ] {
            let there = run("ppo-demo", &[&here[..], &[&python, ranks]].concat());
            let apart = largest_difference(&own, &values(&there, &ids));
            println!(
                "{method} {ranks}: {} values, max |d| {apart:.2e}",
                own.len()
            );
            assert!(apart < 1e-4, "{method} {ranks}: {own:?}");
        }
    }
}

/// A critic that warms up before the policy, with adapters or without, and one of a policy that a cold start has changed.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn a_separate_critic_gives_the_same_losses() {
    let python = format!("engine=torch engine.torch.python={}", real());
    let rollout = "max_steps=12 train.micro_batch_size=15 train.grad_accum_steps=2 eval.every=6 rollout.epochs=2 rollout.group_size=3 \
                   rollout.side_by_side=7 rewards=[{regex: {pattern: '[1-4]'}}]";
    let ids = [
        "train/loss",
        "grad_norm",
        "reward",
        "loss/value_avg",
        "critic/grad_norm",
        "val/var_explained",
    ];
    for (method, more) in [
        (
            "method={ppo: {critic_warmup_steps: 2, beta: 0.02, entropy_coef: 0.01}}",
            "rollout.cold_start_steps=3",
        ),
        (
            "method={ppo: {critic_lr_scale: 3, critic_warmup_steps: 0, kl_target: null, beta: 0.0}} \
             adapter={lora: {rank: 4, targets: all, dropout: 0.0}}",
            "rollout.cold_start_steps=2",
        ),
        (
            "method={ppo: {critic_warmup_steps: 0, kl_target: null, beta: 0.0}} optimizer=lion",
            "rollout.cold_start_steps=0 model.moe={n_expert: 4, top_k: 2, d_ff: 32, aux_loss_coef: 0.1}",
        ),
    ] {
        let here = [method, more, COMMON, rollout];
        let own = values(&run("ppo-demo", &here), &ids);
        for ranks in [
            "engine.torch.ranks=2",
            "engine.torch.ranks=2 engine.torch.shard=fsdp2",
        ] {
            let there = run("ppo-demo", &[&here[..], &[&python, ranks]].concat());
            let apart = largest_difference(&own, &values(&there, &ids));
            println!(
                "{method} {ranks}: {} values, max |d| {apart:.2e}",
                own.len()
            );
            assert!(apart < 1e-4, "{method} {ranks}: {own:?}");
        }
    }
}

/// Weights and moments of the critic are in the checkpoint that the ranks' engine writes: a run that stops goes on bit-identically
/// on ranks, and to rounding on this program's engine.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn a_separate_critic_goes_on_after_a_resume() {
    let python = format!(
        "engine=torch engine.torch.python={} engine.torch.ranks=2",
        real()
    );
    let common = "method.ppo.critic_warmup_steps=1 max_steps=8 train.micro_batch_size=16 rollout.cold_start_steps=2 rollout.epochs=2 checkpoint.every=5 \
                  eval.every=8 rewards=[{regex: {pattern: '[1-4]'}}]";
    let losses = |stop: bool, then: &str| {
        let bench = Bench::new(&[]);
        let llmtui = |args: &[&str], settings: &[&str]| {
            let settings: Vec<String> = settings.iter().flat_map(|part| set(part)).collect();
            let mut args = [&["train", "--headless"], args].concat();
            args.extend(settings.iter().map(String::as_str));
            let out = bench.llmtui(&args);
            assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        };
        let first = ["ppo-demo", "--stop-after", "5"];
        let first = if stop { &first[..] } else { &first[..1] };
        llmtui(first, &[COMMON, common, &python]);
        if stop {
            llmtui(&["--resume", "auto"], &[then]);
        }
        let state = RunState::from_events(&bench.events());
        values(
            &state,
            &["train/loss", "loss/value_avg", "critic/grad_norm"],
        )
    };
    let whole = losses(false, "");
    assert_eq!(whole, losses(true, &python));
    let apart = largest_difference(&whole, &losses(true, "engine=candle"));
    println!("{} values, max |d| {apart:.2e}", whole.len());
    assert!(apart < 1e-4, "{apart}");
}
