//! Mixtures of experts on ranks of real PyTorch against this program's own engine, which balances loads over the whole micro-batch.

use super::hybrid::{answer_alike, give_the_same_losses, go_from_engine_to_engine};

/// Mixtral's kind, in one block of two.
const SOFTMAX: &str = "model.moe={n_expert: 5, top_k: 2, d_ff: 48, every: 2, aux_loss_coef: 0.5, z_loss_coef: 0.05} model.position=rope";
/// Qwen2-MoE's: a shared expert with a gate, scores as they are.
const SHARED: &str = "model.moe={n_expert: 4, top_k: 2, d_ff: 32, norm_topk: false, shared_d_ff: 40, shared_gate: true, aux_loss_coef: 0.2}";
/// DeepSeek-V3's: sigmoids, groups, a bias that moves, a first block without experts.
const SIGMOID: &str = "model.moe={n_expert: 8, top_k: 2, d_ff: 24, scoring: sigmoid, gate_scale: 2.5, n_group: 4, top_group: 2, shared_d_ff: 24, \
                       dense_blocks: [0], aux_loss_coef: 0.01, balancing: {bias: {rate: 0.01}}}";
/// DeepSeek-V2's groups; experts with biases.
const GROUPS: &str = "model.moe={n_expert: 6, top_k: 2, d_ff: 24, norm_topk: false, gate_scale: 1.5, n_group: 3, top_group: 2} model.bias=true";

const IDS: [&str; 7] = [
    "train/loss",
    "grad_norm",
    "val/loss",
    "expert_load",
    "expert_entropy",
    "aux_loss",
    "z_loss",
];

/// Rows that two ranks cannot share evenly, micro-batches, padding, packed documents in blocks that are recomputed, frozen experts, adapters
/// beside experts, 8-bit moments, a frozen reference.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn experts_give_the_same_losses() {
    let packed = "data.packing=packed model.seq_len=64 train.activation_checkpointing=full";
    // With the usual seed two experts of one token are as close as rounding, and ranks route it otherwise.
    let other = &format!("{packed} seed=3");
    let lora = "adapter={lora: {rank: 4, targets: all, dropout: 0.0}}";
    let attention = "adapter={lora: {rank: 4, targets: attention_only, dropout: 0.0}}";
    let cases = [
        (
            "quickstart",
            [SOFTMAX, "train.micro_batch_size=5 train.grad_accum_steps=2"],
        ),
        ("quickstart", [SIGMOID, "train.grad_accum_steps=2"]),
        ("quickstart", [GROUPS, "optimizer=adamw8bit"]),
        ("sft-demo", [SHARED, other]),
        ("sft-demo", [SIGMOID, packed]),
        ("sft-demo", [GROUPS, "data.packing=padded"]),
        ("sft-demo", [SHARED, "train.freeze=[experts,router]"]),
        ("sft-lora-demo", [SHARED, lora]),
        ("sft-lora-demo", [SIGMOID, attention]),
        ("dpo-demo", [SHARED, "method.dpo.reference=frozen"]),
    ];
    give_the_same_losses(&cases, &IDS, 2e-5);
}

/// Factors of every expert, with and without those of attention, of another rank where a pattern says so, rsLoRA and LoRA+; under DPO
/// the base alone is the reference.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn adapters_of_experts_give_the_same_losses() {
    let all = "adapter={lora: {rank: 4, targets: all_and_experts, dropout: 0.0}}";
    let own = "adapter={lora: {rank: 3, alpha: 9, targets: custom, custom: [experts, query], dropout: 0.0, rslora: true}}";
    let packed = "data.packing=packed model.seq_len=64 train.activation_checkpointing=full seed=3";
    let muon = format!("{all} optimizer=muon");
    let eight = format!("{all} optimizer=adamw8bit");
    let groups = format!("{GROUPS} {all}");
    let cases = [
        ("sft-lora-demo", [SHARED, all]),
        ("sft-lora-demo", [SIGMOID, own]),
        ("sft-lora-demo", [groups.as_str(), packed]),
        ("dpo-demo", [SHARED, all]),
    ];
    give_the_same_losses(&cases, &IDS, 2e-5);
    let eight = [("sft-lora-demo", [SOFTMAX, eight.as_str()])];
    give_the_same_losses(&eight, &IDS, 1e-4);
    // Newton-Schulz iterations enlarge what rounding leaves where the factors of all experts together have singular values near 0.
    let muon = [("sft-lora-demo", [SHARED, muon.as_str()])];
    give_the_same_losses(&muon, &["train/loss", "val/loss"], 1e-4);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn adapters_of_experts_go_from_engine_to_engine() {
    let adapted =
        format!("{SHARED} adapter={{lora: {{rank: 4, targets: all_and_experts, dropout: 0.0}}}}");
    go_from_engine_to_engine(&[&adapted]);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn checkpoints_of_experts_go_from_engine_to_engine() {
    go_from_engine_to_engine(&[SOFTMAX, SIGMOID]);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn experts_answer_alike_on_both_engines() {
    answer_alike(&[SOFTMAX, SIGMOID]);
}
