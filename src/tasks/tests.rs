//! Against lm-evaluation-harness: `tests/oracle/tasks_oracle.py` made the rows, the model and the expectations.

use super::config::Kind;
use super::items::{Asked, Item};
use super::*;
use crate::data::source::{ReadContext, SourceConfig};
use crate::data::tokenizer;
use crate::models::ModelSource;
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/tasks")
}

fn expected() -> Value {
    let text = std::fs::read_to_string(oracle().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn subject() -> Loaded {
    let path = oracle().join("model");
    let source = ModelSource::open(&path).unwrap();
    // The fixture is ours: no child process is needed to read it.
    let json = std::fs::read_to_string(path.join("tokenizer.json")).unwrap();
    let marks = tokenizer::Marks {
        bos: Some("<s>".into()),
        eos: Some("</s>".into()),
        ..Default::default()
    };
    let tokenizer = tokenizer::Tokenizer::from_json(&json).unwrap();
    Loaded::load(&source, tokenizer.with_marks(marks).unwrap()).unwrap()
}

/// A shipped task on the rows of the fixture.
fn made(name: &str) -> Prepared {
    let rows = |split: &str| {
        let file = oracle().join(format!("rows/{name}-{split}.jsonl"));
        SourceConfig::path(file.to_string_lossy())
    };
    let mut task = load(name, None).unwrap();
    task.config.source = rows("test");
    if let Some(shots) = &mut task.config.shots {
        shots.source = rows("dev");
    }
    task.prepare(None, &ReadContext::default()).unwrap()
}

fn answered(prepared: &Prepared, folder: &Path) -> Outcome {
    let request = Request {
        prepared,
        folder,
        model: "tiny",
        fingerprint: "f",
    };
    let mut run = Run::open(request).unwrap();
    if !run.is_whole() {
        run.ask(&mut subject().subject(), &mut |_| ControlFlow::Continue(()))
            .unwrap();
    }
    run.finish()
}

const TASKS: [&str; 8] = [
    "arc_easy",
    "hellaswag",
    "winogrande",
    "boolq",
    "lambada",
    "mmlu",
    "piqa",
    "openbookqa",
];

#[test]
fn prompts_log_likelihoods_and_accuracies_are_those_of_the_harness() {
    let expected = expected();
    let dir = tempfile::tempdir().unwrap();
    for name in TASKS {
        let prepared = made(name);
        let outcome = answered(&prepared, dir.path());
        let items = expected[name]["items"].as_array().unwrap();
        assert_eq!(outcome.records.len(), items.len(), "{name}");
        for (record, item) in outcome.records.iter().zip(items) {
            let asked: Vec<(String, String)> =
                serde_json::from_value(item["arguments"].clone()).unwrap();
            for (at, (context, continuation)) in asked.iter().enumerate() {
                let own = record.prompts.get(at).unwrap_or(&record.prompt);
                assert_eq!(own, context, "{name} {}", record.place);
                assert_eq!(&record.scored[at].text, continuation, "{name}");
                let logp = item["logps"][at].as_f64().unwrap();
                let off = (record.scored[at].logp - logp).abs();
                assert!(off < 1e-4, "{name} {}: {off}", record.place);
                let greedy = item["greedy"][at].as_bool().unwrap();
                assert_eq!(record.scored[at].greedy, greedy, "{name}");
            }
            for metric in ["acc", "acc_norm"] {
                if let Some(value) = item.get(metric) {
                    assert_eq!(record.scores[metric], value.as_f64().unwrap(), "{name}");
                }
            }
        }
        let summary = summarize(prepared.task.config(), &outcome.records);
        for (metric, value) in expected[name]["results"].as_object().unwrap() {
            let of_all = |r: &&Reading| r.group.is_none() && &r.metric == metric;
            let Some(reading) = summary.readings.iter().find(of_all) else {
                continue;
            };
            let value = value.as_f64().unwrap();
            assert!(
                (reading.value - value).abs() < 1e-4 * value.max(1.0),
                "{name} {metric}"
            );
            if let Some(stderr) = expected[name]["stderr"][metric].as_f64() {
                assert!(
                    (reading.stderr.unwrap() - stderr).abs() < 1e-9,
                    "{name} {metric}"
                );
            }
        }
    }
}

#[test]
fn answers_of_gsm8k_are_found_as_the_harness_finds_them() {
    let task = load("gsm8k", None).unwrap();
    for case in expected()["gsm8k"].as_array().unwrap() {
        let said = |key: &str| case[key].as_str().unwrap().to_string();
        let item = Item {
            number: 0,
            place: String::new(),
            group: None,
            asked: Asked::Answer {
                prompt: String::new(),
                target: said("target"),
            },
        };
        let record = answers::judged(&task, &item, said("answer"), 0);
        assert_eq!(record.scores["strict"], case["strict-match"], "{case}");
        assert_eq!(
            record.scores["flexible"], case["flexible-extract"],
            "{case}"
        );
    }
}

#[test]
fn what_was_broken_off_goes_on_and_nothing_is_asked_twice() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = made("piqa");
    let first = answered(&prepared, dir.path());
    assert_eq!((first.kept, first.records.len()), (0, 10));
    let text = std::fs::read_to_string(&first.file).unwrap();
    let kept: String = text.split_inclusive('\n').take(5).collect();
    std::fs::write(&first.file, kept + "{\"item\":").unwrap();
    let second = answered(&prepared, dir.path());
    assert_eq!(second.kept, 4);
    let scores = |o: &Outcome| {
        o.records
            .iter()
            .map(|r| r.scores.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(scores(&first), scores(&second));
    assert_eq!(answered(&prepared, dir.path()).kept, 10);
}

#[test]
fn made_up_tasks_are_answered_by_any_model() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "made_arithmetic",
        "made_sort",
        "made_recall",
        "made_needle_256",
    ] {
        let prepared = load(name, None).unwrap();
        let prepared = prepared.prepare(Some(5), &ReadContext::default()).unwrap();
        let outcome = answered(&prepared, dir.path());
        assert_eq!(outcome.records.len(), 5, "{name}");
        let summary = summarize(prepared.task.config(), &outcome.records);
        assert_eq!(summary.headline().unwrap().n, 5);
        // Lists of 256 pairs are longer than the model's context.
        assert_eq!(summary.cut, if name == "made_needle_256" { 5 } else { 0 });
        if prepared.task.config().kind == Kind::Answer {
            assert!(outcome.records.iter().all(|r| r.answer.is_some()));
        }
    }
}

#[test]
fn a_text_is_read_in_windows_and_each_of_its_tokens_is_predicted_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = "the red dog runs under the tree. ".repeat(40);
    let file = dir.path().join("rows.jsonl");
    std::fs::write(&file, format!("{}\n", serde_json::json!({"page": text}))).unwrap();
    let mut task = load("wikitext", None).unwrap();
    task.config.source = SourceConfig::path(file.to_string_lossy());
    let prepared = task.prepare(None, &ReadContext::default()).unwrap();
    let outcome = answered(&prepared, dir.path());
    let scores = &outcome.records[0].scores;
    let tokens = subject().subject().tokenizer.encode(&text).unwrap().len();
    assert!(tokens > 320, "{tokens} tokens are fewer than two windows");
    assert_eq!(
        (scores["tokens"], scores["bytes"]),
        (tokens as f64, text.len() as f64)
    );
    let summary = summarize(prepared.task.config(), &outcome.records);
    let bits = -scores["logp"] / std::f64::consts::LN_2 / text.len() as f64;
    assert!((summary.headline().unwrap().value - bits).abs() < 1e-9);
}

#[test]
fn what_cannot_be_had_is_said_with_its_task() {
    let error = load("arc_easy", None)
        .unwrap()
        .prepare(None, &ReadContext::default());
    let error = error.unwrap_err();
    assert!(error.to_string().contains("arc_easy"), "{error}");
    assert!(!error.hint().is_empty());
}
