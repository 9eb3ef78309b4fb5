//! A run that starts from a GGUF file.

use super::{Place, code, err, out};
use llmtui::data::tokenizer::{Marks, TokenizerConfig};
use llmtui::gguf::Value as GgufValue;
use llmtui::kernels::quant::Kind;
use llmtui::nn::{Model, ModelConfig};
use llmtui::run::RunDir;
use llmtui::run::log::read_all;
use llmtui::wire::{Envelope, Event};

/// `m.gguf` in a folder: a small Llama in Q8_0 with a tokenizer and a chat template. `change` modifies the tokenizer's keys.
fn gguf(dir: &std::path::Path, change: impl Fn(&mut Vec<(String, GgufValue)>)) {
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
    assert!(losses.len() >= 3 && files == folder_files);
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
