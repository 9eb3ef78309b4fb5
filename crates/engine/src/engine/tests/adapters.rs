//! Runs with weights frozen under adapters, and other update rules: saved and restored bit by bit.

use super::*;
use crate::base::sampling::Sampling;
use crate::engine::infer::{LoadedModel, Step, TextModel};
use crate::hf;
use crate::wire::Prompt;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// A base that was trained for a moment.
pub(super) fn base() -> Run {
    let run = Run::new(&["max_steps=5", "eval_every=0", "sample_every=0"]);
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    run
}

pub(super) fn adapted(base: &Run, words: &[&str]) -> Run {
    let from = format!("train.from={}", base.checkpoint(5).display());
    let words = [&[&*from, "adapter.lora.rank=4", "lr=1e-2"], words].concat();
    Run::new(&words)
}

pub(super) fn weights(folder: &Path) -> Vec<u32> {
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
        "checkpoint.keep_last=4",
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
    // It is on the disk twice, whatever number of checkpoints have it, and whatever process wrote them.
    for run in [&straight, &parted] {
        let inode = |step: &u64| {
            let file = std::fs::metadata(run.checkpoint(*step).join(hf::WEIGHTS)).unwrap();
            std::os::unix::fs::MetadataExt::ino(&file)
        };
        let kept = run.kept();
        let files: BTreeSet<u64> = kept.iter().map(inode).collect();
        assert!(kept.len() > 2 && files.len() == 2, "{kept:?}: {files:?}");
    }
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
pub(super) fn packed(dir: &Path) -> (std::path::PathBuf, Vec<String>) {
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
        "model.d_model=32".into(),
    ];
    (path, words.to_vec())
}

pub(super) fn words_of(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn adapters_train_on_a_quantized_file_and_resume_to_the_bit() {
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
    // The last one covers more of the text.
    assert!(losses[losses.len() - 2] < losses[0], "{losses:?}");
    let mut parted = Run::new(&words_of(&words));
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    same_files(&straight.checkpoint(20), &parted.checkpoint(20));
    // The checkpoint names its base instead of holding it, and is a model by that.
    let folder = straight.checkpoint(20);
    assert!(!folder.join(hf::WEIGHTS).exists());
    checkpoint_is_as_large_as_predicted(&straight, 20);
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
    // Training puts the adapter beside the file's weights; what is measured and what chats compute the same, to the bit.
    let mut trained = base.load_for_inference().unwrap();
    let peft = hf::Peft::find(&folder).unwrap();
    peft.attach(&mut trained).unwrap();
    let (merged, beside) = (of(&mut merged), of(&mut beside));
    assert_eq!(of(&mut trained), beside);
    let mut measured = crate::engine::export::Source::open_for_inference(&folder).unwrap();
    assert_eq!(of(&mut measured.model), beside);
    assert_ne!(merged, beside, "f32 does not round");
    let without = of(&mut base.load().unwrap());
    // Quantized matmuls round activations to eight bits.
    assert!(far(&merged, &beside) < 0.25 * far(&merged, &without));
}

/// The first evaluation asked for weights of the base in f32, and the run ended with nothing saved.
#[test]
fn averages_of_adapters_on_a_quantized_file_are_shown_and_saved() {
    let dir = tempfile::tempdir().unwrap();
    let (_, words) = packed(dir.path());
    for average in ["optimizer=schedule_free", "train.ema_decay=0.9"] {
        let words = [&words_of(&words)[..], &[average]].concat();
        let straight = Run::new(&words);
        let whole = straight.go();
        assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
        let mut parted = Run::new(&words);
        parted.job.stop_after = Some(7);
        let (first, second) = (parted.go(), parted.resumed());
        let logs = (loss_log(&[&whole]), loss_log(&[&first, &second]));
        assert!(logs.0 == logs.1, "{average}: losses differ");
        same_files(&straight.checkpoint(20), &parted.checkpoint(20));
    }
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
    assert!(said.contains("weights differ"), "{said}");
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

/// The log-probabilities of a greedy answer, to the bit.
fn answer(held: &mut LoadedModel) -> Vec<u32> {
    let reading = held
        .read(
            &Prompt::Text("ROMEO: what".into()),
            &crate::base::sampling::Sampling::default(),
        )
        .unwrap();
    let greedy = Sampling {
        temperature: 0.0,
        max_new_tokens: 4,
        ..Sampling::default()
    };
    let mut heard = Vec::new();
    let mut on_step = |step: Step| {
        if let Step::Wrote(piece) = step {
            heard.push(piece.logprob.to_bits());
        }
        ControlFlow::Continue(())
    };
    held.generate(&reading, &greedy, &mut on_step).unwrap();
    heard
}

#[test]
fn several_adapters_are_switched_on_one_quantized_base() {
    let dir = tempfile::tempdir().unwrap();
    let (_, words) = packed(dir.path());
    let run = |more: &[&str]| {
        let words = [words_of(&words), vec!["max_steps=6"], more.to_vec()].concat();
        let run = Run::new(&words);
        assert_eq!(finished(&run.go()).0, Outcome::Completed);
        run
    };
    let (one, two) = (
        run(&[]),
        run(&["seed=9", "adapter.lora.dora=true", "adapter.lora.rank=2"]),
    );
    let mut held = LoadedModel::load_with(&one.checkpoint(6), &[two.checkpoint(6)]).unwrap();
    let Event::Loaded {
        adapters,
        quantized,
        ..
    } = held.about(0.0)
    else {
        panic!("no model was loaded");
    };
    assert_eq!(adapters.len(), 2, "{adapters:?}");
    assert!(quantized.unwrap().contains("Q8_0"));
    let first = answer(&mut held);
    held.use_adapter(Some(&adapters[1])).unwrap();
    let second = answer(&mut held);
    held.use_adapter(None).unwrap();
    let base = answer(&mut held);
    assert!(first != second && second != base && first != base);
    held.use_adapter(Some(&adapters[0])).unwrap();
    assert_eq!(answer(&mut held), first);
    // What is not there changes nothing. The prompt is held now and not read as a whole again, which may change the last bits.
    let again = answer(&mut held);
    let unknown = held.use_adapter(Some("nobody")).unwrap_err();
    assert!(unknown.contains(&adapters[1]), "{unknown}");
    assert_eq!(answer(&mut held), again);
    // What is named comes before the model's own, and alone says the same.
    for (run, beside) in [(&two, &first), (&one, &second)] {
        let mut alone = LoadedModel::load(&run.checkpoint(6)).unwrap();
        assert_eq!(&answer(&mut alone), beside);
    }
}

/// Ranks and alphas of single modules are trained, saved, resumed, merged and switched as those of all are.
#[test]
fn modules_with_a_rank_of_their_own_train_resume_and_are_switched() {
    let own = [
        "adapter.lora.rank_pattern={h.0.*c_attn: 3, mlp.c_proj: 1}",
        "adapter.lora.alpha_pattern={c_fc: 4}",
        "max_steps=8",
    ];
    let base = base();
    let (straight, mut parted) = (adapted(&base, &own), adapted(&base, &own));
    let whole = straight.go();
    assert_eq!(finished(&whole).0, Outcome::Completed);
    parted.job.stop_after = Some(3);
    let (first, second) = (parted.go(), parted.resumed());
    assert!(loss_log(&[&whole]) == loss_log(&[&first, &second]));
    same_files(&straight.checkpoint(8), &parted.checkpoint(8));
    let config = std::fs::read(straight.checkpoint(8).join(hf::ADAPTER_CONFIG)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    // The end of a name says which module is meant where, as here, there is one block.
    let ranks = serde_json::json!({"mlp.c_proj": 1, "attn.c_attn": 3});
    assert_eq!(config["rank_pattern"], ranks);
    assert_eq!(
        config["alpha_pattern"],
        serde_json::json!({"mlp.c_fc": 4.0})
    );
    assert_ne!(
        weights(&straight.checkpoint(8)),
        weights(&base.checkpoint(5))
    );
    // On one quantized base, beside an adapter of one rank.
    let dir = tempfile::tempdir().unwrap();
    let (_, words) = packed(dir.path());
    let run = |more: &[&str]| {
        let run = Run::new(&[&words_of(&words)[..], more].concat());
        assert_eq!(finished(&run.go()).0, Outcome::Completed);
        run
    };
    let (plain, own) = (run(&["max_steps=6"]), run(&own));
    let mut held = LoadedModel::load_with(&plain.checkpoint(6), &[own.checkpoint(8)]).unwrap();
    let Event::Loaded { adapters, .. } = held.about(0.0) else {
        panic!("no model was loaded");
    };
    let first = answer(&mut held);
    held.use_adapter(Some(&adapters[1])).unwrap();
    let second = answer(&mut held);
    assert_ne!(first, second);
    // What is named comes first.
    for (run, beside) in [(own.checkpoint(8), first), (plain.checkpoint(6), second)] {
        let mut alone = LoadedModel::load(&run).unwrap();
        assert_eq!(answer(&mut alone), beside);
    }
}

/// Adapters that bring an embedding and a head of their own (modules_to_save) take them along when they go.
#[test]
fn tables_of_an_adapter_are_switched_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (file, words) = packed(dir.path());
    let untied = Run::new(&["max_steps=5", "eval_every=0", "model.tie_embeddings=false"]);
    assert_eq!(finished(&untied.go()).0, Outcome::Completed);
    let folder = untied.checkpoint(5);
    let from = format!("train.from={}", folder.display());
    let untied_words = vec![from, "lr=1e-2".into(), "model.tie_embeddings=false".into()];
    for (base, words, tables) in [
        (folder, untied_words, "[embeddings, head]"),
        (file, words, "[embeddings]"),
    ] {
        let run = |more: &[&str]| {
            let always = ["max_steps=6", "adapter.lora.rank=4"];
            let run = Run::new(&[&words_of(&words)[..], &always, more].concat());
            assert_eq!(finished(&run.go()).0, Outcome::Completed);
            run
        };
        let saved = format!("adapter.lora.modules_to_save={tables}");
        let runs = [run(&[]), run(&[&saved, "seed=9", "train.dequantize=true"])];
        let [plain, whole] = runs.each_ref().map(|run| run.checkpoint(6));
        // The adapter without its base, as one from elsewhere.
        let apart = dir.path().join(format!("apart-{}", base.is_file()));
        std::fs::create_dir_all(&apart).unwrap();
        for file in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
            std::fs::copy(whole.join(file), apart.join(file)).unwrap();
        }
        let second = answer(&mut LoadedModel::load(&plain).unwrap());
        let mut held = LoadedModel::load_with(&plain, &[apart]).unwrap();
        let Event::Loaded { adapters, .. } = held.about(0.0) else {
            panic!("no model was loaded");
        };
        let first = answer(&mut held);
        held.use_adapter(None).unwrap();
        let without = answer(&mut held);
        assert!(first != without && first != second && second != without);
        for (name, expected) in [(1, &second), (0, &first), (1, &second)] {
            held.use_adapter(Some(&adapters[name])).unwrap();
            assert_eq!(&answer(&mut held), expected);
        }
        held.use_adapter(None).unwrap();
        assert_eq!(answer(&mut held), without, "the base is what it was");
        // Merged in f32 it says the same, but for what a quantized base rounds.
        let tokens: Vec<u32> = (0..16).collect();
        let of = |mut model: crate::nn::Model| -> Vec<f32> {
            let logits = model.logits(&tokens, 1, 16).unwrap();
            logits.flatten_all().unwrap().to_vec1().unwrap()
        };
        let far = |a: &[f32], b: &[f32]| {
            let off = a.iter().zip(b).map(|(a, b)| (a - b).abs());
            off.fold(0.0, f32::max)
        };
        let quantized = base.is_file();
        let base = crate::models::ModelSource::open(&base).unwrap();
        let peft = hf::Peft::find(&whole).unwrap();
        let (mut merged, mut beside) = (base.load().unwrap(), base.load_for_inference().unwrap());
        let without = of(base.load().unwrap());
        peft.merge_into(&mut merged, 1.0).unwrap();
        peft.attach_for_inference(&mut beside).unwrap();
        let merged = of(merged);
        let allowed = if quantized { 0.25 } else { 1e-4 } * far(&merged, &without);
        let off = far(&merged, &of(beside));
        assert!(off < allowed, "quantized: {quantized}, {off} of {allowed}");
    }
}
