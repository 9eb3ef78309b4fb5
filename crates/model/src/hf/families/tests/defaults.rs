//! Keys that transformers' config classes write twice, leave out, or fill in: checked against transformers 5.24.

use super::*;

/// The value read from an oracle's config with these keys; null removes one.
fn with(family: &str, keys: &Value) -> Result<ModelConfig, String> {
    let mut value = oracle(family);
    let map = value.as_object_mut().unwrap();
    map.extend(keys.as_object().unwrap().clone());
    map.retain(|key, value| !(value.is_null() && keys.get(key).is_some()));
    config::read(&value)
}

/// The config of transformers 4 has all four keys, and 5 leaves those of other families beside its table.
#[test]
fn a_neox_config_with_the_names_of_other_families_beside_its_own_is_read() {
    let of = |keys: Value| {
        let read = with("gpt_neox", &keys)?;
        let rope = read.position.rope().unwrap();
        Ok::<(f64, f64), String>((rope.theta, rope.fraction))
    };
    let table = |theta: f64, fraction: f64| json!({"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": fraction});
    for (keys, expected) in [
        (
            json!({"rope_parameters": null, "rotary_pct": 0.5, "rotary_emb_base": 2e4, "rope_theta": 2e4, "partial_rotary_factor": 0.5}),
            (2e4, 0.5),
        ),
        (
            json!({"rope_parameters": table(2e4, 0.5), "rope_theta": 2e4, "partial_rotary_factor": 0.5}),
            (2e4, 0.5),
        ),
        (
            json!({"rope_parameters": null, "rope_theta": 10_000, "partial_rotary_factor": 0.25}),
            (1e4, 0.25),
        ),
        (
            json!({"rope_parameters": null, "rope_scaling": {"type": "linear", "factor": 2.0}, "rotary_pct": 0.5,
                "rotary_emb_base": 2e4, "rope_theta": 2e4, "partial_rotary_factor": 0.5}),
            (2e4, 0.5),
        ),
    ] {
        assert_eq!(of(keys.clone()), Ok(expected), "{keys}");
    }
    for (keys, part) in [
        (json!({"rope_theta": 2e4}), "rope_theta 20000 beside 10000"),
        (
            json!({"partial_rotary_factor": 0.5}),
            "partial_rotary_factor 0.5 beside 0.25",
        ),
        (
            json!({"rope_parameters": null, "rotary_pct": 0.5, "partial_rotary_factor": 0.25}),
            "partial_rotary_factor 0.25 beside 0.5",
        ),
    ] {
        let error = of(keys.clone()).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
}

/// transformers 5.24 rotates what the table says, 4 what is beside it.
#[test]
fn a_stablelm_whose_table_rotates_another_share_of_a_head_is_rejected() {
    let fraction = |read: Result<ModelConfig, String>| {
        read.map(|config| config.position.rope().map(|rope| rope.fraction))
    };
    let table = json!({"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5});
    let both = |above: f64| json!({"rope_parameters": table, "partial_rotary_factor": above});
    assert_eq!(fraction(with("stablelm", &both(0.5))), Ok(Some(0.5)));
    let error = with("stablelm", &both(0.25)).unwrap_err();
    assert!(
        error.contains("partial_rotary_factor 0.25 beside 0.5"),
        "{error}"
    );
    // One place only, as in the files of the hub.
    let above = json!({"rope_parameters": null, "rope_theta": 1e4, "partial_rotary_factor": 0.5});
    for family in ["stablelm", "phi3"] {
        assert_eq!(fraction(with(family, &above)), Ok(Some(0.5)), "{family}");
    }
}

/// transformers 5.24 has 500000 there, whatever `rope_theta` says.
#[test]
fn blocks_of_an_olmo_3_with_a_window_have_the_base_of_the_class_where_their_table_has_none() {
    let plain = json!({"rope_type": "default"});
    for sliding in [plain.clone(), Value::Null] {
        let tables = json!({"full_attention": plain, "sliding_attention": sliding});
        let keys = json!({"rope_theta": 1e6, "rope_parameters": tables});
        let read = with("olmo3", &keys).unwrap();
        let rope = read.position.rope().unwrap();
        assert_eq!((rope.theta, rope.local_theta), (1e6, Some(5e5)));
    }
}

#[test]
fn an_absent_number_of_key_and_value_heads_is_that_of_the_class_and_null_that_of_the_queries() {
    for (family, usual) in [
        ("llama", None),
        ("granite", None),
        ("phi3", None),
        ("olmo2", None),
        ("olmo3", None),
        ("starcoder2", Some(2)),
        ("gemma2", Some(4)),
        ("gemma3", Some(4)),
        ("qwen3_moe", Some(4)),
        ("qwen3_next", Some(2)),
        ("qwen3_5_moe", Some(2)),
        ("qwen2_moe", Some(16)),
        ("olmoe", None),
        ("granitemoe", None),
        ("granite_shared", None),
        ("smollm3", Some(4)),
        ("mistral", Some(8)),
        ("mixtral", Some(8)),
        ("gemma", Some(16)),
        ("qwen2", Some(32)),
        ("qwen3", Some(32)),
        ("stablelm", Some(32)),
    ] {
        // As many heads as the greatest default.
        let mut value = oracle(family);
        value["num_attention_heads"] = json!(32);
        value["hidden_size"] = json!(256);
        if value.get("head_dim").is_some() {
            value["head_dim"] = json!(8);
        }
        value["num_key_value_heads"] = Value::Null;
        let null = config::read(&value).unwrap();
        assert_eq!(null.kv_heads(), 32, "{family}");
        value.as_object_mut().unwrap().remove("num_key_value_heads");
        let absent = config::read(&value).unwrap();
        assert_eq!(absent.kv_heads(), usual.unwrap_or(32), "{family}");
    }
}
