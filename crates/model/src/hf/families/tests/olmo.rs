//! OLMo 2 and 3.

use super::*;

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
