//! Mistakes on the command line, and damaged runs and files, as a shell sees them: what is wrong, where, and what helps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod data;
mod lost_files;
mod resumes;

use llmtui::base::clock::ManualClock;
use llmtui::run::{LogWriter, RunDir};
use llmtui::wire::Event;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Exit code, standard output, standard error.
fn llmtui(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("XDG_RUNTIME_DIR", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

/// Expects this exit code, and all of the phrases in the output.
fn fails(dir: &Path, args: &[&str], code: i32, phrases: &[&str]) {
    let (is, _, printed) = llmtui(dir, args);
    assert_eq!(is, code, "{args:?}: {printed}");
    for phrase in phrases {
        assert!(
            printed.contains(phrase),
            "{args:?} does not say {phrase:?}: {printed}"
        );
    }
}

fn run_at(dir: &Path, name: &str, at: u64) -> RunDir {
    RunDir::create(&dir.join("runs"), name, "", "", &ManualClock::at(at)).unwrap()
}

#[test]
fn a_missing_or_unreadable_log_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_at(dir.path(), "mine", 1);
    let verbs: [&[&str]; 5] = [
        &["metrics", "mine", "--to", "m.csv"],
        &["diagnose", "mine"],
        &["report", "mine", "--to", "r.md"],
        &["logs", "mine"],
        &["attach", "mine"],
    ];
    for verb in verbs {
        let phrases = ["events.jsonl is missing", "try: llmtui train --resume"];
        fails(dir.path(), verb, 3, &phrases);
    }
    std::fs::create_dir(run.events_path()).unwrap();
    for verb in &verbs[..4] {
        fails(dir.path(), verb, 3, &["events.jsonl", "try: check"]);
    }
    std::fs::write(run.header_path(), "{").unwrap();
    let (code, out, printed) = llmtui(dir.path(), &["runs"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("the only run in") && !out.contains("no runs"),
        "{out}"
    );
    assert!(printed.contains("run.json is damaged"), "{printed}");
    for word in [run.id(), "mine"] {
        fails(dir.path(), &["logs", word], 2, &["run.json is damaged"]);
    }
}

#[test]
fn rm_deletes_only_the_named_folder() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_at(dir.path(), "mine", 1);
    let copy = run.path().with_file_name("my-backup");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(run.header_path(), copy.join("run.json")).unwrap();
    let both = ["matches 2 runs", "my-backup", run.id()];
    fails(dir.path(), &["rm", "mine", "--yes"], 2, &both);
    assert!(copy.exists() && run.path().exists());
    let (code, out, _) = llmtui(dir.path(), &["rm", "my-backup", "--yes"]);
    assert_eq!((code, out.as_str()), (0, "deleted my-backup\n"));
    assert!(!copy.exists() && run.path().exists());
}

#[test]
fn an_existing_spec_is_rejected_before_the_first_question() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine.yaml"), "extends: quickstart\n").unwrap();
    let (_, questions, _) = llmtui(dir.path(), &["new", "mine.yaml"]);
    assert_eq!(questions, "");
    fails(dir.path(), &["new", "mine.yaml"], 2, &["already exists"]);
}

/// A merge needs nothing but a run with adapters: no option is required.
#[test]
fn merge_needs_only_the_name_of_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let alone = ["merge", "nobody", "--to", "x"];
    fails(dir.path(), &alone, 2, &["named `nobody`"]);
    fails(dir.path(), &["merge", "--to", "x"], 2, &["--base"]);
}

/// What a method does not read, or needs, is said before any model is opened.
#[test]
fn merges_of_models_name_what_their_method_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let merge = |words: &[&str], parts: &[&str]| {
        let all = [&["merge"], words, &["--to", "x"]].concat();
        fails(dir.path(), &all, 2, parts);
    };
    merge(&["a", "b"], &["a"]);
    merge(
        &["a", "b", "--method", "tis"],
        &["no such method", "ties ", "slerp "],
    );
    merge(
        &["a", "b", "--method", "ties"],
        &["ties needs a base", "--base"],
    );
    merge(
        &["a", "b", "--base", "c"],
        &["need a method", "task_arithmetic "],
    );
    merge(
        &["a", "--base", "c"],
        &["how are they to be merged", "--adapter"],
    );
    merge(
        &["a", "b", "c", "--method", "slerp"],
        &["slerp merges two models, found 3"],
    );
    merge(
        &["a:2", "b", "--method", "slerp"],
        &["slerp has no weights", "--t"],
    );
    merge(
        &["a", "b", "--t", "0.3"],
        &["--t: linear does not read it", "--normalize"],
    );
    // Adapters read none of them, and merges of models check no adapter.
    merge(
        &["--base", "a", "--adapter", "b", "--density", "0.5"],
        &["--density: adapters are added"],
    );
    merge(&["a", "b", "--any-base"], &["--any-base: merges of models"]);
    merge(
        &["a", "b", "--prompt", "hello"],
        &["--prompt: merges of models"],
    );
    merge(&["a:1", "b:-1"], &["sum to 0"]);
    merge(&["a", "b", "--adapter", "d"], &["one after the other"]);
    merge(&["a", "--method", "linear"], &["one model only"]);
    merge(
        &["a", "b", "--method", "ties", "--density", "0"],
        &["above 0, up to 1"],
    );
}

#[test]
fn a_run_in_place_of_a_spec_gets_the_path_of_its_spec() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_at(dir.path(), "mine", 1);
    let folder = format!("runs/{}", run.id());
    let hints = ["is a folder", "/spec.yaml is the spec of this run"];
    fails(dir.path(), &["train", &folder, "--dry-run"], 2, &hints);
}

#[test]
fn options_are_never_ignored_silently() {
    let dir = tempfile::tempdir().unwrap();
    let json = ["presets", "--json", "show", "quickstart"];
    fails(dir.path(), &json, 2, &["cannot be used with"]);
    let skip = ["train", "speedrun", "--dry-run", "--skip", "base"];
    fails(
        dir.path(),
        &skip,
        2,
        &["stage chat needs the model of base"],
    );
    let nodes = ["train", "quickstart", "--nodes", "a,b", "--dry-run"];
    let (code, out, printed) = llmtui(dir.path(), &[&nodes[..], &["-s", "engine=torch"]].concat());
    assert_eq!(code, 0, "{printed}");
    assert!(out.contains("2 machines: a, b"), "{out}");
    let batches = [
        "data",
        "batches",
        "quickstart",
        "--loss",
        "-s",
        "micro_batch_size=1",
    ];
    let (code, out, printed) = llmtui(dir.path(), &batches);
    assert_eq!(code, 0, "{printed}");
    assert!(out.contains("with the weights of step 0"), "{out}");
    fails(
        dir.path(),
        &[&batches[..], &["--checkpoint", "5"]].concat(),
        2,
        &["--run RUN"],
    );
}

#[test]
fn misspelt_settings_and_files_lead_to_the_right_command() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["six.jsonl", "corpus.txt"] {
        std::fs::write(dir.path().join(name), "{}").unwrap();
    }
    run_at(dir.path(), "mine", 1);
    let cases: [(&[&str], &[&str]); 10] = [
        (
            &["data", "batches", "smoke", "--step", "3000"],
            &["no step 3,000", "a step from 1 to 20 (max_steps)"],
        ),
        (
            &["data", "batches", "grpo-sort", "--step", "260"],
            &[
                "step 260 trains on the model's own completions",
                "steps 1 to 250 (rollout.cold_start_steps) do",
            ],
        ),
        (
            &["train", "quickstart", "--lr", "1e-3"],
            &["try: llmtui train quickstart -s lr=1e-3"],
        ),
        (
            &["train", "quickstart", "max_steps=5"],
            &["try: llmtui train quickstart -s max_steps=5"],
        ),
        (
            &["data", "inspect", "six.jsnl"],
            &["six.jsnl does not exist", "did you mean six.jsonl?"],
        ),
        (
            &["data", "convert", "six.jsnl", "--to", "messages"],
            &["did you mean six.jsonl?"],
        ),
        (
            &[
                "tokenizer",
                "train",
                "--vocab-size",
                "300",
                "--out",
                "t",
                "corpsu.txt",
            ],
            &["corpsu.txt does not exist", "did you mean corpus.txt?"],
        ),
        (
            &["chat", "out/model.gguf"],
            &["out/model.gguf does not exist", "its folder does not exist"],
        ),
        (
            &["data", "batches", "mine"],
            &["mine is a run", "llmtui data batches --run mine --step 1"],
        ),
        (&["diagnose", "nothing"], &["no run"]),
    ];
    for (args, phrases) in cases {
        fails(dir.path(), args, 2, phrases);
    }
    let (_, _, printed) = llmtui(dir.path(), &["train", "quickstart", "--lr", "1e-3"]);
    assert!(!printed.contains("-- --lr"), "{printed}");
}

#[test]
fn presets_are_copied_with_the_verb_in_the_help() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, printed) = llmtui(dir.path(), &["presets", "copy", "smoke"]);
    assert_eq!((code, out.trim()), (0, "smoke.yaml"), "{printed}");
    let (_, help, _) = llmtui(dir.path(), &["presets", "--help"]);
    assert!(help.contains("copy"), "{help}");
    let (_, help, _) = llmtui(dir.path(), &["eval", "--help"]);
    assert!(!help.contains('\\'), "{help}");
}

#[test]
fn a_run_is_planned_from_its_spec() {
    let dir = tempfile::tempdir().unwrap();
    let (_, spec, _) = llmtui(dir.path(), &["presets", "show", "smoke"]);
    let clock = ManualClock::at(1);
    let run = RunDir::create(&dir.path().join("runs"), "mine", &spec, "", &clock).unwrap();
    let path = run.path().display().to_string();
    for word in ["mine", &path] {
        let (code, out, printed) = llmtui(dir.path(), &["plan", word, "--json"]);
        assert_eq!(code, 0, "{word}: {printed}");
        assert!(out.contains(run.id()), "{out}");
    }
    let typo = ["plan", "quickstrat"];
    fails(dir.path(), &typo, 2, &["did you mean", "quickstart"]);
}

/// A run's log as an engine on another machine would have written it.
fn trained_elsewhere(run: &RunDir, precision: &str) {
    let clock = Arc::new(ManualClock::at(5_000));
    let (mut log, thread) = LogWriter::open(&run.events_path(), clock, |_| {}).unwrap();
    let spec = std::fs::read_to_string(run.spec_path()).unwrap();
    let spec = llmtui::spec::RunSpec::from_yaml(&spec).unwrap();
    log.emit(Event::Started {
        name: spec.name.clone(),
        method: "pretrain".into(),
        spec: spec.to_value(),
        n_params: 1,
        vocab_size: 65,
        max_steps: spec.train.max_steps,
        batch_tokens: 1,
        epoch_tokens: 1,
        resumed_from: None,
        precision: Some(precision.into()),
        unigram_entropy: None,
    })
    .unwrap();
    // The machine of an earlier engine, then that of the newest.
    for host in ["laptop", "far-away\u{1b}[31m"] {
        let machine = serde_json::json!({ "host": host });
        log.emit(Event::MachineDescribed { machine }).unwrap();
    }
    drop(log);
    thread.finish().unwrap();
}

#[test]
fn a_run_from_another_machine_is_planned_for_this_one_in_its_own_precision() {
    let dir = tempfile::tempdir().unwrap();
    let (_, spec, _) = llmtui(dir.path(), &["presets", "show", "smoke"]);
    assert!(spec.contains("precision: auto"), "{spec}");
    let clock = ManualClock::at(1);
    for precision in ["f32", "bf16"] {
        let runs = dir.path().join("runs");
        let run = RunDir::create(&runs, precision, &spec, "", &clock).unwrap();
        trained_elsewhere(&run, precision);
        let plan = |more: &[&str]| llmtui(dir.path(), &[&["plan", precision][..], more].concat());
        let (code, out, printed) = plan(&[]);
        assert_eq!(code, 0, "{printed}");
        let note = "note: planned for this machine (";
        assert!(printed.contains(note), "{printed}");
        assert!(
            printed.contains("and the run trained on far-away"),
            "{printed}"
        );
        assert!(
            !printed.contains("laptop") && !printed.contains('\u{1b}'),
            "{printed}"
        );
        assert!(out.contains(&format!("matmuls in {precision}")), "{out}");
        // With a named GPU no machine is mentioned; for a program only the plan is printed.
        let (_, _, printed) = plan(&["--gpu", "h100"]);
        assert!(!printed.contains("planned for this machine"), "{printed}");
        let (_, json, printed) = plan(&["--json"]);
        assert!(!printed.contains("planned for this machine"), "{printed}");
        // The requested precision takes precedence over the run's.
        let other = if precision == "f32" { "bf16" } else { "f32" };
        let set = format!("precision={other}");
        let (_, asked, _) = plan(&["-s", &set, "--json"]);
        let word = |json: &str| -> String {
            let plan: serde_json::Value = serde_json::from_str(json).unwrap();
            plan["precision"].as_str().unwrap().into()
        };
        assert_ne!(word(&json), word(&asked), "{precision}");
    }
}

#[test]
fn unreadable_and_unwritable_files_are_reported_with_cause_and_fix() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let small = "train quickstart --headless -s max_steps=2 -s preflight.enabled=false -s n_layer=1 -s d_model=32 -s n_head=2";
    let small: Vec<&str> = small.split(' ').collect();
    let (code, _, printed) = llmtui(dir.path(), &small);
    assert_eq!(code, 0, "{printed}");
    std::fs::write(at("file"), "text").unwrap();
    std::fs::write(at("corpus.txt"), "one two three four ".repeat(99)).unwrap();
    std::fs::write(at("bytes.txt"), b"\xff\xfe").unwrap();
    for folder in ["folder.md", "folder.html", "folder.txt"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    let missing = ["its folder does not exist", "mkdir -p no"];
    let in_file = ["file is a file, not a folder", "another folder"];
    let learn = "tokenizer train --vocab-size 300 corpus.txt --out";
    let cut = "quantize quickstart --dtype q8_0 --to";
    for (words, printed) in [
        ("card quickstart --to no/README.md".into(), missing),
        ("card quickstart --to file/README.md".into(), in_file),
        (
            "card quickstart --force --to folder.md".into(),
            ["folder.md is a folder", "a file in it"],
        ),
        ("report quickstart --to no/r.html".into(), missing),
        ("report quickstart --to file/r.html".into(), in_file),
        (
            "report quickstart --to folder.html".into(),
            ["folder.html is a folder", "a file in it"],
        ),
        (format!("{cut} no/m.gguf"), missing),
        (format!("{cut} file/m.gguf"), in_file),
        (
            format!("{cut} m.gguf --text gone.txt"),
            ["gone.txt does not exist", "working directory"],
        ),
        (
            format!("{cut} m.gguf --text folder.txt"),
            ["folder.txt is a folder", "a file in it"],
        ),
        (
            "export quickstart --format gguf --to file/m.gguf".into(),
            in_file,
        ),
        ("export quickstart --to file/m".into(), in_file),
        (format!("{learn} file"), in_file),
        (format!("{learn} file/below"), in_file),
        (
            "score quickstart folder.txt".into(),
            ["folder.txt is a folder", "a file in it"],
        ),
        (
            "score quickstart bytes.txt".into(),
            ["it is not UTF-8 text", "plain text in UTF-8"],
        ),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        fails(dir.path(), &words, 2, &printed);
        let (_, _, reported) = llmtui(dir.path(), &words);
        assert!(!reported.contains("os error"), "{words:?}: {reported}");
        // At once, not after the work.
        assert!(!reported.contains("words counted"), "{words:?}: {reported}");
    }
    // A run whose own files were changed.
    let run = std::fs::read_dir(at("runs")).unwrap().next().unwrap();
    let run = RunDir::open(&run.unwrap().path()).unwrap();
    let spec = std::fs::read_to_string(run.spec_path()).unwrap();
    std::fs::remove_file(run.asked_path()).unwrap();
    std::fs::create_dir(run.asked_path()).unwrap();
    let longer = ["train", "--resume", "quickstart", "-s", "max_steps=9"];
    fails(dir.path(), &longer, 2, &["asked.yaml is a folder", "try: "]);
    std::fs::remove_file(run.spec_path()).unwrap();
    let card = ["card", "quickstart"];
    let copy = "try: restore the file from a copy";
    fails(dir.path(), &card, 3, &["spec.yaml does not exist", copy]);
    std::fs::create_dir(run.spec_path()).unwrap();
    fails(dir.path(), &card, 3, &["spec.yaml is a folder", copy]);
    std::fs::remove_dir(run.spec_path()).unwrap();
    std::fs::write(run.spec_path(), spec.replace("seed:", "sede:")).unwrap();
    fails(dir.path(), &card, 2, &["spec.yaml", "try: correct it"]);
    // What prevents the deletion of a run.
    let name = run.folder();
    std::fs::write(run.path().with_file_name(format!(".del-{name}")), "").unwrap();
    let delete = ["rm", "--yes", "quickstart"];
    fails(dir.path(), &delete, 3, &["cannot be deleted", "try: check"]);
}

#[test]
fn specs_written_by_the_command_line_are_listed_on_home() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        "stage: sft\nmodel_name_or_path: org/name\nlearning_rate: 1e-4\ndataset: alpaca_en_demo\n";
    std::fs::write(dir.path().join("theirs.yaml"), config).unwrap();
    for folder in ["a", "b", "c"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    for words in [
        "new --defaults a/new.yaml",
        "import theirs.yaml --to b/imported.yaml",
        "presets eject smoke --to c/ejected.yaml",
        // Neither a run's spec nor anything that was not written.
        "presets eject speedrun --to c/pipeline.yaml",
        "import theirs.yaml",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let (code, _, printed) = llmtui(dir.path(), &words);
        assert_eq!(code, 0, "{words:?}: {printed}");
    }
    let kept = dir.path().join(".local/state/llmtui/specs");
    let kept = std::fs::read_to_string(kept).unwrap();
    let here = dir.path().canonicalize().unwrap();
    let kept: Vec<&Path> = kept
        .lines()
        .map(|line| Path::new(line).strip_prefix(&here).unwrap())
        .collect();
    let newest_first = ["c/ejected.yaml", "b/imported.yaml", "a/new.yaml"];
    assert_eq!(kept, newest_first.map(Path::new));
}

#[test]
fn an_unknown_name_is_reported_before_anything_is_fetched_or_compared() {
    let dir = tempfile::tempdir().unwrap();
    // The rows of arc_easy would be downloaded from the hub.
    let eval = ["eval", "gone", "--tasks", "arc_easy"];
    fails(dir.path(), &eval, 2, &["`gone`", "llmtui runs"]);
    std::fs::write(dir.path().join("README.md"), "mine").unwrap();
    fails(dir.path(), &["card", "gone"], 2, &["`gone`"]);
    fails(dir.path(), &["watch", "gone"], 2, &["gone does not exist"]);
    std::fs::write(dir.path().join("a.jsonl"), "{}").unwrap();
    let rows = ["tokenizer", "check", "gone", "a.jsonl"];
    let way_out = ["a.jsonl:1 ", "set --format and --column"];
    fails(dir.path(), &rows, 2, &way_out);
    let config = ["import", "gone.yml"];
    fails(dir.path(), &config, 2, &["gone.yml", "try: ", "Axolotl"]);
}

#[test]
fn half_a_trainer_state_is_not_a_log_without_readings() {
    let dir = tempfile::tempdir().unwrap();
    let half = r#"{"global_step": 2, "log_history": [{"step": 1, "loss": 2.5}, {"st"#;
    std::fs::write(dir.path().join("trainer_state.json"), half).unwrap();
    let phrases = ["is not a complete JSON object", "try: copy it again"];
    for verb in [
        &["watch", ".", "--headless"][..],
        &["diagnose", "trainer_state.json"],
    ] {
        fails(dir.path(), verb, 2, &phrases);
    }
    // A requested format is the one reported as missing.
    let csv = ["watch", ".", "--format", "csv"];
    fails(dir.path(), &csv, 2, &["5 folders deep (csv)"]);
}

#[test]
fn a_dry_run_reports_missing_pytorch() {
    let dir = tempfile::tempdir().unwrap();
    let dry = ["train", "smoke", "--dry-run", "-s", "engine=torch"];
    let (code, out, printed) = llmtui(dir.path(), &dry);
    assert_eq!(code, 0, "{printed}");
    assert!(
        out.contains("PyTorch for llmtui is not installed")
            && out.contains("llmtui engine install torch"),
        "{out}"
    );
    let (_, out, _) = llmtui(dir.path(), &[&dry[..], &["--nodes", "a,b"]].concat());
    assert!(
        !out.contains("PyTorch for llmtui is not installed"),
        "{out}"
    );
}

/// The run was created, failed, and remained; its message named the fix twice, and no line began with `try:`.
#[test]
fn without_pytorch_no_run_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let train = ["train", "smoke", "--headless", "-s", "engine=torch"];
    let (code, out, printed) = llmtui(dir.path(), &train);
    assert_eq!(code, 3, "{out}{printed}");
    assert!(
        printed.contains("engine.torch: PyTorch for llmtui is not installed"),
        "{printed}"
    );
    assert!(
        printed.contains("try: llmtui engine install torch"),
        "{printed}"
    );
    assert_eq!(
        printed.matches("engine install torch").count(),
        1,
        "{printed}"
    );
    assert!(!dir.path().join("runs").exists());
    std::fs::write(
        dir.path().join("mine.yaml"),
        "name: mine\nstages:\n  - {name: base, train: smoke}\n  - {name: more, train: smoke, set: {engine: torch}}\n",
    )
    .unwrap();
    fails(
        dir.path(),
        &["train", "mine.yaml", "--headless"],
        3,
        &[
            "stage more: engine.torch: PyTorch for llmtui is not installed",
            "try: llmtui engine",
        ],
    );
    assert!(!dir.path().join("runs").exists());
}
