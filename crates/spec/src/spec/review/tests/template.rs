//! Plain prompts beside the chat template of a start model.

use super::*;

#[test]
fn prompts_that_pass_a_chat_template_by_are_told_of() {
    let texts = Sizes {
        plain_prompts: Some(FormatId::PromptOnly),
        ..KNOWN
    };
    let begun = |preset: &str, sizes: Sizes| {
        let mut value = spec(preset, &[]).to_value();
        value["train"]["from"] = "somewhere".into();
        value["data"]["sources"] = serde_json::json!([{"path": "rows.jsonl"}]);
        let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&value)).unwrap();
        let found = review(&spec, sizes).into_iter();
        found
            .filter(|f| f.place == "data.format")
            .collect::<Vec<_>>()
    };
    let found = begun("grpo-gsm8k", texts);
    assert_eq!(found[0].changes(), ["data.columns.question=prompt"]);
    assert_eq!(begun("grpo-gsm8k", KNOWN), []);
    // Answers and pairs were learned without it in silence, and chat asks by the template.
    for (preset, format) in [
        ("sft-lora", FormatId::PromptCompletion),
        ("dpo", FormatId::Preference),
    ] {
        let plain = Sizes {
            plain_prompts: Some(format),
            ..KNOWN
        };
        let found = begun(preset, plain);
        assert_eq!(found[0].changes(), ["data.columns.question=prompt"]);
        assert!(found[0].evidence.to_string().contains("chat and serve"));
        assert_eq!(begun(preset, KNOWN), []);
    }
    // Whole texts have no column of the prompt.
    let whole = Sizes {
        plain_prompts: Some(FormatId::PreferenceImplicit),
        ..KNOWN
    };
    assert!(begun("dpo", whole)[0].changes().is_empty());
    // Pretraining continues texts, and a model from random weights knows no template.
    assert_eq!(begun("cpt", texts), []);
    let found = said("grpo-gsm8k", &[], texts);
    assert!(found.iter().all(|f| f.place != "data.format"), "{found:?}");
}
