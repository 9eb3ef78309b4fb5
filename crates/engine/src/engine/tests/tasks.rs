//! `eval.tasks`: evaluated before the first step, at their interval and at the end; answers are kept; a resume repeats none.

use super::*;

/// A task on characters of the embedded corpus, and its word for a spec.
fn task(dir: &std::path::Path) -> String {
    let rows: Vec<String> = ["the k", "my lor", "thou a"]
        .iter()
        .map(|text| format!("{{\"q\": \"{}\", \"a\": \"{}\"}}", &text[..3], &text[3..]))
        .collect();
    std::fs::write(dir.join("rows.jsonl"), rows.join("\n")).unwrap();
    let file = dir.join("mine.yaml");
    let text = format!(
        "name: mine\nversion: 1\nsummary: s\nkind: continuation\nsource: {}\nprompt: '{{{{ q }}}}'\ntarget: '{{{{ a }}}}'\ndelimiter: ''\n",
        dir.join("rows.jsonl").display()
    );
    std::fs::write(&file, text).unwrap();
    format!("eval.tasks=[{}]", file.display())
}

/// Steps and values of the task.
fn asked(events: &[Event]) -> Vec<(u64, f64)> {
    let of = |event: &Event| match event {
        Event::Evaluated { step, values, .. } => Some((*step, values.get("eval/mine")?.0)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn tasks_are_asked_at_their_beat_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        &task(dir.path()),
        "eval.task_every=4",
        "max_steps=10",
        "checkpoint.every=4",
    ];
    let whole = Run::new(&words);
    let events = whole.go();
    let steps: Vec<u64> = asked(&events).iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [0, 4, 8, 10], "{events:?}");
    let declared = |event: &Event| match event {
        Event::MetricsDeclared { metrics } => metrics.iter().any(|m| m.id == "eval/mine"),
        _ => false,
    };
    let first = events.iter().position(declared).unwrap();
    let value = |event: &Event| !asked(std::slice::from_ref(event)).is_empty();
    assert!(first < events.iter().position(value).unwrap());
    assert!(
        asked(&events)
            .iter()
            .all(|(_, share)| (0.0..=1.0).contains(share))
    );
    let folders = std::fs::read_dir(whole.job.run_dir.path().join("evals")).unwrap();
    assert_eq!(folders.count(), 4);

    let mut stopped = Run::new(&words);
    stopped.job.stop_after = Some(4);
    let before = asked(&stopped.go());
    let after = asked(&stopped.resumed());
    assert_eq!(
        [before, after].concat(),
        asked(&events),
        "step 4 is not asked again"
    );
}

/// A reward may be any number; only what says right or wrong is a share.
#[test]
fn a_score_is_a_share_only_where_it_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let row = "{\"q\": \"the k\", \"answer\": \"ing\"}\n";
    std::fs::write(dir.path().join("rows.jsonl"), row).unwrap();
    let unit = |rest: &str| {
        let file = dir.path().join("mine.yaml");
        let text = format!(
            "name: mine\nversion: 1\nsummary: s\nsource: rows.jsonl\nprompt: '{{{{ q }}}}'\n{rest}\n"
        );
        std::fs::write(&file, text).unwrap();
        let word = format!("eval.tasks=[{}]", file.display());
        let events = Run::new(&[&word, "max_steps=1"]).go();
        let metrics = events.iter().flat_map(|event| match event {
            Event::MetricsDeclared { metrics } => metrics.clone(),
            _ => Vec::new(),
        });
        let found = metrics.into_iter().find(|m| m.id == "eval/mine");
        found.unwrap_or_else(|| panic!("{events:?}")).unit
    };
    let program = "kind: answer\nanswer: {max_new_tokens: 2, rewards: [{command: {run: 'while read x; do echo 7.5; done'}}]}";
    assert_eq!(unit(program), "");
    let sum = "kind: answer\ntarget: x\nanswer: {max_new_tokens: 2, rewards: [{exact: {}, name: a}, {regex: {pattern: x}, name: b}]}";
    assert_eq!(unit(sum), "");
    let halves = sum.replace("name: a", "name: a, weight: 0.5");
    let halves = halves.replace("name: b", "name: b, weight: 0.5");
    assert_eq!(unit(&halves), "share");
    let strict = "kind: answer\ntarget: x\nheadline: strict\nanswer: {max_new_tokens: 2, extract: [{name: strict}]}";
    assert_eq!(unit(strict), "share");
    assert_eq!(
        unit("kind: continuation\ntarget: ing\nheadline: perplexity"),
        ""
    );
}

/// Validation is never evaluated before the end; the task decides, and stands still.
#[test]
fn patience_ends_where_the_task_that_decides_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        &task(dir.path()),
        "eval.best_by=eval/mine",
        "eval.task_every=2",
        "eval.patience=2",
        "eval.every=0",
        "max_steps=10",
        "lr=1e-9",
        "min_lr=0",
    ];
    let events = Run::new(&words).go();
    let (outcome, step, message) = finished(&events);
    assert_eq!((outcome, step), (Outcome::Completed, 4), "{message}");
    assert!(message.starts_with("early stopping"), "{message}");
}

#[test]
fn what_cannot_be_asked_is_said_before_the_first_step() {
    for (word, expected) in [
        ("eval.tasks=[no_such_task]", "unknown task `no_such_task`"),
        // Digits, which the embedded corpus hardly has.
        ("eval.tasks=[made_arithmetic]", "eval.tasks: "),
    ] {
        let events = Run::new(&[word, "max_steps=10"]).go();
        let Some(Event::Finished {
            outcome,
            message,
            step,
            ..
        }) = events.last()
        else {
            panic!("{events:?}");
        };
        assert_eq!((*outcome, *step), (Outcome::Invalid, 0), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_reward_model_of_a_task_is_verified_before_the_first_step() {
    let dir = tempfile::tempdir().unwrap();
    let judge = dir.path().join("step-000004");
    std::fs::create_dir(&judge).unwrap();
    std::fs::write(judge.join("config.json"), "{}").unwrap();
    let files = serde_json::json!({"config.json": {"bytes": 2, "sha256": "0".repeat(64)}});
    let manifest = serde_json::json!({"format": 1, "step": 4, "files": files});
    std::fs::write(judge.join("manifest.json"), manifest.to_string()).unwrap();
    std::fs::write(dir.path().join("rows.jsonl"), "{\"q\": \"the k\"}\n").unwrap();
    let file = dir.path().join("judged.yaml");
    let text = "name: judged
version: 1
summary: s
kind: answer
source: {path: rows.jsonl}
prompt: '{{ q }}'
answer: {rewards: [{model: {path: step-000004}}]}
";
    std::fs::write(&file, text).unwrap();
    let word = format!("eval.tasks=[{}]", file.display());
    let events = Run::new(&[&word, "max_steps=10"]).go();
    let Some(Event::Finished {
        outcome,
        message,
        step,
        ..
    }) = events.last()
    else {
        panic!("{events:?}");
    };
    assert_eq!((*outcome, *step), (Outcome::Invalid, 0), "{message}");
    for part in [
        "eval.tasks: judged",
        "is damaged",
        "config.json",
        "another checkpoint",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

/// Steps of checkpoints, and whether each was the best so far.
fn saved(events: &[Event]) -> Vec<(u64, bool)> {
    let of = |event: &Event| match event {
        Event::Checkpointed { step, best, .. } => Some((*step, *best)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn the_best_by_a_task_is_saved_when_it_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::new(&[
        &task(dir.path()),
        "eval.task_every=4",
        "max_steps=10",
        "checkpoint.every=0",
        "eval.best_by=eval/mine",
    ]);
    let events = run.go();
    // Of equal scores the later one is better.
    let mut best = f64::NEG_INFINITY;
    let mut wanted = Vec::new();
    for (step, score) in asked(&events) {
        let better = score >= best;
        best = best.max(score);
        if step > 0 && (better || step == 10) {
            wanted.push((step, better));
        }
    }
    assert_eq!(saved(&events), wanted, "{:?}", asked(&events));
    let Some(Event::Finished { best: Some(by), .. }) = events.last() else {
        panic!("{events:?}");
    };
    assert_eq!((by.metric.as_str(), by.value.0), ("eval/mine", best));
}

#[test]
fn a_reading_that_is_not_evaluated_decides_nothing() {
    for word in ["eval/mine", "train/loss", "lr"] {
        let set = [format!("eval.best_by={word}")];
        let refused = load("quickstart", &set, &SpecSources::default()).unwrap_err();
        let message = refused.to_string();
        assert!(
            message.contains(word) && message.contains("val/loss"),
            "{message}"
        );
    }
    // What the data alone tell: how many bytes the supervised tokens stand for is not known of a part of a text.
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let row = "{\"prompt\": \"say\", \"completion\": \"ab\"}\n";
    std::fs::write(&rows, row.repeat(300)).unwrap();
    let source = format!("data.path={}", rows.display());
    let words = [
        &*source,
        "method=sft",
        "max_steps=2",
        "eval.best_by=val/bpb",
    ];
    let (outcome, step, message) = finished(&Run::new(&words).go());
    assert_eq!((outcome, step), (Outcome::Invalid, 0), "{message}");
    assert!(
        message.contains("val/bpb") && message.contains("val/ppl"),
        "{message}"
    );
}

#[test]
fn the_kept_best_is_the_best_of_those_that_were_saved() {
    let events = Run::new(&["max_steps=12", "eval.every=2", "checkpoint.every=4"]).go();
    let losses: std::collections::BTreeMap<u64, f64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Evaluated { step, values, .. } => Some((*step, values.get("val/loss")?.0)),
            _ => None,
        })
        .collect();
    let mut least = f64::INFINITY;
    for (step, best) in saved(&events) {
        assert_eq!(best, losses[&step] <= least, "step {step} of {losses:?}");
        least = least.min(losses[&step]);
    }
    assert_eq!(saved(&events).len(), 3);
}
