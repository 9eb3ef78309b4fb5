//! The adapter of a checkpoint exported alone.

use super::*;
use crate::hf::safetensors::TensorFile;
use crate::hf::{ADAPTER_CONFIG, ADAPTER_WEIGHTS};
use crate::nn::AdapterConfig;
use crate::nn::adapter::{Lora, Targets, Whole};
use crate::nn::mlp::MlpConfig;
use crate::nn::position::PositionConfig;

/// A folder like a checkpoint of a LoRA run, whose base lies at `base`.
fn checkpoint(change: fn(&mut ModelConfig), lora: Lora, base: &str) -> tempfile::TempDir {
    let (dir, source) = source(change);
    let mut model = source.model;
    model.adapt(&AdapterConfig::Lora(lora)).unwrap();
    model.init_adapters(5).unwrap();
    let config = crate::hf::adapter_json(&model, Some(base)).unwrap();
    fs::write(dir.path().join(ADAPTER_CONFIG), config).unwrap();
    let mut out = fs::File::create(dir.path().join(ADAPTER_WEIGHTS)).unwrap();
    crate::hf::write_adapter(&model, &mut out).unwrap();
    dir
}

pub(super) fn llama(c: &mut ModelConfig) {
    c.position = PositionConfig::Rope(Default::default());
    c.norm = NormConfig::RmsNorm(Default::default());
    c.mlp = MlpConfig::SwiGlu(Default::default());
    c.tie_embeddings = false;
}

/// With rotated halves of heads, it is written as Phi-3.
fn phi(c: &mut ModelConfig) {
    llama(c);
    c.position = PositionConfig::Rope(crate::nn::position::RopeConfig {
        fraction: 0.5,
        ..Default::default()
    });
}

/// As a Phi-3 without partial RoPE is read: Llama computes the same.
fn whole_phi(c: &mut ModelConfig) {
    llama(c);
    c.family = Some("phi3".into());
}

fn about() -> About {
    About {
        license: Some("mit".into()),
        ..About::default()
    }
}

#[test]
fn an_adapter_goes_out_alone_with_its_values_its_base_and_a_card_for_peft() {
    let cached = "/c/models--org--base/snapshots/0123abc";
    let dir = checkpoint(llama, Lora::default(), cached);
    let to = dir.path().join("out");
    let source = AdapterSource::open(dir.path(), None).unwrap();
    let written = export_adapter(&source, &options("f32", 1), &about(), &to).unwrap();
    let names: Vec<&str> = written.iter().map(|w| w.name.as_str()).collect();
    let expected = [
        ADAPTER_CONFIG,
        ADAPTER_WEIGHTS,
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
    ];
    assert_eq!(
        names, expected,
        "neither config.json nor the base's weights"
    );
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(to.join(ADAPTER_CONFIG)).unwrap()).unwrap();
    assert_eq!(config["base_model_name_or_path"], "org/base");
    assert_eq!(
        (&config["r"], &config["peft_type"]),
        (&8.into(), &"LORA".into())
    );
    let (was, is) = (
        TensorFile::open(&dir.path().join(ADAPTER_WEIGHTS)).unwrap(),
        TensorFile::open(&to.join(ADAPTER_WEIGHTS)).unwrap(),
    );
    assert_eq!(was.names().count(), is.names().count());
    for name in was.names() {
        let shape = was.shape(name).unwrap();
        assert_eq!(
            was.read(name, shape).unwrap(),
            is.read(name, shape).unwrap(),
            "{name}"
        );
    }
    let digest = was.word("base_fingerprint").unwrap().to_string();
    assert_eq!(is.word("base_fingerprint"), Some(digest.as_str()));
    let card = fs::read_to_string(to.join("README.md")).unwrap();
    let (front, body) = card[4..].split_once("\n---\n").unwrap();
    let meta = crate::spec::yaml::parse(front).unwrap();
    assert_eq!(meta["library_name"], "peft");
    assert_eq!(meta["base_model"], "org/base");
    assert_eq!(meta["license"], "mit");
    let tags = [
        "llmtui",
        "lora",
        "transformers",
        "base_model:adapter:org/base",
    ];
    assert_eq!(meta["tags"], serde_json::json!(tags));
    assert!(
        body.contains("PeftModel.from_pretrained(base") && body.contains(&digest),
        "{body}"
    );
    assert!(
        body.contains("LoRA, rank 8, alpha 16") && body.contains("q_proj"),
        "{body}"
    );
    assert!(
        written.iter().all(|file| file.notes.is_empty()),
        "{written:?}"
    );
    // Half precision halves it.
    let half = dir.path().join("half");
    let less = export_adapter(&source, &options("bf16", 1), &about(), &half).unwrap();
    assert!(less[1].bytes < written[1].bytes * 3 / 4);
}

#[test]
fn a_base_of_this_machine_is_told_and_can_be_named() {
    let dir = checkpoint(llama, Lora::default(), "/data/base");
    let source = AdapterSource::open(dir.path(), None).unwrap();
    let written = export_adapter(
        &source,
        &options("f32", 1),
        &about(),
        &dir.path().join("local"),
    )
    .unwrap();
    let notes = written.last().unwrap().notes.join("\n");
    assert!(
        notes.contains("/data/base") && notes.contains("--base-model"),
        "{notes}"
    );
    let card = fs::read_to_string(dir.path().join("local/README.md")).unwrap();
    assert!(
        !card.contains("base_model:") && card.contains("publisher: the id of its base"),
        "{card}"
    );
    let source = AdapterSource::open(dir.path(), Some("org/base")).unwrap();
    let to = dir.path().join("named");
    export_adapter(&source, &options("f32", 1), &about(), &to).unwrap();
    let config = fs::read_to_string(to.join(ADAPTER_CONFIG)).unwrap();
    assert!(
        config.contains("\"org/base\"") && !config.contains("/data"),
        "{config}"
    );
}

#[test]
fn what_peft_would_not_find_or_load_is_refused() {
    let refused = |dir: &tempfile::TempDir| AdapterSource::open(dir.path(), None).err().unwrap();
    let (plain, _) = source(|_| {});
    let error = refused(&plain);
    assert!(error.to_string().contains("no adapter here"), "{error}");
    assert!(error.hint().contains("--format hf"), "{}", error.hint());
    // Phi-3 keeps queries, keys and values in one matrix, which has a magnitude for each of its rows or for none.
    let some = Lora {
        dora: true,
        targets: Targets::Minimal,
        ..Lora::default()
    };
    let error = refused(&checkpoint(phi, some, "org/phi"));
    let says = ["qkv_proj", "DoRA", "Phi3ForCausalLM"];
    assert!(
        says.iter().all(|word| error.to_string().contains(word)),
        "{error}"
    );
    assert!(error.hint().contains("--format hf"), "{}", error.hint());
    let mixed: fn(&mut ModelConfig) = |c| c.norm = NormConfig::RmsNorm(Default::default());
    let error = refused(&checkpoint(mixed, Lora::default(), "org/own"));
    assert!(
        error.to_string().contains("no transformers class"),
        "{error}"
    );
    assert!(error.hint().contains("safetensors"), "{}", error.hint());
    let dir = checkpoint(llama, Lora::default(), "org/base");
    let path = dir.path().join(ADAPTER_CONFIG);
    let whole = fs::read_to_string(&path).unwrap();
    for (from, to, says) in [
        ("\"r\": 8", "\"r\": 4", "r is 4"),
        ("\"mlp.down_proj\"", "\"mlp.other\"", "mlp.down_proj"),
    ] {
        assert!(whole.contains(from), "{whole}");
        fs::write(&path, whole.replace(from, to)).unwrap();
        let error = refused(&dir);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn adapters_of_a_phi_go_out_in_the_matrices_that_its_class_has() {
    let phis: [fn(&mut ModelConfig); 2] = [phi, whole_phi];
    let cases = [(Targets::All, 24), (Targets::Minimal, 16)];
    for (phi, (targets, rank)) in phis
        .into_iter()
        .flat_map(|phi| cases.map(|case| (phi, case)))
    {
        let lora = Lora {
            targets,
            ..Lora::default()
        };
        let dir = checkpoint(phi, lora, "org/phi");
        let source = AdapterSource::open(dir.path(), None).unwrap();
        let to = dir.path().join("out");
        export_adapter(&source, &options("f32", 1), &about(), &to).unwrap();
        let file = TensorFile::open(&to.join(ADAPTER_WEIGHTS)).unwrap();
        let name =
            |part: &str| format!("base_model.model.model.layers.0.self_attn.qkv_proj.{part}");
        let (a, b) = (name("lora_A.weight"), name("lora_B.weight"));
        assert_eq!(file.shape(&a), Some(&[rank, 8][..]));
        assert_eq!(file.shape(&b), Some(&[24, rank][..]));
        assert!(file.names().all(|name| !name.contains(".q_proj.")));
        assert!(file.word("base_fingerprint").is_some());
        let text = fs::read_to_string(to.join(ADAPTER_CONFIG)).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["rank_pattern"]["self_attn.qkv_proj"], rank);
        // alpha / rank stays 16 / 8.
        let alpha = config["alpha_pattern"]["self_attn.qkv_proj"].as_f64();
        assert_eq!(alpha, Some(2.0 * rank as f64));
        let card = fs::read_to_string(to.join("README.md")).unwrap();
        assert!(
            card.contains("qkv_proj") && !card.contains(" q_proj"),
            "{card}"
        );
        assert!(card.contains("LoRA, rank 8, alpha 16"), "{card}");
    }
}

#[test]
fn tables_that_were_trained_go_along_by_name() {
    let lora = Lora {
        modules_to_save: vec![Whole::Embeddings],
        dora: true,
        ..Lora::default()
    };
    let dir = checkpoint(llama, lora, "org/base");
    let source = AdapterSource::open(dir.path(), None).unwrap();
    let to = dir.path().join("out");
    export_adapter(&source, &options("f32", 1), &about(), &to).unwrap();
    let card = fs::read_to_string(to.join("README.md")).unwrap();
    assert!(
        card.contains("| trained whole | model.embed_tokens |"),
        "{card}"
    );
    assert!(card.contains("DoRA, rank 8"), "{card}");
}

/// PEFT copies what it saves whole, and a head that was the embeddings stays the old ones.
#[test]
fn embeddings_that_are_the_head_too_go_out_as_both_and_come_back_as_one() {
    let lora = Lora {
        modules_to_save: vec![Whole::Embeddings],
        targets: Targets::FfnOnly,
        ..Lora::default()
    };
    let dir = checkpoint(|_| {}, lora, "org/base");
    let source = AdapterSource::open(dir.path(), None).unwrap();
    let to = dir.path().join("out");
    export_adapter(&source, &options("f32", 1), &about(), &to).unwrap();
    let config = fs::read_to_string(to.join(ADAPTER_CONFIG)).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(
        config["modules_to_save"],
        serde_json::json!(["wte", "lm_head"])
    );
    let file = TensorFile::open(&to.join(ADAPTER_WEIGHTS)).unwrap();
    let table = |name: &str| {
        file.read(&format!("base_model.model.{name}"), &[11, 8])
            .unwrap()
    };
    assert_eq!(table("lm_head.weight"), table("transformer.wte.weight"));
    // Read again, alone on its base: the two are one table.
    let mut base = crate::hf::load_base(dir.path()).unwrap();
    let peft = crate::hf::Peft::find(&to).unwrap();
    peft.attach(&mut base).unwrap();
    assert!(AdapterSource::open(&to, None).is_ok());
    // A head of its own is none of this model's.
    let names: Vec<String> = file.names().map(String::from).collect();
    let heads: Vec<_> = names
        .iter()
        .map(|name| {
            crate::hf::safetensors::TensorHead::f32(
                name.clone(),
                file.shape(name).unwrap().to_vec(),
            )
        })
        .collect();
    let mut out = fs::File::create(dir.path().join("other.safetensors")).unwrap();
    crate::hf::safetensors::write_to(&mut out, &heads, &mut |sink| {
        names.iter().try_for_each(|name| {
            let mut values = file.read(name, file.shape(name).unwrap()).unwrap();
            if name.contains("lm_head") {
                values[0] += 1.0;
            }
            sink.put(&values)
        })
    })
    .unwrap();
    fs::rename(
        dir.path().join("other.safetensors"),
        to.join(ADAPTER_WEIGHTS),
    )
    .unwrap();
    let mut base = crate::hf::load_base(dir.path()).unwrap();
    let error = crate::hf::Peft::find(&to)
        .unwrap()
        .attach(&mut base)
        .unwrap_err();
    assert!(error.to_string().contains("differ"), "{error}");
}
