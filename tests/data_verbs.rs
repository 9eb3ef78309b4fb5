//! `llmtui data` as a shell sees it: inspect, clean, split, convert on files of common shapes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use llmtui::wire::Event;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn llmtui(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .arg("data")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("XDG_RUNTIME_DIR", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn ok(dir: &Path, args: &[&str]) -> String {
    let output = llmtui(dir, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let output = llmtui(dir, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    errors
}

fn write(dir: &Path, name: &str, value: &Value) {
    std::fs::write(dir.join(name), serde_json::to_string_pretty(value).unwrap()).unwrap();
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn question(i: usize) -> String {
    format!(
        "What grows in garden number {i} when it rains in spring and the wall keeps the wind away?"
    )
}

/// One file of each shape in LLaMA-Factory's demo data sets.
fn demos(dir: &Path) -> [(&'static str, &'static str, &'static str); 4] {
    let rows = |row: &dyn Fn(usize) -> Value| -> Value { (0..12).map(row).collect() };
    write(
        dir,
        "alpaca.json",
        &rows(
            &|i| json!({"instruction": question(i), "input": "", "output": format!("Beans and {i} peas.")}),
        ),
    );
    write(
        dir,
        "dpo.json",
        &rows(&|i| {
            json!({
                "conversations": [{"from": "human", "value": question(i)}],
                "chosen": {"from": "gpt", "value": format!("{i} roses.")},
                "rejected": {"from": "gpt", "value": "No idea."},
            })
        }),
    );
    write(
        dir,
        "kto.json",
        &rows(&|i| {
            json!({
                "messages": [
                    {"role": "user", "content": question(i)},
                    {"role": "assistant", "content": format!("{i} tulips.")},
                ],
                "label": i % 2 == 0,
            })
        }),
    );
    write(
        dir,
        "tools.json",
        &rows(&|i| {
            json!({
                "conversations": [
                    {"from": "human", "value": question(i)},
                    {"from": "function_call", "value": "{\"name\": \"look_at_garden\", \"arguments\": {\"number\": 7}}"},
                    {"from": "observation", "value": "{\"plants\": [\"fern\"]}"},
                    {"from": "gpt", "value": format!("Ferns, in garden {i}.")},
                ],
                "tools": "[{\"name\": \"look_at_garden\", \"description\": \"Looks\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}]",
            })
        }),
    );
    [
        ("alpaca.json", "alpaca", "Beans"),
        ("dpo.json", "preference", "roses"),
        ("kto.json", "kto", "tulips"),
        ("tools.json", "sharegpt", "Ferns"),
    ]
}

#[test]
fn every_shape_of_the_demonstration_sets_loads_renders_and_shows() {
    let dir = tempfile::tempdir().unwrap();
    for (file, format, word) in demos(dir.path()) {
        let page = ok(dir.path(), &["inspect", file]);
        assert!(page.contains(format), "{file}: {page}");
        assert!(page.contains("<|im_start|>│"), "{file}: {page}");
        assert!(!page.contains("PROBLEM"), "{file}: {page}");
        let shown = page.replace(['│', '\n'], "").replace('␣', " ");
        assert!(shown.contains(word), "{file} does not show {word}: {page}");
        let json = ok(dir.path(), &["inspect", file, "--json"]);
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["rows"], 12, "{file}");
        let tokens = &report["tokens"];
        assert!(
            tokens["supervised"].as_u64().unwrap() > 0,
            "{file}: {tokens}"
        );
        assert!(
            tokens["supervised"].as_u64() < tokens["total"].as_u64(),
            "{file}"
        );
    }
    // A template without support for tools is reported.
    let page = ok(
        dir.path(),
        &["inspect", "tools.json", "--template", "chatml"],
    );
    assert!(page.contains("Tools dropped by the template"), "{page}");
    let strict = llmtui(
        dir.path(),
        &["inspect", "tools.json", "--template", "chatml", "--strict"],
    );
    assert_eq!(strict.status.code(), Some(2));
}

#[test]
fn a_clean_copy_loses_only_what_was_requested() {
    let dir = tempfile::tempdir().unwrap();
    let row = |text: &str| json!({"prompt": text, "completion": "fine", "id": 7}).to_string();
    let near: Vec<String> = (1..5).map(question).collect();
    let near = near.join(" ");
    let raw = [
        row(&near),
        row(&near),
        row(&near.replacen("wind", "storm", 1)),
        row("\u{1b}[31mred"),
        row("it\u{e2}\u{20ac}\u{2122}s"),
        row(" "),
        "{\"prompt\": ".to_string(),
        row("last"),
    ];
    std::fs::write(dir.path().join("raw.jsonl"), raw.join("\n")).unwrap();
    let drop = "empty,duplicates,near-duplicates,control,mojibake";
    let printed = ok(
        dir.path(),
        &["clean", "raw.jsonl", "--drop", drop, "--out", "clean.jsonl"],
    );
    assert!(printed.contains("2 of 8 rows kept"), "{printed}");
    let kept = lines(&dir.path().join("clean.jsonl"));
    assert_eq!(kept.len(), 2);
    assert_eq!(
        kept[1],
        json!({"prompt": "last", "completion": "fine", "id": 7})
    );
    let left = lines(&dir.path().join("clean.jsonl.dropped.jsonl"));
    let kinds: Vec<(&str, &str)> = left
        .iter()
        .map(|row| {
            (
                row["place"].as_str().unwrap(),
                row["finding"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("raw.jsonl:2", "duplicates"),
            ("raw.jsonl:3", "near_duplicates"),
            ("raw.jsonl:4", "control"),
            ("raw.jsonl:5", "mojibake"),
            ("raw.jsonl:6", "empty"),
            ("raw.jsonl:7", "unreadable"),
        ]
    );
    assert_eq!(left[0]["row"]["id"], 7);
    let again = refused(dir.path(), &["clean", "raw.jsonl", "--out", "clean.jsonl"]);
    assert!(
        again.contains("exists already") && again.contains("--force"),
        "{again}"
    );
    ok(
        dir.path(),
        &["clean", "raw.jsonl", "--out", "clean.jsonl", "--force"],
    );
    let itself = refused(
        dir.path(),
        &["clean", "raw.jsonl", "--out", "raw.jsonl", "--force"],
    );
    assert!(itself.contains("is the input file"), "{itself}");
    let unknown = refused(
        dir.path(),
        &["clean", "raw.jsonl", "--drop", "dirt", "--out", "x.jsonl"],
    );
    assert!(
        unknown.contains("`dirt`") && unknown.contains("near_duplicates"),
        "{unknown}"
    );
    assert!(!dir.path().join("x.jsonl").exists());
}

#[test]
fn a_split_is_stable_and_keeps_equal_rows_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows: Vec<String> = (0..300)
        .map(|i| json!({"text": format!("row {}", i % 200)}).to_string())
        .collect();
    std::fs::write(dir.path().join("a.jsonl"), rows.join("\n")).unwrap();
    ok(
        dir.path(),
        &["split", "a.jsonl", "--val", "0.2", "--seed", "3"],
    );
    let side = |name: &str| -> BTreeSet<String> {
        lines(&dir.path().join(name))
            .iter()
            .map(|row| row["text"].as_str().unwrap().to_string())
            .collect()
    };
    let (train, val) = (side("a.train.jsonl"), side("a.val.jsonl"));
    assert!(train.is_disjoint(&val) && train.len() + val.len() == 200);
    assert!((15..70).contains(&val.len()), "{}", val.len());
    // Additional rows do not move others.
    rows.insert(0, json!({"text": "new"}).to_string());
    std::fs::write(dir.path().join("a.jsonl"), rows.join("\n")).unwrap();
    ok(
        dir.path(),
        &["split", "a.jsonl", "--val", "0.2", "--seed", "3", "--force"],
    );
    let (mut more, mut held) = (side("a.train.jsonl"), side("a.val.jsonl"));
    more.remove("new");
    held.remove("new");
    assert_eq!((train, val), (more, held));
}

/// A fifth of twenty rows came out as one to seven, and for some seeds as an error without a remedy.
#[test]
fn a_split_of_few_rows_names_a_seed_that_keeps_the_share() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<String> = (0..20)
        .map(|i| json!({"text": format!("row {i}")}).to_string())
        .collect();
    std::fs::write(dir.path().join("a.jsonl"), rows.join("\n")).unwrap();
    let split = |seed: &str| {
        let words = [
            "split", "a.jsonl", "--val", "0.2", "--force", "--seed", seed,
        ];
        llmtui(dir.path(), &words)
    };
    let reported = |output: &std::process::Output| {
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        let after = text.split_once("--seed ").map(|(_, rest)| rest.to_string());
        after.map(|rest| {
            rest.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        })
    };
    let named: Vec<String> = (0..40)
        .filter_map(|seed| reported(&split(&seed.to_string())))
        .collect();
    assert!(!named.is_empty());
    let output = split(&named[0]);
    assert_eq!((output.status.code(), reported(&output)), (Some(0), None));
    assert_eq!(lines(&dir.path().join("a.val.jsonl")).len(), 4);
    let gone = llmtui(dir.path(), &["split", "a.jsonl", "--out", "no/such"]);
    let printed = String::from_utf8(gone.stderr).unwrap();
    assert!(
        gone.status.code() == Some(2) && printed.contains("mkdir -p no/such"),
        "{printed}"
    );
}

#[test]
fn rows_convert_between_formats_and_back() {
    let dir = tempfile::tempdir().unwrap();
    demos(dir.path());
    ok(
        dir.path(),
        &[
            "convert",
            "alpaca.json",
            "--to",
            "messages",
            "--out",
            "m.jsonl.gz",
        ],
    );
    ok(
        dir.path(),
        &[
            "convert",
            "m.jsonl.gz",
            "--to",
            "alpaca",
            "--out",
            "back.json",
        ],
    );
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(dir.path().join(name)).unwrap()).unwrap()
    };
    assert_eq!(read("alpaca.json"), read("back.json"));
    ok(
        dir.path(),
        &["convert", "dpo.json", "--to", "alpaca", "--out", "dpo.csv"],
    );
    let csv = std::fs::read_to_string(dir.path().join("dpo.csv")).unwrap();
    assert!(
        csv.starts_with("instruction,input,chosen,rejected\n"),
        "{csv}"
    );
    // Turns keep their roles, so that they convert back to turns.
    ok(
        dir.path(),
        &[
            "convert",
            "dpo.json",
            "--to",
            "prompt_completion",
            "--out",
            "pc.json",
        ],
    );
    for (at, name) in ["dpo.csv", "pc.json"].into_iter().enumerate() {
        let back = format!("dpo{at}.json");
        let words = ["convert", name, "--to", "sharegpt", "--out", &back];
        ok(dir.path(), &words);
        assert_eq!(read("dpo.json"), read(&back), "{name}");
    }
    let cells = [
        "convert",
        "dpo.json",
        "--to",
        "prompt_completion",
        "--out",
        "pc.csv",
    ];
    let refused_cells = refused(dir.path(), &cells);
    assert!(refused_cells.contains("a cell is text"), "{refused_cells}");
    let lost = refused(dir.path(), &["convert", "tools.json", "--to", "alpaca"]);
    assert!(
        lost.contains("tools.json:") && lost.contains("tools"),
        "{lost}"
    );
    assert!(!dir.path().join("tools.alpaca.json").exists());
    let printed = ok(
        dir.path(),
        &["convert", "tools.json", "--to", "alpaca", "--skip-bad-rows"],
    );
    assert!(printed.contains("12 rows were skipped"), "{printed}");
    assert!(refused(dir.path(), &["convert", "dpo.json", "--to", "xml"]).contains("`xml`"));
}

#[test]
fn quoted_evaluation_text_is_found_and_plain_text_is_checked_by_paragraph() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "{}\n\nSomething of its own, never asked.\n\n{} And more.\n",
        question(3),
        question(5)
    );
    std::fs::write(dir.path().join("corpus.txt"), &text).unwrap();
    let eval: String = (3..5)
        .map(|i| json!({"prompt": question(i), "answer": "x"}).to_string() + "\n")
        .collect();
    std::fs::write(dir.path().join("eval.jsonl"), eval).unwrap();
    let json = ok(
        dir.path(),
        &["inspect", "corpus.txt", "--against", "eval.jsonl", "--json"],
    );
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&report["rows"], &report["format"]),
        (&json!(3), &json!("plain text, by paragraph"))
    );
    let found = &report["findings"][0];
    assert_eq!(
        (&found["id"], &found["rows"]),
        (&json!("contamination"), &json!(1))
    );
    assert_eq!(found["examples"][0]["place"], "corpus.txt:1");
    ok(
        dir.path(),
        &[
            "clean",
            "corpus.txt",
            "--against",
            "eval.jsonl",
            "--drop",
            "contamination",
            "--out",
            "clean.txt",
        ],
    );
    let clean = std::fs::read_to_string(dir.path().join("clean.txt")).unwrap();
    assert_eq!(clean, text.split_once("\n\n").unwrap().1);
    assert!(
        refused(
            dir.path(),
            &["clean", "corpus.txt", "--drop", "overlap", "--out", "y.txt"]
        )
        .contains("--val")
    );
}

/// Rows that quote what could not be read passed as clean.
#[test]
fn a_file_to_compare_with_that_breaks_off_is_an_error_and_its_bad_rows_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let row = |i| json!({"text": question(i)}).to_string();
    let rows: Vec<String> = (0..20).map(row).collect();
    std::fs::write(dir.path().join("rows.jsonl"), rows.join("\n")).unwrap();
    let whole = format!("[{}]", rows.join(","));
    std::fs::write(dir.path().join("cut.json"), &whole[..whole.len() / 2]).unwrap();
    let bad = format!("{}\n{{\"txt\": 1}}\n{{}}\n", rows[..3].join("\n"));
    std::fs::write(dir.path().join("bad.jsonl"), bad).unwrap();
    for (option, kind) in [("--against", "contamination"), ("--val", "overlap")] {
        let error = refused(
            dir.path(),
            &["inspect", "rows.jsonl", option, "cut.json", "--json"],
        );
        assert!(
            error.contains("cut.json") && error.contains("truncated"),
            "{error}"
        );
        let clean = [
            "clean",
            "rows.jsonl",
            option,
            "cut.json",
            "--drop",
            kind,
            "--out",
            "o.jsonl",
        ];
        assert!(refused(dir.path(), &clean).contains("cut.json"));
        assert!(!dir.path().join("o.jsonl").exists());
        let json = ok(
            dir.path(),
            &["inspect", "rows.jsonl", option, "bad.jsonl", "--json"],
        );
        let report: Value = serde_json::from_str(&json).unwrap();
        let notes = report["limits"].to_string();
        assert!(
            notes.contains("bad.jsonl was only partly compared: 2 rows cannot be read"),
            "{notes}"
        );
    }
}

/// Rows of a question and its answer fit two formats, and no option of the training rows settled that for the other file.
#[test]
fn questions_with_answers_and_mapped_columns_are_compared_with() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, row: &dyn Fn(usize) -> Value| {
        let rows: String = (0..20).map(|i| row(i).to_string() + "\n").collect();
        std::fs::write(dir.path().join(name), rows).unwrap();
    };
    write("rows.jsonl", &|i| json!({"text": question(i)}));
    write(
        "test.jsonl",
        &|i| json!({"question": question(i), "answer": "x"}),
    );
    write(
        "asked.jsonl",
        &|i| json!({"Ask": question(i), "Reply": "x"}),
    );
    let found = |args: &[&str], id: &str| {
        let json = ok(dir.path(), &[&["inspect", "--json"][..], args].concat());
        let report: Value = serde_json::from_str(&json).unwrap();
        let mut findings = report["findings"].as_array().unwrap().iter();
        let finding = findings.find(|finding| finding["id"] == id).unwrap();
        assert_eq!(finding["rows"], 20, "{args:?}");
    };
    found(&["rows.jsonl", "--against", "test.jsonl"], "contamination");
    found(&["rows.jsonl", "--val", "test.jsonl"], "overlap");
    let mapped = [
        "--format",
        "instruction_response",
        "--column",
        "instruction=Ask",
        "--column",
        "response=Reply",
    ];
    let asked = [&["asked.jsonl"][..], &mapped[..]].concat();
    found(&[&asked[..], &["--val", "asked.jsonl"]].concat(), "overlap");
    // A file of another format is read as it shows itself.
    found(&[&asked[..], &["--val", "rows.jsonl"]].concat(), "overlap");
}

#[test]
fn values_that_a_copy_does_not_keep_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let row = |i: usize| {
        format!(
            "{{\"text\": \"{}\", \"id\": 12345678901234567890123}}\n",
            question(i)
        )
    };
    let rows: String = (0..20).map(row).collect();
    std::fs::write(dir.path().join("big.jsonl"), rows).unwrap();
    let note = "note: big.jsonl: the column id has integers of more than 64 bits";
    let printed = ok(dir.path(), &["clean", "big.jsonl", "--out", "c.jsonl"]);
    assert_eq!(printed.matches(note).count(), 1, "{printed}");
    for args in [
        &["split", "big.jsonl"][..],
        &["convert", "big.jsonl", "--to", "jsonl", "--out", "d.jsonl"],
    ] {
        let output = llmtui(dir.path(), args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.matches(note).count(), 1, "{errors}");
    }
}

#[test]
fn the_batch_of_a_step_has_the_loss_in_the_log_and_a_branch_is_made_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_llmtui"))
            .args(args)
            .current_dir(dir.path())
            .env_clear()
            .env("HOME", dir.path())
            .env("XDG_RUNTIME_DIR", dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let program = |args: &[&str]| {
        let output = outcome(args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let words = [
        "data.val_fraction=0.01",
        "save_every=5",
        "keep_last=9",
        "grad_accum_steps=2",
    ];
    let set = words.iter().flat_map(|word| ["-s", word]);
    let events = program(
        &["train", "smoke", "--json"]
            .into_iter()
            .chain(set)
            .collect::<Vec<_>>(),
    );
    let logged = |wanted: u64| -> f64 {
        let reported = events
            .lines()
            .filter_map(|line| llmtui::wire::decode_envelope(line).ok());
        let mut losses = reported.filter_map(|envelope| match envelope.event {
            Event::Stepped { step, values, .. } if step == wanted => Some(values["train/loss"].0),
            _ => None,
        });
        losses.next().unwrap()
    };
    // Step 1 uses the weights before the first step, step 6 those of the checkpoint at step 5.
    for (step, weights_of) in [(1, 0), (6, 5)] {
        let number = step.to_string();
        let args = ["--run", "smoke", "--step", &number, "--loss", "--json"];
        let rows = ok(dir.path(), &[&["batches"][..], &args].concat());
        let rows = rows
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let (mut sum, mut n) = (0.0, 0.0);
        for row in rows {
            assert_eq!(row["scored"]["weights_of"], weights_of);
            let losses = row["scored"]["losses"].as_array().unwrap();
            assert_eq!(losses.len(), row["targets"].as_array().unwrap().len());
            sum += losses.iter().map(|x| x.as_f64().unwrap()).sum::<f64>();
            n += losses.len() as f64;
        }
        let (found, reported) = (sum / n, logged(step));
        assert!(
            (found - reported).abs() < 1e-5,
            "step {step}: {found}, {reported} in the log"
        );
    }
    let gone = refused(
        dir.path(),
        &["batches", "--run", "smoke", "--loss", "--checkpoint", "7"],
    );
    assert!(
        gone.contains("no checkpoint at step 7") && gone.contains("it keeps"),
        "{gone}"
    );

    // A model is named the same way, and if a checkpoint is missing, the available ones are listed.
    let shown = program(&["model", "show", "smoke@5"]);
    assert!(shown.contains("step-000005"), "{shown}");
    let checked = outcome(&["tokenizer", "check", "smoke"]).stdout;
    let checked = String::from_utf8_lossy(&checked);
    assert!(checked.contains("65 tokens"), "{checked}");
    let gone = outcome(&["model", "show", "smoke@7"]);
    let gone = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(gone.contains("no checkpoint at step 7"), "{gone}");

    let made = program(&[
        "train",
        "--branch",
        "smoke@5",
        "-s",
        "lr=0.02",
        "--no-start",
    ]);
    let folder = dir.path().join(made.trim());
    assert!(folder.join("checkpoints/step-000005").is_dir(), "{made}");
    let reported = std::fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    assert_eq!(reported, "", "nothing was started");
}

/// Those of `max_steps` were shown, which epochs replace.
#[test]
fn batches_of_a_spec_in_epochs_end_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..400).map(|i| format!("{}\n", question(i))).collect();
    std::fs::write(dir.path().join("t.txt"), text).unwrap();
    let step = |n: u64| {
        let n = n.to_string();
        let words = ["data.path=t.txt", "epochs=1.5"];
        let set = words.iter().flat_map(|word| ["-s", word]);
        let args = ["batches", "smoke", "--step", &n].into_iter().chain(set);
        llmtui(dir.path(), &args.collect::<Vec<_>>())
    };
    let beyond = step(1_000_000);
    let said = String::from_utf8_lossy(&beyond.stderr).into_owned();
    let last = said.split("from 1 to ").nth(1).unwrap_or(&said);
    let (last, rest) = last.split_once(' ').unwrap();
    assert!(rest.starts_with("(epochs 1.5"), "{said}");
    let last: u64 = last.replace(',', "").parse().unwrap();
    assert_eq!(step(last).status.code(), Some(0));
    assert_eq!(step(last + 1).status.code(), Some(2));
}
