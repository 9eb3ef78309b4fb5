//! Reward models: training, saving, loading and use. And the usual stages in sequence, each improving its own objective.

use super::*;
use crate::engine::eval::measure::{EvalScope, Evaluation, evaluate};
use crate::engine::infer::LoadedModel;
use crate::engine::roles::Models;
use crate::hf;
use crate::nn::HeadKind;
use crate::rewards::{Answer, Reference, Scorer, WeightedReward};
use serde_json::json;

/// What all runs here share: a model of 30,000 parameters on lists of five to seven digits.
const COMMON: &str = "model: {n_layer: 2, n_head: 4, d_model: 48, seq_len: 40, position: rope, norm: rmsnorm, mlp: swiglu}
train: {max_steps: 100, micro_batch_size: 16, clip_norm: 1.0, threads: 2, precision: f32}
optimizer: {adamw: {lr: 0.004, beta2: 0.99, weight_decay: 0.0}}
schedule: {cosine: {warmup_steps: 10}}
eval: {every: 50, batches: 4}
sample: {every: 0}
checkpoint: {every: 0, keep_last: 2}
preflight: {enabled: false}
";

/// Lists to put in order, as rows of a shape.
pub(super) fn data(shape: &str, descending: bool) -> String {
    let sort = format!("{{min_length: 5, max_length: 7, max_value: 9, descending: {descending}}}");
    format!(
        "data: {{sources: [{{synthetic: {{sort: {sort}}}, as: {shape}, rows: 2000}}], val_fraction: 0.1}}\n"
    )
}

pub(super) fn spec_of(text: &str, words: &[String]) -> RunSpec {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.yaml");
    std::fs::write(&path, format!("{text}{COMMON}")).unwrap();
    let loaded = load(&path.display().to_string(), words, &SpecSources::default());
    loaded.unwrap_or_else(|e| panic!("{e}")).spec
}

/// A run that came to its end, with its events.
pub(super) fn trained(text: &str, words: &[&str]) -> (Run, Vec<Event>) {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let mut run = Run::new(&["max_steps=1"]);
    run.job.spec = spec_of(text, &words);
    let events = run.go();
    assert_eq!(finished(&events).0, Outcome::Completed, "{events:?}");
    (run, events)
}

/// The last checkpoint of a run.
pub(super) fn last(run: &Run) -> std::path::PathBuf {
    run.checkpoint(run.job.spec.train.max_steps)
}

/// What the model of a folder comes to by a spec's method on its held-out rows; a method without a reference.
fn measured(spec: &RunSpec, folder: &Path) -> Evaluation {
    let data = spec.open_data(&DataEnv::default()).unwrap();
    let mut models = Models::alone(hf::load(folder).unwrap());
    let how = (1, 16);
    let found = evaluate(
        &*spec.method,
        &mut models,
        &data,
        how,
        EvalScope::Whole,
        &mut || false,
    );
    found.unwrap().unwrap()
}

fn held_out(events: &[Event], id: &str) -> f64 {
    let found = events.iter().rev().find_map(|event| match event {
        Event::Evaluated { values, .. } => values.get(id),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no {id}")).0
}

#[test]
fn pairs_are_counted_as_examples() {
    let text = format!("method: orpo\n{}", data("preference", false));
    let spec = spec_of(&text, &[]);
    let data = spec.open_data(&DataEnv::default()).unwrap();
    let mut models = TrainState::fresh(&spec, &data).unwrap().models;
    let mut read = |extent| {
        let how = (1, 16);
        let found = evaluate(&*spec.method, &mut models, &data, how, extent, &mut || {
            false
        });
        found.unwrap().map(|found| (found.n_windows, found.whole))
    };
    let all = data.val_windows() as u64;
    assert_eq!(read(EvalScope::Whole), Some((all, true)));
    assert_eq!(read(EvalScope::Batches(2)), Some((32, false)));
}

/// A stop while the reference is computed keeps what there is; a resume goes on from it, and computes nothing again.
#[test]
fn a_precomputed_reference_is_kept_in_the_runs_folder() {
    let text = format!("method: dpo\n{}", data("preference", false));
    let words = ["method.dpo.reference=precomputed", "max_steps=4"];
    let run = || {
        let mut run = Run::new(&["max_steps=1"]);
        run.job.spec = spec_of(&text, &words.map(String::from));
        run
    };
    let told = |events: &[Event]| {
        let of = |e: &Event| match e {
            Event::Noted { text, .. } => text.strip_prefix("reference: ").map(str::to_string),
            _ => None,
        };
        events.iter().filter_map(of).collect::<Vec<_>>()
    };
    let losses = |events: &[Event]| {
        let of = |e: &Event| match e {
            Event::Stepped { values, .. } => values.get("train/loss").map(|x| x.0.to_bits()),
            _ => None,
        };
        events.iter().filter_map(of).collect::<Vec<_>>()
    };
    let whole = run().go();
    let (all, last) = (told(&whole), losses(&whole));
    assert_eq!(all, ["computing log-probabilities of 2,000 examples"]);
    let stopped = run();
    let first = stopped.go_with(&mut |event, _, stop| {
        if let Event::Noted { text, .. } = event {
            let begun = text.starts_with("reference: ");
            stop.fetch_or(begun, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert_eq!(finished(&first).0, Outcome::Stopped, "{first:?}");
    let second = stopped.resumed();
    assert_eq!(
        told(&second),
        ["computing log-probabilities of 2,000 examples, 16 of which reference.json.zst has"]
    );
    assert!(!last.is_empty() && losses(&second) == last);
    let third = stopped.resumed();
    assert_eq!(told(&third), ["reference.json.zst has all 2,000 examples"]);
}

/// A reading that stands still is no gain: of equal evaluations the later is the best, and patience ends.
#[test]
fn patience_ends_where_the_reading_stands_still() {
    let text = format!("method: reward\n{}", data("preference", false));
    let words = ["eval.every=4", "eval.patience=2", "lr=1e-9", "min_lr=0"];
    let mut run = Run::new(&["max_steps=1"]);
    run.job.spec = spec_of(&text, &words.map(String::from));
    let (outcome, step, message) = finished(&run.go());
    assert_eq!(
        (outcome, step),
        (Outcome::Completed, 12),
        "the first evaluation and two that are as good"
    );
    assert!(
        message.starts_with("early stopping: 2 evaluations in a row"),
        "{message}"
    );
}

/// A margin is between the rewards of both kinds of answers: no checkpoint was ever the best, and patience never ended.
#[test]
fn held_out_answers_of_one_label_are_warned_of_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, labels: [bool; 2]| {
        let row = |i: usize| json!({"prompt": format!("say {i}"), "completion": format!("{}", i % 7), "label": labels[i % 2]});
        let lines: Vec<String> = (0..40).map(|i| row(i).to_string()).collect();
        let path = dir.path().join(name);
        std::fs::write(&path, lines.join("\n")).unwrap();
        path.display().to_string()
    };
    let train = file("train.jsonl", [true, false]);
    let warned = |val: String| {
        let words = [
            "method=kto".to_string(),
            format!("data.path={train}"),
            format!("data.val_path={val}"),
        ];
        let rest = [
            "model.seq_len=48",
            "train.micro_batch_size=4",
            "train.max_steps=6",
            "eval.every=2",
            "eval.patience=1",
            "sample.every=0",
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).chain(rest).collect();
        let events = Run::new(&words).go();
        let said = events.iter().filter_map(|event| match event {
            Event::Warned {
                code,
                message,
                hint,
                ..
            } if code == "best_by" => Some(format!("{message}; {hint}")),
            _ => None,
        });
        said.collect::<Vec<_>>()
    };
    let told = warned(file("one.jsonl", [true, true]));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("val/rewards/margins")
            && told[0].contains("both labels")
            && told[0].contains("val/loss"),
        "{told:?}"
    );
    assert!(warned(file("both.jsonl", [true, false])).is_empty());
}

/// The log called a checkpoint the best so far that was worse than one which nobody had saved.
#[test]
fn the_best_by_the_methods_own_reading_is_saved_when_it_is_found() {
    let text = format!("method: reward\n{}", data("preference", false));
    let words = ["max_steps=24", "eval.every=3", "checkpoint.every=8"];
    let (run, events) = trained(&text, &words);
    let mut best = f64::NEG_INFINITY;
    let mut saved = 0;
    for event in &events {
        match event {
            Event::Evaluated { values, .. } => {
                best = best.max(values["val/rewards/accuracies"].0);
            }
            Event::Checkpointed { best: true, by, .. } => {
                // With the reading that decides.
                let by = by.as_ref().unwrap();
                assert_eq!(by.metric, "val/rewards/accuracies");
                saved += 1;
            }
            _ => {}
        }
    }
    let Some(Event::Finished { best: Some(by), .. }) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!(by.value.0, best);
    assert!(run.kept().contains(&by.step) && saved > 0, "{by:?}");
    let last = events.iter().rev().find_map(|event| match event {
        Event::Checkpointed {
            step, best: true, ..
        } => Some(*step),
        _ => None,
    });
    assert_eq!(last, Some(by.step));

    // What evaluations of pairs never measure is not declared, and a loss is called what it is.
    let declared = events.iter().find_map(|event| match event {
        Event::MetricsDeclared { metrics } => Some(metrics),
        _ => None,
    });
    let declared = declared.unwrap();
    let info = |id: &str| declared.iter().find(|info| info.id == id);
    for id in ["val/ppl", "val/bpb", "val/mean_token_accuracy"] {
        assert!(info(id).is_none(), "{id}");
    }
    for id in ["train/loss", "val/loss"] {
        let source = &info(id).unwrap().source;
        assert!(source.contains("loss of method reward"), "{source}");
    }
}

#[test]
fn a_reward_model_learns_is_saved_read_back_and_rewards_answers() {
    let text = format!("method: reward\n{}", data("preference", false));
    let (run, events) = trained(&text, &[]);
    let accuracy = held_out(&events, "val/rewards/accuracies");
    let by_length = held_out(&events, "val/rewards/length_accuracies");
    assert!(
        accuracy > by_length + 0.3,
        "{accuracy} and {by_length} by length"
    );
    assert!(held_out(&events, "val/rewards/margins") > 0.5);
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, Event::Sampled { .. }))
    );

    // A folder of transformers, which holds the same scores.
    let folder = last(&run);
    let config = std::fs::read(folder.join(hf::CONFIG)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(
        config["architectures"],
        json!(["LlamaForSequenceClassification"])
    );
    assert_eq!(
        (
            &config["num_labels"],
            hf::read_config(&folder).unwrap().head
        ),
        (&json!(1), HeadKind::Score)
    );
    let again = measured(&run.job.spec, &folder);
    assert!((again.loss - held_out(&events, "val/loss")).abs() < 1e-5);

    // It judges and does not write.
    let refused = LoadedModel::load(&folder).err().unwrap();
    assert!(
        refused.to_string().contains("is a reward model"),
        "{refused}"
    );
    assert!(refused.hint().contains("llmtui score"));
    let words = [format!("train.from={}", folder.display())];
    let text = format!("method: sft\n{}{COMMON}", data("completion", false));
    let path = folder.join("sft.yaml");
    std::fs::write(&path, text).unwrap();
    let refused = load(&path.display().to_string(), &words, &SpecSources::default()).unwrap_err();
    assert!(refused.to_string().contains("reward model"), "{refused}");

    rewards_answers(&folder);
}

/// The model as a reward: right answers are worth more, whatever stands in the batch beside them.
fn rewards_answers(folder: &Path) {
    let reward = |batch: usize| -> WeightedReward {
        let settings = json!({"model": {"path": folder, "batch": batch}});
        serde_json::from_value(settings).unwrap()
    };
    let answer = |prompt: &str, text: &str| Answer {
        prompt: prompt.into(),
        text: text.into(),
        tokens: text.len(),
        ended: true,
        behind: None,
        thinking: None,
        reference: Reference::default(),
    };
    let answers = [
        answer("sort 5 2 9 1 4=", "1 2 4 5 9"),
        answer("sort 5 2 9 1 4=", "5 2 1 9 4"),
        answer("sort 3 3 8 0 7 1=", "0 1 3 3 7 8"),
        answer("sort 3 3 8 0 7 1=", "8 0 3 7 3 1"),
    ];
    let scores = |batch| {
        let scores = Scorer::new(&[reward(batch)]).score(&answers).unwrap();
        scores[0].values.clone()
    };
    let (one, all) = (scores(1), scores(4));
    assert!(one[0] > one[1] && one[2] > one[3], "{one:?}");
    for (a, b) in one.iter().zip(&all) {
        assert!((a - b).abs() < 1e-5, "{one:?} {all:?}");
    }

    let text = format!(
        "method: grpo\nrewards: [{{model: {{path: '{}'}}, name: judge}}, {{exact: {{}}, weight: 0}}]\nrollout: {{group_size: 4, max_new_tokens: 16}}\n{}",
        folder.display(),
        data("prompt", false),
    );
    let (_, events) = trained(&text, &["max_steps=2"]);
    let judged = events.iter().find_map(|event| match event {
        Event::Stepped { values, .. } => values.get("rewards/judge/mean").copied(),
        _ => None,
    });
    assert!(judged.unwrap().0.is_finite());

    // A damaged file of its is found before the first answer.
    let weights = folder.join(hf::WEIGHTS);
    let whole = std::fs::read(&weights).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, &damaged).unwrap();
    let mut run = Run::new(&["max_steps=1"]);
    run.job.spec = spec_of(&text, &["max_steps=1".to_string()]);
    let (outcome, _, why) = finished(&run.go());
    assert_eq!(outcome, Outcome::Invalid, "{why}");
    assert!(
        why.contains("reward model") && why.contains(hf::WEIGHTS),
        "{why}"
    );
    std::fs::write(&weights, &whole).unwrap();

    let wrong: WeightedReward =
        serde_json::from_value(json!({"model": {"path": "no/such/folder"}})).unwrap();
    let error = Scorer::new(&[wrong])
        .score(&answers)
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not exist"), "{error}");
}

#[test]
fn a_reward_model_begins_at_a_model_that_writes_and_with_adapters_resumes_to_the_bit() {
    let (base, _) = trained(
        &format!("method: pretrain\n{}", data("text", false)),
        &["max_steps=10"],
    );
    let text = format!(
        "method: {{reward: {{center_rewards_coefficient: 0.01}}}}\n{}",
        data("preference", false)
    );
    let from = format!("train.from={}", last(&base).display());
    let words = [
        &*from,
        "max_steps=12",
        "adapter.lora.rank=4",
        "checkpoint.every=6",
    ];
    let (straight, events) = trained(&text, &words);
    let mut parted = Run::new(&["max_steps=1"]);
    parted.job.spec = straight.job.spec.clone();
    parted.job.stop_after = Some(7);
    let (first, second) = (parted.go(), parted.resumed());
    let logs = (loss_log(&[&events]), loss_log(&[&first, &second]));
    assert!(logs.0 == logs.1, "losses differ");
    // The score trains with the adapters and lies beside them; both are read back.
    let config = std::fs::read(last(&straight).join(hf::ADAPTER_CONFIG)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(
        (&config["task_type"], &config["modules_to_save"]),
        (&json!("SEQ_CLS"), &json!(["score"]))
    );
    let again = measured(&straight.job.spec, &last(&straight));
    let logged = held_out(&events, "val/loss");
    assert!(
        (again.loss - logged).abs() < 1e-5,
        "{} {logged}",
        again.loss
    );
    let moved = |step| {
        let model = hf::load(&straight.checkpoint(step)).unwrap();
        let info = model
            .params()
            .base()
            .iter()
            .find(|i| i.name == "score.weight")
            .unwrap()
            .clone();
        model
            .params()
            .weight(&info)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f32>()
            .unwrap()
    };
    assert_ne!(moved(6), moved(12), "the score is frozen");
}

#[test]
fn each_stage_is_better_at_its_own_goal_than_the_one_before() {
    // Text, then answers alone, then answers the other way round.
    let (text, events) = trained(
        &format!("method: pretrain\n{}", data("text", false)),
        &["max_steps=60"],
    );
    let first = events.iter().find_map(|event| match event {
        Event::Stepped { values, .. } => values.get("train/loss").or(values.get("loss")).copied(),
        _ => None,
    });
    let guessing = (text
        .job
        .spec
        .open_data(&DataEnv::default())
        .unwrap()
        .tokenizer
        .vocab_size() as f64)
        .ln();
    let pretrained = held_out(&events, "val/loss");
    assert!(
        pretrained < 0.75 * guessing,
        "{pretrained} {first:?}, guessing {guessing}"
    );

    let from = format!("train.from={}", last(&text).display());
    let (answers, _) = trained(
        &format!("method: sft\n{}", data("completion", false)),
        &[&from, "max_steps=80"],
    );
    let of_answers = |run: &Run| measured(&answers.job.spec, &last(run)).loss;
    let (before, after) = (of_answers(&text), of_answers(&answers));
    assert!(after < 0.8 * before, "{before} {after}");

    let from = format!("train.from={}", last(&answers).display());
    let preference = data("preference", true);
    let (preferred, events) = trained(
        &format!("method: dpo\n{preference}"),
        &[&from, "max_steps=60", "lr=1e-3"],
    );
    let accuracy = held_out(&events, "val/rewards/accuracies");
    // How often the preferred answer is the more probable one.
    let ranks = spec_of(&format!("method: cpo\n{preference}"), &[from]);
    let right = |run: &Run| {
        measured(&ranks, &last(run))
            .readings
            .mean("rewards/accuracies")
            .unwrap()
    };
    let (before, after) = (right(&answers), right(&preferred));
    assert!(
        accuracy > 0.8 && after > before + 0.2,
        "{accuracy}; {before} {after}"
    );
}
