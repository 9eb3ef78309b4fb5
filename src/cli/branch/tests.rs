//! Branches of runs: what is refused, what is listed, what is left of one that fails.

use super::*;
use crate::base::clock::SystemClock;
use serde_json::json;

/// What was made of it stayed, and trained from step 0 as a branch of step 500.
#[test]
fn a_branch_whose_checkpoint_cannot_be_copied_leaves_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let cx = Context {
        env: crate::base::paths::Env::default(),
        clock: SystemClock::new(),
        runs_dir: dir.path().join("runs"),
        ascii: false,
        theme: None,
        hardware: None,
        stdin_is_terminal: false,
        stdout_is_terminal: false,
    };
    let parent = RunDir::create(dir.path(), "a", "{}", "", &cx.clock).unwrap();
    let path = parent.checkpoints_path().join("step-000500");
    let branch = Branch {
        parent,
        from: Some(CheckpointEntry { step: 500, path }),
        loaded: spec::load("quickstart", &[], &Default::default()).unwrap(),
        changes: Vec::new(),
        told: Vec::new(),
        moved: Vec::new(),
        rows: 1,
    };
    branch.make(&cx).unwrap_err();
    assert_eq!(std::fs::read_dir(&cx.runs_dir).unwrap().count(), 0);
}

/// The coefficient that the parent's controller had moved stayed.
#[test]
fn a_branch_that_names_the_kl_coefficient_begins_with_it() {
    let mut progress = Progress {
        kl_coef: Some(0.07),
        ..Progress::default()
    };
    progress.adjustments.lr = Some(1e-3);
    progress.adjustments.clip_norm = Some(5.0);
    let load = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        spec::load("ppo-demo", &words, &spec::SpecSources::default()).unwrap()
    };
    let was = load(&[]).spec;
    let of = |word: &str| moved(&progress, &was, &load(&[word]));
    assert_eq!(of("method.ppo.beta=0.05"), [("beta", 0.07)]);
    assert_eq!(of("optimizer.adamw.lr=1e-4"), [("lr", 1e-3)]);
    assert!(of("optimizer.adamw.beta2=0.95").is_empty());
    // One setting by its other names, and as a part of a map.
    for word in [
        "lr=1e-4",
        "learning_rate=1e-4",
        "learning-rate=1e-4",
        "optimizer={adamw: {lr: 1e-4}}",
        "optimizer.adamw={lr: 1e-4}",
    ] {
        assert_eq!(of(word), [("lr", 1e-3)], "{word}");
    }
    for word in ["clip-norm=1", "max_grad_norm=1", "train.grad_clip=1"] {
        assert_eq!(of(word), [("clip_norm", 5.0)], "{word}");
    }
    assert_eq!(of("optimizer=lion"), [("lr", 1e-3)]);
}

/// It passed the dry run, and a run that no checkpoint fits stayed behind.
#[test]
fn another_choice_than_the_checkpoints_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let sources = spec::SpecSources::default();
    let load = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        spec::load("quickstart", &words, &sources).unwrap()
    };
    let refused = |before: &[&str], words: &[&str]| {
        let clock = SystemClock::new();
        let parent = RunDir::create(dir.path(), "q", "{}", "", &clock).unwrap();
        let path = parent.checkpoints_path().join("step-000020");
        let loaded = load(&[before, words].concat());
        let (was, is) = (load(before).spec.to_value(), loaded.spec.to_value());
        let branch = Branch {
            parent,
            from: Some(CheckpointEntry { step: 20, path }),
            loaded,
            changes: differences(&was, &is),
            told: of_specs(&was, &is),
            moved: Vec::new(),
            rows: 1,
        };
        assert!(branch.check(true).is_err() != words[0].starts_with("optimizer"));
        let error = branch.check(false).unwrap_err();
        let failure = error.downcast::<Failure>().unwrap();
        format!("{}; {}", failure.what, failure.hint)
    };
    for (words, what, hint) in [
        (
            "optimizer=lion",
            "change optimizer: its checkpoint fixes adamw, not lion",
            "-s optimizer=lion -s train.from=",
        ),
        (
            "method=sft",
            "change method: its checkpoint fixes pretrain, not sft",
            "-s method=sft -s train.from=",
        ),
        (
            "adapter=lora",
            "change adapter: its checkpoint fixes none, not lora",
            "-s adapter=lora -s train.from=",
        ),
        ("n_layer=3", "change model.n_layer", "@0 -s model.n_layer=3"),
        (
            "tokenizer=bpe",
            "change data.tokenizer: its checkpoint fixes char, not bpe",
            "@0 -s data.tokenizer=bpe",
        ),
    ] {
        let said = refused(&[], &[words]);
        assert!(said.contains(what) && said.contains(hint), "{said}");
    }
    let said = refused(&["optimizer=soap"], &["optimizer.soap.max_dim=16"]);
    assert!(said.contains("change optimizer.soap.max_dim"), "{said}");
}

/// Settings of the parent's optimizer were listed as `0.001 → auto`, and scripts were not told of the branch at all.
#[test]
fn a_branch_lists_what_was_chosen_for_people_and_for_scripts() {
    let dir = tempfile::tempdir().unwrap();
    let clock = crate::base::clock::SystemClock::new();
    let sources = spec::SpecSources::default();
    let load = |words: &[String]| spec::load("quickstart", words, &sources).unwrap();
    let loaded = load(&["optimizer=lion".into()]);
    let (was, is) = (load(&[]).spec.to_value(), loaded.spec.to_value());
    let branch = Branch {
        parent: RunDir::create(dir.path(), "quickstart", "{}", "", &clock).unwrap(),
        from: None,
        loaded,
        changes: differences(&was, &is),
        told: of_specs(&was, &is),
        moved: vec![("lr", 0.5)],
        rows: 1,
    };
    let lines = branch.lines().join("\n");
    assert!(lines.contains("optimizer  adamw → lion"), "{lines}");
    // In the workbench nobody types `-s`.
    let moved = format!(
        "lr was set to 0.5 while {} ran; the branch takes the value given for it",
        branch.parent.folder()
    );
    assert!(lines.contains(&moved), "{lines}");
    assert!(!lines.contains("auto"), "{lines}");
    let json = serde_json::to_value(branch.summary()).unwrap();
    let change = json!({"path": "optimizer", "was": "adamw", "is": "lion"});
    assert_eq!((&json["step"], &json["changes"][0]), (&json!(0), &change));
    assert_eq!(json["adjusted"], json!({"lr": 0.5}));
    assert_eq!(json["run"], branch.parent.folder());
}

#[test]
fn what_differs_is_told_by_its_path() {
    let was =
        json!({"train": {"max_steps": 10, "threads": null}, "optimizer": {"adamw": {"lr": 0.001}}});
    let is =
        json!({"train": {"max_steps": 10, "threads": 2}, "optimizer": {"adamw": {"lr": 0.01}}});
    let row = |path: &str, was: &str, is: &str| (path.to_string(), was.to_string(), is.to_string());
    let expected = [
        row("train.threads", "auto", "2"),
        row("optimizer.adamw.lr", "0.001", "0.01"),
    ];
    assert_eq!(differences(&was, &is), expected);
    assert!(differences(&is, &is).is_empty());
    let lion = json!({"optimizer": {"lion": {"lr": 0.01}}});
    let told = differences(&json!({"optimizer": {"adamw": {"lr": 0.01}}}), &lion);
    assert!(told.iter().all(|(path, ..)| path.starts_with("optimizer.")));
    assert_eq!(told.len(), 2);
}
