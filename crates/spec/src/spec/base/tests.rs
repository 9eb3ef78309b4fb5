//! What a spec takes from its start model, and contradictions with it.

use super::*;
use crate::spec::load;

/// Phi-3's matrices are fused, and Mistral computes the same.
#[test]
fn a_run_keeps_the_family_of_its_start_model_or_takes_another_that_computes_the_same() {
    let families = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oracle/families/");
    let family = |base: &str, more: &[&str]| {
        let mut words = vec![format!("train.from={families}{base}")];
        words.extend(more.iter().map(ToString::to_string));
        let loaded = load("smoke", &words, &SpecSources::default());
        loaded.map(|loaded| loaded.spec.model.family.clone())
    };
    let is = |name: &str| Some(name.to_string());
    assert_eq!(family("phi3_whole", &[]).unwrap(), is("phi3"));
    assert_eq!(family("phi3", &[]).unwrap(), None, "no other computes it");
    let chosen = family("phi3_whole", &["model.family=mistral"]);
    assert_eq!(chosen.unwrap(), is("mistral"));
    for wrong in ["model.family=llama", "model.family=other"] {
        let error = family("phi3_whole", &[wrong]).unwrap_err().to_string();
        assert!(error.contains("does not compute this model"), "{error}");
    }
}

#[test]
fn a_run_has_the_blocks_without_positions_of_its_start_model() {
    let smollm3 = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/oracle/families/smollm3"
    );
    let every = |more: &[&str]| {
        let mut words = vec![format!("train.from={smollm3}")];
        words.extend(more.iter().map(ToString::to_string));
        let loaded = load("smoke", &words, &SpecSources::default());
        loaded.map(|loaded| loaded.spec.model.position.rope().and_then(|r| r.nope_every))
    };
    assert_eq!(every(&[]).unwrap(), Some(4));
    assert_eq!(every(&["no_rope_layer_interval=4"]).unwrap(), Some(4));
    let error = every(&["no_rope_layer_interval=2"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("model.position.rope.nope_every"), "{error}");
}

#[test]
fn what_a_base_leaves_out_may_be_said() {
    let families = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oracle/families/");
    let load = |base: &str, said: &str| {
        let words = [
            format!("train.from={families}{base}"),
            format!("model.{said}"),
        ];
        load("smoke", &words, &SpecSources::default()).map(drop)
    };
    for (base, said) in [
        ("qwen3", "qk_norm_over=head"),
        ("llama", "residual_scale=1"),
        ("llama", "logit_scale=1.0"),
        ("gpt_neox", "norm.layernorm.bias=true"),
        ("llama", "parallel_residual=false"),
    ] {
        assert!(load(base, said).is_ok(), "{base} {said}");
    }
    for (base, said) in [
        ("gpt_neox", "norm.layernorm.bias=false"),
        ("llama", "residual_scale=0.5"),
        ("qwen3", "qk_norm_over=all_heads"),
    ] {
        let error = load(base, said).unwrap_err().to_string();
        let path = said.split('=').next().unwrap();
        assert!(error.contains(path), "{error}");
    }
}

#[test]
fn a_parallel_residual_is_the_base_models() {
    let families = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oracle/families/");
    let parallel = |base: &str, said: &str| {
        let mut words = vec![format!("train.from={families}{base}")];
        words.extend((!said.is_empty()).then(|| format!("use_parallel_residual={said}")));
        let loaded = load("smoke", &words, &SpecSources::default());
        loaded.map(|loaded| loaded.spec.model.parallel_residual)
    };
    assert!(parallel("gpt_neox", "").unwrap());
    assert!(parallel("gpt_neox", "true").unwrap());
    assert!(!parallel("llama", "").unwrap());
    assert!(!parallel("llama", "false").unwrap());
    for (base, said) in [("gpt_neox", "false"), ("llama", "true")] {
        let error = parallel(base, said).unwrap_err().to_string();
        assert!(error.contains("model.parallel_residual"), "{error}");
    }
}

/// The wizard asked a file of gigabytes for its metadata at each key.
#[test]
fn a_file_is_read_again_only_where_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let last = LastFile::default();
    let read = || super::read(&path, ModelSource::open, &last);
    let bytes = include_bytes!("../../../../../tests/oracle/gguf/gpt2.gguf");
    let write = |bytes: &[u8], at: u64| {
        std::fs::write(&path, bytes).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at);
        file.set_modified(at).unwrap();
    };
    write(bytes, 1_000);
    let base = read().unwrap();
    assert_eq!(base.family, "gpt2");
    let broken = vec![0; bytes.len()];
    write(&broken, 1_000);
    assert_eq!(read().unwrap().n_params, base.n_params, "not read again");
    write(&broken, 1_001);
    assert!(read().is_err());
}

#[test]
fn a_changed_part_of_a_split_file_is_seen_whichever_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let part = |n: usize| dir.path().join(format!("m-{n:05}-of-00002.gguf"));
    for n in [1, 2] {
        std::fs::write(part(n), "weights").unwrap();
    }
    let states = || [1, 2].map(|n| ModelState::of(&part(n)).unwrap());
    let before = states();
    assert!(before == states() && before[0].files == before[1].files);
    std::fs::write(part(2), "longer weights").unwrap();
    for (now, before) in states().iter().zip(&before) {
        assert!(now != before);
    }
}

#[test]
fn whole_models_that_are_called_like_parts_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oracle/gguf");
    let last = LastFile::default();
    let called = |n: usize| dir.path().join(format!("a-{n:05}-of-00002.gguf"));
    let models = ["gpt2", "qwen2"];
    for (model, n) in models.iter().zip(1..) {
        std::fs::copy(format!("{folder}/{model}.gguf"), called(n)).unwrap();
    }
    for (model, n) in models.iter().zip(1..) {
        let base = super::read(&called(n), ModelSource::open, &last).unwrap();
        assert_eq!(base.family, *model);
    }
}
