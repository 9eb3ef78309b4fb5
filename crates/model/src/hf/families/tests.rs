//! Properties of every family, and what each one rejects.

mod configs;
mod defaults;
mod hybrid;
mod mixtures;
mod olmo;

use super::super::config::{self, TokenIds};
use super::super::{Dtype, Naming};
use super::*;
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::position::scaling::{Longrope, Ntk, Yarn};
use crate::nn::position::{PositionConfig, RopeConfig, ScalingConfig};
use crate::nn::{AttentionBias, HeadKind, NormPlacement, QkNormOver};

fn llama() -> ModelConfig {
    ModelConfig {
        position: PositionConfig::Rope(RopeConfig::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        n_kv_head: Some(2),
        ..ModelConfig::default()
    }
}

/// A config.json of the tests' folder.
fn config_of(path: &str) -> Value {
    let text = std::fs::read(format!("../../tests/{path}")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn oracle(family: &str) -> Value {
    config_of(&format!("oracle/families/{family}/config.json"))
}

fn model_type(config: &ModelConfig) -> Option<&'static str> {
    of(config).map(|family| family.model_type())
}

#[test]
fn families_are_chosen_by_what_they_compute() {
    let with = |change: fn(&mut ModelConfig)| {
        let mut config = llama();
        change(&mut config);
        model_type(&config)
    };
    assert_eq!(model_type(&ModelConfig::default()), Some("gpt2"));
    assert_eq!(with(|_| {}), Some("llama"));
    assert_eq!(with(|c| c.head_dim = Some(64)), Some("llama"));
    assert_eq!(
        with(|c| c.attention_bias = AttentionBias::All),
        Some("llama")
    );
    assert_eq!(with(|c| c.sliding_window = Some(8)), Some("mistral"));
    assert_eq!(with(|c| c.embedding_scale = Some(3.0)), Some("granite"));
    assert_eq!(with(|c| c.residual_scale = Some(0.22)), Some("granite"));
    assert_eq!(with(|c| c.logit_scale = Some(0.125)), Some("granite"));
    assert_eq!(with(|c| c.attention_scale = Some(0.25)), Some("granite"));
    assert_eq!(
        with(|c| c.attention_bias = AttentionBias::Qkv),
        Some("qwen2")
    );
    assert_eq!(with(|c| c.qk_norm = true), Some("qwen3"));
    assert_eq!(with(|c| c.moe = Some(Default::default())), Some("mixtral"));
    let experts = |c: &mut ModelConfig| {
        c.qk_norm = true;
        c.moe = Some(Default::default());
    };
    assert_eq!(with(experts), Some("qwen3_moe"));
    assert_eq!(
        with(|c| c.dropout = 0.1),
        Some("llama"),
        "of training alone"
    );
    let partly = PositionConfig::Rope(RopeConfig {
        fraction: 0.5,
        ..RopeConfig::default()
    });
    let phi = ModelConfig {
        position: partly,
        ..llama()
    };
    assert_eq!(model_type(&phi), Some("phi3"));
    let nope = |change: fn(&mut ModelConfig)| {
        let mut config = llama();
        if let PositionConfig::Rope(rope) = &mut config.position {
            rope.nope_every = Some(3);
        }
        change(&mut config);
        model_type(&config)
    };
    assert_eq!(nope(|_| {}), Some("smollm3"));
    assert_eq!(
        nope(|c| (c.sliding_window, c.bias) = (Some(8), true)),
        Some("smollm3")
    );
    let windows = |c: &mut ModelConfig| {
        c.sliding_window = Some(8);
        c.global_every = Some(2);
    };
    assert_eq!(with(windows), Some("smollm3"), "all of its blocks rotate");
    assert_eq!(nope(|c| c.qk_norm = true), None, "no class computes it");
    assert_eq!(nope(|c| c.attention_bias = AttentionBias::Qkv), None);
    assert_eq!(
        nope(|c| c.n_layer = 2),
        Some("llama"),
        "there is no such block"
    );
}

/// Tensors and adapters have the names of the class that the base is of.
#[test]
fn a_model_is_written_as_the_family_that_it_was_read_as() {
    let mut mistral = oracle("mistral");
    mistral["sliding_window"] = Value::Null;
    let written = |config: &ModelConfig| {
        let (shape, ids) = (config.shape(11), TokenIds::default());
        config::write(config, &shape, &ids, Dtype::F32, Naming::Family)
    };
    // All of its blocks rotate.
    let mut smollm3 = oracle("smollm3");
    smollm3["no_rope_layers"] = json!(vec![1; 8]);
    for (theirs, family) in [
        (oracle("phi3_whole"), "phi3"),
        (mistral, "mistral"),
        (smollm3, "smollm3"),
    ] {
        let read = config::read(&theirs).unwrap();
        assert_eq!(read.family.as_deref(), Some(family));
        let ours = written(&read);
        assert_eq!(ours["model_type"], family);
        assert_eq!(config::read(&ours), Ok(read.clone()));
        // Without our entry, as another program may leave it.
        let mut bare = ours;
        bare.as_object_mut().unwrap().remove("llmtui");
        assert_eq!(config::read(&bare).unwrap().family.as_deref(), Some(family));
        // A family that does not compute it is not written.
        let other = ModelConfig {
            qk_norm: true,
            ..read
        };
        assert_eq!(model_type(&other), Some("qwen3"));
        let unknown = ModelConfig {
            family: Some("other".into()),
            ..llama()
        };
        assert_eq!(model_type(&unknown), Some("llama"));
    }
    assert_eq!(config::read(&oracle("llama")).unwrap().family, None);
    assert_eq!(config::read(&oracle("phi3")).unwrap().family, None);
}

#[test]
fn a_model_is_written_in_the_tensors_that_it_was_read_from() {
    use super::super::{Outgoing, Weights, load};
    for family in [
        "phi3_whole",
        "phi3",
        "mistral",
        "qwen2",
        "smollm3",
        "gpt_neox",
    ] {
        let folder = std::path::Path::new("../../tests/oracle/families").join(family);
        let model = load(&folder).unwrap();
        let outgoing = Outgoing::new(&model, Naming::Family, Dtype::F32, u64::MAX);
        let dir = tempfile::tempdir().unwrap();
        let mut out = std::fs::File::create(dir.path().join(&outgoing.files()[0])).unwrap();
        outgoing.write(0, &model, &mut out).unwrap();
        let (theirs, ours) = (
            Weights::open(&folder).unwrap(),
            Weights::open(dir.path()).unwrap(),
        );
        let named = |weights: &Weights| {
            let names = weights.names().map(String::from);
            names.collect::<std::collections::BTreeSet<String>>()
        };
        assert_eq!(named(&ours), named(&theirs), "{family}");
    }
}

/// StarCoder2's norms have biases whatever `use_bias` says.
#[test]
fn a_starcoder2_without_biases_has_them_in_its_norms_which_are_zero_where_ours_have_none() {
    use super::super::{CONFIG, Outgoing, Weights, config_json_for, load};
    use crate::nn::Model;
    let mut theirs = oracle("starcoder2");
    theirs["use_bias"] = json!(false);
    let read = config::read(&theirs).unwrap();
    assert!(!read.bias && read.norm.bias() == Some(true));
    let mut bare = read.clone();
    if let NormConfig::LayerNorm(norm) = &mut bare.norm {
        norm.bias = None;
    }
    for config in [&read, &bare] {
        assert_eq!(model_type(config), Some("starcoder2"));
        let mut model = Model::new(config, 64, &candle_core::Device::Cpu).unwrap();
        model.init(3).unwrap();
        let infos = model.params().infos().to_vec();
        let set = |weights: &mut [f32]| {
            for info in infos.iter().filter(|info| info.name.ends_with(".bias")) {
                weights[info.offset..][..info.len].fill(0.25);
            }
        };
        model.params_mut().write_weights(set).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ids = TokenIds::default();
        let json = config_json_for(&model, &ids, Dtype::F32, Naming::Family);
        let mut value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["use_bias"], false);
        // As another program may leave it.
        value.as_object_mut().unwrap().remove("llmtui");
        std::fs::write(dir.path().join(CONFIG), value.to_string()).unwrap();
        let outgoing = Outgoing::new(&model, Naming::Family, Dtype::F32, u64::MAX);
        let mut out = std::fs::File::create(dir.path().join(&outgoing.files()[0])).unwrap();
        outgoing.write(0, &model, &mut out).unwrap();
        let file = Weights::open(dir.path()).unwrap();
        let names: Vec<&str> = file.names().collect();
        let biases = names.iter().filter(|name| name.ends_with(".bias"));
        assert_eq!(biases.count(), 2 * config.n_layer + 1, "{names:?}");
        let mut back = load(dir.path()).unwrap();
        assert_eq!(back.config().norm.bias(), Some(true));
        let logits = |model: &mut Model| -> Vec<f32> {
            let logits = model.logits(&[3, 1, 4, 1, 5], 1, 5).unwrap();
            logits.flatten_all().unwrap().to_vec1().unwrap()
        };
        let pairs = logits(&mut back).into_iter().zip(logits(&mut model));
        let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-6, "{off}");
    }
}

/// transformers computes the attention factor from the declared context, and reads no other key for it.
#[test]
fn longrope_under_a_shorter_context_declares_the_one_that_gives_its_attention_factor() {
    let long = Longrope {
        short_factor: vec![1.0; 16],
        long_factor: vec![2.0; 16],
        original_len: 64,
        attention_factor: None,
    };
    let of = |seq_len: usize, attention_factor: Option<f64>| {
        let config = ModelConfig {
            seq_len,
            position: PositionConfig::Rope(RopeConfig {
                fraction: 1.0,
                scaling: Some(ScalingConfig::Longrope(Longrope {
                    attention_factor,
                    ..long.clone()
                })),
                ..RopeConfig::default()
            }),
            ..llama()
        };
        let (shape, ids) = (config.shape(11), TokenIds::default());
        config::write(&config, &shape, &ids, Dtype::F32, Naming::Family)
    };
    let base = of(128, None);
    assert_eq!(base["max_position_embeddings"], 128);
    assert!(base["llmtui_context"].is_null());
    for seq_len in [48, 64, 100] {
        let shorter = of(seq_len, Some(long.attention_factor(128)));
        assert_eq!(shorter["max_position_embeddings"], 128);
        let read = config::read(&shorter).unwrap();
        assert_eq!(read.seq_len, seq_len);
        let rope = read.position.rope().unwrap();
        let Some(ScalingConfig::Longrope(read)) = &rope.scaling else {
            panic!("{rope:?}");
        };
        let factor = read.attention_factor.unwrap();
        assert!((factor - long.attention_factor(128)).abs() < 1e-12);
    }
}

#[test]
fn models_that_no_class_computes_have_no_family() {
    let with = |change: fn(&mut ModelConfig)| {
        let mut config = llama();
        change(&mut config);
        model_type(&config)
    };
    assert_eq!(
        with(|c| c.norm = NormConfig::LayerNorm(Default::default())),
        None
    );
    assert_eq!(with(|c| c.norm_placement = NormPlacement::Post), None);
    assert_eq!(with(|c| c.attention_softcap = Some(30.0)), None);
    let scaled = |c: &mut ModelConfig| {
        c.residual_scale = Some(0.22);
        c.qk_norm = true;
    };
    assert_eq!(with(scaled), None, "no other family has the scales");
    let scores = |c: &mut ModelConfig| {
        c.residual_scale = Some(0.22);
        c.head = HeadKind::Score;
    };
    assert_eq!(with(scores), None, "Granite has no class with labels");
    for change in [
        (|c: &mut ModelConfig| c.residual_scale = Some(0.22)) as fn(&mut ModelConfig),
        |c| c.logit_scale = Some(0.125),
    ] {
        for name in ["gpt2", "gemma", "gemma2", "starcoder2", "phi3", "qwen3_moe"] {
            let mut config = config::read(&oracle(name)).unwrap();
            change(&mut config);
            assert_eq!(model_type(&config), None, "{name}");
        }
        let mut config = config::read(&oracle("mixtral")).unwrap();
        change(&mut config);
        assert_eq!(model_type(&config), Some("granitemoe"));
    }
    assert_eq!(with(|c| c.mlp = MlpConfig::Gelu(Default::default())), None);
    let windowed = |c: &mut ModelConfig| {
        c.sliding_window = Some(8);
        c.global_every = Some(2);
        c.qk_norm = true;
    };
    assert_eq!(with(windowed), None);
    let grouped = ModelConfig {
        n_kv_head: Some(2),
        ..ModelConfig::default()
    };
    assert_eq!(model_type(&grouped), None, "GPT-2 has no grouped queries");
}

#[test]
fn equivalent_settings_are_the_same_model() {
    let same = |change: fn(&mut ModelConfig)| {
        let mut config = llama();
        change(&mut config);
        model_type(&config)
    };
    assert_eq!(
        same(|c| c.attention_scale = Some(32f64.powf(-0.5))),
        Some("llama")
    );
    let ones = |c: &mut ModelConfig| {
        c.embedding_scale = Some(1.0);
        c.residual_scale = Some(1.0);
        c.logit_scale = Some(1.0);
    };
    assert_eq!(same(ones), Some("llama"));
    assert_eq!(
        same(|c| c.global_every = Some(2)),
        Some("llama"),
        "no window, so nothing"
    );
    let scaled = |scaling: ScalingConfig| ModelConfig {
        position: PositionConfig::Rope(RopeConfig {
            scaling: Some(scaling),
            ..RopeConfig::default()
        }),
        ..llama()
    };
    let ntk = scaled(ScalingConfig::Ntk(Ntk { factor: 4.0 }));
    assert_eq!(model_type(&ntk), Some("llama"));
    let written = config::write(
        &ntk,
        &ntk.shape(65),
        &TokenIds::default(),
        Dtype::F32,
        Naming::Family,
    );
    let theta = written["rope_theta"].as_f64().unwrap();
    assert!(
        (theta - 1e4 * 4f64.powf(32.0 / 30.0)).abs() < 1e-6,
        "{theta}"
    );
    let weighted = scaled(ScalingConfig::Yarn(Yarn {
        mscale: Some(0.5),
        mscale_all_dim: Some(1.5),
        ..Yarn::default()
    }));
    assert_eq!(
        model_type(&weighted),
        Some("llama"),
        "the quotient of the two is a factor that it has"
    );
    let yarn = scaled(ScalingConfig::Yarn(Yarn::default()));
    let written = config::write(
        &yarn,
        &yarn.shape(65),
        &TokenIds::default(),
        Dtype::F32,
        Naming::Family,
    );
    assert_eq!(
        written["rope_parameters"]["original_max_position_embeddings"],
        16
    );
}

/// The keys of SmolLM3-3B and of its base model.
#[test]
fn blocks_without_positions_are_read_from_the_list_or_the_interval() {
    let list: Vec<u8> = (1..=36).map(|block| u8::from(block % 4 != 0)).collect();
    let theirs = json!({"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "attention_bias": false,
        "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 65536,
        "max_window_layers": 28, "mlp_bias": false, "no_rope_layer_interval": 4, "no_rope_layers": list,
        "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "pretraining_tp": 2,
        "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 5e6, "sliding_window": null,
        "use_sliding_window": false, "vocab_size": 128256});
    let with = |keys: Value| {
        let mut value = theirs.clone();
        let map = value.as_object_mut().unwrap();
        map.extend(keys.as_object().unwrap().clone());
        map.retain(|_, value| value != "absent");
        config::read(&value)
    };
    let smol = with(json!({})).unwrap();
    let rope = smol.position.rope().unwrap();
    assert_eq!((rope.nope_every, rope.theta), (Some(4), 5e6));
    assert!(smol.tie_embeddings && smol.sliding_window.is_none());
    let of = |keys: Value| with(keys).map(|c| c.position.rope().and_then(|rope| rope.nope_every));
    // The list counts, then the interval, then its default; more entries than blocks are left out.
    let absent = json!({"no_rope_layers": "absent", "no_rope_layer_interval": 6});
    assert_eq!(of(absent), Ok(Some(6)));
    let neither = json!({"no_rope_layers": null, "no_rope_layer_interval": "absent"});
    assert_eq!(of(neither), Ok(Some(4)));
    let few = json!({"num_hidden_layers": 5, "no_rope_layer_interval": 9});
    assert_eq!(of(few), Ok(Some(4)));
    assert_eq!(of(json!({"no_rope_layers": vec![1; 36]})), Ok(None));
    let none = json!({"no_rope_layers": null, "no_rope_layer_interval": 37});
    assert_eq!(of(none), Ok(None));
    let heads = with(json!({"num_key_value_heads": "absent"})).unwrap();
    assert_eq!(heads.kv_heads(), 4, "as the class has it");
    let mut irregular = vec![1; 36];
    irregular[3] = 0;
    for (keys, part) in [
        (json!({"no_rope_layers": irregular}), "the first is block 4"),
        (json!({"no_rope_layers": vec![0; 36]}), "no block has"),
        (json!({"no_rope_layers": vec![1; 35]}), "35 entries"),
        (json!({"no_rope_layers": vec![2; 36]}), "found 2"),
        (json!({"no_rope_layers": "4"}), "a list of numbers"),
        (
            json!({"no_rope_layers": null, "no_rope_layer_interval": 0}),
            "at least 1",
        ),
        (
            json!({"no_rope_layers": null, "no_rope_layer_interval": 1}),
            "no block has",
        ),
        // transformers gives the window to the blocks without positions.
        (
            json!({"use_sliding_window": true, "sliding_window": 8}),
            "sliding_window 8 without layer_types",
        ),
        (
            json!({"sliding_window": 8, "layer_types": vec!["sliding_attention"; 36]}),
            "use_sliding_window is false",
        ),
        (json!({"mlp_bias": true}), "mlp_bias"),
        (json!({"partial_rotary_factor": 0.5}), "partial"),
    ] {
        let error = with(keys.clone()).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
}

#[test]
fn every_family_has_a_unique_name_and_reads_what_it_writes() {
    let mut seen = std::collections::BTreeSet::new();
    for family in FAMILIES {
        assert!(seen.insert(family.model_type()) && seen.insert(family.class()));
        assert!(named(family.model_type()).is_ok());
    }
    let error = named("granite_swa").err().unwrap();
    assert!(error.contains("granite, granitemoe, "), "{error}");
    let error = named("mamba2").err().unwrap();
    assert!(error.contains("supported in granitemoehybrid"), "{error}");
    let error = named("gemma3").err().unwrap();
    assert!(error.contains("gemma3_text"), "{error}");
    assert!(
        named("\u{1b}[2J")
            .err()
            .unwrap()
            .chars()
            .all(|c| !c.is_control())
    );
}
