//! The command line as a shell sees it: help, exit codes, pipes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use clap::CommandFactory;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn llmtui(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("XDG_RUNTIME_DIR", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_is_complete_and_stable() {
    let dir = tempfile::tempdir().unwrap();
    let help = llmtui(dir.path(), &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    insta::assert_snapshot!("help", text(&help.stdout));
    let presets = llmtui(dir.path(), &["presets", "--help"]);
    insta::assert_snapshot!("help-presets", text(&presets.stdout));
}

#[test]
fn a_job_needs_its_kind_and_a_wrong_path_is_named_with_its_fix() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "text,label\n").unwrap();
    std::fs::write(dir.path().join("h.csv"), "text,label\n").unwrap();
    for (words, printed) in [
        ("engine script quickstart", ["--slurm", "--skypilot"]),
        (
            "engine script quickstart --slurm --to no/job.sh",
            ["its folder does not exist", "mkdir -p no"],
        ),
        (
            "presets eject quickstart --to no/mine.yaml",
            ["its folder does not exist", "mkdir -p no"],
        ),
        (
            "presets eject quickstart --to file/mine.yaml",
            ["file is a file", "another folder"],
        ),
        (
            "new --defaults no/mine.yaml",
            ["its folder does not exist", "mkdir -p no"],
        ),
        (
            "doctor --record file",
            ["file already exists", "another name"],
        ),
        (
            "runs --runs-dir file",
            ["file: it is a file", "--runs-dir DIR"],
        ),
        (
            "report some --runs-dir file",
            ["file: it is a file", "--runs-dir DIR"],
        ),
        (
            "train quickstart --headless --runs-dir file",
            ["file: it is a file", "--runs-dir DIR"],
        ),
        (
            "export /nothing/here --to x",
            ["/nothing/here does not exist", "folder"],
        ),
        (
            "train quickstart -s data.path=h.csv --dry-run",
            ["h.csv has no rows", "header"],
        ),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = llmtui(dir.path(), &words);
        let errors = text(&output.stderr);
        let fits = printed.iter().all(|word| errors.contains(word));
        assert!(fits && !errors.contains("os error"), "{words:?}: {errors}");
        let code = output.status.code();
        assert!(matches!(code, Some(2 | 3)), "{words:?}: {code:?}");
    }
}

#[test]
fn every_verb_and_every_argument_has_help_text() {
    fn visit(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        assert!(command.get_about().is_some(), "{path} has no help");
        for argument in command.get_arguments() {
            let id = argument.get_id();
            assert!(argument.get_help().is_some(), "{path}: {id} has no help");
        }
        for inner in command.get_subcommands() {
            visit(inner, &path);
        }
    }
    visit(&llmtui::cli::Cli::command(), "");
}

/// (arguments, exit code, phrases on standard error)
const ENDINGS: &[(&[&str], i32, &[&str])] = &[
    (&["--version"], 0, &[]),
    (&["presets"], 0, &[]),
    (&["presets", "list"], 0, &[]),
    (&["presets", "show", "quickstart", "--origins"], 0, &[]),
    (&["completions", "bash"], 0, &[]),
    (&["eval", "--list"], 0, &[]),
    (
        &[
            "engine",
            "script",
            "quickstart",
            "--slurm",
            "--time",
            "25:99:00",
        ],
        2,
        &[
            "llmtui: --time 25:99:00",
            "try: HH:MM:SS (08:00:00)",
            "D-HH:MM:SS",
            "minutes (90)",
        ],
    ),
    (
        &["plan", "llama-3.1-8b", "--method", "lora"],
        2,
        &["--lora-rank 16", "--quantize nf4"],
    ),
    (
        &["eval", "gone", "--tasks", "arc,made_sort", "--limit", "2"],
        2,
        &["unknown task `arc`", "arc_easy", "eval --list"],
    ),
    (
        &["eval", "gone", "--tasks", "made_sort", "--shots", "2"],
        2,
        &["has no source of few-shot examples"],
    ),
    (
        &["report", "gone", "--to", "r.pdf"],
        2,
        &["is not an .html, .md, .svg or .png file", "rsvg-convert"],
    ),
    (
        &["eval", "gone", "--tasks", "absent.yaml"],
        2,
        &["absent.yaml does not exist", "eval --list"],
    ),
    (
        &["eval", "gone", "--tasks", "made_sort, made_sor"],
        2,
        &["unknown task `made_sor`", "did you mean made_sort?"],
    ),
    (
        &["train", "smoke", "-s", "eval.tasks=[made_sor]", "--dry-run"],
        2,
        &[
            "eval.tasks: unknown task `made_sor`",
            "did you mean made_sort?",
        ],
    ),
    (
        &["ladder", "grpo-sort", "--dry-run"],
        2,
        &["method grpo", "no validation loss"],
    ),
    (
        &["card", "gone", "--license", "mitt"],
        2,
        &["did you mean mit?"],
    ),
    (&["report", "gone"], 2, &["gone", "llmtui runs"]),
    (
        &["card", "gone", "--license", "MIT license"],
        2,
        &["hub identifiers"],
    ),
    (&["release", "gone"], 2, &["gone", "llmtui runs"]),
    (&["release", "."], 2, &["holds no config.json"]),
    (
        &["release", "chats.jsonl"],
        2,
        &["is a file", "name its folder"],
    ),
    (&["release", ".", "--upload"], 2, &["--repo"]),
    (&["release", ".", "--repo", "model"], 2, &["OWNER/NAME"]),
    (&["fly"], 2, &["unrecognized subcommand 'fly'"]),
    (&["quickstart"], 2, &["try: llmtui train quickstart"]),
    (&["mine.yaml"], 2, &["try: llmtui train mine.yaml"]),
    (
        &["chats.jsonl"],
        2,
        &["try: llmtui train quickstart -s data.path=chats.jsonl"],
    ),
    (&["earlier"], 2, &["try: llmtui attach earlier"]),
    (
        &["./runs/earlier"],
        2,
        &["try: llmtui attach ./runs/earlier"],
    ),
    (&["completions", "basic"], 2, &["invalid value 'basic'"]),
    (&["chat", "x", "--top-p", "2"], 2, &["at most 1"]),
    (&["chat", "x", "--kv-cache", "f16"], 2, &["auto, f32, bf16"]),
    (
        &["presets", "show", "quikstart"],
        2,
        &["did you mean quickstart?"],
    ),
    (
        &["presets", "eject", "nothing"],
        2,
        &["unknown preset `nothing`", "smoke"],
    ),
    (
        &[
            "presets",
            "show",
            "quickstart",
            "-s",
            "lrr=1",
            "-s",
            "max_steps=x",
            "-s",
            "data.path=gone.txt",
        ],
        2,
        &[
            "3 problems in the spec",
            "did you mean lr?",
            "-s max_steps=x",
            "gone.txt does not exist",
        ],
    ),
    (
        &["train", "quickstart", "-s", "n_head=3"],
        2,
        &["not a multiple of n_head 3", "try: "],
    ),
    (&["train", "gone.yaml"], 2, &["no such file"]),
    (
        &["train", "spedrun"],
        2,
        &["no preset and no pipeline", "did you mean speedrun?"],
    ),
    (
        &["plan", "speedrun"],
        2,
        &["is a pipeline", "llmtui train speedrun --dry-run"],
    ),
    (
        &["engine", "script", "speedrun", "--slurm"],
        2,
        &["is a pipeline", "llmtui train speedrun --dry-run"],
    ),
    (&["train", ""], 2, &["the name of the spec is empty"]),
    (
        &["train", "smoke", "-s", "=5"],
        2,
        &["there is no key before the `=`"],
    ),
    (
        &["train", "smoke", "-s", "preflight=null"],
        2,
        &["try: preflight.enabled=false"],
    ),
    (
        &["train", "chats.jsonl"],
        2,
        &["this is data, not a spec", "data.path=chats.jsonl"],
    ),
    (
        &["train", "axolotl.yml"],
        2,
        &["this is a config of axolotl", "llmtui import axolotl.yml"],
    ),
    // No folder of a similar name: `runz` would be two letters away.
    (&["presets", "show", "runz"], 2, &["known: "]),
    (
        &["eval", "chats.jsonl", "--tasks", ","],
        2,
        &["--tasks is empty", "llmtui eval --list"],
    ),
    (
        &["data", "batches", "smoke", "--step", "0"],
        2,
        &[
            "--step 0: steps are counted from 1",
            "choose a step from 1 to ",
        ],
    ),
    (
        &["data", "inspect", "chats.jsonl", "--seq-len", "0"],
        2,
        &["--seq-len"],
    ),
    (
        &["--theme", "nope", "presets", "list"],
        2,
        &["unknown theme `nope`"],
    ),
    (&["--hardware", "nope.json", "runs"], 2, &["nope.json"]),
];

#[test]
fn every_exit_has_its_code_and_its_message() {
    let dir = tempfile::tempdir().unwrap();
    let row = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n";
    std::fs::write(dir.path().join("chats.jsonl"), row.repeat(2)).unwrap();
    let axolotl = "base_model: a/b\ndatasets: []\nsequence_len: 8\n";
    std::fs::write(dir.path().join("axolotl.yml"), axolotl).unwrap();
    let clock = llmtui::base::clock::SystemClock::new();
    let runs = dir.path().join("runs");
    let run = llmtui::run::RunDir::create(&runs, "earlier", "{}", "", &clock).unwrap();
    std::fs::rename(run.path(), runs.join("earlier")).unwrap();
    for (args, code, phrases) in ENDINGS {
        let output = llmtui(dir.path(), args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {errors}");
        for phrase in *phrases {
            assert!(
                errors.contains(phrase),
                "{args:?} lacks `{phrase}`:\n{errors}"
            );
        }
        assert_eq!(*code != 0, !errors.is_empty(), "{args:?}: {errors}");
        assert!(!errors.contains("backtrace"), "{args:?}: {errors}");
    }
}

#[test]
fn eject_writes_loadable_files_and_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        llmtui(dir.path(), &["presets", "eject", "shakespeare-bpe"])
            .status
            .success()
    );
    let path = dir.path().join("shakespeare-bpe.yaml");
    std::fs::write(&path, "# mine\n").unwrap();
    let again = llmtui(dir.path(), &["presets", "eject", "shakespeare-bpe"]);
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "# mine\n");
    let unwritable = llmtui(
        dir.path(),
        &["presets", "eject", "smoke", "--to", "no/such/x.yaml"],
    );
    assert_eq!(unwritable.status.code(), Some(3));
}

#[test]
fn presets_are_listed_as_json_too() {
    let dir = tempfile::tempdir().unwrap();
    let listed = |args: &[&str]| text(&llmtui(dir.path(), args).stdout);
    let all = listed(&["presets", "--json"]);
    assert_eq!(all, listed(&["presets", "list", "--json"]));
    let all: Vec<serde_json::Value> = serde_json::from_str(&all).unwrap();
    let of = |name: &str| all.iter().find(|preset| preset["name"] == name).unwrap();
    assert_eq!(of("quickstart")["files"][0], "presets/quickstart.yaml");
    assert_eq!(of("speedrun")["group"], "pipelines");
    // The name in a spec.
    assert_eq!(of("quickstart")["group"], "demo");
    let spec = listed(&["presets", "show", "quickstart"]);
    assert!(spec.contains("group: demo"), "{spec}");
}

#[test]
fn a_shown_spec_loads_to_the_same_spec() {
    let dir = tempfile::tempdir().unwrap();
    for extra in [&[][..], &["--origins"][..]] {
        let args = [&["presets", "show", "shakespeare-bpe"], extra].concat();
        let shown = text(&llmtui(dir.path(), &args).stdout);
        std::fs::write(dir.path().join("shown.yaml"), &shown).unwrap();
        let again = text(&llmtui(dir.path(), &["presets", "show", "shown.yaml"]).stdout);
        let plain = text(&llmtui(dir.path(), &["presets", "show", "shakespeare-bpe"]).stdout);
        assert_eq!(again, plain);
    }
}

#[test]
fn tasks_are_listed_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(["eval", "--list", "--json"])
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut tasks = listed.as_array().unwrap().iter();
    assert!(tasks.any(|task| task["name"] == "made_sort" && task["summary"].is_string()));
}

#[test]
fn a_template_without_a_start_model_says_that_its_weights_are_random() {
    let dir = tempfile::tempdir().unwrap();
    let printed =
        "sft is a template: without a start model it trains a new small model on synthetic rows";
    for args in [
        &["init", "sft", "--to", "start"][..],
        &["train", "sft", "--dry-run"],
        &["preflight", "sft"],
    ] {
        let output = llmtui(dir.path(), args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(printed), "{args:?}: {errors}");
    }
}

#[test]
fn a_dry_run_states_how_many_of_a_few_rows_are_held_out() {
    let dir = tempfile::tempdir().unwrap();
    let row =
        |i: usize| format!("{{\"prompt\": \"what is {i}\", \"completion\": \"number {i}\"}}\n");
    let plan = |path: &str| {
        let path = format!("data.path={path}");
        let output = llmtui(dir.path(), &["train", "sft", "--dry-run", "-s", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for (rows, held) in [(2, "1 of 2"), (5, "1 of 5"), (19, "1 of 19")] {
        let rows: String = (0..rows).map(row).collect();
        std::fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
        let printed = plan("rows.jsonl");
        let note = format!("{held} rows held out for validation, whole");
        assert!(printed.contains(&note), "{note}: {printed}");
    }
    std::fs::write(
        dir.path().join("one.jsonl"),
        format!(
            "{{\"prompt\": \"say it\", \"completion\": \"{}\"}}\n",
            "the king and the queen ".repeat(20)
        ),
    )
    .unwrap();
    let printed = plan("one.jsonl");
    assert!(
        printed.contains("one document; its end is held out"),
        "{printed}"
    );
}

#[test]
fn a_rejected_evaluation_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let made = llmtui(dir.path(), &["init", "smoke", "--to", "model"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let made = llmtui(dir.path(), &["init", "reward-demo", "--to", "judge"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    std::fs::create_dir(dir.path().join("bare")).unwrap();
    for name in ["config.json", "tokenizer.json"] {
        let from = dir.path().join("model").join(name);
        std::fs::copy(from, dir.path().join("bare").join(name)).unwrap();
    }
    let refused = |args: &[&str], printed: &str| {
        let output = llmtui(dir.path(), &[&["eval"][..], args].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(printed), "{args:?}: {errors}");
        let left = dir.path().join("evals");
        assert!(!left.exists(), "{args:?}: {:?}", left.read_dir());
    };
    let tasks = ["--tasks", "made_sort", "--limit", "2"];
    refused(
        &[&["model"][..], &tasks].concat(),
        "can answer none of the tasks",
    );
    refused(&[&["judge"][..], &tasks].concat(), "is a reward model");
    refused(
        &[&["bare"][..], &tasks].concat(),
        "model config but no weights",
    );
    std::fs::write(
        dir.path().join("rows.jsonl"),
        "{\"q\": \"the king\", \"a\": \"and queen\"}\n",
    )
    .unwrap();
    let task = "name: mine\nversion: 1\nsummary: My own.\nkind: answer\nsource: {path: rows.jsonl}\nprompt: '{{ q }}'\ntarget: '{{ a }}'\n";
    std::fs::write(dir.path().join("mine.yaml"), task).unwrap();
    // The second model is rejected before the first is evaluated.
    let mine = ["model", "bare", "--tasks", "mine.yaml"];
    refused(&mine, "model config but no weights");
    let asked = llmtui(dir.path(), &["eval", "model", "--tasks", "mine.yaml"]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked.stderr));
    assert!(dir.path().join("evals").is_dir());
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["completions", "zsh"][..],
        &["presets", "show", "quickstart"][..],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_llmtui"))
            .args(args)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn an_older_instruction_set_can_be_selected_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let bench = |level: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_llmtui"))
            .args([
                "bench",
                "train",
                "--size",
                "S",
                "--seconds",
                "0.01",
                "--json",
            ])
            .current_dir(dir.path())
            .env_clear()
            .env("HOME", dir.path())
            .env("LLMTUI_SIMD", level)
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        report["instructions"].as_str().unwrap().to_string()
    };
    assert_eq!(bench("baseline"), "baseline instructions");
    assert!(["AVX2", "baseline instructions"].contains(&bench("avx2").as_str()));
}

/// File names may contain terminal control sequences; printed names do not.
#[test]
fn printed_paths_contain_no_control_sequences() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("text.txt"),
        "the king and the queen\n".repeat(200),
    )
    .unwrap();
    let row =
        |i: usize| format!("{{\"prompt\": \"what is {i}\", \"completion\": \"number {i}\"}}\n");
    let rows: String = (0..20).map(row).collect();
    std::fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    let hostile = |name: &str| format!("{name}\x1b[31m\u{202e}");
    let (model, spec, words) = (hostile("model"), hostile("spec"), hostile("words"));
    let (parts, rows, clean) = (hostile("parts"), hostile("rows"), hostile("clean"));
    let (rows, clean) = (format!("{rows}.jsonl"), format!("{clean}.jsonl"));
    std::fs::create_dir(dir.path().join(&parts)).unwrap();
    for arguments in [
        vec!["init", "smoke", "--to", &model],
        vec!["export", &model, "--to", "exported"],
        vec!["presets", "eject", "smoke", "--to", &spec],
        vec![
            "tokenizer",
            "train",
            "text.txt",
            "--kind",
            "char",
            "--out",
            &words,
        ],
        vec!["data", "split", "rows.jsonl", "--out", &parts],
        vec![
            "data",
            "convert",
            "rows.jsonl",
            "--to",
            "messages",
            "--out",
            &rows,
        ],
        vec!["data", "clean", "rows.jsonl", "--out", &clean],
    ] {
        let output = llmtui(dir.path(), &arguments);
        let (printed, reported) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {reported}");
        for printed in [printed, reported] {
            assert!(
                !printed.contains(['\x1b', '\u{202e}']),
                "{arguments:?}: {printed:?}"
            );
        }
    }
}

/// A lock that cannot be opened is the machine's fault, at a resume as at a start, not the user's.
#[test]
fn a_run_that_cannot_be_locked_is_a_machine_error() {
    let dir = tempfile::tempdir().unwrap();
    let small = ["-s", "max_steps=2", "-s", "preflight.enabled=false"];
    let stopped = ["train", "quickstart", "--stop-after", "1"];
    let trained = llmtui(dir.path(), &[&stopped[..], &small].concat());
    assert_eq!(trained.status.code(), Some(0), "{}", text(&trained.stderr));
    let runs = dir.path().join("runs");
    let run = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap();
    let lock = run.path().join("lock");
    std::fs::remove_file(&lock).unwrap();
    // Even root cannot follow a symlink to itself.
    std::os::unix::fs::symlink("lock", &lock).unwrap();
    let name = run.file_name().into_string().unwrap();
    let resumed = llmtui(dir.path(), &["train", "--resume", &name]);
    let printed = text(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(3), "{printed}");
    let reported =
        printed.contains("lock cannot be written") && printed.contains("check the disk of");
    assert!(reported && !printed.contains("os error"), "{printed}");
}

/// What a template trains without a model is stated wherever it is named.
#[test]
fn jobs_ladders_and_batches_warn_about_templates() {
    let dir = tempfile::tempdir().unwrap();
    for (words, code) in [
        (&["engine", "script", "sft-lora", "--slurm"][..], 0),
        (&["data", "batches", "sft-lora"], 0),
        // It has too few steps for a ladder.
        (&["ladder", "sft-lora"], 2),
    ] {
        let reported = llmtui(dir.path(), words);
        let printed = text(&reported.stderr);
        assert_eq!(reported.status.code(), Some(code), "{words:?}: {printed}");
        assert!(
            printed.contains("sft-lora is a template"),
            "{words:?}: {printed}"
        );
    }
}

#[test]
fn an_adapter_with_weight_zero_gets_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("style")).unwrap();
    let words = [
        "merge",
        "--base",
        "gone",
        "--adapter",
        "style:0",
        "--to",
        "out",
    ];
    let printed = text(&llmtui(dir.path(), &words).stderr);
    assert!(printed.contains("a weight of 0 leaves it out"), "{printed}");
}
