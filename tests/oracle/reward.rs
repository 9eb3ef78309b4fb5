//! Reward models of transformers and adapters of PEFT, as their libraries saved them, against the scores, TRL's losses and
//! gradients. `tests/oracle/reward_oracle.py` made the folders and the fixture.

use super::{TOLERANCE, tensors_of};
use candle_core::{Device, Tensor};
use llmtui::data::render::scored_token;
use llmtui::data::{Batch, Column, MARGIN, Origin, Unit};
use llmtui::hf;
use llmtui::methods::{MethodConfig, micro_step};
use llmtui::metrics::Readings;
use llmtui::nn::{Backend, HeadKind, Model};
use std::collections::HashMap;
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle")
        .join(name)
}

fn values<T: candle_core::WithDType>(tensors: &HashMap<String, Tensor>, name: &str) -> Vec<T> {
    tensors[name].flatten_all().unwrap().to_vec1().unwrap()
}

/// The sequences, each with its scored token: chosen ones, then rejected ones.
fn texts(tensors: &HashMap<String, Tensor>, pad: u32) -> Vec<(Vec<u32>, usize)> {
    let ids: Vec<Vec<u32>> = tensors["ids"].to_vec2().unwrap();
    let lengths = values::<u32>(tensors, "lengths");
    let text = |(ids, len): (&Vec<u32>, &u32)| {
        let ids = ids[..*len as usize].to_vec();
        let at = scored_token(&ids, Some(pad));
        (ids, at)
    };
    ids.iter().zip(&lengths).map(text).collect()
}

/// Pairs in the store's layout: chosen and rejected alternating, one position of each counts.
fn batch(tensors: &HashMap<String, Tensor>, pad: u32, margins: bool) -> Batch {
    let texts = texts(tensors, pad);
    let (pairs, width) = (texts.len() / 2, tensors["ids"].dim(1).unwrap());
    let mut batch = Batch {
        batch_size: texts.len(),
        seq_len: width,
        unit: Unit::Ranked,
        ..Batch::default()
    };
    for row in 0..texts.len() {
        let (ids, at) = &texts[row / 2 + (row % 2) * pairs];
        let place = |t: usize| ids.get(t).copied().unwrap_or_default();
        batch.inputs.extend((0..width).map(place));
        batch.targets.extend((1..=width).map(place));
        batch.mask.extend((0..width).map(|t| t == *at));
        batch
            .first
            .extend((0..width).map(|t| if t < ids.len() { 0 } else { ids.len() as u32 }));
        batch.sequence.extend(vec![row as u32; width]);
        batch.origins.push(Origin {
            held_out: false,
            source: 0,
            start: row as u64,
        });
    }
    if margins {
        let margins = values::<f32>(tensors, "margins");
        batch.columns.push(Column {
            name: MARGIN,
            values: margins.into_iter().flat_map(|m| [m, m]).collect(),
        });
    }
    batch
}

/// The model of a folder on a backend of choice.
fn model(name: &str, backend: Backend) -> Model {
    let loaded = hf::load(&folder(name)).unwrap();
    let mut model = Model::with_backend(loaded.config(), 0, &Device::Cpu, backend).unwrap();
    let weights = loaded.params().read_weights(<[f32]>::to_vec).unwrap();
    let fill = |own: &mut [f32]| own.copy_from_slice(&weights);
    model.params_mut().write_weights(fill).unwrap();
    model
}

#[test]
fn losses_readings_and_gradients_match_trls() {
    let (metadata, tensors) = tensors_of("reward");
    let pad: u32 = metadata["pad"].parse().unwrap();
    for backend in [Backend::Fused, Backend::Composite] {
        for (name, coefficient) in [("plain", 0.0), ("full", 0.1)] {
            let mut model = model("reward", backend);
            assert_eq!(model.config().head, HeadKind::Score);
            let settings =
                serde_json::json!({"reward": {"center_rewards_coefficient": coefficient}});
            let method: MethodConfig = serde_json::from_value(settings).unwrap();
            let batch = batch(&tensors, pad, name == "full");
            let mut readings = Readings::default();
            let pairs = batch.groups() as f64;
            let loss = micro_step(&*method, &mut model, &batch, pairs, &mut readings).unwrap();
            let exact: serde_json::Value = serde_json::from_str(&metadata[name]).unwrap();
            let close = |id: &str, ours: f64, theirs: &serde_json::Value| {
                let theirs = theirs.as_f64().unwrap();
                assert!(
                    (ours - theirs).abs() <= TOLERANCE,
                    "{name} {id}: {ours} {theirs}"
                );
            };
            close("loss", loss, &exact["loss"]);
            close(
                "accuracy",
                readings.mean("rewards/accuracies").unwrap(),
                &exact["accuracy"],
            );
            close(
                "margin",
                readings.mean("rewards/margins").unwrap(),
                &exact["margin"],
            );
            for info in model.params().infos().to_vec() {
                let grad = model.params().grad(&info).unwrap();
                let mut grad: Vec<f32> = grad.flatten_all().unwrap().to_vec1().unwrap();
                if info.name == "model.embed_tokens.weight" {
                    // torch's embedding has no gradient at the padding token, at any position.
                    let d = info.shape[1];
                    grad[pad as usize * d..][..d].fill(0.0);
                }
                let name = format!("{name}.grad.{}", info.name);
                super::compare(&name, &grad, &values::<f32>(&tensors, &name));
            }
        }
    }
}

#[test]
fn scores_are_those_of_transformers_at_the_last_token_before_padding() {
    let (metadata, tensors) = tensors_of("reward");
    let pad: u32 = metadata["pad"].parse().unwrap();
    let ids = hf::token_ids(&folder("reward")).unwrap();
    assert_eq!(ids.pad, Some(pad));
    for (name, exact) in [("reward", "scores"), ("peft_reward", "peft_reward")] {
        let mut model = hf::load(&folder(name)).unwrap();
        let exact = values::<f32>(&tensors, exact);
        for ((ids, at), exact) in texts(&tensors, pad).iter().zip(exact) {
            let scores = model.logits(ids, 1, ids.len()).unwrap();
            assert_eq!(scores.dims(), [1, ids.len(), 1]);
            let scores: Vec<f32> = scores.flatten_all().unwrap().to_vec1().unwrap();
            assert!(
                (scores[*at] - exact).abs() < 1e-5,
                "{name}: {} {exact}",
                scores[*at]
            );
        }
    }
}

#[test]
fn an_adapter_of_peft_gives_its_logits() {
    let (_, tensors) = tensors_of("reward");
    let mut model = hf::load(&folder("peft_lm")).unwrap();
    let ids: Vec<Vec<u32>> = tensors["ids"].to_vec2().unwrap();
    let lengths = values::<u32>(&tensors, "lengths");
    for (row, (ids, len)) in ids.iter().zip(lengths).enumerate() {
        let len = len as usize;
        let ours = model
            .logits(&ids[..len], 1, len)
            .unwrap()
            .squeeze(0)
            .unwrap();
        let theirs = tensors["peft_lm"]
            .narrow(0, row, 1)
            .unwrap()
            .squeeze(0)
            .unwrap();
        let theirs: Vec<f32> = theirs
            .narrow(0, 0, len)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1()
            .unwrap();
        let ours: Vec<f32> = ours.flatten_all().unwrap().to_vec1().unwrap();
        super::compare("logits", &ours, &theirs);
    }
}
