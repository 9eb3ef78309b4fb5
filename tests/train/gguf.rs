//! A run that starts from a GGUF file.

use super::{Place, code, err, out};
use llmtui::data::tokenizer::{Marks, TokenizerConfig};
use llmtui::gguf::{Gguf, NewTensor, Value as GgufValue};
use llmtui::kernels::quant::Kind;
use llmtui::nn::{Model, ModelConfig};
use llmtui::run::RunDir;
use llmtui::run::log::read_all;
use llmtui::wire::{Envelope, Event};
use serde_json::Value;

/// `m.gguf` in a folder: a small Llama in Q8_0 with a tokenizer and a chat template. `change` modifies the tokenizer's keys.
pub(super) fn gguf(dir: &std::path::Path, change: impl Fn(&mut Vec<(String, GgufValue)>)) {
    let text = "the theme of the thesis: there are 12 of them\n".repeat(50);
    let bpe: TokenizerConfig = serde_json::from_str(r#"{"bpe": {"vocab_size": 270}}"#).unwrap();
    let marks = Marks {
        chat_template: Some("{% for m in messages %}{{ m.content }}{% endfor %}".into()),
        ..Marks::default()
    };
    let tokenizer = bpe.build(&text, &text).unwrap();
    let tokenizer = tokenizer.with_marks(marks).unwrap();
    let config: ModelConfig = serde_json::from_value(serde_json::json!({
        "n_layer": 2, "n_head": 2, "n_kv_head": 1, "d_model": 64, "d_ff": 96, "seq_len": 32,
        "vocab_size": 272, "position": {"rope": {}}, "norm": {"rmsnorm": {}}, "mlp": {"swiglu": {}},
    }))
    .unwrap();
    let mut model = Model::new(&config, 272, &candle_core::Device::Cpu).unwrap();
    model.init(3).unwrap();
    let mut keys = tokenizer.gguf_keys(272).unwrap().keys;
    change(&mut keys);
    let mut file = std::fs::File::create(dir.join("m.gguf")).unwrap();
    llmtui::llama_cpp::write(&model, Kind::Q8_0, "m", &keys, &mut file).unwrap();
}

/// `m.gguf` as `big-00001-of-00003.gguf` and so on, as llama-gguf-split writes it: the first part has keys alone.
fn split(dir: &std::path::Path) {
    let head = Gguf::open(&dir.join("m.gguf")).unwrap();
    let bytes = std::fs::read(dir.join("m.gguf")).unwrap();
    let n = head.tensors.len();
    for (no, range) in [0..0, 0..n / 2, n / 2..n].into_iter().enumerate() {
        let mine = &head.tensors[range];
        let all = head.metadata.iter().filter(|_| no == 0);
        let mut keys: Vec<(String, GgufValue)> = all.map(|(k, v)| (k.into(), v.clone())).collect();
        for (key, value) in [("no", no), ("count", 3), ("tensors.count", n)] {
            keys.push((format!("split.{key}"), GgufValue::Unsigned(value as u64)));
        }
        let tensors = mine.iter().map(|t| NewTensor {
            name: t.name.clone(),
            dims: t.dims.clone(),
            kind: t.kind,
        });
        let tensors: Vec<NewTensor> = tensors.collect();
        let name = format!("big-{:05}-of-00003.gguf", no + 1);
        let mut file = std::fs::File::create(dir.join(name)).unwrap();
        llmtui::gguf::write(&mut file, &keys, &tensors, &mut |i, out| {
            let start = (head.data_start + mine[i].offset) as usize;
            out.extend(&bytes[start..start + mine[i].bytes as usize]);
            Ok(())
        })
        .unwrap();
    }
}

fn losses(run: &RunDir) -> Vec<f64> {
    let log = read_all(&run.events_path()).unwrap();
    let of = |envelope: &Envelope| match &envelope.event {
        Event::Stepped { values, .. } => Some(values["train/loss"].0),
        _ => None,
    };
    log.iter().filter_map(of).collect()
}

#[test]
fn quantizing_a_checkpoint_is_measured_on_the_rows_that_its_run_holds_out() {
    let place = Place::new();
    let output = place.train(&["train.max_steps=3"], &["--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    let run = place.run().folder();
    let output = place.go(&["quantize", &run, "--dtype", "q8_0", "--to", "q.gguf"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let printed = out(&output);
    assert!(
        printed.contains("held-out rows") && printed.contains(&format!("tokens, of {run}")),
        "{printed}"
    );
    assert!(printed.contains("perplexity after"), "{printed}");
    // A text that is named counts.
    std::fs::write(place.dir.path().join("text.txt"), "to be or not to be").unwrap();
    let named = [
        "quantize", &run, "--dtype", "f16", "--to", "h.gguf", "--text", "text.txt",
    ];
    let output = place.go(&named);
    assert!(
        out(&output).contains("text               "),
        "{}",
        err(&output)
    );
}

#[test]
fn a_run_starts_from_a_gguf_file_as_from_its_dequantized_folder() {
    let place = Place::new();
    gguf(place.dir.path(), |_| {});
    let trained = |from: &str| {
        let output = place.train(
            &[from, "train.max_steps=3", "data.corpus=tinyshakespeare"],
            &["--headless"],
        );
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        let run = place.run();
        let newest = run.checkpoints_path().join("step-000003");
        let read = |name: &str| std::fs::read(newest.join(name)).unwrap();
        let files = [
            "tokenizer.json",
            "tokenizer_config.json",
            "model.safetensors",
        ]
        .map(read);
        let losses = losses(&run);
        std::fs::remove_dir_all(place.dir.path().join("runs")).unwrap();
        (losses, files)
    };
    let (losses, files) = trained("train.from=m.gguf");
    let template = String::from_utf8(files[1].clone()).unwrap();
    assert!(template.contains("{{ m.content }}"), "{template}");
    let arguments = ["export", "m.gguf", "--dequantize", "--to", "folder"];
    let output = place.go(&arguments);
    assert_eq!(code(&output), 0, "{}", err(&output));
    // 16-bit floats are not quantized weights: a folder of them needs no confirmation.
    let half = [
        "export",
        "folder",
        "--format",
        "gguf",
        "--dtype",
        "f16",
        "--to",
        "half.gguf",
    ];
    for (arguments, expected) in [
        (&half[..], 0),
        (&["export", "half.gguf", "--to", "from-half"], 0),
        (&["export", "m.gguf", "--to", "from-blocks"], 2),
    ] {
        let output = place.go(arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", err(&output));
    }
    let (by_folder, folder_files) = trained("train.from=folder");
    assert_eq!(losses, by_folder);
    assert!(losses.len() >= 3);
    // The keys of the folder's tokenizer_config.json keep their order.
    let config = |files: &[Vec<u8>; 3]| -> Value { serde_json::from_slice(&files[1]).unwrap() };
    assert_eq!(config(&files), config(&folder_files));
    assert!(files[0] == folder_files[0] && files[2] == folder_files[2]);
    for arguments in [
        &["model", "show", "smoke", "-s", "train.from=m.gguf"][..],
        &["plan", "smoke", "-s", "train.from=m.gguf"],
        &[
            "presets",
            "show",
            "smoke",
            "-s",
            "train.from=m.gguf",
            "--origins",
        ],
    ] {
        let output = place.go(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn missing_parts_of_a_gguf_file_are_reported_with_a_fix() {
    let place = Place::new();
    let dir = place.dir.path();
    let failed = |words: &[&str]| {
        let output = place.train(words, &["--headless"]);
        assert_ne!(code(&output), 0, "{}", out(&output));
        format!("{}{}", out(&output), err(&output))
    };
    std::fs::write(dir.join("m.gguf"), "no such thing").unwrap();
    let no_gguf = failed(&["train.from=m.gguf"]);
    assert!(no_gguf.contains("not a GGUF file"), "{no_gguf}");
    // A pre-tokenization rule without a name here: the model's own tokenizer.json has it.
    gguf(dir, |_| {});
    let output = place.go(&["export", "m.gguf", "--dequantize", "--to", "folder"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    gguf(dir, |keys| {
        let pre = keys.iter_mut().find(|(key, _)| key.ends_with(".pre"));
        pre.unwrap().1 = GgufValue::String("martian".into());
    });
    let unknown = failed(&["train.from=m.gguf"]);
    assert!(
        unknown.contains("martian") && unknown.contains("data.tokenizer.file.path"),
        "{unknown}"
    );
    let named = "data.tokenizer.file.path=folder/tokenizer.json";
    let output = place.train(
        &["train.from=m.gguf", named, "train.max_steps=1"],
        &["--headless"],
    );
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    let other = failed(&["train.from=m.gguf", "data.tokenizer=char"]);
    assert!(other.contains("differs from this run's"), "{other}");
    gguf(dir, |keys| keys.clear());
    let none = failed(&["train.from=m.gguf"]);
    assert!(none.contains("has no tokenizer"), "{none}");
    let output = place.train(
        &["train.from=m.gguf", named, "train.max_steps=1"],
        &["--headless"],
    );
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    let contradiction = failed(&["train.from=m.gguf", "model.n_layer=3"]);
    assert!(contradiction.contains("m.gguf has 2"), "{contradiction}");
}

/// Chat, scores, plans, exports and trainings of a split model are those of the whole file, whichever part is named.
#[test]
fn a_split_gguf_file_is_used_as_the_whole_one_is() {
    let place = Place::new();
    let dir = place.dir.path();
    gguf(dir, |_| {});
    split(dir);
    std::fs::write(dir.join("text.txt"), "the theme of the thesis").unwrap();
    let answer = |words: &[&str]| {
        let output = place.go(words);
        assert_eq!(code(&output), 0, "{words:?}: {}", err(&output));
        out(&output)
    };
    let (whole, part) = ("m.gguf", "big-00002-of-00003.gguf");
    for words in [
        &[
            "chat",
            "FILE",
            "--prompt",
            "the",
            "--raw",
            "--temperature",
            "0",
            "--max-new-tokens",
            "8",
        ][..],
        &["score", "FILE", "text.txt"],
    ] {
        let with = |file| {
            words
                .iter()
                .map(|w| if *w == "FILE" { file } else { *w })
                .collect::<Vec<_>>()
        };
        assert_eq!(answer(&with(part)), answer(&with(whole)), "{words:?}");
    }
    let shown = |file: &str| -> Value {
        let mut value: Value =
            serde_json::from_str(&answer(&["model", "show", file, "--json"])).unwrap();
        value["place"].take();
        value
    };
    assert_eq!(shown(part), shown(whole));
    answer(&["plan", part]);
    answer(&["export", whole, "--dequantize", "--to", "of-whole"]);
    answer(&["export", part, "--dequantize", "--to", "of-parts"]);
    let read = |folder: &str, name: &str| std::fs::read(dir.join(folder).join(name)).unwrap();
    for name in ["model.safetensors", "config.json", "tokenizer.json"] {
        assert_eq!(read("of-whole", name), read("of-parts", name), "{name}");
    }
    // What is written is one file again, called after the model.
    answer(&[
        "export",
        part,
        "--format",
        "gguf",
        "--dtype",
        "f16",
        "--dequantize",
        "--to",
        "one",
    ]);
    let again = Gguf::open(&dir.join("one/big-F16.gguf")).unwrap();
    assert!(
        again
            .metadata
            .iter()
            .all(|(key, _)| !key.starts_with("split."))
    );
    let trained = |from: &str, words: &[&str]| {
        let from = format!("train.from={from}");
        let own = [
            from.as_str(),
            "train.max_steps=3",
            "data.corpus=tinyshakespeare",
        ];
        let output = place.train(&[&own[..], words].concat(), &["--headless"]);
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        let run = place.run();
        let spec = std::fs::read_to_string(run.path().join("spec.yaml")).unwrap();
        let losses = losses(&run);
        std::fs::remove_dir_all(dir.join("runs")).unwrap();
        (losses, spec)
    };
    // All weights; adapters on quantized weights; adapters on dequantized ones.
    for words in [
        &[][..],
        &["adapter=lora"],
        &["adapter=lora", "train.dequantize=true"],
    ] {
        let (of_parts, spec) = trained(part, words);
        assert!(spec.contains("big-00001-of-00003.gguf"), "{spec}");
        assert_eq!(of_parts, trained(whole, words).0, "{words:?}");
        assert!(of_parts.len() >= 3);
    }
    std::fs::remove_file(dir.join("big-00003-of-00003.gguf")).unwrap();
    for words in [
        &["chat", part, "--prompt", "the"][..],
        &["score", part, "text.txt"],
        &["plan", part],
        &[
            "train",
            "smoke",
            "-s",
            "train.from=big-00001-of-00003.gguf",
            "--headless",
        ],
        &["export", part, "--dequantize", "--to", "none"],
    ] {
        let output = place.go(words);
        let said = format!("{}{}", out(&output), err(&output));
        let told = said.contains("part 3 of 3 is missing: no big-00003-of-00003.gguf in ");
        assert!(code(&output) != 0 && told, "{words:?}: {said}");
    }
}
