//! Lion, averages of weights, z-loss and noise on embeddings on ranks of real PyTorch, against this program's own engine.

use super::hybrid::{COMMON, give_the_same_losses, go_from_engine_to_engine, run, values};
use super::real::real;

const IDS: [&str; 3] = ["train/loss", "grad_norm", "val/loss"];

/// Evaluations are those of the average, which ranks keep beside their shards.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn averages_and_z_losses_give_the_same_losses() {
    let lora = "adapter={lora: {rank: 4, targets: all, dropout: 0.0}} train.ema_decay=0.8";
    let cases = [
        ("quickstart", ["train.ema_decay=0.9", "train.clip_norm=0.5"]),
        (
            "quickstart",
            ["train.z_loss=0.01", "train.grad_accum_steps=2"],
        ),
        ("sft-lora-demo", ["train.grad_accum_steps=2", lora]),
    ];
    give_the_same_losses(&cases, &IDS, 1e-5);
    // Rounding decides on some codes.
    let eight = [
        "train.ema_decay=0.5 train.z_loss=0.001",
        "optimizer=adamw8bit",
    ];
    give_the_same_losses(&[("sft-demo", eight)], &IDS, 1e-4);
}

/// Where a mean is near 0 rounding decides on its sign.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn lion_gives_the_same_losses() {
    let cases = [
        ("quickstart", ["optimizer=lion", "train.grad_accum_steps=2"]),
        (
            "sft-demo",
            [
                "optimizer={lion: {lr: 0.0003, beta1: 0.95}}",
                "train.freeze=[mlp]",
            ],
        ),
        (
            "sft-lora-demo",
            [
                "optimizer=lion",
                "adapter={lora: {rank: 4, targets: all, dropout: 0.0}}",
            ],
        ),
    ];
    give_the_same_losses(&cases, &IDS, 1e-4);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn averages_and_lion_go_from_engine_to_engine() {
    go_from_engine_to_engine(&["train.ema_decay=0.9", "optimizer=lion train.ema_decay=0.9"]);
}

/// Each engine has its own generator: losses differ as those of two seeds, from the first step on, and those without noise are others.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn noise_on_embeddings_is_that_of_training_steps() {
    let torch = format!(
        "engine=torch engine.torch.python={} engine.torch.ranks=2",
        real()
    );
    let losses = |more: &[&str]| {
        let settings = [&[COMMON, "max_steps=12 eval.every=12"][..], more].concat();
        values(&run("sft-demo", &settings), &["train/loss"])
    };
    let noisy = "method.sft.neftune_alpha=20";
    let (own, plain) = (losses(&[noisy]), losses(&[]));
    let there = losses(&[noisy, &torch]);
    assert_eq!(there, losses(&[noisy, &torch]), "drawn by the seed");
    let sum = |a: &[f64]| {
        a.iter()
            .zip(&plain)
            .map(|(a, b)| (a - b).abs())
            .sum::<f64>()
    };
    let (own, there) = (sum(&own), sum(&there));
    println!("against losses without noise: {own:.3e} here, {there:.3e} on ranks");
    assert!(
        own > 1e-3 && (0.3..3.0).contains(&(there / own)),
        "{own} {there}"
    );
}
