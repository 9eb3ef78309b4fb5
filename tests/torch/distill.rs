//! Distillation on ranks: of real PyTorch against this program's own engine, and of the fake ones, which a teacher reaches again after a loss.

use super::hybrid::{give_the_same_losses, go_from_engine_to_engine};
use super::{Bench, ending, text};
use llmtui::run::RunState;
use llmtui::wire::{Event, Outcome};
use std::path::PathBuf;

/// A model that has learned to sort a little, wider than its students; the bench is its folder.
fn teacher(more: &[&str]) -> (Bench, PathBuf) {
    let bench = Bench::new(&[]);
    let short = ["train", "sft-demo", "--headless", "-s", "max_steps=30"];
    let quiet = ["-s", "preflight.enabled=false", "-s", "model.n_layer=1"];
    let out = bench.llmtui(&[&short[..], &quiet, more].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let folder = bench.run().join("checkpoints/step-000030");
    (bench, folder)
}

/// Forward and reverse KL and what lies between, temperatures, a cross entropy beside them; packed documents in blocks that are recomputed; adapters;
/// answers of the student; a teacher with a cap on its logits and attention of its own.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn distillation_gives_the_same_losses() {
    let (_plain, plain) = teacher(&[]);
    let capped = [
        "-s",
        "model.logit_softcap=4.0",
        "-s",
        "model.attention_sinks=true",
    ];
    let (_capped, capped) = teacher(&capped);
    let of = |folder: &PathBuf, more: &str| {
        let student = "model.d_model=48 model.n_kv_head=2";
        format!(
            "method={{distill: {{teacher: {}, {more}}}}} {student}",
            folder.display()
        )
    };
    let packed = "data.packing=packed model.seq_len=48 train.activation_checkpointing=full";
    let [middle, forward, reverse, own] = [
        of(&plain, "beta: 0.5"),
        of(&plain, "beta: 0, temperature: 2.0, ce_weight: 0.3"),
        of(&capped, "beta: 1, temperature: 0.7"),
        of(&capped, "beta: 0.3, on_policy: 0.5, ce_weight: 0.2"),
    ];
    let cases = [
        ("sft-demo", [&*middle, "train.grad_accum_steps=2"]),
        ("sft-demo", [&*forward, packed]),
        ("sft-demo", [&*reverse, "train.micro_batch_size=5"]),
        ("sft-demo", [&*own, "rollout.max_new_tokens=12"]),
        ("sft-demo", [&*reverse, "model.logit_softcap=6.0"]),
        (
            "sft-lora-demo",
            [
                &*middle,
                "adapter={lora: {rank: 4, targets: all, dropout: 0.0}}",
            ],
        ),
    ];
    let ids = [
        "train/loss",
        "grad_norm",
        "val/loss",
        "divergence",
        "val/divergence",
        "teacher_entropy",
        "val/teacher_agreement",
    ];
    give_the_same_losses(&cases, &ids, 2e-5);
}

#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn checkpoints_of_distillation_go_from_engine_to_engine() {
    let (_bench, folder) = teacher(&[]);
    let data = "data={sources: [{synthetic: {sort: {min_length: 4, max_length: 8, max_value: 9}}, as: completion, rows: 6000}], tokenizer: char} \
                model.seq_len=48";
    let method = format!("method={{distill: {{teacher: {}}}}}", folder.display());
    go_from_engine_to_engine(&[&format!("{method} {data}")]);
}

/// The same losses as in an undisturbed run: a new generation gets the teacher before its first pass.
#[test]
fn a_distillation_goes_on_after_a_loss() {
    let (_teacher, folder) = teacher(&[]);
    let method = format!("method={{distill: {{teacher: {}}}}}", folder.display());
    let losses = |plays: &[&str]| {
        let bench = Bench::new(plays);
        let data = "data={sources: [{synthetic: {sort: {min_length: 4, max_length: 8, max_value: 9}}, as: completion, rows: 600}], tokenizer: char}";
        let out = bench.train(&["-s", &method, "-s", data, "-s", "model.seq_len=48"]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let events = bench.events();
        assert_eq!(ending(&events).0, Outcome::Completed);
        let noted = |event: &Event| matches!(event, Event::Noted { text, .. } if text.starts_with("teacher: "));
        assert!(events.iter().any(|it| noted(&it.event)));
        let state = RunState::from_events(&events);
        // What these ranks answer for both.
        assert_eq!(state.latest("teacher_agreement"), Some(1.0));
        assert_eq!(state.latest("teacher_entropy"), Some(2.0));
        assert_eq!(state.latest("divergence"), state.latest("cross_entropy"));
        bench.assert_no_processes_left();
        bench.losses()
    };
    let quiet = losses(&["well"]);
    assert_eq!(quiet.len(), 8);
    assert_eq!(losses(&["crash", "well"]), quiet);
}
