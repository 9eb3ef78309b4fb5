//! Adapters on the experts of a mixture: runs, checkpoints, merges, exports and answers.

use super::*;
use crate::engine::export::{About, AdapterSource, Options, export_adapter};
use crate::engine::infer::LoadedModel;
use crate::hf;
use crate::models::ModelSource;
use crate::nn::Model;

/// A mixture that a class of transformers computes.
const MIXTURE: [&str; 6] = [
    "model.position=rope",
    "model.norm=rmsnorm",
    "model.mlp=swiglu",
    "model.bias=false",
    "model.moe.n_expert=4",
    "model.moe.d_ff=24",
];
const ADAPTERS: [&str; 4] = [
    "adapter.lora.rank=4",
    "adapter.lora.targets=all_and_experts",
    "adapter.lora.dropout=0",
    "lr=1e-2",
];

fn base() -> Run {
    let run = Run::new(
        &[
            &MIXTURE[..],
            &["max_steps=5", "eval_every=0", "sample_every=0"],
        ]
        .concat(),
    );
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    run
}

fn adapted(base: &Run, words: &[&str]) -> Run {
    let from = format!("train.from={}", base.checkpoint(5).display());
    Run::new(&[&MIXTURE[..], &[&*from], &ADAPTERS, words].concat())
}

fn logits(model: &mut Model) -> Vec<f32> {
    let tokens: Vec<u32> = (0..16).collect();
    let all = model.logits(&tokens, 1, 16).unwrap();
    all.flatten_all().unwrap().to_vec1().unwrap()
}

fn far(a: &[f32], b: &[f32]) -> f32 {
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn adapters_of_experts_resume_to_the_bit_and_are_exported_for_peft() {
    let base = base();
    let words = ["grad_accum_steps=2", "preflight.enabled=true"];
    let straight = adapted(&base, &words);
    let whole = straight.go();
    assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
    let losses = loss_log(&[&whole]);
    let mut parted = adapted(
        &base,
        &[&words[..], &["gradient_checkpointing=true"]].concat(),
    );
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    assert!(losses == loss_log(&[&first, &second]), "losses differ");
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
    checkpoint_is_as_large_as_predicted(&straight, 20);
    let folder = straight.checkpoint(20);
    let file = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(
        file(hf::WEIGHTS) == std::fs::read(base.checkpoint(5).join(hf::WEIGHTS)).unwrap(),
        "the base moved"
    );
    let said: serde_json::Value = serde_json::from_slice(&file(hf::ADAPTER_CONFIG)).unwrap();
    assert_eq!(
        said["target_parameters"],
        serde_json::json!(["mlp.experts.down_proj", "mlp.experts.gate_up_proj"])
    );
    // Merged and beside the weights it computes the same, and not what the base does.
    let source = ModelSource::open(&folder).unwrap();
    let merged = logits(&mut source.load().unwrap());
    let mut beside = ModelSource::open(&base.checkpoint(5))
        .unwrap()
        .load()
        .unwrap();
    let without = logits(&mut beside);
    hf::Peft::find(&folder)
        .unwrap()
        .attach(&mut beside)
        .unwrap();
    let beside = logits(&mut beside);
    assert!(far(&merged, &beside) < 1e-4, "{}", far(&merged, &beside));
    assert!(far(&merged, &without) > 1e-2);
    // By itself it goes to others, and a model is answered with it.
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("adapter");
    let adapter = AdapterSource::open(&folder, None).unwrap();
    let options = Options {
        dtype: "f32".into(),
        max_shard_bytes: u64::MAX,
    };
    export_adapter(&adapter, &options, &About::default(), &to).unwrap();
    let peft = hf::Peft::find(&to).unwrap();
    peft.check().unwrap();
    assert!(
        peft.targets(&hf::Joins::default())
            .contains("experts.down_proj")
    );
    let mut exported = ModelSource::open(&base.checkpoint(5))
        .unwrap()
        .load()
        .unwrap();
    peft.attach(&mut exported).unwrap();
    assert_eq!(logits(&mut exported), beside);
    let loaded = LoadedModel::load_with(&base.checkpoint(5), std::slice::from_ref(&to));
    assert!(loaded.is_ok(), "{:?}", loaded.err().map(|e| e.to_string()));
}
