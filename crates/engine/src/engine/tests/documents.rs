//! Runs on rows: fine-tuning on conversations, mixes, packed and padded rows, and bit-exact resumes.

use super::*;
use std::path::PathBuf;

/// Files of conversations; the second of longer ones.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { dir };
        let sums = (0..200).map(|i| {
            (
                format!("{}+{}=", i % 20, i / 20),
                format!("{}", i % 20 + i / 20),
            )
        });
        files.write("sums.jsonl", sums);
        let echoes = (0..60).map(|i| {
            (
                format!("say {}", "abc ".repeat(1 + i % 9)),
                "abc ".repeat(1 + i % 9),
            )
        });
        files.write("echoes.jsonl", echoes);
        files
    }

    fn write(&self, name: &str, pairs: impl Iterator<Item = (String, String)>) {
        let row = |(user, assistant): (String, String)| {
            let turn = |role, content| serde_json::json!({"role": role, "content": content});
            serde_json::json!({"messages": [turn("user", user), turn("assistant", assistant)]})
        };
        let lines: Vec<String> = pairs.map(|pair| row(pair).to_string()).collect();
        std::fs::write(self.path(name), lines.join("\n")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn one(&self) -> String {
        format!("data.path={}", self.path("sums.jsonl").display())
    }

    /// Two sources, two to one.
    fn mixed(&self) -> String {
        let (a, b) = (self.path("sums.jsonl"), self.path("echoes.jsonl"));
        format!(
            "data.sources=[{{path: {}, weight: 2}}, {{path: {}}}]",
            a.display(),
            b.display()
        )
    }
}

const SFT: [&str; 4] = [
    "method=sft",
    "model.seq_len=96",
    "data.val_fraction=0.1",
    "sample.every=0",
];

fn sft(words: &[&str]) -> Run {
    Run::new(&[&SFT, words].concat())
}

fn readings(events: &[Event], id: &str) -> Vec<f64> {
    let values = events.iter().filter_map(|event| match event {
        Event::Stepped { values, .. } | Event::Evaluated { values, .. } => {
            values.get(id).map(|x| x.0)
        }
        _ => None,
    });
    values.collect()
}

fn notes(events: &[Event]) -> String {
    let notes = events.iter().filter_map(|event| match event {
        Event::Noted { text, .. } => Some(&**text),
        _ => None,
    });
    notes.collect::<Vec<_>>().join("\n")
}

#[test]
fn fine_tuning_on_conversations_lowers_the_loss_of_answers_it_has_not_seen() {
    let files = Files::new();
    let events = sft(&[
        &files.one(),
        "train.max_steps=40",
        "optimizer.adamw.lr=1e-2",
        "preflight.enabled=true",
    ])
    .go();
    assert_eq!(
        finished(&events).0,
        Outcome::Completed,
        "{:?}",
        finished(&events)
    );
    let losses = readings(&events, "val/loss");
    assert!(losses[losses.len() - 1] < 0.6 * losses[0], "{losses:?}");
    let accuracy = readings(&events, "val/mean_token_accuracy");
    assert!(
        accuracy[accuracy.len() - 1] > accuracy[0] + 0.2,
        "{accuracy:?}"
    );
    assert!(!readings(&events, "mean_token_accuracy").is_empty());
    // Bytes of answers are not known.
    assert!(readings(&events, "val/bpb").is_empty());
    let notes = notes(&events);
    for word in [
        "200 documents",
        "% of them supervised",
        "% full",
        "tokens/s",
        "messages",
    ] {
        assert!(notes.contains(word), "{word}: {notes}");
    }
}

#[test]
fn rows_of_documents_resume_to_the_bit_however_they_are_laid() {
    let files = Files::new();
    let curriculum = "data.curriculum=[{until_tokens: 1500, weights: [1, 0]}]";
    for packing in ["packed", "padded", "stream"] {
        let packing = format!("data.packing={packing}");
        let words = [
            &*files.mixed(),
            &packing,
            curriculum,
            "train.grad_accum_steps=2",
        ];
        let straight = sft(&words);
        let whole = straight.go();
        assert_eq!(
            finished(&whole).0,
            Outcome::Completed,
            "{:?}",
            finished(&whole)
        );
        let mut parted = sft(&words);
        parted.job.stop_after = Some(10);
        let (first, second) = (parted.go(), parted.resumed());
        assert_eq!(
            loss_log(&[&whole]),
            loss_log(&[&first, &second]),
            "{packing}"
        );
        same_files(&straight.checkpoint(20), &parted.checkpoint(20));
        let tokens = readings(&whole, "tokens/sums.jsonl");
        assert!(tokens.windows(2).all(|pair| pair[0] <= pair[1]) && tokens.len() > 1);
        assert!(notes(&whole).contains("mix: "), "{}", notes(&whole));
    }
}

/// The note counted passes over as many steps as a spec in epochs names by default, 116 in place of 1.
#[test]
fn a_mix_in_epochs_is_told_over_the_steps_that_those_come_to() {
    let files = Files::new();
    let mix = |words: &[&str]| {
        let mixed = files.mixed();
        let words: Vec<&str> = [&*mixed].into_iter().chain(words.iter().copied()).collect();
        let events = sft(&words).go();
        let told: Vec<String> = events
            .iter()
            .filter_map(|event| match event {
                Event::Noted { text, .. } if text.starts_with("mix: ") => Some(text.clone()),
                _ => None,
            })
            .collect();
        let steps = events.iter().find_map(|event| match event {
            Event::Started { max_steps, .. } => Some(*max_steps),
            _ => None,
        });
        assert_eq!(told.len(), 1, "{told:?}");
        (told[0].clone(), steps.unwrap())
    };
    let (in_epochs, steps) = mix(&["train.epochs=1"]);
    let (in_steps, _) = mix(&[&format!("train.max_steps={steps}")]);
    assert_eq!(in_epochs, in_steps);
}

#[test]
fn supervised_tokens_weigh_alike_however_a_step_is_portioned() {
    let files = Files::new();
    let losses = |rows: &str, accum: &str| {
        let words = [
            &*files.mixed(),
            "data.packing=packed",
            rows,
            accum,
            "train.max_steps=6",
        ];
        let events = sft(&words).go();
        assert_eq!(finished(&events).0, Outcome::Completed);
        readings(&events, "train/loss")
    };
    let whole = losses("train.micro_batch_size=4", "train.grad_accum_steps=1");
    let parts = losses("train.micro_batch_size=1", "train.grad_accum_steps=4");
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a - b).abs() < 1e-4, "{whole:?} {parts:?}");
    }
}

#[test]
fn an_edited_row_is_noticed_at_a_resume() {
    let files = Files::new();
    let mut run = sft(&[&files.one(), "train.max_steps=6"]);
    run.job.stop_after = Some(5);
    run.go();
    let text = std::fs::read_to_string(files.path("sums.jsonl")).unwrap();
    std::fs::write(files.path("sums.jsonl"), text.replacen("0+0=", "0+1=", 1)).unwrap();
    let (outcome, _, message) = finished(&run.resumed());
    assert_eq!(outcome, Outcome::Invalid);
    assert!(
        message.contains("changed") && message.contains("--force"),
        "{message}"
    );
}

#[test]
fn tokens_are_made_once_and_taken_from_the_cache_afterwards() {
    let files = Files::new();
    let cache = files.path("cache");
    let words = [&*files.one(), "train.max_steps=1"];
    let run = |expected: &str| {
        let mut run = sft(&words);
        run.job.env.cache_dir = Some(cache.clone());
        let events = run.go();
        assert_eq!(finished(&events).0, Outcome::Completed);
        let notes = notes(&events);
        assert!(notes.contains(expected), "{expected}: {notes}");
        (notes.contains("tokens/s"), readings(&events, "train/loss"))
    };
    let (made, first) = run("200 documents");
    let (again, second) = run("200 documents");
    assert!(made && !again);
    assert_eq!(first, second);
    let text = std::fs::read_to_string(files.path("sums.jsonl")).unwrap();
    std::fs::write(files.path("sums.jsonl"), text.replacen("0+0=", "0+0?", 1)).unwrap();
    let (made, _) = run("tokenized again, as this changed: its content, the tokenizer");
    assert!(made);
}

#[test]
fn samples_of_a_run_on_answers_are_answers_to_held_out_questions() {
    let files = Files::new();
    let words = [
        &*files.one(),
        "data.tokenizer={bpe: {vocab_size: 300}}",
        "sample.every=10",
        "sample.sampling.max_new_tokens=4",
    ];
    let events = sft(&words).go();
    let asked = |event: &Event| match event {
        Event::Sampled { step, prompt, .. } => Some((*step, prompt.clone())),
        _ => None,
    };
    let asked: Vec<_> = events.iter().filter_map(asked).collect();
    assert!(asked.len() >= 4, "{asked:?}");
    for (_, prompt) in &asked {
        assert!(
            prompt.starts_with("<|im_start|>user\n") && prompt.ends_with("<|im_start|>assistant\n"),
            "{prompt}"
        );
    }
    // The same ones each time, so that steps compare.
    let at = |step: u64| {
        asked
            .iter()
            .filter(move |(s, _)| *s == step)
            .map(|(_, p)| p)
    };
    let first: Vec<_> = at(asked[0].0).collect();
    assert!(first.len() == 2 && at(20).eq(first), "{asked:?}");
}

/// A prompt of one's own is asked as held-out questions are; without its template the model was asked in a format that it never saw.
#[test]
fn the_own_prompt_of_a_run_on_chats_is_a_users_turn() {
    let files = Files::new();
    let tokenizer = "data.tokenizer={bpe: {vocab_size: 300}}";
    let few = ["sample.sampling.max_new_tokens=4", "max_steps=2"];
    let asked = |data: &str, prompt: &str| {
        let prompt = format!("sample.prompt={prompt:?}");
        let run = sft(&[&[data, tokenizer, &prompt], &few[..]].concat());
        let events = run.go();
        let of = |event: &Event| match event {
            Event::Sampled { prompt, .. } => Some(prompt.clone()),
            _ => None,
        };
        events.iter().find_map(of).expect("no sample")
    };
    let chats = files.one();
    let turn = "<|im_start|>user\n3+4=<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(asked(&chats, "3+4="), turn);
    // What has the template's markers is taken as written.
    assert_eq!(asked(&chats, turn), turn);
    let plain = Run::new(&["max_steps=2", "sample.prompt=First", few[0]]).go();
    let raw = |event: &Event| matches!(event, Event::Sampled { prompt, .. } if prompt == "First");
    assert!(plain.iter().any(raw));
}

#[test]
fn a_checkpoint_speaks_the_format_that_it_supervised() {
    use crate::engine::infer::{LoadedModel, TextModel};
    use crate::wire::{Prompt, Turn};
    let files = Files::new();
    let supervised = sft(&[&files.one(), "data.tokenizer={bpe: {vocab_size: 300}}"]);
    let events = supervised.go();
    assert_eq!(finished(&events).0, Outcome::Completed);
    let held = LoadedModel::load(&supervised.checkpoint(20)).unwrap();
    let turns = Prompt::Turns(vec![Turn::new("user", "3+4=")]);
    let reading = held
        .read(&turns, &crate::base::sampling::Sampling::default())
        .unwrap();
    assert_eq!(
        reading.text,
        "<|im_start|>user\n3+4=<|im_end|>\n<|im_start|>assistant\n"
    );
    let Event::Loaded { template, .. } = held.about(0.0) else {
        panic!("what is held")
    };
    assert!(template.is_some());
    // Other programs learn from the folder, too, that a turn ends there.
    let generation = std::fs::read_to_string(supervised.checkpoint(20).join(crate::hf::GENERATION));
    let generation: serde_json::Value = serde_json::from_str(&generation.unwrap()).unwrap();
    assert_eq!(generation["eos_token_id"].as_array().map(Vec::len), Some(2));
    // Plain text has no format of its own.
    let plain = Run::new(&["train.max_steps=5"]);
    plain.go();
    let held = LoadedModel::load(&plain.checkpoint(5)).unwrap();
    assert!(
        held.read(&turns, &crate::base::sampling::Sampling::default())
            .is_err()
    );
}

/// An instruct model stops at several tokens, of which its tokenizer names one; and a base without BOS has an id for it.
#[test]
fn what_ends_a_text_for_the_start_model_still_ends_one() {
    let files = Files::new();
    let (one, tokenizer) = (files.one(), "data.tokenizer={bpe: {vocab_size: 300}}");
    let first = sft(&[&one, tokenizer, "train.max_steps=1"]);
    first.go();
    let read = |folder: &Path, name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let base = files.path("base");
    std::fs::create_dir(&base).unwrap();
    for name in [
        crate::hf::CONFIG,
        crate::hf::WEIGHTS,
        crate::hf::TOKENIZER,
        crate::hf::TOKENIZER_CONFIG,
    ] {
        std::fs::copy(first.checkpoint(1).join(name), base.join(name)).unwrap();
    }
    let ends = read(&first.checkpoint(1), crate::hf::GENERATION)["eos_token_id"].clone();
    let [mark, turn] = ends.as_array().unwrap().as_slice() else {
        panic!("{ends}")
    };
    let mut config = read(&base, crate::hf::CONFIG);
    assert_eq!(
        &config["bos_token_id"], mark,
        "the tokenizer has none: the test needs that"
    );
    config["bos_token_id"] = 66.into();
    std::fs::write(base.join(crate::hf::CONFIG), config.to_string()).unwrap();
    // The last one is no token of the vocabulary.
    let settings = serde_json::json!({"eos_token_id": [mark, 65, 9999], "temperature": 0.5});
    let settings_file = base.join(crate::hf::GENERATION);
    std::fs::write(&settings_file, settings.to_string()).unwrap();
    let from = format!("train.from={}", base.display());
    let mut run = sft(&[&one, &from, "train.max_steps=2"]);
    run.job.stop_after = Some(1);
    run.go();
    std::fs::remove_file(&settings_file).unwrap();
    run.resumed();
    for step in [1, 2] {
        for name in [crate::hf::GENERATION, crate::hf::CONFIG] {
            let kept = read(&run.checkpoint(step), name);
            assert_eq!(kept["bos_token_id"], 66, "step {step}, {name}");
            let expected = serde_json::json!([mark, turn, 65]);
            assert_eq!(kept["eos_token_id"], expected, "step {step}, {name}");
        }
    }
}

#[test]
fn a_split_with_fewer_rows_than_the_batches_is_read_once_each_time() {
    let files = Files::new();
    let more = ["train.max_steps=4", "eval.every=2", "eval.batches=1000"];
    let run = sft(&[&[files.one().as_str()][..], &more].concat());
    let windows: Vec<(u64, u64, bool)> = run
        .go()
        .iter()
        .filter_map(|event| match event {
            Event::Evaluated {
                step,
                n_windows,
                whole,
                ..
            } => Some((*step, *n_windows, *whole)),
            _ => None,
        })
        .collect();
    let [(2, during, true), (4, at_the_end, true)] = windows[..] else {
        panic!("{windows:?}");
    };
    assert_eq!(during, at_the_end);
}
