//! What is rejected before a stage begins, because it would fail hours later.

use super::{LONG, Place, code, err, out};

#[test]
fn evaluations_and_exports_are_checked_before_the_first_stage() {
    let place = Place::new(LONG);
    let write = |stages: &str| {
        let base = "name: bad\nstages:\n  - {name: base, train: smoke}\n";
        std::fs::write(
            place.dir.path().join("mine.yaml"),
            format!("{base}{stages}\n"),
        )
        .unwrap();
    };
    for (stages, says) in [
        (
            "  - {name: exam, eval: {tasks: [made_sor]}}",
            "did you mean made_sort",
        ),
        (
            "  - {name: gguf, export: {format: ggufx}}",
            "`ggufx` is not a format; known are hf, safetensors, gguf, peft",
        ),
        (
            "  - {name: gguf, export: {format: gguf, dtype: q9_9}}",
            "q9_9",
        ),
        (
            "  - {name: more, train: smoke, set: {eval.tasks: [made_sor]}}",
            "did you mean made_sort",
        ),
    ] {
        write(stages);
        for extra in ["--headless", "--dry-run"] {
            let refused = place.go(&["train", "mine.yaml", extra]);
            assert_eq!(code(&refused), 2, "{stages}: {}", out(&refused));
            let printed = err(&refused);
            assert!(
                printed.contains(says) && printed.contains("stage "),
                "{stages}: {printed}"
            );
        }
        assert!(!place.dir.path().join("runs").exists(), "{stages}");
    }
    write("  - {name: exam, eval: {tasks: [made_sor], limit: 2}}");
    let set = "exam.tasks=[made_sort]";
    let mended = place.go(&["train", "mine.yaml", "-s", set, "--dry-run"]);
    assert_eq!(code(&mended), 0, "{}", err(&mended));
}

#[test]
fn the_faults_of_all_stages_are_listed_with_their_lines() {
    let place = Place::new(
        "name: mine
stages:
  - name: base
    train:
      extends: smoke
      model: {d_model: 33}
  - {name: other, train: smoke, from: scratch, set: {max_step: 5}}
  - {name: more, train: smoke, from: base}
  - {name: exam, eval: {tasks: [made_sor]}}
  - name: gguf
    export:
      format: ggufx
  - {name: last, train: smoke, from: base, set: {max_stpes: 3}}
",
    );
    let set = ["-s", "other.seed=-1"];
    let refused = place.go(&[&["train", "mine.yaml", "--dry-run"], &set[..]].concat());
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let printed = err(&refused)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for words in [
        "5 problems in the pipeline: ",
        // Of a stage that rests on a faulty one the keys are known.
        "mine.yaml:13 stage last: unknown key `max_stpes`",
        "did you mean max_steps?",
        "mine.yaml:9 stage exam: eval.tasks: ",
        "mine.yaml:12 stage gguf: export.format: `ggufx` is not a format",
        "mine.yaml:4 stage base: ",
        "mine.yaml:6 model.",
        "stage other: 2 problems in the spec:",
        "mine.yaml:7 max_step",
        "-s other.seed=-1 seed",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(
        !printed.contains("stage more"),
        "it rests on base: {printed}"
    );
}

/// A stage behind a faulty one was looked at only once that one was mended.
#[test]
fn a_stage_that_starts_from_a_faulty_one_is_looked_at_where_its_model_is_known() {
    let place = Place::new(
        "name: mine
stages:
  - {name: base, train: smoke, set: {lr: -2}}
  - {name: more, train: smoke, set: {lr: -1}}
  - {name: last, train: smoke, from: more, set: {lr: -3}}
  - {name: good, train: smoke, from: base}
",
    );
    let refused = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let printed = err(&refused);
    for words in [
        "3 problems in the pipeline:",
        "stage base",
        "stage more",
        "stage last",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(!printed.contains("stage good"), "{printed}");
}

/// They came in three rounds: those of the file, those of specs and tasks, a file of data that is not there.
#[test]
fn faults_of_the_file_hide_none_of_specs_tasks_and_data() {
    let place = Place::new(
        "name: mine
stages:
  - {name: base, train: smoke, set: {max_stps: 2}}
  - {name: more, train: smoke, set: {data.path: nope.jsonl, lora.r: 4}}
  - {name: exam, eval: {tasks: [made_srt], limt: 5}}
  - {name: exam, eval: {tasks: [made_sort]}}
  - {name: gguf, export: {format: gguff}}
  - {name: rep, report: {format: pdf}}
",
    );
    let refused = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let printed = err(&refused);
    for words in [
        // Those of a stage's spec count as one.
        "7 problems in the pipeline:",
        "did you mean max_steps?",
        "nope.jsonl does not exist",
        "mine.yaml:4  lora.r\n",
        "it is called adapter.lora.rank here",
        "unknown key `limt`",
        "made_srt",
        "its name is taken",
        "`gguff` is not a format",
        "neither html nor md",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(!place.dir.path().join("runs").exists());
}

/// A model was downloaded for a file with a misspelt key; where it could not be, faults of later stages were hidden.
#[test]
fn nothing_is_downloaded_for_a_file_at_fault() {
    let place = Place::new(
        "name: mine
stages:
  - {name: tuned, train: sft-lora, set: {train.from: nobody/none, lora.r: 4}}
  - {name: more, train: smoke, from: scratch, set: {max_stps: 2}}
  - {name: rep, report: {format: pdf}}
",
    );
    let mut command = place.command(&["train", "mine.yaml", "--dry-run"]);
    let refused = command.env("HF_HUB_OFFLINE", "1").output().unwrap();
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let printed = err(&refused);
    for words in [
        "3 problems in the pipeline:",
        "unknown key `lora.r`",
        "did you mean max_steps?",
        "neither html nor md",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(!printed.contains("nobody/none"), "{printed}");
}

/// After an hour of training its base, the chat stage failed at its first row, and unread data were on the disk.
#[test]
fn conversations_without_a_template_in_a_future_base_are_rejected_before_the_first_stage() {
    let place = Place::new(
        "name: mine\nstages:\n  - {name: base, train: smoke}\n  - name: chat\n    train: sft\n    set: {data.path: chats.jsonl, epochs: 2}\n",
    );
    let row = |n: usize| {
        let turn = |role: &str, text: &str| serde_json::json!({"role": role, "content": text});
        let turns = [
            turn("user", "Who is there?"),
            turn("assistant", &"No one. ".repeat(1 + n % 3)),
        ];
        serde_json::json!({"messages": turns}).to_string() + "\n"
    };
    let rows: String = (0..60).map(row).collect();
    std::fs::write(place.dir.path().join("chats.jsonl"), rows).unwrap();
    for extra in ["--headless", "--dry-run"] {
        let refused = place.go(&["train", "mine.yaml", extra]);
        assert_eq!(code(&refused), 2, "{}", out(&refused));
        let printed = err(&refused);
        for words in [
            "stage chat",
            "chats.jsonl:1",
            "no chat template",
            "data.template",
        ] {
            assert!(printed.contains(words), "{words}: {printed}");
        }
    }
    assert!(!place.dir.path().join("runs").exists());
    // The same for characters that the base is not going to have; omitted stages are not checked.
    let set = "chat.data.sources=[{synthetic: {sort: {}}, rows: 200}]";
    let sort = [
        "train",
        "mine.yaml",
        "--dry-run",
        "-s",
        set,
        "-s",
        "chat.data.path=null",
    ];
    let refused = place.go(&sort);
    let printed = err(&refused);
    assert!(
        code(&refused) == 2 && printed.contains("not in the vocabulary"),
        "{printed}"
    );
    let left_out = place.go(&["train", "mine.yaml", "--dry-run", "--skip", "chat"]);
    assert_eq!(code(&left_out), 0, "{}", err(&left_out));
    let plain = [
        "train",
        "mine.yaml",
        "--dry-run",
        "-s",
        "chat.data.template=plain",
    ];
    let planned = place.go(&plain);
    assert_eq!(code(&planned), 0, "{}", err(&planned));
    assert!(
        !out(&planned).contains("were not read"),
        "{}",
        out(&planned)
    );
    let four = place.go(&[&plain[..], &["-s", "chat.epochs=4"]].concat());
    let steps = |output: &std::process::Output| -> u64 {
        let text = out(output);
        let line = text.lines().find(|line| line.starts_with("chat ")).unwrap();
        line.split_whitespace()
            .nth(3)
            .unwrap()
            .replace(',', "")
            .parse()
            .unwrap()
    };
    assert!(steps(&four) > steps(&planned), "{}", out(&four));
}

#[test]
fn tokenizers_and_adapters_are_checked_before_the_first_stage() {
    let place = Place::new(LONG);
    let write = |stages: &str| {
        let text = format!("name: bad\nstages:\n{stages}\n");
        std::fs::write(place.dir.path().join("mine.yaml"), text).unwrap();
    };
    let (base, peft) = (
        "  - {name: base, train: smoke}\n",
        "  - {name: peft, export: {format: peft}}",
    );
    let words = "  - {name: words, tokenizer: {kind: bpee, files: [text.txt]}}\n";
    let pinned = "  - {name: peft, export: {format: peft, model: base}}";
    for (stages, says) in [
        (
            format!("{words}{base}"),
            "stage words: tokenizer.kind: unknown kind of tokenizer `bpee`",
        ),
        (format!("{base}{peft}"), "stage base trains all weights"),
        (
            format!("{base}  - {{name: more, train: smoke, set: {{adapter: lora}}}}\n{pinned}"),
            "stage base trains all weights",
        ),
    ] {
        write(&stages);
        for extra in ["--headless", "--dry-run"] {
            let refused = place.go(&["train", "mine.yaml", extra]);
            assert_eq!(code(&refused), 2, "{stages}: {}", out(&refused));
            assert!(err(&refused).contains(says), "{stages}: {}", err(&refused));
        }
        assert!(!place.dir.path().join("runs").exists(), "{stages}");
    }
    // With adapters there is something to export.
    write(&format!(
        "{base}  - {{name: more, train: smoke, set: {{adapter: lora}}}}\n{peft}"
    ));
    let fine = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&fine), 0, "{}", err(&fine));
}

#[test]
fn an_unknown_key_is_rejected_when_a_pipeline_resumes() {
    let place = Place::new(LONG).with_tasks();
    let text = "name: sad\nstages:\n  - {name: base, train: smoke, set: {train.threads: 1}}\n  \
        - {name: exam, eval: {tasks: [gone.yaml], limit: 2}}\n  \
        - {name: last, train: smoke, set: {train.threads: 1}}\n";
    std::fs::write(place.dir.path().join("mine.yaml"), text).unwrap();
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
    let asked = || std::fs::read_to_string(place.folder().join("pipeline.yaml")).unwrap();
    let before = asked();
    for extra in ["--headless", "--dry-run"] {
        let words = ["--resume", "sad", "-s", "exam.tasks=[fine.yaml]"];
        let wrong = ["-s", "last.max_step=5", extra];
        let refused = place.go(&[&["train"], &words[..], &wrong].concat());
        assert_eq!(code(&refused), 2, "{}{}", out(&refused), err(&refused));
        let printed = err(&refused);
        assert!(
            printed.contains("-s last.max_step=5: unknown setting max_step")
                && printed.contains("did you mean max_steps?"),
            "{printed}"
        );
        assert_eq!(
            (asked(), place.words()[1].clone()),
            (before.clone(), "failed".into())
        );
    }
}

#[test]
fn the_faults_of_one_stage_keep_their_lines() {
    let place = Place::new(
        "name: mine\nstages:\n  - {name: base, train: smoke, set: {max_step: 5, seed: -1}}\n",
    );
    let refused = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&refused), 2);
    let printed = err(&refused);
    assert!(
        printed
            .lines()
            .any(|line| line.trim() == "try: did you mean max_steps?"),
        "{printed}"
    );
    let of = |word: &str| printed.lines().position(|line| line.contains(word));
    assert!(
        of("max_step").is_some() && of("max_step") != of("seed"),
        "{printed}"
    );
}

/// It was found out after the trainings, by the export.
#[test]
fn a_model_that_llama_cpp_does_not_know_is_refused_before_it_is_trained() {
    let place = Place::new(LONG);
    let pipeline = |position: &str| {
        let base = format!("{{name: base, train: smoke, set: {{model.position: {position}}}}}");
        let text = format!(
            "name: mine\nstages:\n  - {base}\n  - {{name: file, export: {{format: gguf}}}}\n"
        );
        std::fs::write(place.dir.path().join("mine.yaml"), text).unwrap();
        place.go(&["train", "mine.yaml", "--dry-run"])
    };
    let refused = pipeline("alibi");
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let said = err(&refused);
    assert!(said.contains("mine.yaml:4: stage file"), "{said}");
    assert!(said.contains("-s file.format=safetensors"), "{said}");
    assert_eq!(code(&pipeline("learned")), 0);
}
