//! Answers written by hand: which files a run's column takes, when numbers are set against each other, what a question shows.

use super::*;
use crate::tasks::questions;
use serde_json::json;
use std::fs;

/// A file of answers: a model, what it was asked (the digest), and each item's score.
fn answers(folder: &Path, model: &str, task: &str, digest: &str, scores: &[f64]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let file = folder.join(format!("{task}-{digest}.jsonl"));
    let head = json!({"task": task, "version": 1, "items": scores.len(), "digest": digest,
        "model": model, "fingerprint": "f", "llmtui": "0"});
    let lines = scores.iter().enumerate().map(|(item, score)| {
        let picked = if *score == 1.0 { -1.0 } else { -9.0 };
        json!({"item": item, "place": "p", "prompt": format!("question {item}"), "gold": 1, "scored": [
            {"text": " yes", "logp": -4.0, "tokens": 1, "greedy": false},
            {"text": " no", "logp": picked, "tokens": 1, "greedy": false}], "scores": {"acc": score}})
    });
    let lines: Vec<String> = [head]
        .into_iter()
        .chain(lines)
        .map(|l| format!("{l}\n"))
        .collect();
    fs::write(&file, lines.concat()).unwrap();
    file
}

fn run(dir: &Path, id: &str) -> PathBuf {
    let path = dir.join("runs").join(id);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("run.json"), "{}").unwrap();
    path
}

#[test]
fn runs_and_other_models_stand_side_by_side_with_paired_differences() {
    let dir = tempfile::tempdir().unwrap();
    let (evals, base) = (dir.path().join("evals"), run(dir.path(), "base-1"));
    let sft = run(dir.path(), "base-1-sft");
    let mut better = vec![0.0; 40];
    answers(
        &evals.join("base-1-step-9-aa"),
        "base-1 step-9",
        "yours",
        "d",
        &better,
    );
    better[..20].fill(1.0);
    answers(
        &evals.join("base-1-sft-step-5-bb"),
        "base-1-sft step-5",
        "yours",
        "d",
        &better,
    );
    // In training fewer rows were asked: they stand back behind those that both were asked.
    answers(
        &sft.join("evals/step-000005"),
        "base-1-sft step-000005",
        "yours",
        "few",
        &[1.0; 60],
    );
    let quant = evals.join("model-q4-cc");
    answers(&quant, "model-q4", "yours", "other", &[1.0, 0.0]);
    answers(&quant, "model-q4", "alone", "x", &[1.0, 1.0]);

    let found = table(
        &[base, sft, quant.clone()],
        std::slice::from_ref(&evals),
        &Env::default(),
    )
    .unwrap();
    assert_eq!(found.models, ["base-1", "base-1-sft", "model-q4"]);
    let tasks: Vec<_> = found.rows.iter().map(|row| row.task.as_str()).collect();
    assert_eq!(tasks, ["alone", "yours"]);
    let row = &found.rows[1];
    let cells: Vec<_> = row.cells.iter().map(|c| c.as_ref().unwrap()).collect();
    let values: Vec<_> = cells
        .iter()
        .map(|c| (c.reading.value, c.other_rows))
        .collect();
    assert_eq!(values, [(0.0, false), (0.5, false), (0.5, true)]);
    assert!(cells[0].against.is_none() && cells[2].against.is_none());
    let against = cells[1].against.as_ref().unwrap();
    assert_eq!((against.difference, against.flips.len()), (0.5, 20));
    assert!(against.p < 0.001, "{}", against.p);
    // What the first has not answered leaves its column empty.
    assert!(found.rows[0].cells[0].is_none() && found.rows[0].cells[2].is_some());
    let names: Vec<_> = models_in(&[evals]).into_iter().map(|m| m.0).collect();
    assert_eq!(names, ["base-1 step-9", "base-1-sft step-5", "model-q4"]);
}

#[test]
fn questions_show_what_each_model_chose_and_leave_other_rows_out() {
    let dir = tempfile::tempdir().unwrap();
    let evals = dir.path().join("evals");
    let (a, b, c) = (evals.join("a"), evals.join("b"), evals.join("c"));
    answers(&a, "a", "yours", "d", &[1.0, 0.0, 0.0]);
    answers(&b, "b", "yours", "d", &[0.0, 0.0, 1.0]);
    answers(&c, "c", "yours", "e", &[1.0]);
    let found = table(&[a, b, c], &[], &Env::default()).unwrap();
    let asked = questions(&found.rows[0]).unwrap();
    assert_eq!(asked.len(), 3);
    assert_eq!(
        (asked[0].prompt.as_str(), asked[0].target.as_str()),
        ("question 0", " no")
    );
    let flips: Vec<_> = asked.iter().map(|q| q.flip(1)).collect();
    assert_eq!(flips, [Some(false), None, Some(true)]);
    let given = asked[0].given[0].as_ref().unwrap();
    assert_eq!((given.text.as_str(), given.right()), (" no", Some(true)));
    assert_eq!(asked[0].given[1].as_ref().unwrap().text, " yes");
    assert!(asked.iter().all(|q| q.given[2].is_none()));
}

#[test]
fn answers_that_are_not_whole_are_not_in_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a");
    let file = answers(&folder, "a", "yours", "d", &[1.0, 1.0, 1.0]);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 9]).unwrap();
    assert!(
        table(std::slice::from_ref(&folder), &[], &Env::default())
            .unwrap()
            .rows
            .is_empty()
    );
    fs::write(&file, "{\"half").unwrap();
    assert_eq!(models_in(&[dir.path().to_path_buf()]), []);
}

/// Answers to a task by its path, in the table of two models: its metric and the numbers.
fn by_path(yaml: &str, scores: &serde_json::Value) -> (String, Vec<f64>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.yaml");
    let whole = format!("version: 1\nsummary: s\nsource: rows.jsonl\nprompt: p\n{yaml}");
    fs::write(&file, whole).unwrap();
    let name = yaml.split([' ', '\n']).nth(1).unwrap();
    let folders = ["a", "b"].map(|model| {
        let folder = dir.path().join(model);
        fs::create_dir(&folder).unwrap();
        let head = json!({"task": name, "version": 1, "items": 1, "digest": "d", "model": model,
            "fingerprint": "f", "llmtui": "0", "file": file});
        let line = json!({"item": 0, "place": "p", "prompt": "q", "scores": scores});
        fs::write(folder.join("own.jsonl"), format!("{head}\n{line}\n")).unwrap();
        folder
    });
    let found = table(&folders, &[], &Env::default()).unwrap();
    let row = &found.rows[0];
    let values = row.cells.iter().flatten().map(|cell| cell.reading.value);
    (row.metric.clone(), values.collect())
}

#[test]
fn a_task_by_its_path_has_the_metric_of_its_file() {
    let answer = "name: two\nkind: answer\ntarget: t\nheadline: zeta\n\
                  answer: {extract: [{name: alpha}, {name: zeta}]}\n";
    let two = by_path(answer, &json!({"alpha": 0.0, "zeta": 1.0}));
    assert_eq!(two, ("zeta".into(), vec![1.0; 2]));
    // 8 bits of loss over 4 bytes.
    let scores = json!({"logp": -8.0 * std::f64::consts::LN_2, "tokens": 2.0, "bytes": 4.0});
    for yaml in [
        "name: texts\nkind: text\n",
        // As much is known of one whose file is not a task any more.
        "name: gone\nkind: none\n",
    ] {
        let (metric, values) = by_path(yaml, &scores);
        assert_eq!(metric, "bits_per_byte", "{yaml}");
        assert!(values.iter().all(|bits| (bits - 2.0).abs() < 1e-12) && values.len() == 2);
    }
    // A shipped task of the same name and version is another one.
    let own = "name: piqa\nkind: answer\ntarget: t\nanswer: {extract: [{name: mine}]}\n";
    let own = by_path(own, &json!({"mine": 1.0, "acc": 0.0}));
    assert_eq!(own, ("mine".into(), vec![1.0; 2]));
}
