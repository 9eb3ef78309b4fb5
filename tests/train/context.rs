//! A model of 32 positions that goes on at 128: trained, resumed, exported, as adapters on a GGUF file.

use super::{Place, code, err, out};
use llmtui::hf;
use llmtui::models::ModelSource;
use llmtui::nn::Model;
use llmtui::nn::position::ScalingConfig;
use llmtui::run::RunDir;
use std::path::Path;

const YARN: [&str; 2] = ["model.position.rope.scaling=yarn", "model.seq_len=128"];
/// A text that all models here know the characters of.
const IDS: [u32; 100] = {
    let mut ids = [0; 100];
    let mut i = 0;
    while i < 100 {
        ids[i] = (i * i * 7 + i) as u32 % 60;
        i += 1;
    }
    ids
};

fn done(output: &std::process::Output) -> String {
    assert_eq!(code(output), 0, "{}{}", out(output), err(output));
    out(output)
}

/// A Llama of 32 positions, trained for two steps: the folder of its checkpoint.
fn base(place: &Place) -> String {
    let words = [
        "model.position=rope",
        "model.norm=rmsnorm",
        "model.mlp=swiglu",
        "train.max_steps=2",
    ];
    done(&place.train(&words, &["--headless"]));
    let checkpoint = place.run().checkpoints_path().join("step-000002");
    let to = place.dir.path().join("base");
    std::fs::rename(checkpoint, &to).unwrap();
    std::fs::remove_dir_all(place.dir.path().join("runs")).unwrap();
    "train.from=base".into()
}

fn weights(run: &RunDir, step: &str) -> Vec<u8> {
    let folder = run.checkpoints_path().join(step);
    std::fs::read(folder.join("model.safetensors")).unwrap()
}

fn logits(model: &mut Model) -> Vec<f32> {
    let logits = model.logits(&IDS, 1, IDS.len()).unwrap();
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

fn loaded(folder: &Path) -> Model {
    ModelSource::open(folder).unwrap().load().unwrap()
}

fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    apart.fold(0.0, f32::max)
}

#[test]
fn a_stretched_model_trains_resumes_bit_for_bit_and_is_exported_with_its_positions() {
    let place = Place::new();
    let from = base(&place);
    let settings: Vec<&str> = [from.as_str(), "train.max_steps=4", "checkpoint.every=2"]
        .into_iter()
        .chain(YARN)
        .collect();
    done(&place.train(&settings, &["--headless"]));
    let whole = weights(&place.run(), "step-000004");
    std::fs::remove_dir_all(place.dir.path().join("runs")).unwrap();
    done(&place.train(&settings, &["--headless", "--stop-after", "2"]));
    let id = place.run().id().to_string();
    done(&place.go(&["train", "--resume", &id, "--headless"]));
    let run = place.run();
    assert!(
        whole == weights(&run, "step-000004"),
        "a resume gives the same bits"
    );

    let checkpoint = run.checkpoints_path().join("step-000004");
    let config = hf::read_config(&checkpoint).unwrap();
    assert_eq!((config.seq_len, config.original_context()), (128, 32));
    let exact = logits(&mut loaded(&checkpoint));
    let dir = place.dir.path();
    let checkpoint = checkpoint.display().to_string();
    done(&place.go(&["export", &checkpoint, "--to", "hf"]));
    let json = std::fs::read_to_string(dir.join("hf/config.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["max_position_embeddings"], 128);
    for table in ["rope_parameters", "rope_scaling"] {
        let table = &json[table];
        assert_eq!(table["rope_type"], "yarn");
        assert_eq!(table["factor"], 4.0);
        assert_eq!(table["original_max_position_embeddings"], 32);
    }
    assert_eq!(apart(&logits(&mut loaded(&dir.join("hf"))), &exact), 0.0);
    // The start model's weights at its own positions are another model.
    let mut base = loaded(&dir.join("base"));
    assert!(apart(&logits(&mut base), &exact) > 1e-3);

    // A further extension begins at the original context again.
    let linear = [
        "train.from=hf",
        "model.position.rope.scaling=linear",
        "model.seq_len=256",
        "train.max_steps=1",
    ];
    let output = place.train(&linear, &["--dry-run"]);
    let dry = format!("{}{}", done(&output), err(&output));
    assert!(dry.contains("which is replaced"), "{dry}");
}

#[test]
fn adapters_on_a_gguf_file_bring_the_positions_of_their_training() {
    let place = Place::new();
    super::gguf::gguf(place.dir.path(), |_| {});
    let settings: Vec<&str> = [
        "train.from=m.gguf",
        "adapter=lora",
        "train.max_steps=2",
        "optimizer.adamw.lr=0.05",
        "data.corpus=tinyshakespeare",
    ]
    .into_iter()
    .chain(YARN)
    .collect();
    done(&place.train(&settings, &["--headless"]));
    let checkpoint = place.run().checkpoints_path().join("step-000002");
    let source = ModelSource::open(&checkpoint).unwrap();
    assert!(source.base().is_some(), "its weights are the file's");
    let config = source.config();
    assert_eq!((config.seq_len, config.original_context()), (128, 32));
    let folder = checkpoint.display().to_string();
    let exact = logits(&mut source.load().unwrap());
    let mut beside = source.load_for_inference().unwrap();
    assert_eq!(beside.shape().seq_len, 128);
    let near = apart(&logits(&mut beside), &exact);
    assert!(near < 0.05, "{near}");
    // Merged, it is a folder of those positions.
    let merged = ["merge", "--base", &folder, "--to", "merged", "--dequantize"];
    done(&place.go(&merged));
    let dir = place.dir.path();
    let merged = hf::read_config(&dir.join("merged")).unwrap();
    let rope = merged.position.rope().unwrap();
    assert!(
        matches!(rope.scaling, Some(ScalingConfig::Yarn(_))),
        "{rope:?}"
    );
    assert!(!merged.is_stretched_in(config));
    let near = apart(&logits(&mut loaded(&dir.join("merged"))), &exact);
    assert!(near < 1e-4, "{near}");
    // GGUF again: keys of llama.cpp.
    let gguf = [
        "export", "merged", "--format", "gguf", "--dtype", "f32", "--to", "long",
    ];
    done(&place.go(&gguf));
    let file = std::fs::read_dir(dir.join("long")).unwrap();
    let file = file.map(|entry| entry.unwrap().path());
    let file = file
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "gguf"));
    let file = llmtui::gguf::Gguf::open(&file.unwrap()).unwrap();
    let key = |key: &str| {
        file.metadata
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, v)| format!("{v:?}"))
    };
    for (name, value) in [
        ("llama.context_length", "128"),
        ("llama.rope.scaling.type", "yarn"),
        ("llama.rope.scaling.factor", "4"),
        ("llama.rope.scaling.original_context_length", "32"),
    ] {
        assert!(
            key(name).is_some_and(|found| found.contains(value)),
            "{name}: {:?}",
            key(name)
        );
    }
    // For PEFT the base must be told.
    let output = place.go(&["export", &folder, "--format", "peft", "--to", "peft"]);
    let said = format!("{}{}", done(&output), err(&output));
    assert!(said.contains("max_position_embeddings=128"), "{said}");
    let card = std::fs::read_to_string(dir.join("peft/README.md")).unwrap();
    assert!(card.contains("\"rope_type\": \"yarn\""), "{card}");
    // A chat with the base and the adapter by name.
    let chat = [
        "chat",
        "m.gguf",
        "--adapter",
        &folder,
        "--prompt",
        "the",
        "--raw",
        "--max-new-tokens",
        "40",
    ];
    done(&place.go(&chat));
}
