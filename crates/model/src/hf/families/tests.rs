//! Properties of every family, and what each one rejects.

mod defaults;

use super::super::config::{self, TokenIds};
use super::super::{Dtype, Naming};
use super::*;
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::position::RopeConfig;
use crate::nn::position::ScalingConfig;
use crate::nn::position::scaling::{Longrope, Ntk, Yarn};
use crate::nn::{AttentionBias, NormPlacement, QkNormOver};

fn llama() -> ModelConfig {
    ModelConfig {
        position: PositionConfig::Rope(RopeConfig::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        n_kv_head: Some(2),
        ..ModelConfig::default()
    }
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

fn olmo(change: impl Fn(&mut ModelConfig)) -> ModelConfig {
    let mut config = ModelConfig {
        norm_placement: NormPlacement::Reordered,
        qk_norm: true,
        qk_norm_over: QkNormOver::AllHeads,
        ..llama()
    };
    change(&mut config);
    config
}

fn rope(config: &mut ModelConfig, scaling: Option<ScalingConfig>, local_theta: Option<f64>) {
    config.position = PositionConfig::Rope(RopeConfig {
        scaling,
        local_theta,
        ..RopeConfig::default()
    });
}

#[test]
fn norms_of_olmo_are_no_other_familys_and_its_windows_make_it_the_third() {
    let of = |change: fn(&mut ModelConfig)| model_type(&olmo(change));
    assert_eq!(of(|_| {}), Some("olmo2"));
    assert_eq!(of(|c| c.attention_bias = AttentionBias::All), Some("olmo2"));
    assert_eq!(of(|c| c.head_dim = Some(64)), Some("olmo2"));
    let windows = |c: &mut ModelConfig| (c.sliding_window, c.global_every) = (Some(8), Some(4));
    let windowed = |change: fn(&mut ModelConfig)| {
        model_type(&olmo(|c| {
            windows(c);
            change(c);
        }))
    };
    assert_eq!(windowed(|_| {}), Some("olmo3"));
    assert_eq!(windowed(|c| c.global_every = None), Some("olmo3"));
    // Scaling leaves out blocks with a window.
    assert_eq!(windowed(|c| rope(c, yarn_of(), Some(1e4))), Some("olmo3"));
    assert_eq!(windowed(|c| rope(c, yarn_of(), Some(1e5))), Some("olmo3"));
    assert_eq!(windowed(|c| rope(c, yarn_of(), None)), None);
    assert_eq!(
        model_type(&olmo(|c| rope(c, yarn_of(), None))),
        Some("olmo2")
    );
    // One of the two norms alone is nobody's.
    assert_eq!(of(|c| c.qk_norm_over = QkNormOver::Head), None);
    assert_eq!(of(|c| c.norm_placement = NormPlacement::Pre), None);
    assert_eq!(of(|c| c.norm_placement = NormPlacement::Both), None);
    assert_eq!(of(|c| c.moe = Some(Default::default())), None);
}

fn yarn_of() -> Option<ScalingConfig> {
    Some(ScalingConfig::Yarn(Yarn::default()))
}

/// As transformers 4 wrote it, and the files of the hub have it.
#[test]
fn the_keys_of_transformers_4_describe_the_same_olmo_3() {
    let theirs = oracle("olmo3");
    let mut old = theirs.clone();
    let map = old.as_object_mut().unwrap();
    let tables = map.remove("rope_parameters").unwrap();
    let mut scaling = tables["full_attention"].clone();
    scaling.as_object_mut().unwrap().remove("rope_theta");
    map.insert("rope_scaling".into(), scaling);
    map.insert("rope_theta".into(), json!(500_000.0));
    map.remove("layer_types");
    let read = config::read(&theirs).unwrap();
    assert_eq!(config::read(&old), Ok(read.clone()));
    assert_eq!((read.sliding_window, read.global_every), (Some(5), Some(4)));
    assert_eq!(read.position.rope().unwrap().local_theta, Some(500_000.0));
    let mut both = theirs.clone();
    both["rope_scaling"] = json!({"rope_type": "linear", "factor": 2.0});
    let error = config::read(&both).unwrap_err();
    assert!(error.contains("differ"), "{error}");
    // Without scaling both kinds of blocks rotate alike.
    let mut plain = old.clone();
    plain["rope_scaling"] = Value::Null;
    let plain = config::read(&plain).unwrap();
    assert_eq!(plain.position.rope().unwrap().local_theta, None);
    // Two versions of transformers take another base in blocks with a window.
    old["rope_theta"] = json!(1e6);
    let error = config::read(&old).unwrap_err();
    assert!(
        error.contains("rope_parameters.sliding_attention"),
        "{error}"
    );
    old["sliding_window"] = Value::Null;
    assert!(config::read(&old).is_ok());
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
        outgoing.write(0, &mut out).unwrap();
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
        outgoing.write(0, &mut out).unwrap();
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
        for name in ["gpt2", "gemma", "gemma2", "starcoder2", "phi3", "mixtral"] {
            let mut config = config::read(&oracle(name)).unwrap();
            change(&mut config);
            assert_eq!(model_type(&config), None, "{name}");
        }
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
    let error = named("granitemoehybrid").err().unwrap();
    assert!(
        error.contains("model_type granite are supported"),
        "{error}"
    );
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

/// A config.json of the tests' folder.
fn config_of(path: &str) -> Value {
    let text = std::fs::read(format!("../../tests/{path}")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn oracle(family: &str) -> Value {
    config_of(&format!("oracle/families/{family}/config.json"))
}

/// Pythia's file is of transformers 4; a quarter of each head is rotated where no key says another share.
#[test]
fn pythia_has_a_parallel_residual_and_rotates_a_quarter_of_each_head() {
    let theirs = config_of("fixtures/configs/pythia-160m.json");
    let pythia = config::read(&theirs).unwrap();
    assert_eq!(model_type(&pythia), Some("gpt_neox"));
    assert!(pythia.parallel_residual && pythia.bias && !pythia.tie_embeddings);
    let rope = pythia.position.rope().unwrap();
    assert_eq!((rope.theta, rope.fraction), (10_000.0, 0.25));
    let mut bare = theirs;
    for key in ["rotary_pct", "rotary_emb_base", "use_parallel_residual"] {
        bare.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(config::read(&bare), Ok(pythia.clone()));
    // The keys of both versions.
    let (shape, ids) = (pythia.shape(1), TokenIds::default());
    let ours = config::write(&pythia, &shape, &ids, Dtype::F32, Naming::Family);
    assert_eq!(ours["rotary_pct"], 0.25);
    let table =
        json!({"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25});
    assert_eq!(ours["rope_parameters"], table);
    assert!(ours["rope_theta"].is_null() && ours["partial_rotary_factor"].is_null());
    // The residual is part of the model.
    let sequential = ModelConfig {
        parallel_residual: false,
        ..pythia
    };
    assert_eq!(model_type(&sequential), Some("gpt_neox"));
    let parallel = ModelConfig {
        parallel_residual: true,
        ..llama()
    };
    assert_eq!(model_type(&parallel), None);
    let gpt2 = ModelConfig {
        parallel_residual: true,
        ..ModelConfig::default()
    };
    assert_eq!(model_type(&gpt2), None);
}

#[test]
fn gpt_neo_has_windows_in_every_other_block_from_the_second_on() {
    let theirs = oracle("gpt_neo");
    let read = config::read(&theirs).unwrap();
    let windows: Vec<_> = (0..4).map(|layer| read.window(layer)).collect();
    assert_eq!(windows, [None, Some(5), None, Some(5)]);
    assert_eq!(model_type(&read), Some("gpt_neo"));
    // As GPT-2's in other respects, but with the usual scale.
    let scaled = ModelConfig {
        attention_scale: None,
        ..read.clone()
    };
    assert_eq!(model_type(&scaled), None);
    // The file names no kinds: 24 blocks in turns.
    let mut large = theirs;
    large["num_layers"] = json!(24);
    for key in ["attention_types", "attention_layers", "window_size"] {
        large.as_object_mut().unwrap().remove(key);
    }
    let large = config::read(&large).unwrap();
    assert_eq!(
        (large.window(0), large.window(23)),
        (None, Some(256)),
        "{large:?}"
    );
}

/// Its config says nothing of the biases of its norms, and a quarter of each head turns where no key says otherwise.
#[test]
fn stablelm_has_biases_in_its_norms_alone() {
    let mut theirs = oracle("stablelm");
    let read = config::read(&theirs).unwrap();
    assert!(!read.bias && read.norm.bias() == Some(true));
    assert_eq!(model_type(&read), Some("stablelm"));
    let unbiased = ModelConfig {
        norm: NormConfig::LayerNorm(Default::default()),
        ..read.clone()
    };
    assert_eq!(model_type(&unbiased), None);
    let whole = ModelConfig {
        position: PositionConfig::Rope(RopeConfig::default()),
        ..read.clone()
    };
    let (shape, ids) = (whole.shape(1), TokenIds::default());
    let ours = config::write(&whole, &shape, &ids, Dtype::F32, Naming::Family);
    assert_eq!(ours["model_type"], "stablelm");
    assert_eq!(ours["rope_parameters"]["partial_rotary_factor"], 1.0);
    assert_eq!(ours["partial_rotary_factor"], 1.0);
    theirs.as_object_mut().unwrap().remove("rope_parameters");
    assert_eq!(config::read(&theirs), Ok(read));
}

/// The files of the hub, which have keys of the programs that trained the models.
#[test]
fn configs_of_the_hub_are_read() {
    let smol = config::read(&config_of("fixtures/configs/SmolLM2-135M.json")).unwrap();
    assert_eq!((smol.n_layer, smol.kv_heads()), (30, 3));
    assert_eq!(smol.position.rope().unwrap().theta, 1e5);
    let phi = config::read(&config_of("fixtures/configs/Phi-4-mini-instruct.json")).unwrap();
    let rope = phi.position.rope().unwrap();
    assert_eq!(rope.fraction, 0.75);
    assert!(matches!(&rope.scaling, Some(ScalingConfig::Longrope(_))));
    assert_eq!(model_type(&phi), Some("phi3"));
}

#[test]
fn keys_that_transformers_ignores_are_skipped() {
    let theirs = json!({"chunk_size": 262_144});
    for (family, keys) in [
        // gpt2-medium; gpt2-xl.
        (
            "gpt2",
            json!({"n_special": 0, "predict_special_tokens": true, "output_past": true}),
        ),
        // Falcon 3; the first Llama.
        ("llama", json!({"activation": "swiglu"})),
        ("llama", json!({"max_sequence_length": 2048})),
        ("llama", json!({"original_max_position_embeddings": 8192})),
        // Gemma 2B and 1.1; StarCoder2 3B.
        ("gemma", json!({"hidden_act": "gelu"})),
        ("gemma", json!({"hidden_activation": null})),
        ("gemma", json!({"hidden_activation": "gelu_pytorch_tanh"})),
        (
            "starcoder2",
            json!({"mlp_type": "default", "norm_type": "layer_norm", "layer_norm_epsilon": 1e-5, "residual_dropout": 0.1, "embedding_dropout": 0.1}),
        ),
        // Gemma 2 9B; Qwen2.5 1M; the defaults of `generate` as transformers 4 wrote them.
        ("gemma2", json!({"sliding_window_size": 5})),
        ("qwen2", json!({"dual_chunk_attention_config": theirs})),
        (
            "mistral",
            json!({"num_beams": 1, "length_penalty": 1.0, "typical_p": 1.0, "num_return_sequences": 1}),
        ),
    ] {
        let mut value = oracle(family);
        let plain = config::read(&value).unwrap();
        let map = value.as_object_mut().unwrap();
        map.extend(keys.as_object().unwrap().clone());
        assert_eq!(config::read(&value), Ok(plain), "{family} {keys}");
    }
    let yarn = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "finetuned": true});
    let mut value = oracle("llama_yarn");
    value.as_object_mut().unwrap().remove("rope_parameters");
    value["rope_scaling"] = yarn;
    assert!(config::read(&value).is_ok());
}

#[test]
fn keys_that_change_the_computation_are_never_skipped() {
    for (family, key, value, part) in [
        ("llama", "hidden_act", json!("relu"), "relu"),
        ("llama", "mlp_bias", json!(true), "mlp_bias"),
        ("llama", "rope_interleaved", json!(true), "rope_interleaved"),
        ("llama", "rms_norm_eps", json!("small"), "rms_norm_eps"),
        (
            "gpt2",
            "scale_attn_weights",
            json!(false),
            "scale_attn_weights",
        ),
        (
            "gpt2",
            "scale_attn_by_inverse_layer_idx",
            json!(true),
            "scale_attn_by_inverse_layer_idx",
        ),
        (
            "gpt2",
            "add_cross_attention",
            json!(true),
            "add_cross_attention",
        ),
        (
            "gemma2",
            "use_bidirectional_attention",
            json!(true),
            "use_bidirectional_attention",
        ),
        ("gemma2", "hidden_activation", json!("silu"), "silu"),
        (
            "qwen3_moe",
            "mlp_only_layers",
            json!([1]),
            "mlp_only_layers",
        ),
        (
            "qwen2",
            "layer_types",
            json!(["full_attention", "linear_attention"]),
            "linear_attention",
        ),
        (
            "phi3",
            "rope_scaling",
            json!({"type": "longrope", "factor": 2.0}),
            "rope",
        ),
        (
            "mistral",
            "num_attention_heads",
            json!(null),
            "num_attention_heads is missing",
        ),
        ("phi3", "full_attn_mod", json!(2), "full_attn_mod"),
        (
            "gemma",
            "hidden_activation",
            json!("gelu"),
            "only gelu_pytorch_tanh",
        ),
        (
            "gemma",
            "hidden_act",
            json!("relu"),
            "only gelu_pytorch_tanh",
        ),
        (
            "granite",
            "residual_multiplier",
            json!(0.0),
            "residual_multiplier: 0",
        ),
        ("granite", "logits_scaling", json!(-8), "logits_scaling: -8"),
        ("granite", "hidden_act", json!("gelu"), "only silu"),
        ("starcoder2", "hidden_act", json!("tanh"), "tanh"),
        ("starcoder2", "norm_type", json!("rms_norm"), "norm_type"),
        ("starcoder2", "mlp_type", json!("gated"), "mlp_type"),
        (
            "gpt_neo",
            "attention_types",
            json!([[["global", "global", "local", "local"], 1]]),
            "every n-th block",
        ),
        (
            "gpt_neo",
            "attention_types",
            json!([[["global", "local"], 3]]),
            "6 layers",
        ),
        ("gpt_neo", "attention_types", json!([[["all"], 4]]), "kind"),
        (
            "gpt_neo",
            "attention_layers",
            json!(["local", "local", "local", "local"]),
            "attention_layers",
        ),
        ("stablelm", "qk_layernorm", json!(true), "qk_layernorm"),
        (
            "stablelm",
            "use_parallel_residual",
            json!(true),
            "use_parallel_residual",
        ),
        ("stablelm", "head_dim", json!(6), "head_dim 6"),
        ("gpt_neox", "attention_bias", json!(false), "attention_bias"),
        ("gpt_neox", "hidden_act", json!("laplace"), "laplace"),
        ("gpt_neox", "rope_theta", json!(5e5), "rotary_emb_base"),
        ("gpt_neox", "num_attention_heads", json!(5), "multiple"),
        ("phi3", "interpolate_factor", json!(4), "interpolate_factor"),
        ("llama", "activation", json!("gelu"), "swiglu"),
        (
            "gemma2",
            "sliding_window_size",
            json!(7),
            "sliding_window_size",
        ),
        ("mistral", "head_dim", json!(5), "odd"),
        ("olmo2", "hidden_act", json!("gelu"), "gelu"),
        ("olmo2", "clip_qkv", json!(8.0), "clip_qkv"),
        ("olmo2", "sliding_window", json!(8), "sliding_window"),
        (
            "olmo3",
            "rope_parameters",
            json!({"rope_type": "default", "rope_theta": 5e5}),
            "rope_parameters.rope_t",
        ),
        (
            "olmo3",
            "rope_parameters",
            json!({"sliding_attention": {"rope_type": "linear", "factor": 2.0}}),
            "without a sliding window",
        ),
        ("mixtral", "num_experts_per_tok", json!(9), "4"),
    ] {
        let mut value_of = oracle(family);
        if key == "rope_scaling" {
            value_of.as_object_mut().unwrap().remove("rope_parameters");
        }
        value_of[key] = value;
        let error = config::read(&value_of).unwrap_err();
        assert!(error.contains(part), "{family} {key}: {error}");
    }
}
