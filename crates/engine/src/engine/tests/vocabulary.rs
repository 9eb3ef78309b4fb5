//! Start models whose tokenizer gained tokens: tables that are extended before the first step, in every kind of training, and
//! programs that load the result.

use super::merging_models::has_the_same_parts;
use super::*;
use crate::data::tokenizer;
use crate::engine::infer::{LoadedModel, Step, TextModel};
use crate::hf;
use crate::models::ModelSource;
use crate::nn::{Model, Role};
use serde_json::{Value, json};
use std::path::PathBuf;

const GROW: &str = "train.resize_vocab=true";
const MARKS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
const UNTIED: &str = "model.tie_embeddings=false";

/// A start model of 65 rows whose tokenizer has 67 tokens, the same with its own tokenizer, and texts with the new tokens.
struct Start {
    run: Run,
    dir: tempfile::TempDir,
}

impl Start {
    fn new(tied: bool) -> Start {
        let mut words = vec!["max_steps=5", "eval_every=0", "sample_every=0"];
        words.extend((!tied).then_some(UNTIED));
        let run = Run::new(&words);
        assert_eq!(finished(&run.go()).0, Outcome::Completed);
        let dir = tempfile::tempdir().unwrap();
        let extended = dir.path().join("extended");
        std::fs::create_dir(&extended).unwrap();
        for name in [
            hf::CONFIG,
            hf::WEIGHTS,
            hf::GENERATION,
            hf::TOKENIZER_CONFIG,
        ] {
            std::fs::copy(run.checkpoint(5).join(name), extended.join(name)).unwrap();
        }
        let json = std::fs::read(run.checkpoint(5).join(hf::TOKENIZER)).unwrap();
        let mut json: Value = serde_json::from_slice(&json).unwrap();
        let added = MARKS.iter().enumerate().map(|(n, mark)| {
            json!({"id": 65 + n, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        });
        json["added_tokens"] = added.collect();
        std::fs::write(extended.join(hf::TOKENIZER), json.to_string()).unwrap();
        std::fs::write(dir.path().join("turns.jsonl"), turns()).unwrap();
        Start { run, dir }
    }

    /// With the tokens that have no rows.
    fn extended(&self) -> PathBuf {
        self.dir.path().join("extended")
    }

    fn original(&self) -> PathBuf {
        self.run.checkpoint(5)
    }

    fn words(&self, from: &Path, more: &[&str]) -> Vec<String> {
        let own = [
            format!("train.from={}", from.display()),
            format!(
                "data.path={}",
                self.dir.path().join("turns.jsonl").display()
            ),
            "data.val_fraction=0.2".into(),
            "max_steps=12".into(),
            "lr=1e-2".into(),
        ];
        let more = more.iter().map(ToString::to_string);
        own.into_iter().chain(more).collect()
    }

    /// The same run, stopped at step 7 and resumed, has the losses of the whole one and its files at the end, to the bit.
    fn resumes_alike(&self, more: &[&str], whole: &[Event], at_the_end: &Path) {
        let mut parted = self.run(more);
        parted.job.stop_after = Some(7);
        let (first, second) = (parted.go(), parted.resumed());
        assert!(
            loss_log(&[whole]) == loss_log(&[&first, &second]),
            "losses differ"
        );
        same_files(at_the_end, &parted.checkpoint(12));
    }

    fn run(&self, more: &[&str]) -> Run {
        let words = self.words(&self.extended(), more);
        Run::new(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The state before the first step.
    fn fresh(&self, more: &[&str]) -> TrainState {
        let words = self.words(&self.extended(), more);
        let (spec, data) = tiny(&words.iter().map(String::as_str).collect::<Vec<_>>());
        TrainState::fresh(&spec, &data).unwrap()
    }
}

/// Rows of turns that do not repeat, in letters that the start model knows. A text would be split within a mark.
fn turns() -> String {
    let words = [
        "what", "light", "is", "this", "the", "east", "and", "juliet", "sun", "moon", "fair",
        "kill",
    ];
    let line = |n: usize| {
        let word = |k: usize| words[(n * (2 * k + 1) + n * n / 7 + k) % words.len()];
        let said: Vec<&str> = (0..4 + n % 5).map(word).collect();
        format!("{}{}{}\n", MARKS[0], said.join(" "), MARKS[1])
    };
    let row = |n: usize| json!({"text": line(n)}).to_string() + "\n";
    (0..200).map(row).collect()
}

fn rows(model: &Model, role: Role) -> Vec<Vec<f32>> {
    let mut infos = model.params().base().iter();
    let info = infos.find(|info| info.role == role).unwrap();
    model.params().weight(info).unwrap().to_vec2().unwrap()
}

fn notes(events: &[Event]) -> String {
    let notes = events.iter().filter_map(|event| match event {
        Event::Noted { text, .. } => Some(text.clone()),
        _ => None,
    });
    notes.collect::<Vec<_>>().join("\n")
}

fn bits(model: &Model) -> Vec<u32> {
    let bits = |w: &[f32]| w.iter().map(|x| x.to_bits()).collect();
    model.params().read_weights(bits).unwrap()
}

#[test]
fn tables_grow_only_when_asked_and_begin_as_the_mean_whatever_the_seed() {
    for tied in [true, false] {
        let start = Start::new(tied);
        let refused = finished(&start.run(&[]).go());
        assert_eq!(refused.0, Outcome::Invalid);
        assert!(
            refused.2.contains("-s train.resize_vocab=true"),
            "{refused:?}"
        );
        let base = hf::load(&start.original()).unwrap();
        let (one, two) = (start.fresh(&[GROW]), start.fresh(&[GROW, "seed=7"]));
        let (one, two) = (one.models.policy, two.models.policy);
        assert_eq!(one.shape().vocab_size, 67);
        assert!(bits(&one) == bits(&two));
        let mut roles = vec![Role::Embedding];
        roles.extend((!tied).then_some(Role::Head));
        for role in roles {
            let (before, after) = (rows(&base, role), rows(&one, role));
            assert_eq!(after[..65], before[..]);
            for (col, x) in after[65].iter().enumerate() {
                let mean = before.iter().map(|row| row[col]).sum::<f32>() / 65.0;
                assert!((x - mean).abs() < 1e-6, "{role:?}");
            }
            assert_eq!(after[65], after[66]);
        }
    }
}

#[test]
fn all_weights_train_on_a_grown_vocabulary_and_everything_reads_it() {
    for tied in [true, false] {
        let start = Start::new(tied);
        let words = [GROW, "preflight.enabled=true"];
        let straight = start.run(&words);
        let whole = straight.go();
        assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
        let tables = if tied {
            "embeddings"
        } else {
            "embeddings and head"
        };
        let said = format!(
            "{tables} grow from 65 to 67 rows (2 new tokens): {}, {}",
            MARKS[0], MARKS[1]
        );
        assert!(notes(&whole).contains(&said), "{}", notes(&whole));
        // A resume asks for nothing and computes the same.
        let folder = straight.checkpoint(12);
        start.resumes_alike(&words, &whole, &folder);
        // The new tokens have parted from each other: they were learned.
        let model = hf::load(&folder).unwrap();
        assert_eq!(model.shape().vocab_size, 67);
        let table = rows(&model, Role::Embedding);
        assert_ne!(table[65], table[66]);
        answers(&mut LoadedModel::load(&folder).unwrap());
        // Exported, it is what it was, and says so to transformers.
        let to = start.dir.path().join(format!("out-{tied}"));
        export_to(&folder, &to);
        assert!(bits(&hf::load(&to).unwrap()) == bits(&model));
        let config = std::fs::read(to.join(hf::CONFIG)).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["vocab_size"], 67);
        // A later run begins from it as from any model.
        let from = format!("train.from={}", folder.display());
        let next = start.fresh(&[&from]);
        assert!(bits(&next.models.policy) == bits(&model));
    }
}

fn options() -> export::Options {
    export::Options {
        dtype: "f32".into(),
        max_shard_bytes: 5_000_000_000,
    }
}

/// Merges an adapter into a base, which must be checked to say the same afterwards.
fn merged(base: &Path, adapter: &Path, to: &Path) {
    let done = merge::merge(&merge::Order {
        base: base.into(),
        adapters: vec![(adapter.into(), 1.0)],
        to: to.into(),
        dtype: hf::Dtype::F32,
        dequantize: false,
        any_base: false,
        prompts: Vec::new(),
    });
    let check = done.unwrap().check.unwrap();
    assert!(check.off < 1e-4 && check.agree == check.tokens, "{check:?}");
}

fn hand_over(folder: &Path, to: &Path) {
    use crate::engine::export::{AdapterSource, export_adapter};
    let source = AdapterSource::open(folder, None).unwrap();
    export_adapter(&source, &options(), &Default::default(), to).unwrap();
}

fn export_to(folder: &Path, to: &Path) {
    use crate::engine::export::{Source, export, format};
    let source = Source::open(folder).unwrap();
    export(&source, format("hf").unwrap(), &options(), to).unwrap();
}

/// It reads the new tokens and writes.
fn answers(held: &mut LoadedModel) -> Vec<u32> {
    use crate::base::sampling::Sampling;
    let prompt = format!("{}What", MARKS[0]);
    let reading = held
        .read(
            &crate::wire::Prompt::Text(prompt),
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
        std::ops::ControlFlow::Continue(())
    };
    held.generate(&reading, &greedy, &mut on_step).unwrap();
    assert!(!heard.is_empty());
    heard
}

#[test]
fn tables_that_grew_train_beside_adapters_and_go_where_the_adapter_goes() {
    for (tied, tables) in [(true, "[embeddings]"), (false, "[embeddings,head]")] {
        let start = Start::new(tied);
        let saved = format!("adapter.lora.modules_to_save={tables}");
        let words = [GROW, "adapter.lora.rank=4", saved.as_str()];
        let straight = start.run(&words);
        let whole = straight.go();
        assert_eq!(finished(&whole).0, Outcome::Completed, "{whole:?}");
        let folder = straight.checkpoint(12);
        start.resumes_alike(&words, &whole, &folder);
        let model = hf::load(&folder).unwrap();
        let table = rows(&model, Role::Embedding);
        assert_ne!(table[65], table[66]);
        answers(&mut LoadedModel::load(&folder).unwrap());
        // The adapter alone, as it is handed over: over its base, which has 65 rows.
        let apart = start.dir.path().join("apart");
        std::fs::create_dir(&apart).unwrap();
        for name in [
            hf::ADAPTER_CONFIG,
            hf::ADAPTER_WEIGHTS,
            hf::TOKENIZER,
            hf::TOKENIZER_CONFIG,
        ] {
            std::fs::copy(folder.join(name), apart.join(name)).unwrap();
        }
        let source = ModelSource::open(&apart).unwrap();
        assert_eq!(source.config().vocab_size, Some(67));
        assert!(bits(&source.load().unwrap()) == bits(&model));
        for place in [&folder, &apart] {
            has_the_same_parts(place);
        }
        let alone = answers(&mut LoadedModel::load(&apart).unwrap());
        // Beside the base it takes its tokenizer along, for the base's own has no such tokens.
        let mut beside =
            LoadedModel::load_with(&start.original(), std::slice::from_ref(&apart)).unwrap();
        assert_eq!(answers(&mut beside), alone);
        beside.use_adapter(None).unwrap();
        assert_ne!(answers(&mut beside), alone);
        let to = start.dir.path().join("merged");
        merged(&start.extended(), &apart, &to);
        assert!(bits(&hf::load(&to).unwrap()) == bits(&model));
        answers(&mut LoadedModel::load(&to).unwrap());
        // Into the base as it was: what comes of it has the adapter's tokens, too.
        let to = start.dir.path().join("merged-original");
        merged(&start.original(), &apart, &to);
        assert!(bits(&hf::load(&to).unwrap()) == bits(&model));
        let words = |at: &Path| std::fs::read(at.join(hf::TOKENIZER)).unwrap();
        assert!(words(&to) == words(&apart));
        // Handed over for PEFT it says what the base must be given first, and is read here as it is.
        let handed = start.dir.path().join("handed");
        hand_over(&folder, &handed);
        let card = std::fs::read_to_string(handed.join("README.md")).unwrap();
        assert!(card.contains("base.resize_token_embeddings(67)"), "{card}");
        assert!(bits(&ModelSource::open(&handed).unwrap().load().unwrap()) == bits(&model));
        // A run from the adapter's folder begins with what it says, tables and all.
        let from = format!("train.from={}", apart.display());
        let next = start.fresh(&[&from]);
        assert!(bits(&next.models.policy) == bits(&model));
    }
}

#[test]
fn frozen_tables_grow_and_stay_and_the_spec_is_warned_of_it() {
    let start = Start::new(true);
    let run = start.run(&[GROW, "adapter.lora.rank=4"]);
    let advice = run.job.spec.advice();
    assert!(
        advice
            .iter()
            .any(|f| f.fix.contains("modules_to_save=[embeddings]")),
        "{advice:?}"
    );
    assert_eq!(finished(&run.go()).0, Outcome::Completed);
    let model = hf::load(&run.checkpoint(12)).unwrap();
    let table = rows(&model, Role::Embedding);
    assert_eq!((table.len(), &table[65]), (67, &table[66]));
    let folder = run.checkpoint(12);
    let own = answers(&mut LoadedModel::load(&folder).unwrap());
    // On its base, which has fewer rows, the rows begin as they did in training.
    let mut beside =
        LoadedModel::load_with(&start.original(), std::slice::from_ref(&folder)).unwrap();
    assert_eq!(answers(&mut beside), own);
    let to = start.dir.path().join("merged");
    merged(&start.extended(), &folder, &to);
    assert!(bits(&hf::load(&to).unwrap()) == bits(&model));
    let apart = start.dir.path().join("apart");
    std::fs::create_dir(&apart).unwrap();
    for name in [hf::CONFIG, hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
        std::fs::copy(folder.join(name), apart.join(name)).unwrap();
    }
    let source = ModelSource::open(&apart).unwrap();
    assert_eq!(source.config().vocab_size, Some(67));
    has_the_same_parts(&apart);
}

/// Tokens are often added to a tokenizer that is saved apart, and the model is named where it is.
#[test]
fn a_tokenizer_beside_the_model_may_be_its_own_with_more_tokens_and_no_other() {
    let start = Start::new(true);
    let named = format!("data.tokenizer.file.path={}", start.extended().display());
    let go = |more: &[&str]| {
        let words = start.words(&start.original(), more);
        let run = Run::new(&words.iter().map(String::as_str).collect::<Vec<_>>());
        finished(&run.go())
    };
    assert_eq!(go(&[&named, GROW]).0, Outcome::Completed);
    assert_eq!(go(&[&named]).0, Outcome::Invalid);
    // Other tokens at the base's own ids.
    let place = start.extended().join(hf::TOKENIZER);
    let mut json: Value = serde_json::from_slice(&std::fs::read(&place).unwrap()).unwrap();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    let (a, b) = (vocab["A"].clone(), vocab["B"].clone());
    vocab.insert("A".into(), b);
    vocab.insert("B".into(), a);
    std::fs::write(&place, json.to_string()).unwrap();
    assert_eq!(
        tokenizer::load(&place, &crate::base::child::Child::of_this_program())
            .unwrap()
            .vocab_size(),
        67
    );
    let (outcome, _, said) = go(&[&named, GROW]);
    assert_eq!(outcome, Outcome::Invalid);
    assert!(said.contains("differs"), "{said}");
}

/// Reward models take a trunk, and files in floats are as good a start as folders.
#[test]
fn reward_models_and_files_in_floats_grow_too() {
    let start = Start::new(true);
    let source = ModelSource::open(&start.original()).unwrap();
    let base = source.load().unwrap();
    let scorer = crate::nn::ModelConfig {
        head: crate::nn::HeadKind::Score,
        vocab_size: Some(67),
        ..source.config().clone()
    };
    let mut scorer = Model::new(&scorer, 67, &candle_core::Device::Cpu).unwrap();
    scorer.init(3).unwrap();
    source.fill_grown(&mut scorer).unwrap();
    let table = rows(&scorer, Role::Embedding);
    assert_eq!(table[..65], rows(&base, Role::Embedding)[..]);
    assert_eq!((table.len(), &table[65]), (67, &table[66]));
    // Only who asks for it gets it.
    assert!(source.fill(&mut scorer).is_err());
    let path = start.dir.path().join("base.gguf");
    let mut out = std::fs::File::create(&path).unwrap();
    let kind = crate::kernels::quant::Kind::F32;
    crate::llama_cpp::write(&base, kind, "base", &[], &mut out).unwrap();
    let file = ModelSource::open(&path).unwrap();
    let config = crate::nn::ModelConfig {
        vocab_size: Some(67),
        ..file.config().clone()
    };
    let mut grown = Model::new(&config, 67, &candle_core::Device::Cpu).unwrap();
    file.fill_grown(&mut grown).unwrap();
    let mut expected = hf::load(&start.original()).unwrap();
    expected.grow_vocabulary(67).unwrap();
    // The file's GPT-2 has biases.
    assert_eq!(
        rows(&grown, Role::Embedding),
        rows(&expected, Role::Embedding)
    );
}
