//! `trainer_state.json` of transformers, as its `TrainerState` reads it: names are those of transformers and TRL. Readings of the
//! machine and of blocks are no part of it.

use super::curves::{Kind, Record};
use super::{Body, Curves, Format};
use crate::base::num::Num;
use crate::base::registry::Entry;
use crate::watch::{NUM_TOKENS, in_transformers};
use crate::wire::{Best, Direction, id};
use serde_json::{Map, Value, json};

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "trainer_state",
        title: "Hugging Face Trainer",
        summary: "trainer_state.json of transformers and TRL, with their names",
        source: "transformers, trainer_callback.py: TrainerState",
    },
    is: |name| name.ends_with(".json"),
    body: Body::Whole(state),
};

fn state(curves: &Curves) -> Vec<u8> {
    let state = &curves.state;
    let head = state.head.as_ref();
    let records = curves.records().iter();
    let of_training = |record: &&Record| matches!(record.kind, Kind::Step | Kind::Evaluation);
    let entries: Vec<Value> = records
        .filter(of_training)
        .map(|r| entry(curves, r))
        .collect();
    let best = best(curves);
    let value = json!({
        "best_metric": best.as_ref().map(|best| best.value),
        "best_model_checkpoint": best.as_ref().and_then(|best| checkpoint(curves, best)),
        "epoch": Num(state.epochs().unwrap_or(0.0)),
        "global_step": state.step,
        "is_hyper_param_search": false,
        "is_local_process_zero": true,
        "is_world_process_zero": true,
        "log_history": entries,
        "max_steps": head.map_or(0, |head| head.max_steps),
        "num_input_tokens_seen": state.tokens,
        "num_train_epochs": epochs(curves),
        "total_flos": 0,
        "trial_name": null,
        "trial_params": null,
    });
    let mut bytes = serde_json::to_vec_pretty(&value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn entry(curves: &Curves, record: &Record) -> Value {
    let held_out = record.kind == Kind::Evaluation;
    let mut entry = Map::new();
    if let Some(tokens) = record.tokens.filter(|_| !held_out) {
        entry.insert(NUM_TOKENS.into(), json!(tokens));
    }
    if let Some(epoch) = record.epoch {
        entry.insert(in_transformers(id::EPOCHS, held_out), json!(Num(epoch)));
    }
    for (column, x) in &record.values {
        let name = in_transformers(curves.id(*column), held_out);
        entry.insert(name, json!(Num(*x)));
    }
    // It is the axis, whatever metrics are called.
    entry.insert("step".into(), json!(record.step));
    Value::Object(entry)
}

/// The best evaluation: as the run says at its end, with a checkpoint, or by the validation loss so far.
fn best(curves: &Curves) -> Option<Best> {
    let state = &curves.state;
    let said = state.finished.as_ref().and_then(|end| end.best.clone());
    let kept = || {
        let kept = state.checkpoints.iter().rev().filter(|mark| mark.best);
        kept.filter_map(|mark| mark.by.clone()).next()
    };
    said.or_else(kept).or_else(|| {
        let lowest = state.best_evaluation()?;
        Some(Best {
            step: lowest.step,
            metric: id::VAL_LOSS.into(),
            value: Num(lowest.val_loss()),
            direction: Direction::Lower,
        })
    })
}

/// The checkpoint of the best evaluation, where one was saved.
fn checkpoint(curves: &Curves, best: &Best) -> Option<String> {
    let marks = curves.state.checkpoints.iter().rev();
    let mark = marks.clone().find(|mark| mark.step == best.step);
    let mark = mark.or_else(|| marks.clone().find(|mark| mark.best))?;
    let path = match &curves.root {
        Some(root) => root.join(&mark.path).display().to_string(),
        None => mark.path.clone(),
    };
    Some(path)
}

/// Passes over the data that the training takes, the last one begun counted: a whole number, as transformers has it.
fn epochs(curves: &Curves) -> u64 {
    let state = &curves.state;
    let (so_far, share) = (state.epochs().unwrap_or(0.0), state.progress());
    let all = match share {
        Some(share) if share > 0.0 => so_far / share,
        _ => so_far,
    };
    all.ceil() as u64
}
