//! Runs whose weights are frozen under adapters, and other update rules: what is saved, what is read, and to the bit.

use super::*;
use crate::base::sampling::Sampling;
use crate::engine::export::{About, AdapterSource, Options, export_adapter};
use crate::engine::infer::{HeldModel, Step, TextModel};
use crate::hf;
use crate::wire::Prompt;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

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
        "model.d_model=32".into(),
    ];
    (path, words.to_vec())
}

fn words_of(words: &[String]) -> Vec<&str> {
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
    let mut measured = crate::engine::export::Source::open_as_it_answers(&folder).unwrap();
    assert_eq!(of(&mut measured.model), beside);
    assert_ne!(merged, beside, "f32 does not round");
    let without = of(&mut base.load().unwrap());
    // Quantized products round activations to eight bits.
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

#[test]
fn adapters_are_merged_into_their_base_and_nothing_else() {
    use crate::engine::merge::{MergeError, Merged, Order, RECORD, merge};
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let tuned = |words: &[&str]| {
        let run = adapted(&base, &[&["max_steps=6"], words].concat());
        assert_eq!(finished(&run.go()).0, Outcome::Completed);
        // The adapter alone, as others keep it.
        let (from, to) = (run.checkpoint(6), tempfile::tempdir().unwrap());
        for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
            std::fs::copy(from.join(name), to.path().join(name)).unwrap();
        }
        (run, to)
    };
    let (run, one) = tuned(&[]);
    let (_, two) = tuned(&["seed=5", "adapter.lora.targets=ffn_only"]);
    let (_, dora) = tuned(&["adapter.lora.dora=true"]);
    let go = |from: &Path, adapters: &[(&Path, f64)], to: &str| -> Result<Merged, MergeError> {
        merge(&Order {
            base: from.into(),
            adapters: adapters
                .iter()
                .map(|(path, weight)| (path.to_path_buf(), *weight))
                .collect(),
            to: dir.path().join(to),
            dtype: "f32".into(),
            dequantize: false,
            any_base: false,
            prompts: Vec::new(),
        })
    };
    let folder = base.checkpoint(5);
    for (adapters, to) in [
        (&[(one.path(), 1.0)][..], "one"),
        (&[(one.path(), 0.5), (two.path(), -0.25)], "both"),
        (&[(dora.path(), 1.0)], "dora"),
    ] {
        let merged = go(&folder, adapters, to).unwrap();
        let found = merged.check.unwrap();
        assert!(
            found.off < 1e-4 && found.moved > 10.0 * found.off,
            "{to}: {found:?}"
        );
        assert_eq!(found.agree, found.tokens);
        assert!(dir.path().join(to).join(RECORD).is_file());
    }
    // What is written in 16 bits is asked as it is written.
    let rounded = |dtype: &str| {
        let order = Order {
            base: folder.clone(),
            adapters: vec![(one.path().into(), 1.0)],
            to: dir.path().join(dtype),
            dtype: dtype.into(),
            dequantize: false,
            any_base: false,
            prompts: Vec::new(),
        };
        merge(&order).unwrap().rounded.unwrap().off
    };
    assert!(
        go(&folder, &[(two.path(), 1.0)], "f32")
            .unwrap()
            .rounded
            .is_none()
    );
    let (half, brain) = (rounded("f16"), rounded("bf16"));
    assert!(0.0 < half && half < brain && brain < 0.5, "{half} {brain}");
    // A checkpoint holds base and adapter.
    go(&run.checkpoint(6), &[], "own").unwrap();
    assert_eq!(
        weights(&dir.path().join("own")),
        weights(&dir.path().join("one"))
    );
    assert_eq!(
        weights(&dir.path().join("own")),
        weights(&run.checkpoint(6))
    );
    let said = |from: &Path, adapters: &[(&Path, f64)]| {
        let error = go(from, adapters, "never").unwrap_err();
        assert!(!dir.path().join("never").exists());
        format!("{error}; {}", error.hint())
    };
    let already = said(&dir.path().join("one"), &[(one.path(), 1.0)]);
    assert!(already.contains("already merged"), "{already}");
    // The same adapter in another file, as an export makes one.
    let source = AdapterSource::open(one.path(), None).unwrap();
    let (options, exported) = (
        Options {
            dtype: "f32".into(),
            max_shard_bytes: 1 << 30,
        },
        dir.path().join("exported"),
    );
    export_adapter(&source, &options, &About::default(), &exported).unwrap();
    let file = exported.join(hf::ADAPTER_WEIGHTS);
    let bytes = std::fs::read(&file).unwrap();
    // Other bytes: spaces behind the header, as PEFT's writer puts them there.
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap());
    let (header, tensors) = rest.split_at(length as usize);
    let length = (length + 8).to_le_bytes();
    std::fs::write(&file, [&length, header, b"        ", tensors].concat()).unwrap();
    let already = said(&dir.path().join("one"), &[(&exported, 1.0)]);
    assert!(already.contains("already merged"), "{already}");
    // What is not read is its own, whatever the base.
    let config = std::fs::read_to_string(exported.join(hf::ADAPTER_CONFIG)).unwrap();
    let config = config.replace("\"bias\": \"none\"", "\"bias\": \"lora_only\"");
    std::fs::write(exported.join(hf::ADAPTER_CONFIG), config).unwrap();
    let unread = said(&folder, &[(&exported, 1.0)]);
    assert!(
        unread.contains("bias") && unread.contains("merge it with PEFT"),
        "{unread}"
    );
    assert!(!unread.contains("trained on"), "{unread}");
    let other = said(&dir.path().join("one"), &[(two.path(), 1.0)]);
    assert!(
        other.contains("another base") && other.contains("--any-base"),
        "{other}"
    );
    // Chat puts an adapter beside the weights: told of other ones, and refused where it is in them.
    let beside = |model: &Path, adapter: &Path| {
        let held = HeldModel::load_with(model, &[adapter.to_path_buf()]);
        held.map(|held| match held.about(0.0) {
            Event::Loaded { notes, .. } => notes.join("; "),
            event => panic!("{event:?}"),
        })
    };
    let same = beside(&folder, one.path()).unwrap();
    assert!(!same.contains("another base"), "{same}");
    let other = beside(&dir.path().join("one"), two.path()).unwrap();
    assert!(other.contains("is an adapter of another base"), "{other}");
    let already = beside(&dir.path().join("one"), one.path()).err().unwrap();
    assert!(already.to_string().contains("already merged"), "{already}");
    assert!(already.hint().contains("leave --adapter out"));
    let none = said(&folder, &[(&folder, 1.0)]);
    assert!(none.contains("no adapter here"), "{none}");
    assert!(said(&folder, &[]).contains("no adapter here"));
    let whole = said(&folder, &[(dora.path(), 0.5)]);
    assert!(whole.contains("whole"), "{whole}");
    let several = said(&folder, &[(one.path(), 1.0), (dora.path(), 1.0)]);
    assert!(several.contains("do not add up"), "{several}");
    let (path, _) = packed(dir.path());
    let packed = said(&path, &[(one.path(), 1.0)]);
    assert!(packed.contains("--dequantize"), "{packed}");
}

/// SFT with adapters on a quantized file, then DPO or more SFT with adapters on that.
#[test]
fn an_adapter_on_an_adapter_on_a_file_is_merged_by_one_order() {
    use crate::engine::merge::{MergeError, Merged, Order, RECORD, merge};
    let dir = tempfile::tempdir().unwrap();
    let (path, words) = packed(dir.path());
    let first = Run::new(&[&words_of(&words)[..], &["max_steps=6"]].concat());
    assert_eq!(finished(&first.go()).0, Outcome::Completed);
    let first = first.checkpoint(6);
    let from = format!("train.from={}", first.display());
    let second = Run::new(&[
        &from,
        "adapter.lora.rank=2",
        "lr=1e-2",
        "max_steps=6",
        "seed=5",
        "model.d_model=32",
    ]);
    assert_eq!(finished(&second.go()).0, Outcome::Completed);
    let second = second.checkpoint(6);
    // The second adapter without the weights under it, as it is published.
    let alone = dir.path().join("alone");
    std::fs::create_dir(&alone).unwrap();
    for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
        std::fs::copy(second.join(name), alone.join(name)).unwrap();
    }
    let go =
        |from: &Path, adapter: Option<&Path>, dequantize, to: &str| -> Result<Merged, MergeError> {
            merge(&Order {
                base: from.into(),
                adapters: adapter
                    .map(|path| (path.to_path_buf(), 1.0))
                    .into_iter()
                    .collect(),
                to: dir.path().join(to),
                dtype: "f32".into(),
                dequantize,
                any_base: false,
                prompts: Vec::new(),
            })
        };
    // A run on a file is merged without naming the file.
    go(&first, None, false, "sft").unwrap();
    go(&second, None, false, "expected").unwrap();
    let expected = weights(&dir.path().join("expected"));
    assert_ne!(weights(&dir.path().join("sft")), expected);
    let ways: [(&Path, Option<&Path>, bool, &str); 4] = [
        (&first, Some(&second), false, "run and run"),
        (&first, Some(&alone), false, "run and adapter"),
        (&alone, None, false, "adapter alone"),
        (
            &dir.path().join("sft"),
            Some(&alone),
            false,
            "merged and adapter",
        ),
    ];
    for (from, adapter, dequantize, to) in ways {
        let merged = go(from, adapter, dequantize, to).unwrap();
        let found = merged.check.unwrap();
        assert!(
            found.off < 1e-3 && found.agree == found.tokens,
            "{to}: {found:?}"
        );
        assert_eq!(weights(&dir.path().join(to)), expected, "{to}");
    }
    // The file is found to be what the chain stands on; it has no tokenizer to export.
    let file = go(&path, Some(&second), true, "never").unwrap_err();
    assert!(file.to_string().contains("no tokenizer"), "{file}");
    let record = std::fs::read_to_string(dir.path().join("run and adapter").join(RECORD)).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["adapters"].as_array().unwrap().len(), 2);
    assert!(record["base"].as_str().unwrap().ends_with("base.gguf"));
    // The chain answers, too, and says what its merged weights say.
    let source = crate::models::ModelSource::open(&alone).unwrap();
    let logits = |model: &mut crate::nn::Model| -> Vec<f32> {
        let tokens: Vec<u32> = (0..16).collect();
        let logits = model.logits(&tokens, 1, 16).unwrap();
        logits.flatten_all().unwrap().to_vec1().unwrap()
    };
    let beside = logits(&mut source.load_for_inference().unwrap());
    let merged = logits(&mut hf::load(&dir.path().join("expected")).unwrap());
    let off = beside
        .iter()
        .zip(&merged)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(off < 1e-3, "{off}");
    // A chain that does not end in these weights; the message says what would do.
    let other = base();
    let error = go(&other.checkpoint(5), Some(&second), false, "never").unwrap_err();
    let said = format!("{error}; {}", error.hint());
    assert!(
        said.contains("another") || said.contains("other model") || said.contains("shape"),
        "{said}"
    );
    // Adapters in a circle end.
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(alone.join(hf::ADAPTER_CONFIG)).unwrap()).unwrap();
    config["base_model_name_or_path"] = alone.to_str().unwrap().into();
    std::fs::write(alone.join(hf::ADAPTER_CONFIG), config.to_string()).unwrap();
    let circle = go(&alone, None, false, "never").unwrap_err().to_string();
    assert!(circle.contains("circle"), "{circle}");
    assert!(!dir.path().join("never").exists());
}

/// The log-probabilities of a greedy answer, to the bit.
fn answer(held: &mut HeldModel) -> Vec<u32> {
    let reading = held.read(&Prompt::Text("ROMEO: what".into())).unwrap();
    let greedy = Sampling {
        temperature: 0.0,
        max_new_tokens: 4,
        ..Sampling::default()
    };
    let mut heard = Vec::new();
    let mut hear = |step: Step| {
        if let Step::Wrote(piece) = step {
            heard.push(piece.logprob.to_bits());
        }
        ControlFlow::Continue(())
    };
    held.go_on(&reading, &greedy, &mut hear).unwrap();
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
    let mut held = HeldModel::load_with(&one.checkpoint(6), &[two.checkpoint(6)]).unwrap();
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
        let mut alone = HeldModel::load(&run.checkpoint(6)).unwrap();
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
    let mut held = HeldModel::load_with(&plain.checkpoint(6), &[own.checkpoint(8)]).unwrap();
    let Event::Loaded { adapters, .. } = held.about(0.0) else {
        panic!("no model was loaded");
    };
    let first = answer(&mut held);
    held.use_adapter(Some(&adapters[1])).unwrap();
    let second = answer(&mut held);
    assert_ne!(first, second);
    // What is named comes first.
    for (run, beside) in [(own.checkpoint(8), first), (plain.checkpoint(6), second)] {
        let mut alone = HeldModel::load(&run).unwrap();
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
        let second = answer(&mut HeldModel::load(&plain).unwrap());
        let mut held = HeldModel::load_with(&plain, &[apart]).unwrap();
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
        peft.stand(&mut beside).unwrap();
        let merged = of(merged);
        let allowed = if quantized { 0.25 } else { 1e-4 } * far(&merged, &without);
        let off = far(&merged, &of(beside));
        assert!(off < allowed, "quantized: {quantized}, {off} of {allowed}");
    }
}

/// Whole tables do not add up with other adapters: such a merge is written unchecked. A table that two adapters bring is one
/// too many.
#[test]
fn an_adapter_with_a_table_of_its_own_is_merged_with_another() {
    use crate::engine::merge::{Order, merge};
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let tuned = |words: &[&str]| {
        let run = adapted(&base, &[&["max_steps=6"], words].concat());
        assert_eq!(finished(&run.go()).0, Outcome::Completed);
        let (from, to) = (run.checkpoint(6), tempfile::tempdir().unwrap());
        for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
            std::fs::copy(from.join(name), to.path().join(name)).unwrap();
        }
        to
    };
    let whole = "adapter.lora.modules_to_save=[embeddings]";
    let [plain, one, two] = [tuned(&[]), tuned(&[whole]), tuned(&[whole, "seed=5"])];
    let go = |adapters: &[&tempfile::TempDir], to: &str| {
        let adapters = adapters.iter().map(|dir| (dir.path().to_path_buf(), 1.0));
        merge(&Order {
            base: base.checkpoint(5),
            adapters: adapters.collect(),
            to: dir.path().join(to),
            dtype: "f32".into(),
            dequantize: false,
            any_base: false,
            prompts: Vec::new(),
        })
    };
    let alone = go(&[&one], "alone").unwrap().check.unwrap();
    assert!(alone.off < 1e-4 && alone.moved > 0.0, "{alone:?}");
    let unchecked = go(&[&plain, &one], "both").unwrap().check.unwrap_err();
    assert!(unchecked.contains("whole tables"), "{unchecked}");
    assert!(dir.path().join("both").join("config.json").is_file());
    let error = go(&[&one, &two], "never").unwrap_err().to_string();
    assert!(error.contains("two of the adapters bring"), "{error}");
}
