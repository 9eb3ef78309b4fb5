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

/// A base whose weights are Q8_0 in a file, and the words that train adapters on it.
fn packed(dir: &Path) -> (std::path::PathBuf, Vec<String>) {
    let run = Run::new(&[
        "max_steps=5",
        "eval_every=0",
        "sample_every=0",
        "model.d_model=32",
    ]);
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    let base = run.checkpoint(5);
    let model = hf::load(&base).unwrap();
    let path = dir.join("base.gguf");
    let mut file = std::fs::File::create(&path).unwrap();
    crate::llama_cpp::write(
        &model,
        crate::kernels::quant::Kind::Q8_0,
        "base",
        &[],
        &mut file,
    )
    .unwrap();
    let tokenizer = dir.join(hf::TOKENIZER);
    std::fs::copy(base.join(hf::TOKENIZER), &tokenizer).unwrap();
    let words = [
        format!("train.from={}", path.display()),
        format!("data.tokenizer.file.path={}", tokenizer.display()),
        "adapter.lora.rank=4".into(),
        "adapter.lora.dropout=0.2".into(),
        "lr=1e-2".into(),
        "preflight.enabled=true".into(),
    ];
    (path, words.to_vec())
}

fn words_of(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn adapters_train_on_a_quantised_file_and_resume_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (path, words) = packed(dir.path());
    let straight = Run::new(&words_of(&words));
    let whole = straight.go();
    assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
    let losses: Vec<f64> = whole
        .iter()
        .filter_map(|event| match event {
            Event::Evaluated { values, .. } => values.get("val/loss").map(|x| x.0),
            _ => None,
        })
        .collect();
    assert!(losses.last() < losses.first(), "{losses:?}");
    let mut parted = Run::new(&words_of(&words));
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
    // The checkpoint names its base instead of holding it, and is a model by that.
    let folder = straight.checkpoint(20);
    assert!(!folder.join(hf::WEIGHTS).exists());
    let source = crate::models::ModelSource::open(&folder).unwrap();
    let mut merged = source.load().unwrap();
    let mut beside = source.load_for_inference().unwrap();
    assert!(beside.adapter().is_some() && !beside.params().is_present());
    let tokens: Vec<u32> = (0..16).collect();
    let base = crate::models::ModelSource::open(&path).unwrap();
    let of = |model: &mut crate::nn::Model| -> Vec<f32> {
        let logits = model.logits(&tokens, 1, 16).unwrap();
        logits.flatten_all().unwrap().to_vec1().unwrap()
    };
    let far = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max)
    };
    let (merged, beside) = (of(&mut merged), of(&mut beside));
    let without = of(&mut base.load().unwrap());
    // Quantised products round activations to eight bits.
    assert!(far(&merged, &beside) < 0.25 * far(&merged, &without));
}

#[test]
fn another_file_under_the_adapters_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let (path, words) = packed(dir.path());
    let mut run = Run::new(&words_of(&words));
    run.job.stop_after = Some(5);
    run.go();
    let mut bytes = std::fs::read(&path).unwrap();
    // The last tensors lie in the last block.
    let at = bytes.len() - 600;
    bytes[at..]
        .iter_mut()
        .step_by(34)
        .for_each(|byte| *byte ^= 0x11);
    std::fs::write(&path, bytes).unwrap();
    let events = run.resumed();
    let said = format!("{:?}", finished(&events));
    assert!(said.contains("other weights"), "{said}");
    // In f32 there is a copy of the base in every checkpoint.
    let words = [
        words,
        vec!["train.dequantize=true".into(), "max_steps=5".into()],
    ]
    .concat();
    let run = Run::new(&words_of(&words));
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    assert!(run.checkpoint(5).join(hf::WEIGHTS).exists());
}
