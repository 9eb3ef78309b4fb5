//! Whole models merged into one.

use super::adapters::{adapted, base, packed, weights};
use super::*;
use crate::engine::merge::RECORD;
use crate::engine::merge_models::{Order, merge};
use crate::hf;
use crate::merging::{Settings, method};
use crate::models::{ByParameter, ModelSource};
use crate::nn::Model;
use std::path::PathBuf;

fn order(word: &str, base: Option<&Path>, models: &[(&Path, f64)], to: PathBuf) -> Order {
    let method = method(word).unwrap();
    let of = models.iter().map(|(_, weight)| *weight).collect();
    Order {
        method,
        base: base.map(Path::to_path_buf),
        models: models.iter().map(|(path, _)| path.to_path_buf()).collect(),
        settings: Settings::new(method, of),
        to,
        dtype: hf::Dtype::F32,
        dequantize: false,
    }
}

#[test]
fn models_are_merged_into_a_folder_that_says_so() {
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let adapter = adapted(&base, &["max_steps=6"]);
    assert_eq!(finished(&adapter.go()).0, Outcome::Completed);
    let (trained, first) = (adapter.checkpoint(6), base.checkpoint(5));
    let to = |name: &str| dir.path().join(name);
    // All that the adapter changed, and half of it.
    let whole = order(
        "task_arithmetic",
        Some(&first),
        &[(&trained, 1.0)],
        to("whole"),
    );
    merge(&whole).unwrap();
    let half = order(
        "linear",
        None,
        &[(&first, 1.0), (&trained, 1.0)],
        to("half"),
    );
    merge(&half).unwrap();
    let of = |folder: &Path| {
        let model = ModelSource::open(folder).unwrap().load().unwrap();
        model.params().read_weights(<[f32]>::to_vec).unwrap()
    };
    let (a, b) = (of(&first), of(&trained));
    assert_ne!(a, b);
    let off = |found: &[f32], expected: &dyn Fn(f32, f32) -> f32| {
        let pairs = a.iter().zip(&b).zip(found);
        pairs
            .map(|((a, b), x)| (x - expected(*a, *b)).abs())
            .fold(0.0, f32::max)
    };
    assert!(off(&of(&to("whole")), &|_, b| b) < 1e-6);
    assert!(off(&of(&to("half")), &|a, b| (a + b) / 2.0) < 1e-6);
    let record = std::fs::read_to_string(to("half").join(RECORD)).unwrap();
    assert!(
        record.contains("\"method\": \"linear\"") && record.contains("\"normalize\": true"),
        "{record}"
    );
    let card = std::fs::read_to_string(to("whole").join("README.md")).unwrap();
    assert!(card.contains("by the method `task_arithmetic`"), "{card}");
}

#[test]
fn what_cannot_be_merged_is_refused_with_the_reason() {
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let first = base.checkpoint(5);
    let refused = |order: Order| {
        let error = merge(&order).map(|_| ()).unwrap_err();
        assert!(!order.to.exists(), "nothing is written");
        format!("{error} ({})", error.hint())
    };
    let to = || dir.path().join("to");
    let (file, _) = packed(dir.path());
    let quantized = refused(order("linear", None, &[(&first, 1.0), (&file, 1.0)], to()));
    assert!(
        quantized.contains("quantized") && quantized.contains("--dequantize"),
        "{quantized}"
    );
    let wider = Run::new(&[
        "max_steps=2",
        "eval_every=0",
        "sample_every=0",
        "model.d_model=32",
    ]);
    assert_eq!(finished(&wider.go()).0, Outcome::Completed);
    let wider = wider.checkpoint(2);
    let other = refused(order("linear", None, &[(&first, 1.0), (&wider, 1.0)], to()));
    assert!(
        other.contains("different architectures") && other.contains(" is 16 and 32"),
        "{other}"
    );
    let renamed = dir.path().join("renamed");
    std::fs::create_dir(&renamed).unwrap();
    for name in [hf::CONFIG, hf::WEIGHTS] {
        std::fs::copy(first.join(name), renamed.join(name)).unwrap();
    }
    let text = std::fs::read_to_string(first.join(hf::TOKENIZER)).unwrap();
    let text = text.replace("\"e\":", "\"\u{e9}\":");
    std::fs::write(renamed.join(hf::TOKENIZER), text).unwrap();
    let ids = refused(order(
        "linear",
        None,
        &[(&first, 1.0), (&renamed, 1.0)],
        to(),
    ));
    assert!(
        ids.contains("tokenizers") && ids.contains("another text"),
        "{ids}"
    );
    let huge = refused(order("linear", None, &[(&first, 1.0), (&first, 1.0)], to()).summed());
    assert!(huge.contains("not finite"), "{huge}");
}

impl Order {
    fn summed(mut self) -> Order {
        self.settings.normalize = false;
        self.settings.weights = vec![1e39, 1e39];
        self
    }
}

/// A model read by parameter has the bits of the whole one.
pub(super) fn has_the_same_parts(folder: &Path) {
    let source = ModelSource::open(folder).unwrap();
    let (whole, parts) = (source.load().unwrap(), ByParameter::open(&source).unwrap());
    let all = whole.params().read_weights(<[f32]>::to_vec).unwrap();
    for info in whole.params().base() {
        let own = parts.read(info).unwrap();
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let same = bits(&own) == bits(&all[info.offset..][..info.len]);
        assert!(same, "{}: {}", folder.display(), info.name);
    }
}

/// What a merge of models that are in memory as a whole has.
fn in_memory(order: &Order, models: &[&Path]) -> Vec<u32> {
    let load = |path: &&Path| ModelSource::open(path).unwrap().load().unwrap();
    let mut models: Vec<Model> = models.iter().map(load).collect();
    let all = |model: &Model| model.params().read_weights(<[f32]>::to_vec).unwrap();
    let weights: Vec<Vec<f32>> = models.iter().map(all).collect();
    let mut result = weights[0].clone();
    for (at, places) in hf::places(&models.remove(0)).iter().enumerate() {
        let places: Vec<usize> = places.iter().cloned().flatten().collect();
        let of = |weights: &Vec<f32>| places.iter().map(|at| weights[*at]).collect();
        let values = weights.iter().map(of).collect();
        let merged = crate::merging::merge(order.method, &order.settings, at, values);
        places
            .iter()
            .zip(merged)
            .for_each(|(at, x)| result[*at] = x);
    }
    result.iter().map(|x| x.to_bits()).collect()
}

/// By every method: checkpoints with adapters beside their weights, and adapters alone, of which one has magnitudes.
#[test]
fn models_read_tensor_by_tensor_merge_to_the_bits_of_whole_ones() {
    let (base, dir) = (base(), tempfile::tempdir().unwrap());
    let first = base.checkpoint(5);
    let trained = ["adapter.lora.dora=false", "adapter.lora.dora=true"].map(|word| {
        let run = adapted(&base, &["max_steps=6", word]);
        assert_eq!(finished(&run.go()).0, Outcome::Completed);
        run
    });
    let [lora, dora] = trained.each_ref().map(|run| run.checkpoint(6));
    let alone = dir.path().join("alone");
    std::fs::create_dir(&alone).unwrap();
    for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
        std::fs::copy(dora.join(name), alone.join(name)).unwrap();
    }
    let said = std::fs::read_to_string(alone.join(hf::ADAPTER_CONFIG)).unwrap();
    let mut said: serde_json::Value = serde_json::from_str(&said).unwrap();
    said["base_model_name_or_path"] = first.display().to_string().into();
    std::fs::write(alone.join(hf::ADAPTER_CONFIG), said.to_string()).unwrap();
    for method in crate::merging::METHODS {
        let to = dir.path().join(method.word);
        let base = method.has_base.then_some(&*first);
        let parts = [(&*lora, 0.75), (&*alone, 0.5)];
        let mut order = order(method.word, base, &parts, to.clone());
        order.settings.density = 0.5;
        order.settings.t = 0.25;
        merge(&order).unwrap();
        let all: Vec<&Path> = base.into_iter().chain([&*lora, &*alone]).collect();
        assert!(weights(&to) == in_memory(&order, &all), "{}", method.word);
    }
}
