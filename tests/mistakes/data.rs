//! Mistakes with data: paths, rows, columns, templates, and what a dry run counts.

use super::*;

#[test]
fn unreadable_rows_are_reported_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("latin1.txt"), b"hello w\xf6rld\n").unwrap();
    let clean = ["data", "clean", "latin1.txt", "--out", "out.jsonl"];
    fails(dir.path(), &clean, 2, &["latin1.txt:1", "0xf6", "iconv"]);
    let (_, page, _) = llmtui(dir.path(), &["data", "inspect", "latin1.txt"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("nothing after latin1.txt:1"), "{page}");
    assert!(page.contains("fix latin1.txt: convert it"), "{page}");
    assert!(page.contains("skip cannot skip"), "{page}");
}

#[test]
fn a_missing_column_of_a_log_is_reported_with_the_existing_ones() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("log.csv"), "it,nll,dev\n1,2.5,\n2,2.4,\n").unwrap();
    let map = |word: &str| ["watch", "log.csv", "--map", word, "--headless"].map(String::from);
    let wrong = map("step=nope");
    let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
    fails(dir.path(), &wrong, 2, &["no column nope", "dev, it, nll"]);
    // A column whose cells are still empty exists.
    let right = map("val/loss=dev");
    let right: Vec<&str> = right.iter().map(String::as_str).collect();
    assert_eq!(llmtui(dir.path(), &right).0, 0);
}

#[test]
fn template_markers_missing_in_the_tokenizer_are_named_before_the_training() {
    let dir = tempfile::tempdir().unwrap();
    let row = |i: usize| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "say {i}"}}, {{"role": "assistant", "content": "yes {}"}}]}}"#,
            i * 7
        )
    };
    let rows: Vec<String> = (0..200).map(row).collect();
    std::fs::write(dir.path().join("rows.jsonl"), rows.join("\n")).unwrap();
    let small = "train sft --headless -s train.from=null -s data.path=rows.jsonl -s data.tokenizer.bpe.vocab_size=300 -s max_steps=2 \
        -s preflight.enabled=false -s n_layer=1 -s d_model=32 -s n_head=2 -s seq_len=128";
    let small: Vec<&str> = small.split_whitespace().collect();
    let (code, _, printed) = llmtui(dir.path(), &small);
    assert_eq!(code, 0, "{printed}");
    let run = std::fs::read_dir(dir.path().join("runs")).unwrap().next();
    let run = RunDir::open(&run.unwrap().unwrap().path()).unwrap();
    let model = run.checkpoints()[0].path.display().to_string();
    let lf = format!("stage: sft\nmodel_name_or_path: {model}\ntemplate: llama3\ndataset: gone\n");
    std::fs::write(dir.path().join("lf.yaml"), lf).unwrap();
    let from =
        format!("sft -s train.from={model} -s data.path=rows.jsonl -s max_steps=2 -s seq_len=128");
    let lacks = ["<|eot_id|> (", " tokens)", "data.template=auto"];
    for (words, template, named) in [
        ("import lf.yaml".into(), "", true),
        (format!("plan {from}"), "llama3", true),
        (format!("train {from} --dry-run"), "llama3", true),
        (format!("plan {from}"), "chatml", false),
        (format!("train {from} --dry-run"), "chatml", false),
    ] {
        let template = format!("data.template={template}");
        let mut words: Vec<&str> = words.split(' ').collect();
        if words[0] != "import" {
            words.extend(["-s", &template]);
        }
        let (code, out, printed) = llmtui(dir.path(), &words);
        assert_eq!(code, 0, "{words:?}: {printed}");
        let reported = format!("{out}{printed}");
        let reported: Vec<&str> = reported.split_whitespace().collect();
        let reported = reported.join(" ");
        assert_eq!(
            lacks.iter().all(|word| reported.contains(word)),
            named,
            "{words:?}: {reported}"
        );
    }
    let lf = "stage: sft\nmodel_name_or_path: org/model\ntemplate: llama3\ndataset: gone\n";
    std::fs::write(dir.path().join("lf.yaml"), lf).unwrap();
    let (_, spec, told) = llmtui(dir.path(), &["import", "lf.yaml"]);
    assert!(
        told.contains("template llama3 uses <|begin_of_text|>"),
        "{told}"
    );
    // `> spec.yaml` wrote the report into the spec.
    assert!(spec.starts_with("# Imported from lf.yaml"), "{spec}");
}

#[test]
fn a_printed_import_is_a_spec_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("text.txt"),
        "to be or not to be ".repeat(5_000),
    )
    .unwrap();
    let lf = "stage: pt\nlearning_rate: 2.0e-4\nmax_steps: 70\nsurprise: 3\n";
    std::fs::write(dir.path().join("lf.yaml"), lf).unwrap();
    let (code, spec, told) = llmtui(dir.path(), &["import", "lf.yaml"]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("surprise"), "{told}");
    std::fs::write(dir.path().join("spec.yaml"), spec).unwrap();
    let trial = [
        "train",
        "spec.yaml",
        "--dry-run",
        "-s",
        "data.path=text.txt",
        "-s",
        "model.seq_len=32",
    ];
    let (code, _, printed) = llmtui(dir.path(), &trial);
    assert_eq!(code, 0, "{printed}");
    // A file that is named gets the spec, and the report is all that is printed.
    let named = ["import", "lf.yaml", "--to", "other.yaml"];
    let (_, told, _) = llmtui(dir.path(), &named);
    assert!(
        told.contains("surprise") && told.contains("saved as other.yaml"),
        "{told}"
    );
}

/// Two hints in a row led to an empty file: dashes and curly quotes of Windows-1252, converted as Latin-1, are control characters.
#[test]
fn the_hint_for_windows_1252_keeps_its_dashes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("win.txt"), b"1990 \x96 95: \x93good\x94\n").unwrap();
    let (_, page, _) = llmtui(dir.path(), &["data", "inspect", "win.txt"]);
    assert!(page.contains("iconv -f windows-1252"), "{page}");
    let wrong = "1990 \u{96} 95: \u{93}good\u{94}\n1991 \u{96} 96\n";
    std::fs::write(dir.path().join("latin.txt"), wrong).unwrap();
    let (_, page, _) = llmtui(dir.path(), &["data", "inspect", "latin.txt"]);
    assert!(page.contains("iconv -f windows-1252"), "{page}");
    assert!(!page.contains("--drop control"), "{page}");
    let clean = [
        "data",
        "clean",
        "latin.txt",
        "--drop",
        "control",
        "--out",
        "o.jsonl",
    ];
    let (_, told, _) = llmtui(dir.path(), &clean);
    assert!(told.contains("no row is left"), "{told}");
}

#[test]
fn answers_that_are_not_read_are_named_with_their_columns() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"question": "How are you?", "good": "Fine.", "bad": "No."}"#;
    std::fs::write(dir.path().join("pairs.jsonl"), format!("{row}\n")).unwrap();
    let (_, page, _) = llmtui(dir.path(), &["data", "inspect", "pairs.jsonl"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("warning Columns beside the prompt"), "{page}");
    assert!(page.contains("columns bad, good"), "{page}");
    assert!(page.contains("-s data.columns.chosen=good"), "{page}");
    let dpo = [
        "train",
        "dpo-demo",
        "--dry-run",
        "-s",
        "data.path=pairs.jsonl",
    ];
    fails(dir.path(), &dpo, 2, &["-s data.columns.rejected=bad"]);
    let german = r#"{"Frage": "Wie geht es?", "Antwort": "Gut."}"#;
    std::fs::write(dir.path().join("de.jsonl"), format!("{german}\n")).unwrap();
    let inspect = ["data", "inspect", "de.jsonl"];
    fails(
        dir.path(),
        &inspect,
        2,
        &["--column instruction=Frage", "--column response=Antwort"],
    );
}

/// `-s data.path=$FILE` with an unset variable: the whole working directory used to be the corpus.
#[test]
fn an_empty_path_is_not_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("log.txt"), "not the corpus ".repeat(500)).unwrap();
    for key in ["data.path", "data.val_path", "train.from"] {
        let set = format!("{key}=");
        let phrases = [key, "it is empty", "remove it"];
        fails(
            dir.path(),
            &["train", "quickstart", "-s", &set, "--dry-run"],
            2,
            &phrases,
        );
    }
}

#[test]
fn a_data_file_in_place_of_a_spec_is_not_suggested_as_text() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("chats.jsonl"), "").unwrap();
    let phrases = [
        "this is data, not a spec",
        "data inspect chats.jsonl",
        "sft for conversations",
    ];
    fails(dir.path(), &["train", "chats.jsonl"], 2, &phrases);
}

#[test]
fn a_method_for_rows_does_not_train_on_the_built_in_text() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["train", "quickstart", "-s", "method=dpo", "--headless"];
    fails(
        dir.path(),
        &args,
        2,
        &["is plain text", "-s data.path=FILE"],
    );
    assert!(!dir.path().join("runs").exists());
}

/// Three token counts had the same label.
#[test]
fn a_dry_run_labels_its_counts() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "It is said."}]}"#;
    std::fs::write(
        dir.path().join("chats.jsonl"),
        format!("{row}\n").repeat(60),
    )
    .unwrap();
    let dry = |set: &[&str]| {
        let args = [&["train", "smoke", "--dry-run", "-s", "threads=1"], set].concat();
        let (code, out, printed) = llmtui(dir.path(), &args);
        assert_eq!(code, 0, "{printed}");
        out
    };
    let plain = dry(&[]);
    assert!(plain.contains("validation tokens\n"), "{plain}");
    assert!(plain.contains(", on 1 thread\n"), "{plain}");
    assert!(!plain.contains("padding"), "{plain}");
    let chats = dry(&[
        "-s",
        "method=sft",
        "-s",
        "data.path=chats.jsonl",
        "-s",
        "max_steps=300",
        "-s",
        "data.template=chatml",
        "-s",
        "seq_len=128",
    ]);
    assert!(chats.contains("validation tokens\n"), "{chats}");
    assert!(chats.contains(" with padding), "), "{chats}");
    assert!(
        chats.contains("tokens, padding included: up to 4"),
        "{chats}"
    );
    // Only answers are supervised: some of the split's tokens are not in the loss.
    let count = |words: &str| {
        let before = chats.split(words).next().unwrap();
        let number = before.rsplit(' ').next().unwrap();
        number.replace(',', "").parse::<u64>().unwrap()
    };
    assert!(
        count(" validation tokens count in the loss") < count(" validation tokens\n"),
        "{chats}"
    );
}
