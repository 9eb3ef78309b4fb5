//! What cards say: of evaluations, of models that only llmtui loads, of GGUF files, and of weights from the hub.

use super::*;
use crate::nn::position::PositionConfig;
use crate::tasks::TaskOrigin;

/// The metadata of a card, and its text.
fn parts(card: &str) -> (serde_json::Value, String) {
    let inner = card.strip_prefix("---\n").unwrap();
    let (front, body) = inner.split_once("\n---\n").unwrap();
    (crate::spec::yaml::parse(front).unwrap(), body.into())
}

fn result(task: &str, value: f64, shots: usize, items: usize) -> CardResult {
    CardResult {
        task: task.into(),
        metric: "acc".into(),
        value,
        stderr: None,
        items,
        shots,
        limited: false,
        origin: TaskOrigin::Own,
    }
}

#[test]
fn the_hub_gets_one_result_of_each_setting_and_none_of_a_part() {
    let (_dir, source) = source(|_| {});
    let part = CardResult {
        limited: true,
        ..result("capitals", 0.9, 0, 2)
    };
    let about = About {
        results: vec![
            part,
            result("capitals", 0.25, 0, 4),
            result("capitals", 0.5, 0, 8),
            result("capitals", 0.75, 2, 8),
        ],
        ..About::default()
    };
    let (meta, body) = parts(&card(&source, "f32", &about));
    let listed = meta["model-index"][0]["results"].as_array().unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|r| {
            let shots = r["dataset"]["args"]["num_few_shot"].as_u64().unwrap();
            assert_eq!(r["metrics"][0]["name"], format!("acc ({shots}-shot)"));
            (shots, r["metrics"][0]["value"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(listed, [(0, 0.5), (2, 0.75)]);
    for row in [
        "| capitals | 0 | acc | 0.9000 | only 2 |",
        "| capitals | 2 | acc | 0.7500 | 8 |",
        "`--limit`",
    ] {
        assert!(body.contains(row), "{row}: {body}");
    }
    let limited = About {
        results: about.results[..1].to_vec(),
        ..About::default()
    };
    let (meta, _) = parts(&card(&source, "f32", &limited));
    assert!(meta.get("model-index").is_none(), "{meta}");
}

#[test]
fn only_tasks_of_the_harness_are_said_to_be_its() {
    let (_dir, source) = source(|_| {});
    let by = |task: &str, origin| CardResult {
        origin,
        ..result(task, 0.5, 0, 8)
    };
    let said = |results: Vec<CardResult>| {
        let about = About {
            results,
            ..About::default()
        };
        parts(&card(&source, "f32", &about)).1
    };
    let own = said(vec![
        by("made_recall", TaskOrigin::Synthetic),
        by("mine", TaskOrigin::Own),
    ]);
    assert!(!own.contains("lm-evaluation-harness"), "{own}");
    assert!(
        own.contains("- made_recall: synthetic") && own.contains("- mine: the publisher's own"),
        "{own}"
    );
    let all = said(vec![
        by("piqa", TaskOrigin::Harness),
        by("arc_easy", TaskOrigin::Harness),
        by("xstest", TaskOrigin::Program),
    ]);
    assert!(
        all.contains("- piqa, arc_easy: prompts and metrics as lm-evaluation-harness")
            && all.contains("- xstest: prompts and metrics of llmtui"),
        "{all}"
    );
}

#[test]
fn a_model_that_only_this_program_loads_is_not_sent_to_transformers() {
    let (_dir, source) = source(|c| c.position = PositionConfig::Alibi(Default::default()));
    let (meta, body) = parts(&card(&source, "f32", &About::default()));
    assert_eq!(meta["library_name"], "llmtui");
    assert!(
        body.contains("| class | none of transformers")
            && body.contains("llmtui chat FOLDER")
            && !body.contains("from_pretrained"),
        "{body}"
    );
}

/// GPT-2's class has biases; of a model without any the files have zeros.
#[test]
fn the_parameters_of_a_card_are_those_of_its_folder() {
    let (dir, source) = source(|_| {});
    let to = dir.path().join("out");
    let hf = format("hf").unwrap();
    export(&source, hf, &options("f32", u64::MAX), &to).unwrap();
    let bytes = fs::read(to.join(crate::hf::WEIGHTS)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let values = (bytes.len() as u64 - 8 - header) / 4;
    assert!(values > source.model.n_params() as u64);
    let card = fs::read_to_string(to.join("README.md")).unwrap();
    let row = format!("| parameters | {} |", crate::base::human::grouped(values));
    assert!(card.contains(&row), "{row}: {card}");
}

#[test]
fn what_comes_from_the_hub_names_its_repository() {
    let (dir, _) = source(|_| {});
    let snapshot = dir.path().join("models--org--base/snapshots/0123abc");
    fs::create_dir_all(&snapshot).unwrap();
    for name in [crate::hf::CONFIG, crate::hf::WEIGHTS] {
        fs::copy(dir.path().join(name), snapshot.join(name)).unwrap();
    }
    let source = Source::open(&snapshot).unwrap();
    let card_of = |word: &str| {
        let to = dir.path().join(word);
        export(
            &source,
            format(word).unwrap(),
            &options("f32", u64::MAX),
            &to,
        )
        .unwrap();
        parts(&fs::read_to_string(to.join("README.md")).unwrap())
    };
    let (meta, _) = card_of("hf");
    assert_eq!(meta["base_model"], "org/base");
    assert!(meta.get("base_model_relation").is_none(), "{meta}");
    let (meta, body) = card_of("gguf");
    assert_eq!(meta["base_model"], "org/base");
    assert_eq!(meta["base_model_relation"], "quantized");
    assert_eq!(meta["library_name"], "gguf");
    assert!(
        body.contains("| dtype | F32 |")
            && body.contains("llama-cli -m 'base-F32.gguf'")
            && !body.contains("from_pretrained"),
        "{body}"
    );
    // Trained weights are more than another format.
    let about = About {
        base_model: Some("org/base".into()),
        procedure: vec![("method".into(), "sft".into())],
        ..About::default()
    };
    let (meta, body) = parts(&gguf_card(&source, None, "q8_0", &about));
    assert_eq!(meta["base_model_relation"], "finetune");
    assert!(body.contains("llama-cli -m 'FILE.gguf'"), "{body}");
}
