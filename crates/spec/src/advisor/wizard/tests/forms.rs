//! Which weights are trained: all, or adapters on a base in f32 or as its file has it.

use super::*;
use crate::advisor::choose::Adapter;

/// At the question of the method, with a start model that has these bytes in a quantized file.
fn at_method(dir: &std::path::Path, mut wizard: Wizard, packed: Option<u64>) -> Wizard {
    until(&mut wizard, Step::Start);
    wizard.select(1);
    wizard.type_in(&model_folder(dir));
    let Outcome::Look(look) = wizard.enter() else {
        panic!("{:?}", wizard.error());
    };
    wizard.on_inspected(look.now(None));
    assert_eq!(wizard.step(), Step::Method, "{:?}", wizard.error());
    let (_, facts) = wizard.model.as_mut().unwrap();
    facts.as_mut().unwrap().packed_bytes = packed;
    wizard
}

fn choose(wizard: &mut Wizard, id: MethodId, form: Adapter) {
    let list = wizard.advice();
    let row = list
        .iter()
        .position(|a| a.facts.id == id && a.adapter == form);
    wizard.select(row.unwrap_or_else(|| panic!("no {form:?} in {list:?}")));
    wizard.enter();
}

/// Over the file of a quantized model LoRA decodes it, and QLoRA does not.
#[test]
fn adapters_on_a_quantized_file_are_the_ones_that_were_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#;
    for (form, dequantize) in [(Adapter::QLora, false), (Adapter::Lora, true)] {
        let mut wizard = with_rows(dir.path(), row);
        wizard.answers.goal = Some(Goal::Instructions);
        let mut wizard = at_method(dir.path(), wizard, Some(100_000));
        choose(&mut wizard, MethodId::Sft, form);
        assert_ne!(wizard.step(), Step::Method, "{:?}", wizard.error());
        let (draft, _) = wizard.draft().unwrap();
        assert_eq!(draft.value("train.dequantize"), dequantize, "{form:?}");
        assert_eq!(draft.value("adapter.lora.rank"), 8);
    }
}

/// What compares a policy with a pass without dropout has none before its adapters; fine-tuning keeps LoRA's 0.05.
#[test]
fn adapters_of_preferences_have_no_dropout() {
    let dir = tempfile::tempdir().unwrap();
    let pair = r#"{"prompt": "To be?", "chosen": "Or not to be.", "rejected": "Yes."}"#;
    let turns = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#;
    for (row, goal, id, dropout) in [
        (pair, Goal::Style, MethodId::Dpo, 0.0),
        (turns, Goal::Instructions, MethodId::Sft, 0.05),
    ] {
        let mut wizard = with_rows(dir.path(), row);
        wizard.answers.goal = Some(goal);
        let mut wizard = at_method(dir.path(), wizard, None);
        choose(&mut wizard, id, Adapter::Lora);
        let spec = wizard.draft().unwrap().0.spec().unwrap();
        assert_eq!(spec.adapter.as_ref().unwrap().dropout(), dropout, "{id:?}");
    }
}

/// f32 weights of a model in 16 bits do not fit, and a quantized file of it would: it is to be made first.
#[test]
fn a_model_that_fits_in_four_bits_alone_is_quantized_first() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"messages": [{"role": "user", "content": "To be?"}, {"role": "assistant", "content": "Or not to be."}]}"#;
    let mut wizard = with_rows(dir.path(), row);
    wizard.answers.goal = Some(Goal::Instructions);
    let mut wizard = at_method(dir.path(), wizard, None);
    let (_, facts) = wizard.model.as_mut().unwrap();
    let n = facts.as_ref().unwrap().n_params.unwrap();
    wizard.context.machine.memory = Some(2 * n);
    choose(&mut wizard, MethodId::Sft, Adapter::QLora);
    assert_eq!(wizard.step(), Step::Method);
    let why = wizard.error().unwrap();
    assert!(why.contains("llmtui quantize"), "{why}");
    // The start of the model says so before, where nothing else can be trained.
    wizard.go_to(Step::Start);
    assert_eq!(wizard.enter(), Outcome::Stay);
    let why = wizard.error().unwrap();
    assert!(why.contains("llmtui quantize"), "{why}");
}

/// The rule of continued pretraining names a high rank; no matrix has a rank above its width.
#[test]
fn much_new_text_takes_adapters_of_a_high_rank() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("docs.txt");
    std::fs::write(&path, "To be, or not to be. ".repeat(500)).unwrap();
    let rank = |chars: u64| {
        let mut wizard = with_file(&path);
        wizard.answers.goal = Some(Goal::Knowledge);
        let (_, facts) = wizard.data.as_mut().unwrap();
        facts.as_mut().unwrap().chars = Some(chars);
        let mut wizard = at_method(dir.path(), wizard, None);
        choose(&mut wizard, MethodId::ContinuedPretrain, Adapter::Lora);
        let (draft, _) = wizard.draft().unwrap();
        draft.value("adapter.lora.rank").as_u64().unwrap()
    };
    assert_eq!(rank(400_000_000), 24);
    assert_eq!(rank(400_000), 8);
}
