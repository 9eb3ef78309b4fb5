//! Latent attention on ranks of real PyTorch against this program's own engine.

use super::hybrid::{answer_alike, give_the_same_losses, go_from_engine_to_engine};

/// Queries from the block's input; values narrower than keys.
const PLAIN: &str =
    "model.mla={kv_rank: 24, nope_dim: 16, rope_dim: 8, v_dim: 20} model.position=rope";
/// Queries from a latent vector; values wider than keys; YaRN, whose logarithm scales the scores.
const RANKS: &str = "model.mla={kv_rank: 20, q_rank: 28, nope_dim: 10, rope_dim: 6, v_dim: 24} \
                     model.position={rope: {scaling: {yarn: {factor: 4, original_len: 32, mscale: 0.8, mscale_all_dim: 1.2}}}}";
/// DeepSeek-V3's: with experts in all blocks but the first.
const DEEPSEEK: &str = "model.mla={kv_rank: 24, q_rank: 24, nope_dim: 16, rope_dim: 8, v_dim: 16} model.position=rope \
                        model.moe={n_expert: 8, top_k: 2, d_ff: 24, scoring: sigmoid, gate_scale: 2.5, n_group: 4, top_group: 2, shared_d_ff: 24, \
                        dense_blocks: [0], aux_loss_coef: 0.01, balancing: {bias: {rate: 0.01}}}";

/// Packed documents in blocks that are recomputed, some weights frozen, adapters of every matrix, also with magnitudes, a frozen reference.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn latent_attention_gives_the_same_losses() {
    let packed = "data.packing=packed model.seq_len=64 train.activation_checkpointing=full";
    let lora = "adapter={lora: {rank: 4, targets: all, dropout: 0.0}}";
    let dora = "adapter={lora: {rank: 4, targets: all, dora: true, dropout: 0.0}}";
    let cases = [
        ("quickstart", [PLAIN, "train.grad_accum_steps=2"]),
        ("quickstart", [DEEPSEEK, "train.micro_batch_size=5"]),
        ("sft-demo", [RANKS, packed]),
        ("sft-demo", [RANKS, "train.freeze=[attention]"]),
        ("sft-lora-demo", [RANKS, lora]),
        ("sft-lora-demo", [PLAIN, dora]),
        ("dpo-demo", [DEEPSEEK, "method.dpo.reference=frozen"]),
    ];
    give_the_same_losses(&cases, &["train/loss", "grad_norm", "val/loss"], 2e-5);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn checkpoints_with_latent_attention_go_from_engine_to_engine() {
    go_from_engine_to_engine(&[RANKS, DEEPSEEK]);
}

/// Ranks attend to the latent vectors of a text.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn latent_attention_answers_alike_on_both_engines() {
    answer_alike(&[PLAIN, RANKS, DEEPSEEK]);
}
