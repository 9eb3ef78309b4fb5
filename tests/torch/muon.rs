//! Muon on ranks of real PyTorch against this program's own: matrices whole and in shards, queries, keys and values in one tensor, experts, adapters; AdamW
//! for the rest.

use super::hybrid::{give_the_same_losses, go_from_engine_to_engine};

const EXPERTS: &str = "optimizer={muon: {lr: 0.001, nesterov: false}} model.position=rope \
                       model.moe={n_expert: 5, top_k: 2, d_ff: 48, every: 2, aux_loss_coef: 0.1}";

/// Both scales; Newton-Schulz iterations enlarge small differences of gradients up to some hundred times.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn muon_gives_the_same_losses() {
    let lora = "adapter={lora: {rank: 4, targets: all, dropout: 0.0}}";
    let cases = [
        ("quickstart", ["optimizer=muon", "train.grad_accum_steps=2"]),
        ("quickstart", [EXPERTS, "train.micro_batch_size=5"]),
        (
            "sft-demo",
            [
                "optimizer={muon: {scale: match_rms, lr: 0.002}}",
                "train.freeze=[mlp]",
            ],
        ),
        ("sft-lora-demo", ["optimizer={muon: {lr: 0.005}}", lora]),
    ];
    give_the_same_losses(&cases, &["train/loss", "grad_norm", "val/loss"], 1e-4);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn checkpoints_of_muon_go_from_engine_to_engine() {
    go_from_engine_to_engine(&["optimizer=muon", EXPERTS]);
}
