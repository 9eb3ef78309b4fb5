//! Faulty weights, tokenizers, templates and cards.

use super::*;

#[test]
fn weights_are_held_against_the_description_and_must_be_numbers() {
    use Status::Fail;
    let with = |change: fn(&mut Model)| {
        move |folder: &Path| {
            let mut model = model();
            change(&mut model);
            let mut out = fs::File::create(folder.join(hf::WEIGHTS)).unwrap();
            hf::write_weights(&model, &mut out).unwrap();
        }
    };
    let poison = |model: &mut Model| {
        model
            .params_mut()
            .write_weights(|weights| weights[5] = f32::NAN)
            .unwrap();
    };
    after(
        with(poison),
        "weights",
        Fail,
        &["model.safetensors", "value 5 is NaN"],
    );
    after(
        |f| edit(f, hf::CONFIG, "\"n_layer\": 1", "\"n_layer\": 2"),
        "weights",
        Fail,
        &["is missing"],
    );
    let wide = |folder: &Path| {
        let mut out = fs::File::create(folder.join(hf::WEIGHTS)).unwrap();
        hf::write_weights(&model_with(3), &mut out).unwrap();
    };
    after(wide, "weights", Fail, &["shape"]);
    after(
        |f| fs::remove_file(f.join(hf::WEIGHTS)).unwrap(),
        "weights",
        Fail,
        &["no weights"],
    );
    let cut = |folder: &Path| {
        let path = folder.join(hf::WEIGHTS);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    };
    after(cut, "weights", Fail, &["model.safetensors"]);
    after(
        |f| edit(f, hf::CONFIG, "\"gpt2\"", "\"mamba\""),
        "description",
        Fail,
        &["config.json", "mamba"],
    );
    after(
        |f| {
            edit(
                f,
                hf::CONFIG,
                "\"eos_token_id\": 2",
                "\"eos_token_id\": 9999",
            )
        },
        "description",
        Fail,
        &["9999"],
    );
}

#[test]
fn tokenizer_and_template_are_tried_out() {
    use Status::{Fail, Warn};
    after(
        |f| fs::remove_file(f.join(hf::TOKENIZER)).unwrap(),
        "tokenizer",
        Fail,
        &["none"],
    );
    after(
        |f| fs::write(f.join(hf::TOKENIZER), "{}").unwrap(),
        "tokenizer",
        Fail,
        &["tokenizer.json"],
    );
    let template = |text: &'static str| {
        move |folder: &Path| {
            fs::write(folder.join("chat_template.jinja"), text).unwrap();
        }
    };
    after(
        template("{% for m in messages %}{{ m.content }}"),
        "template",
        Fail,
        &["chat_template.jinja"],
    );
    after(
        template("{{ messages[0].content }}"),
        "template",
        Fail,
        &["three turns", "is missing from the rendered text"],
    );
    after(
        template(
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m.content }}<|im_end|>{% endfor %}",
        ),
        "template",
        Warn,
        &["rejects a system prompt", "no system"],
    );
    after(
        template("{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>{% endfor %}"),
        "template",
        Warn,
        &["<|eot_id|>", "eos_token_id"],
    );
}

/// A card that sent people to transformers would be wrong of a model that only llmtui loads.
#[test]
fn a_model_without_a_class_has_another_library() {
    let library = |word: &str| {
        let dir = healthy();
        let folder = dir.path();
        let config = ModelConfig {
            position: crate::nn::position::PositionConfig::Alibi(Default::default()),
            ..model().config().clone()
        };
        let mut model = Model::new(
            &config,
            model().shape().vocab_size,
            &candle_core::Device::Cpu,
        )
        .unwrap();
        model.init(3).unwrap();
        fs::write(folder.join(hf::CONFIG), hf::config_json(&model, Some(2))).unwrap();
        let mut out = fs::File::create(folder.join(hf::WEIGHTS)).unwrap();
        hf::write_weights(&model, &mut out).unwrap();
        edit(
            folder,
            card::NAME,
            "library_name: transformers",
            &format!("library_name: {word}"),
        );
        let found = troubles(folder);
        let of_card: Vec<_> = found.into_iter().filter(|f| f.0 == "card").collect();
        of_card
    };
    assert_eq!(library("llmtui"), []);
    let found = library("transformers");
    assert!(
        found.len() == 1
            && found[0]
                .2
                .contains("transformers, where llmtui opens the folder"),
        "{found:?}"
    );
}

#[test]
fn a_card_is_held_against_what_the_hub_takes() {
    use Status::{Fail, Warn};
    let edit = |from: &'static str, to: &'static str| {
        move |folder: &Path| edit(folder, card::NAME, from, to)
    };
    after(
        |f| fs::remove_file(f.join(card::NAME)).unwrap(),
        "card",
        Fail,
        &["no README.md"],
    );
    after(
        |f| fs::remove_file(f.join(card::NAME)).unwrap(),
        "license",
        Fail,
        &["no license"],
    );
    after(
        edit("license: mit", "license: [mit"),
        "card",
        Fail,
        &["README.md"],
    );
    after(edit("license: mit\n", ""), "license", Fail, &["no license"]);
    after(
        edit("license: mit", "license: MIT"),
        "license",
        Warn,
        &["`MIT`"],
    );
    after(
        edit("license: mit", "license: other"),
        "license",
        Warn,
        &["without its name"],
    );
    after(
        edit("base_model: org/base", "base_model: /data/base"),
        "card",
        Fail,
        &["base_model", "/data/base"],
    );
    after(
        edit("- org/set", "- my notes.txt"),
        "card",
        Fail,
        &["datasets"],
    );
    after(
        edit("datasets:\n- org/set\n", ""),
        "card",
        Warn,
        &["datasets"],
    );
    after(
        edit("- en\n", "- English\n"),
        "card",
        Fail,
        &["language", "English"],
    );
    after(
        edit("pipeline_tag: text-generation\n", ""),
        "card",
        Warn,
        &["pipeline_tag"],
    );
    after(
        edit(
            "pipeline_tag: text-generation",
            "pipeline_tag: image-classification",
        ),
        "card",
        Warn,
        &["pipeline_tag"],
    );
    after(
        edit("\"value\": 0.5", "\"score\": 0.5"),
        "card",
        Fail,
        &["model-index", "result 1"],
    );
    after(
        edit(
            "A random model",
            "*To be written by the publisher: x.* A random model",
        ),
        "card",
        Warn,
        &["1 placeholder"],
    );
}
