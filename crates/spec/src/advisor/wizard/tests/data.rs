//! What the data and the start model make of the questions after them.

use super::*;

/// Every recipe is offered for a text, however short.
#[test]
fn a_text_of_a_few_characters_is_asked_for_its_size_too() {
    let dir = tempfile::tempdir().unwrap();
    for length in [1, 7, 30, 69, 200] {
        let path = dir.path().join("own.txt");
        std::fs::write(&path, "x".repeat(length)).unwrap();
        let mut wizard = with_file(&path);
        until(&mut wizard, Step::Model);
        let presets = wizard.fitting_presets();
        assert!(presets.iter().any(|preset| preset.name == "smoke"));
        for preset in presets {
            let steps = wizard.recipe(preset).value("train.max_steps").as_u64();
            assert!(steps <= preset.draft.value("train.max_steps").as_u64());
        }
    }
}

#[test]
fn rows_of_texts_and_of_answers_become_a_spec_that_reads_them_as_such() {
    for (row, format) in [
        (
            r#"{"text": "To be, or not to be: that is the question."}"#,
            "text",
        ),
        (
            r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#,
            "messages",
        ),
        (r#"{"question": "To be?", "answer": "Or not to be."}"#, ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut wizard = with_rows(dir.path(), row);
        until(&mut wizard, Step::Finish);
        let Outcome::Check { yaml, .. } = wizard.enter() else {
            panic!("{row}: {:?}", wizard.error());
        };
        let spec = crate::spec::load_text("x.yaml", &yaml, &SpecSources::default());
        let spec = spec.unwrap().spec;
        assert!(yaml.contains("bpe") && spec.data.path.is_some(), "{yaml}");
        let sources = crate::data::source::SourceConfig::path(
            spec.data.path.clone().unwrap().display().to_string(),
        );
        let mut rows = crate::data::source::rows(&sources, &Default::default()).unwrap();
        let first = rows.next().unwrap().unwrap();
        let told = crate::data::formats::detect(&[first], &Default::default(), None);
        match told {
            Ok(told) => assert_eq!(told.format.word(), format),
            Err(_) => assert!(yaml.contains("format: "), "{yaml}"),
        }
    }
}

#[test]
fn what_no_start_can_learn_from_is_refused_where_the_start_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"prompt": "To be?", "chosen": "Or not to be.", "rejected": "Yes."}"#;
    let mut wizard = with_rows(dir.path(), row);
    until(&mut wizard, Step::Start);
    wizard.select(0);
    assert_eq!(wizard.enter(), Outcome::Stay);
    let why = wizard.error().unwrap();
    assert!(
        why.contains("chosen and rejected") && why.contains("name a model"),
        "{why}"
    );
}

#[test]
fn an_instruct_model_and_chats_are_tuned_both_ways_with_the_models_own_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#;
    let mut wizard = with_rows(dir.path(), row);
    wizard.answers.goal = Some(Goal::Instructions);
    until(&mut wizard, Step::Start);
    wizard.select(2);
    wizard.type_in(&model_folder(dir.path()));
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    wizard.on_inspected(look.now(None));
    assert_eq!(wizard.step(), Step::Method, "{:?}", wizard.error());
    let titles = |wizard: &Wizard| -> Vec<String> {
        let rows = wizard.question().rows;
        rows.iter()
            .filter(|r| r.open)
            .map(|r| r.title.clone())
            .collect()
    };
    assert_eq!(titles(&wizard)[..2], ["SFT with LoRA", "SFT, full"]);
    let lora = wizard
        .advice()
        .iter()
        .position(|a| a.title() == "SFT with LoRA");
    wizard.select(lora.unwrap());
    assert_eq!(wizard.enter(), Outcome::Moved);
    let recipes = |wizard: &Wizard| -> Vec<String> {
        let presets = wizard.fitting_presets();
        presets.iter().map(|preset| preset.name.clone()).collect()
    };
    assert_eq!(recipes(&wizard), ["sft-lora"]);
    let about = "DPO on pairs of yours, all weights.";
    let through = "DPO on pairs of yours, through LoRA.";
    assert_eq!(wizard.about_recipe(about), through);
    let notes = wizard.question().notes;
    let model = notes.iter().find(|n| n.label == "Model").unwrap();
    assert!(
        model.text.contains("3 layers of 48") && model.text.contains("vocabulary 5,000"),
        "{model:?}"
    );
    until(&mut wizard, Step::Settings);
    let (draft, wrong) = wizard.draft().unwrap();
    assert!(wrong.is_empty());
    assert_eq!(draft.value("adapter.lora.rank"), 8);
    assert_eq!(draft.value("optimizer.adamw.lr"), 2e-4);
    assert_eq!(draft.value("model.seq_len"), 128);
    assert_eq!(draft.value("train.grad_accum_steps"), 1, "few rows");
    // The template counts in epochs, and so does the plan.
    assert_eq!(draft.value("train.epochs"), 3.0);
    let words: Vec<String> = wizard
        .question()
        .rows
        .iter()
        .map(|r| r.title.clone())
        .collect();
    for (is, is_not) in [("epochs", "max_steps"), ("warmup_ratio", "warmup_steps")] {
        assert!(
            words.iter().any(|w| w == is) && !words.iter().any(|w| w == is_not),
            "{words:?}"
        );
    }
    until(&mut wizard, Step::Plan);
    let notes = wizard.question().notes;
    let data = notes.iter().find(|n| n.label == "Data").unwrap();
    let passes: f64 = data
        .text
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    // The last step may reach into the next pass.
    assert!((3.0..3.5).contains(&passes), "{data:?}");
    // The other form keeps the model and leaves the adapter out.
    wizard.go_to(Step::Method);
    let full = wizard
        .advice()
        .iter()
        .position(|a| a.title() == "SFT, full");
    wizard.select(full.unwrap());
    wizard.enter();
    let (draft, _) = wizard.draft().unwrap();
    assert!(draft.value("adapter").is_null());
    // The template of the method has a rate for billions of parameters, which would not move so small a model.
    assert_eq!(recipes(&wizard), ["sft"]);
    assert_eq!(wizard.about_recipe(about), about);
    assert_eq!(draft.value("optimizer.adamw.lr"), 1e-4);
}

/// Steps of a rollout are counted in prompts, and its answers need room behind them.
#[test]
fn prompts_with_references_keep_the_recipes_steps_and_room_for_answers() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"question": "What is 3 + 4?", "answer": "7"}"#;
    let mut wizard = with_rows(dir.path(), row);
    wizard.answers.goal = Some(Goal::Reasoning);
    until(&mut wizard, Step::Start);
    wizard.select(2);
    wizard.type_in(&model_folder(dir.path()));
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    wizard.on_inspected(look.now(None));
    until(&mut wizard, Step::Plan);
    let (draft, wrong) = wizard.draft().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    let spec = draft.spec().unwrap();
    let length = spec.rollout_length().expect("GRPO is advised");
    assert_eq!(spec.train.max_steps, 500, "the preset's");
    assert_eq!((length.prompts, spec.model.seq_len), (8, 512));
    let yaml = wizard.yaml().unwrap();
    assert!(yaml.contains("completions up to 320"), "{yaml}");
    assert!(!yaml.contains("epochs over your data"), "{yaml}");
}

#[test]
fn data_that_no_run_can_read_are_refused_where_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &std::path::Path| {
        let (mut wizard, look) = looking_at(path);
        assert_eq!(wizard.on_inspected(look.now(None)), Outcome::Stay);
        wizard.error().unwrap_or_default().to_string()
    };
    let rows = dir.path().join("pictures.jsonl");
    let row = r#"{"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That."}], "images": ["a.png"]}"#;
    std::fs::write(&rows, format!("{row}\n{row}\n")).unwrap();
    let error = refused(&rows);
    assert!(
        error.contains("pictures.jsonl:1: the row has images"),
        "{error}"
    );
    let model = model_folder(dir.path());
    let model = std::path::Path::new(&model);
    for path in [model, &model.join("model.safetensors")] {
        let error = refused(path);
        assert!(error.contains("is a model, not data"), "{error}");
    }
}

/// `train.jsonl` names no run; a format that was chosen among several is one, not a question.
#[test]
fn rows_of_a_split_are_named_after_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sums");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("train.jsonl");
    std::fs::write(
        &path,
        "{\"question\": \"3 + 4\", \"answer\": \"7\"}\n".repeat(300),
    )
    .unwrap();
    let mut wizard = with_file(&path);
    until(&mut wizard, Step::Settings);
    let yaml = wizard.yaml().unwrap();
    assert!(yaml.contains("name: sums\n"), "{yaml}");
    assert!(!yaml.contains("say which"), "{yaml}");
    assert!(
        yaml.contains("instruction_response; could also be prompt_only"),
        "{yaml}"
    );
}

/// The words of the plan's row.
fn planned(wizard: &Wizard, label: &str) -> String {
    let notes = wizard.question().notes;
    let found = notes.into_iter().find(|note| note.label == label);
    found.map(|note| note.text).unwrap_or_default()
}

/// 7 updates in all with every default, and the advice to make the batches smaller beside them; and two lines on the held-out
/// tokens, each with another number.
#[test]
fn few_chats_get_batches_that_make_updates_and_one_line_on_what_is_held_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.jsonl");
    let row = |at: usize| {
        // One in ten is far longer than a row.
        let words = if at % 10 == 9 { 20_000 } else { 900 };
        let asked = "to be ".repeat(words / 6);
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{at} {asked}"}}, {{"role": "assistant", "content": "Or not to be, that is it."}}]}}"#
        )
    };
    let rows: Vec<String> = (0..60).map(row).collect();
    std::fs::write(&path, rows.join("\n")).unwrap();
    let mut wizard = with_file(&path);
    wizard.answers.goal = Some(Goal::Instructions);
    until(&mut wizard, Step::Start);
    wizard.select(2);
    wizard.type_in(&model_folder(dir.path()));
    until(&mut wizard, Step::Method);
    let whole = wizard
        .advice()
        .iter()
        .position(|a| a.title() == "SFT, full");
    wizard.select(whole.unwrap());
    until(&mut wizard, Step::Plan);
    let (draft, wrong) = wizard.draft().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    let spec = draft.spec().unwrap();
    let train = &spec.train;
    assert!(
        train.micro_batch_size < 4 && train.grad_accum_steps == 1,
        "{train:?}"
    );
    let notes = wizard.question().notes;
    let told = |words: &str| {
        notes
            .iter()
            .filter(|note| note.text.contains(words))
            .count()
    };
    assert_eq!(told("hardly change"), 0, "{notes:?}");
    assert_eq!(told("validation token"), 1, "{notes:?}");
}

/// Steps, tokens of each and tokens in all are of one run; what is counted from an estimate says so.
#[test]
fn a_plan_of_pairs_counts_both_answers_in_every_number() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"prompt": "To be?", "chosen": "Or not to be.", "rejected": "Yes."}"#;
    let mut wizard = with_rows(dir.path(), row);
    wizard.answers.goal = Some(Goal::Style);
    until(&mut wizard, Step::Start);
    wizard.select(2);
    wizard.type_in(&model_folder(dir.path()));
    until(&mut wizard, Step::Plan);
    assert_eq!(wizard.answers().method, Some(MethodId::Dpo));
    let spec = wizard.draft().unwrap().0.spec().unwrap();
    let (train, length) = (&spec.train, spec.model.seq_len);
    assert!(train.epochs.is_some());
    let words = planned(&wizard, "Steps");
    let rows = (2 * train.micro_batch_size * train.grad_accum_steps) as u64;
    let parts = words
        .strip_prefix("about ")
        .and_then(|rest| rest.split_once(" of "));
    let (steps, rest) = parts.unwrap_or_else(|| panic!("{words}"));
    let steps: u64 = steps.replace(',', "").parse().unwrap();
    let (each, _) = rest.split_once(" tokens each").unwrap();
    let each: u64 = each.replace(',', "").parse().unwrap();
    let all = crate::base::human::short((steps * each) as f64);
    assert_eq!(rest, format!("{each} tokens each, about {all} in all"));
    // Rows are as long as their answers, not as the context.
    assert!(
        rows <= each && each < rows * length as u64 / 2,
        "{rows} rows: {words}"
    );
    // Steps that are said are no estimate.
    wizard.set("train.epochs", "null");
    wizard.set("train.max_steps", "7");
    assert!(planned(&wizard, "Steps").starts_with("7 of "), "{words}");
}

/// Characters are no tokens: what is said of a text is said of the tokens of the model to start from.
#[test]
fn a_text_is_judged_by_its_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.txt");
    std::fs::write(&path, "x".repeat(400_000)).unwrap();
    let mut wizard = with_file(&path);
    wizard.answers.goal = Some(Goal::Knowledge);
    until(&mut wizard, Step::Start);
    wizard.select(1);
    wizard.type_in(&model_folder(dir.path()));
    until(&mut wizard, Step::Method);
    let why = wizard.advice()[0].why[0].1.clone();
    assert!(why.starts_with("about 100k tokens are too few"), "{why}");
    until(&mut wizard, Step::Finish);
    let yaml = wizard.yaml().unwrap();
    assert!(yaml.contains("about 100k tokens"), "{yaml}");
}

/// A vocabulary of characters has a token for each, and reads no other character.
#[test]
fn a_model_that_cannot_read_the_data_is_refused_with_what_it_lacks() {
    use crate::data::tokenizer::TokenizerConfig;
    let dir = tempfile::tempdir().unwrap();
    let model = model_folder(dir.path());
    let known = "To be, or not to be: that is the question.\n";
    let characters = TokenizerConfig::Char(Default::default());
    let tokenizer = characters.build(known, known).unwrap();
    std::fs::write(
        std::path::Path::new(&model).join("tokenizer.json"),
        tokenizer.to_json(),
    )
    .unwrap();
    let path = dir.path().join("own.txt");
    std::fs::write(&path, format!("{}é", known.repeat(99))).unwrap();
    let mut wizard = with_file(&path);
    let look = |wizard: &mut Wizard| {
        let Outcome::Look(look) = wizard.enter() else {
            panic!("{:?}", wizard.error());
        };
        wizard.on_inspected(look.now(None))
    };
    wizard.select(1);
    wizard.type_in(&model);
    assert_eq!(look(&mut wizard), Outcome::Stay);
    let why = wizard.error().unwrap();
    for part in ["cannot read the data", "'é'", "which has"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // Of other data it is asked again.
    let readable = dir.path().join("readable.txt");
    std::fs::write(&readable, known.repeat(99)).unwrap();
    wizard.go_to(Step::Data);
    wizard.type_in(&readable.display().to_string());
    assert_eq!(look(&mut wizard), Outcome::Moved);
    wizard.select(1);
    assert_eq!(look(&mut wizard), Outcome::Moved, "{:?}", wizard.error());
    // A token is a character here, not four.
    let whole = 99 * known.len() as u64;
    assert_eq!(wizard.inputs().tokens, Some(whole));
}

/// One pass is one number of tokens on all pages, and what the wizard sets by itself it does not advise against.
#[test]
fn passes_over_few_rows_are_one_number_and_their_steps_are_not_advised_against() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let row = r#"{"text": "To be, or not to be: that is the question."}"#;
    std::fs::write(&path, format!("{row}\n{row}\n")).unwrap();
    let mut wizard = with_file(&path);
    until(&mut wizard, Step::Plan);
    let notes = wizard.question().notes;
    let data = notes.iter().find(|n| n.label == "Data").unwrap();
    let mut numbers = data.text.split_whitespace().filter_map(|w| w.parse().ok());
    let passes: f64 = numbers.next().unwrap();
    let yaml = wizard.yaml().unwrap();
    let (before, _) = yaml.split_once(" epochs over your data").unwrap();
    let epochs: f64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((passes - epochs).abs() < 1.0, "{passes} and {epochs}");
    let spec = wizard.draft().unwrap().0.spec().unwrap();
    let machine = &wizard.context.machine;
    let advice = estimate::advice(&spec, wizard.chosen_data(), machine).join("\n");
    assert!(advice.contains("epochs over the same"), "{advice}");
    assert!(!advice.contains("max_steps="), "{advice}");
}

#[test]
fn tokens_per_parameter_are_those_of_the_training_split() {
    let mut wizard = wizard();
    until(&mut wizard, Step::Model);
    let preset = &wizard.fitting_presets()[wizard.selected()];
    let draft = wizard.recipe(preset);
    let n = estimate::n_params(&draft, wizard.chosen_data()).unwrap();
    // Shakespeare without its last tenth.
    let each = 1_003_854.0 / n as f64;
    let notes = wizard.question().notes;
    let told = notes.iter().find(|n| n.label == "Your data").unwrap();
    let expected = format!("about {each:.2} tokens per parameter in one pass");
    assert!(told.text.starts_with(&expected), "{} {expected}", told.text);
}

#[test]
fn a_few_rows_that_cannot_be_read_are_counted_and_skipped_once_that_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let good = r#"{"instruction": "Speak.", "input": "", "output": "Arr!"}"#;
    let bad = [
        r#"["Speak.", "Arr!"]"#,
        r#"{"instruction": "Speak.", "input": ""}"#,
        r#"{"instruction": 3, "input": "", "output": "Arr!"}"#,
    ];
    let mut lines = vec![good; 297];
    for (bad, at) in bad.iter().zip([280, 20, 140]) {
        lines.insert(at, bad);
    }
    let path = dir.path().join("pirate.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let mut wizard = with_file(&path);
    let why = wizard.error().unwrap();
    for word in [
        "3 of 300 rows cannot be read",
        "pirate.jsonl:21",
        "data.on_bad_row: skip",
        "llmtui data clean",
    ] {
        assert!(why.contains(word), "{why}");
    }
    assert_eq!(
        (wizard.step(), wizard.enter()),
        (Step::Data, Outcome::Moved)
    );
    assert_eq!(wizard.chosen_data().unwrap().rows, Some(297));
    until(&mut wizard, Step::Finish);
    let Outcome::Check { yaml, .. } = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    assert!(yaml.contains("on_bad_row: skip"), "{yaml}");
    // Of a file with few rows that can be read the rows are not what is wrong.
    std::fs::write(&path, format!("{good}\n{}", bad.join("\n"))).unwrap();
    let wizard = with_file(&path);
    let why = wizard.error().unwrap();
    assert!(!why.contains("Choose the file again"), "{why}");
}
