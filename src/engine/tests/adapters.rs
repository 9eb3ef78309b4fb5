//! Runs whose weights are frozen under adapters, and other update rules: what is saved, what is read, and to the bit.

use super::*;
use crate::hf;

/// A base that was trained for a moment.
fn base() -> Run {
    let run = Run::new(&["max_steps=5", "eval_every=0", "sample_every=0"]);
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    run
}

fn adapted(base: &Run, words: &[&str]) -> Run {
    let from = format!("train.from={}", base.checkpoint(5).display());
    let words = [&[&*from, "adapter.lora.rank=4", "lr=1e-2"], words].concat();
    Run::new(&words)
}

fn weights(folder: &Path) -> Vec<u32> {
    let bits = |w: &[f32]| w.iter().map(|x| x.to_bits()).collect();
    hf::load(folder)
        .unwrap()
        .params()
        .read_weights(bits)
        .unwrap()
}

#[test]
fn adapters_resume_to_the_bit_and_their_base_is_saved_as_it_was() {
    let base = base();
    let words = [
        "adapter.lora.dropout=0.2",
        "grad_accum_steps=2",
        "dropout=0.1",
    ];
    let straight = adapted(&base, &words);
    let whole = straight.go();
    assert_eq!(finished(&whole).0, Outcome::Completed);
    let checkpointed = [&words[..], &["gradient_checkpointing=true"]].concat();
    let mut parted = adapted(&base, &checkpointed);
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
    let file = |run: &Run, step, name| std::fs::read(run.checkpoint(step).join(name)).unwrap();
    let same = file(&base, 5, hf::WEIGHTS) == file(&straight, 20, hf::WEIGHTS);
    assert!(same, "the base moved");
    let config = file(&straight, 20, hf::ADAPTER_CONFIG);
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(
        (&config["r"], &config["peft_type"]),
        (&4.into(), &"LORA".into())
    );
}

#[test]
fn what_reads_a_checkpoint_reads_its_adapters_too() {
    let base = base();
    let run = adapted(&base, &["max_steps=6"]);
    run.go();
    let folder = run.checkpoint(6);
    let merged = weights(&folder);
    assert_ne!(merged, weights(&base.checkpoint(5)));
    // A run from there begins with the merged weights, whether they all train or adapters of its own do.
    for words in [
        &["max_steps=1"][..],
        &["max_steps=1", "adapter.lora.rank=2"],
    ] {
        let from = format!("train.from={}", folder.display());
        let next = [&[&*from], words].concat();
        let (spec, data) = tiny(&next);
        let state = TrainState::fresh(&spec, &data).unwrap();
        let bits = |w: &[f32]| w.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let found = state.models.policy.params().read_weights(bits).unwrap();
        assert!(found[..merged.len()] == merged, "{words:?}");
    }
}

#[test]
fn adapters_on_random_weights_pass_the_checks_and_run() {
    let words = [
        "adapter.lora.rank=8",
        "preflight.enabled=true",
        "max_steps=3",
    ];
    let events = Run::new(&words).go();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
}

#[test]
fn lion_resumes_to_the_bit() {
    let words = ["optimizer.lion.lr=1e-3"];
    let straight = Run::new(&words);
    let whole = straight.go();
    let mut parted = Run::new(&words);
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
}
