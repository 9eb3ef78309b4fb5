//! What is opened for methods and mixes, with rows of every kind.

use super::*;

#[test]
fn a_method_that_needs_rows_is_told_that_the_built_in_corpus_has_none() {
    for unit in [Unit::Pair, Unit::Ranked, Unit::Judged, Unit::Prompt] {
        let request = Request {
            unit,
            ..Request::new(64)
        };
        let Err(error) = Dataset::open(&DataConfig::default(), request) else {
            panic!("a plain text has no {unit:?}");
        };
        let text = format!("{error}; {}", error.hint());
        assert!(text.contains(unit.needs()), "{text}");
        assert!(text.contains("data.path"), "{text}");
    }
}

/// One way for all sources of a mix truncated a whole book to its first row.
#[test]
fn a_text_beside_conversations_is_split_and_they_are_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let (rows, text) = (dir.path().join("rows.jsonl"), dir.path().join("book.txt"));
    let row = r#"{"instruction": "say it", "output": "here it is, and it goes on for longer than a row has room for it all"}"#;
    std::fs::write(&rows, format!("{row}\n").repeat(8)).unwrap();
    std::fs::write(&text, "a line of the book that goes on\n".repeat(80)).unwrap();
    let open = |train_on: TrainOn, too_long: &str| {
        let config = serde_json::json!({
            "sources": [{"path": rows, "weight": 4.0}, {"path": text}],
            "val_fraction": 0.2,
            "too_long": too_long,
        });
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let request = Request {
            train_on,
            ..Request::new(96)
        };
        Dataset::open(&config, request).unwrap()
    };
    for train_on in [TrainOn::All, TrainOn::Assistant] {
        let data = open(train_on, "auto");
        let told = data.notes.join("\n");
        assert!(told.contains("continue in further rows"), "{told}");
        let lost = &data.learning.as_ref().unwrap().losses;
        assert!(lost.iter().all(|loss| loss.conversations), "{lost:?}");
        let book = &data.sources()[1];
        assert!(book.epoch_tokens > 1_500, "{book:?}");
    }
    // What the spec says holds for all.
    let data = open(TrainOn::All, "truncate");
    let lost = &data.learning.as_ref().unwrap().losses;
    assert!(lost.iter().any(|loss| !loss.conversations), "{lost:?}");
}

/// Without an end between them the files of a folder were one text, and a token that one of them spells was not told of.
#[test]
fn a_folder_is_read_as_the_glob_of_its_files() {
    let dir = tempfile::tempdir().unwrap();
    for (name, line) in [
        ("a.txt", "the first of the texts\n"),
        ("b.TXT", "and the second one, which is another\n"),
        ("c.txt", "<|endoftext|> is spelt here\n"),
        (".hidden.txt", "no\n"),
    ] {
        std::fs::write(dir.path().join(name), line.repeat(40)).unwrap();
    }
    let open = |path: std::path::PathBuf| {
        let config = serde_json::json!({
            "path": path, "tokenizer": {"bpe": {"vocab_size": 280}}, "val_rows": 1,
        });
        let config: DataConfig = serde_json::from_value(config).unwrap();
        Dataset::prepare(&config, 16).unwrap()
    };
    let (folder, glob) = (open(dir.path().into()), open(dir.path().join("*.[tT]*")));
    assert_eq!(
        folder.train_sample(usize::MAX),
        glob.train_sample(usize::MAX)
    );
    assert_eq!(folder.val_sample(usize::MAX), glob.val_sample(usize::MAX));
    let told = folder.notes.join("\n");
    assert!(told.contains("1 row with special tokens as text"), "{told}");
    assert!(
        told.contains("1 of 3 rows held out for validation, whole"),
        "{told}"
    );
    let eos = folder.tokenizer.eos().unwrap();
    let ends = |tokens: &[u32]| tokens.iter().filter(|id| **id == eos).count();
    let all = ends(&folder.train_sample(usize::MAX)) + ends(&folder.val_sample(usize::MAX));
    // The ends of three documents, and those that a text spells.
    assert_eq!(all, 3 + 40);
    // Of one text alone these are told of, too.
    let one = |name: &str| {
        let config = serde_json::json!({
            "path": dir.path().join(name), "tokenizer": {"bpe": {"vocab_size": 280}},
        });
        let config: DataConfig = serde_json::from_value(config).unwrap();
        Dataset::prepare(&config, 16).unwrap().notes.join("\n")
    };
    assert!(one("c.txt").contains("special tokens as text"));
    assert_eq!(one("a.txt"), "");
}

/// A method that learns answers said nothing of a text that has none.
#[test]
fn a_text_without_answers_is_told_of_where_answers_are_learned() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt"] {
        std::fs::write(dir.path().join(name), "hardly an answer\n".repeat(60)).unwrap();
    }
    let notes = |path: std::path::PathBuf, train_on| {
        let config = DataConfig {
            path: Some(path),
            ..DataConfig::default()
        };
        let request = Request {
            train_on,
            ..Request::new(16)
        };
        Dataset::open(&config, request).unwrap().notes.join("\n")
    };
    for path in [dir.path().join("a.txt"), dir.path().to_path_buf()] {
        let told = notes(path.clone(), TrainOn::Assistant);
        assert!(told.contains("every token of it is supervised"), "{told}");
        assert!(!notes(path, TrainOn::All).contains("no prompts and answers"));
    }
}

/// Its held-out rows were less than a window, and lay in neither split.
#[test]
fn a_small_source_of_a_stream_mix_trains_on_what_fills_no_window() {
    let dir = tempfile::tempdir().unwrap();
    let (large, small) = (
        dir.path().join("large.jsonl"),
        dir.path().join("small.jsonl"),
    );
    let rows = |n: usize, text: &str| format!("{{\"text\": \"{text}\"}}\n").repeat(n);
    std::fs::write(&large, rows(400, "a longer line of a larger source")).unwrap();
    std::fs::write(&small, rows(25, "a line of thirty characters")).unwrap();
    let config = serde_json::json!({
        "sources": [{"path": large}, {"path": small}],
        "packing": "stream",
        "val_fraction": 0.1,
    });
    let config: DataConfig = serde_json::from_value(config).unwrap();
    let data = Dataset::open(&config, Request::new(256)).unwrap();
    let told = data.notes.join("\n");
    let words = "small.jsonl: none of its rows is held out: they would be ";
    assert!(told.contains(words), "{told}");
    assert!(!told.contains("of 25 rows held out"), "{told}");
    assert_eq!(data.sources()[1].documents, 25);
    assert!(data.val_windows() > 0);
}

/// Of a pair that KTO judges answer by answer, one was trained on while the other, to the same prompt, validated.
#[test]
fn judged_answers_of_a_pair_are_held_out_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pairs.jsonl");
    for pairs in [2, 7, 50] {
        let row = |n| {
            let prompt = ('A'..='Z').chain('a'..='z').nth(n).unwrap();
            format!(r#"{{"prompt": "{prompt}", "chosen": "yes, {n}", "rejected": "no"}}"#)
        };
        let rows: Vec<String> = (0..pairs).map(row).collect();
        std::fs::write(&path, rows.join("\n")).unwrap();
        let config = serde_json::json!({"path": path, "val_fraction": 0.3});
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let request = Request {
            unit: Unit::Judged,
            ..Request::new(32)
        };
        let data = Dataset::open(&config, request).unwrap();
        let (mut train, mut val) = (Vec::new(), Vec::new());
        for batch in data.every_batch(1) {
            let side = if batch.origins[0].held_out {
                &mut val
            } else {
                &mut train
            };
            side.push(batch.inputs[0]);
        }
        assert!(!train.is_empty() && !val.is_empty());
        assert_eq!(train.len() + val.len(), 2 * pairs);
        assert!(train.iter().all(|prompt| !val.contains(prompt)));
    }
}

/// What the advisor offers for pairs and labelled answers: supervised fine-tuning, KTO, reinforcement learning.
#[test]
fn rows_serve_the_methods_that_learn_from_a_part_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let pair = |n| format!(r#"{{"prompt": "say {n}: ", "chosen": "yes {n}", "rejected": "no"}}"#);
    let judged = |n| {
        let good = n % 3 != 0;
        format!(r#"{{"prompt": "say {n}: ", "completion": "yes {n}", "label": {good}}}"#)
    };
    let chat = |n| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "say {n}"}}, {{"role": "assistant", "content": "yes {n}"}}]}}"#
        )
    };
    let rows: [(&str, &dyn Fn(usize) -> String); 3] =
        [("pairs", &pair), ("judged", &judged), ("chats", &chat)];
    for (name, row) in rows {
        let lines: Vec<String> = (1..=60).map(row).collect();
        std::fs::write(
            dir.path().join(name).with_extension("jsonl"),
            lines.join("\n"),
        )
        .unwrap();
    }
    let open = |name: &str, unit: Unit| {
        let path = dir.path().join(name).with_extension("jsonl");
        let config = serde_json::json!({"path": path, "val_fraction": 0.2});
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let request = Request {
            unit,
            train_on: TrainOn::Completion,
            ..Request::new(96)
        };
        Dataset::open(&config, request).map_err(|e| e.to_string())
    };
    for (name, unit, examples, said) in [
        ("pairs", Unit::Text, 60, "trains on the chosen answer"),
        ("judged", Unit::Text, 40, "trains on answers labelled good"),
        (
            "pairs",
            Unit::Judged,
            60,
            "each pair becomes two labelled answers",
        ),
        ("pairs", Unit::Prompt, 60, "only the prompts"),
        ("judged", Unit::Prompt, 60, "only the prompts"),
        ("chats", Unit::Prompt, 60, "the reference answer"),
    ] {
        let data = open(name, unit).unwrap();
        let told = data.notes.join("\n");
        assert!(told.contains(said), "{name} {unit:?}: {told}");
        // What is asked is not learned.
        let learned = told.contains("% of them supervised");
        assert_eq!(learned, unit != Unit::Prompt, "{name} {unit:?}: {told}");
        assert!(
            told.contains(&format!("of {examples} rows held out")),
            "{name} {unit:?}: {told}"
        );
    }
    // Nothing says which of two answers a single one is better than.
    assert!(open("judged", Unit::Pair).is_err());
    assert!(open("chats", Unit::Judged).is_err());
}

/// A data set of eight equal rows.
fn of_one_row(unit: Unit, row: &str, seq_len: usize) -> Result<Dataset, DataError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    std::fs::write(&path, format!("{row}\n").repeat(8)).unwrap();
    let config = serde_json::json!({"path": path, "val_fraction": 0.25});
    let config: DataConfig = serde_json::from_value(config).unwrap();
    let request = Request {
        unit,
        train_on: TrainOn::Completion,
        ..Request::new(seq_len)
    };
    Dataset::open(&config, request)
}

/// Sampled answers to turns kept the space that separates the words of a text that goes on.
#[test]
fn held_out_rows_that_a_template_wrote_are_known_by_their_number() {
    let turns = r#"{"messages": [{"role": "user", "content": "say it"}, {"role": "assistant", "content": "it"}]}"#;
    let text = r#"{"prompt": "say it: ", "completion": "it"}"#;
    for (row, templated) in [(turns, true), (text, false)] {
        let data = of_one_row(Unit::Text, row, 96).unwrap();
        let first = data.first_val_rows(1)[0];
        assert_eq!(data.is_val_row_templated(first), templated, "{row}");
        assert!(!data.is_val_row_templated(1_000));
    }
}

/// Only prompts of RL were looked at: pairs and completions bypassed the template of a chat model in silence.
#[test]
fn prompts_that_bypass_the_template_are_known_by_their_format() {
    let plain = |unit, row: &str| of_one_row(unit, row, 96).unwrap().plain_prompts;
    let completion = r#"{"prompt": "say it: ", "completion": "it"}"#;
    assert_eq!(
        plain(Unit::Text, completion),
        Some(FormatId::PromptCompletion)
    );
    let pair = r#"{"prompt": "say it: ", "chosen": "it", "rejected": "no"}"#;
    assert_eq!(plain(Unit::Pair, pair), Some(FormatId::Preference));
    let turns = r#"{"question": "say it", "answer": "it"}"#;
    assert_eq!(plain(Unit::Text, turns), None);
    // Texts that the template wrote before.
    let written = r#"{"prompt": "<|im_start|>user\nsay it<|im_end|>\n", "completion": "it"}"#;
    assert_eq!(plain(Unit::Text, written), None);
    let text = format!(r#"{{"text": "{}"}}"#, "a text ".repeat(40));
    assert_eq!(plain(Unit::Text, &text), None);
}

fn emptied(unit: Unit, row: &str, seq_len: usize) -> String {
    let Err(error) = of_one_row(unit, row, seq_len) else {
        panic!("rows were left");
    };
    format!("{error}; {}", error.hint())
}

/// A prompt of one token more than a row was not called too long, and the advised length dropped it again.
#[test]
fn the_advised_length_keeps_a_prompt() {
    let prompt = format!(r#"{{"prompt": "{}", "answer": "yes"}}"#, "word ".repeat(40));
    let advised = |text: &str| -> usize {
        let (_, after) = text.split_once("a larger model.seq_len: ").expect(text);
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    let length = advised(&emptied(Unit::Prompt, &prompt, 32));
    let text = emptied(Unit::Prompt, &prompt, length - 1);
    assert!(
        text.contains("longer than a row and are left out"),
        "{text}"
    );
    assert_eq!(advised(&text), length);
    let data = of_one_row(Unit::Prompt, &prompt, length);
    assert!(data.is_ok(), "{:?}", data.err());
}

/// "The validation split has 0 tokens, or a smaller model.seq_len" was said of answers that truncation cut off.
#[test]
fn rows_that_are_too_long_ask_for_longer_rows() {
    let long = "word ".repeat(40);
    let pair = format!(r#"{{"prompt": "{long}", "chosen": "yes", "rejected": "no"}}"#);
    let text = emptied(Unit::Ranked, &pair, 32);
    assert!(
        text.contains("all 6 pairs are longer than a row and are left out"),
        "{text}"
    );
    let text = emptied(Unit::Pair, &pair, 32);
    assert!(
        text.contains("lose their answers") && text.contains("truncate_start"),
        "{text}"
    );
    assert!(text.contains("a larger model.seq_len: 20"), "{text}");
    let judged = format!(r#"{{"prompt": "{long}", "completion": "yes", "label": true}}"#);
    let text = emptied(Unit::Judged, &judged, 32);
    assert!(
        text.contains("judged answers are longer") && !text.contains("smaller"),
        "{text}"
    );
}

#[test]
fn a_validation_split_without_a_row_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, prompt: &str| {
        let path = dir.path().join(name);
        let row = serde_json::json!({"prompt": prompt, "completion": "yes", "label": true});
        std::fs::write(&path, format!("{row}\n").repeat(4)).unwrap();
        path
    };
    let (path, val) = (file("a.jsonl", "q"), file("b.jsonl", &"word ".repeat(40)));
    let config = serde_json::json!({"path": path, "val_path": val});
    let config: DataConfig = serde_json::from_value(config).unwrap();
    let request = Request {
        unit: Unit::Judged,
        ..Request::new(32)
    };
    let error = Dataset::open(&config, request).unwrap_err();
    let text = format!("{error}; {}", error.hint());
    assert!(
        text.contains("validation split has nothing to predict: all 4 judged"),
        "{text}"
    );
    assert!(text.contains("a larger model.seq_len"), "{text}");
}

#[test]
fn one_row_is_named_as_what_cannot_be_split() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl");
    let row = serde_json::json!({"prompt": "hi", "completion": "hello"});
    std::fs::write(&path, format!("{row}\n")).unwrap();
    let config = serde_json::json!({"path": path, "packing": "packed"});
    let config: DataConfig = serde_json::from_value(config).unwrap();
    let request = Request {
        train_on: TrainOn::Auto,
        ..Request::new(32)
    };
    let error = Dataset::open(&config, request).unwrap_err();
    let text = format!("{error}; {}", error.hint());
    assert!(text.contains("one row, which cannot be split"), "{text}");
    assert!(text.contains("data.val_path"), "{text}");
}

#[test]
fn tools_without_a_place_and_weights_of_turns_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tools.jsonl");
    let call = serde_json::json!({"type": "function", "function": {"name": "f", "arguments": {}}});
    let row = serde_json::json!({
        "messages": [
            {"role": "user", "content": "f?", "weight": 1},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": "2"},
            {"role": "assistant", "content": "It is 2.", "weight": 1},
        ],
    });
    std::fs::write(&path, format!("{row}\n").repeat(20)).unwrap();
    let open = |template: &str| {
        let config = serde_json::json!({"path": path, "template": template});
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let request = Request {
            train_on: TrainOn::Assistant,
            ..Request::new(256)
        };
        Dataset::open(&config, request).unwrap()
    };
    let data = open("chatml");
    let told = data.notes.join("\n");
    let expected = "drops the tools of 20 of 20 rows; 20 of 40 answers are only a tool call and come out empty";
    assert!(
        told.contains(expected) && told.contains("data.template=qwen"),
        "{told}"
    );
    assert!(told.contains("20 rows with a weight on user"), "{told}");
    let learning = data.learning.unwrap();
    let counts = (
        learning.without_tools,
        learning.answers,
        learning.empty_calls,
    );
    assert_eq!(counts, (20, 40, 20));
    let data = open("qwen");
    assert_eq!(data.learning.unwrap().without_tools, 0);
}

#[test]
fn rounds_before_an_instruction_are_told_to_be_read_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rounds.jsonl");
    let row = r#"{"instruction": "more", "output": "three", "history": [["one", "two"]]}"#;
    std::fs::write(&path, format!("{row}\n").repeat(5)).unwrap();
    let config = serde_json::json!({"path": path, "template": "chatml"});
    let config: DataConfig = serde_json::from_value(config).unwrap();
    let request = Request {
        train_on: TrainOn::Assistant,
        ..Request::new(256)
    };
    let told = Dataset::open(&config, request).unwrap().notes.join("\n");
    assert!(
        told.contains("5 rows with a history") && told.contains("--to messages"),
        "{told}"
    );
}

/// The first rows of a set, a tokenizer that is made of them, and tokens of its own in the cache.
#[test]
fn a_fraction_of_a_source_is_its_first_rows() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let row = |n: usize| {
        let letter = ('a'..='z').nth(n % 26).unwrap();
        format!("{{\"text\": \"{}\"}}\n", letter.to_string().repeat(30))
    };
    std::fs::write(&rows, (0..26).map(row).collect::<String>()).unwrap();
    let open = |fraction: f64, more: serde_json::Value| {
        let mut config = serde_json::json!({
            "sources": [{"path": rows, "fraction": fraction}],
            "val_fraction": 0.2,
            "packing": "padded",
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let mut request = Request::new(64);
        request.surroundings.cache = Some(dir.path().join("cache"));
        Dataset::open(&config, request)
    };
    let none = serde_json::json!({});
    let rows_of = |data: &Dataset| {
        let said = data
            .notes
            .iter()
            .find(|note| note.contains("rows held out"));
        said.unwrap().clone()
    };
    let whole = open(1.0, none.clone()).unwrap();
    assert!(rows_of(&whole).contains("of 26 rows"), "{:?}", whole.notes);
    let half = open(0.5, none.clone()).unwrap();
    assert!(rows_of(&half).contains("of 13 rows"), "{:?}", half.notes);
    // Later rows have other letters, which this tokenizer never saw.
    assert!(half.tokenizer.vocab_size() < whole.tokenizer.vocab_size());
    assert_ne!(half.fingerprint, whole.fingerprint);
    let fewer = open(0.5, serde_json::json!({"max_rows": 10})).unwrap();
    assert!(rows_of(&fewer).contains("of 10 rows"), "{:?}", fewer.notes);
    // The cache keeps them apart, and the tokenizers of max_rows too.
    let again = open(1.0, none).unwrap();
    assert_eq!(again.tokenizer.vocab_size(), whole.tokenizer.vocab_size());
    let trial = open(1.0, serde_json::json!({"max_rows": 5})).unwrap();
    assert!(trial.tokenizer.vocab_size() < half.tokenizer.vocab_size());
    let text = dir.path().join("book.txt");
    std::fs::write(&text, "a line\n".repeat(80)).unwrap();
    let config = serde_json::json!({"sources": [{"path": text, "fraction": 0.5}]});
    let config: DataConfig = serde_json::from_value(config).unwrap();
    let error = Dataset::open(&config, Request::new(16)).unwrap_err();
    assert!(
        error.hint().contains("fraction"),
        "{error}; {}",
        error.hint()
    );
}

#[test]
fn held_out_rows_may_be_counted_over_all_sources() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str, rows: usize| {
        let path = dir.path().join(name);
        let row = |n| format!("{{\"text\": \"row {n} of {name} with some words\"}}\n");
        std::fs::write(&path, (0..rows).map(row).collect::<String>()).unwrap();
        path
    };
    let (many, few) = (place("many.jsonl", 90), place("few.jsonl", 30));
    let open = |sources: serde_json::Value, rows: u64| {
        let config = serde_json::json!({"sources": sources, "val_rows": rows, "packing": "padded"});
        let config: DataConfig = serde_json::from_value(config).unwrap();
        Dataset::open(&config, Request::new(64))
    };
    let data = open(serde_json::json!([{"path": many}, {"path": few}]), 12).unwrap();
    assert_eq!(data.val_windows(), 12);
    let told = data.notes.join("\n");
    assert!(
        told.contains("9 of 90 rows") && told.contains("3 of 30 rows"),
        "{told}"
    );
    // Where a source has none to give, the others give them.
    let data = open(serde_json::json!([{"path": many}, {"path": few}]), 1).unwrap();
    assert_eq!(data.val_windows(), 1);
    let error = open(serde_json::json!([{"path": few}]), 30).unwrap_err();
    let told = format!("{error}; {}", error.hint());
    assert!(told.contains("30 rows, but there are only 30"), "{told}");
    let text = dir.path().join("book.txt");
    std::fs::write(&text, "a line of a book\n".repeat(50)).unwrap();
    let error = open(serde_json::json!([{"path": text}]), 3).unwrap_err();
    let told = format!("{error}; {}", error.hint());
    assert!(
        told.contains("one text") && told.contains("val_fraction"),
        "{told}"
    );
}

/// Held-out rows that fill no window of a stream were in neither split, in silence.
#[test]
fn counted_rows_that_fill_no_window_are_trained_on_and_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str, rows: usize, words: usize| {
        let path = dir.path().join(name);
        let row = |n| format!("{{\"text\": \"{n} {}\"}}\n", "word ".repeat(words));
        std::fs::write(&path, (0..rows).map(row).collect::<String>()).unwrap();
        path
    };
    let (long, short) = (place("long.jsonl", 40, 200), place("short.jsonl", 40, 10));
    let open = |sources: serde_json::Value, rows: u64| {
        let config = serde_json::json!({"sources": sources, "val_rows": rows, "packing": "stream"});
        let config: DataConfig = serde_json::from_value(config).unwrap();
        Dataset::open(&config, Request::new(512))
    };
    let data = open(serde_json::json!([{"path": long}, {"path": short}]), 8).unwrap();
    let told = data.notes.join("\n");
    let words = "short.jsonl: none of its rows is held out: its share of data.val_rows is 4, of ";
    assert!(told.contains(words), "{told}");
    assert!(!told.contains("long.jsonl: none"), "{told}");
    let error = open(serde_json::json!([{"path": short}]), 4).unwrap_err();
    let told = format!("{error}; {}", error.hint());
    assert!(
        told.contains("a row needs 513") && told.contains("a larger data.val_rows"),
        "{told}"
    );
}

/// The end of a document is named beside the vocabulary: with another one the shards of the cache were taken as they were, and
/// a resume saw no change.
#[test]
fn another_end_mark_is_another_tokenizer_and_other_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (rows, folder) = (dir.path().join("rows.jsonl"), dir.path().join("model"));
    std::fs::create_dir(&folder).unwrap();
    let vocabulary = include_str!("../../../../../tests/fixtures/chat/tokenizer.json");
    std::fs::write(folder.join("tokenizer.json"), vocabulary).unwrap();
    let row = r#"{"prompt": "say it: ", "completion": "it is said"}"#;
    std::fs::write(&rows, format!("{row}\n").repeat(8)).unwrap();
    let opened = |eos: &str| {
        let marks = serde_json::json!({"eos_token": eos}).to_string();
        std::fs::write(folder.join("tokenizer_config.json"), marks).unwrap();
        let config = serde_json::json!({
            "path": rows, "val_fraction": 0.2, "tokenizer": {"file": {"path": folder}}, "cache": dir.path().join("cache"),
        });
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let data = Dataset::open(&config, Request::new(64)).unwrap();
        let batch = data.train_batch(0, 0, 1);
        let end = data.tokenizer.id(eos).unwrap();
        assert!(batch.targets.contains(&end), "{eos}: {:?}", batch.targets);
        (data.tokenizer_fingerprint, data.fingerprint)
    };
    let (first, second) = (opened("</s>"), opened("<|im_end|>"));
    assert!(first.0 != second.0 && first.1 != second.1);
    assert_eq!(first, opened("</s>"));
}
