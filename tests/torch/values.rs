//! PPO with a critic on the policy's trunk, on ranks of real PyTorch against this program's own engine.

use super::hybrid::{COMMON, run, values};
use super::real::{largest_difference, real};

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
