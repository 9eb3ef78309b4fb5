//! Whole models merged into one.

use super::adapters::{adapted, base, packed};
use super::*;
use crate::engine::merge::RECORD;
use crate::engine::merge_models::{Order, merge};
use crate::hf;
use crate::merging::{Settings, method};
use crate::models::ModelSource;
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
        dtype: "f32".into(),
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
