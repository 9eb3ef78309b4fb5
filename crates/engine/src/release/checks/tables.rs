//! The description of the model: config.json, an adapter's, or a GGUF file's keys.

use super::super::subject::{Form, Subject};
use super::Check;
use crate::base::finding::Finding;
use crate::base::human;
use crate::hf::{Joins, Peft};
use crate::models::ModelSource;
use crate::nn::ModelConfig;

pub(super) const CHECK: Check = Check {
    id: "description",
    title: "Model config",
    run,
};

fn run(subject: &Subject) -> Vec<Finding> {
    if subject.form == Form::Adapter {
        return vec![adapter(subject)];
    }
    let mut findings = Vec::new();
    for path in subject.models() {
        let place = subject.place(&path);
        match ModelSource::open(&path) {
            Ok(source) => findings.extend(described(&source).into_iter().map(|f| f.at(&place))),
            Err(error) => findings.push(
                Finding::fail(
                    error.to_string(),
                    "programs build the model from this config",
                    error.hint(),
                )
                .at(place),
            ),
        }
    }
    findings
}

fn described(source: &ModelSource) -> Vec<Finding> {
    let config = source.config();
    let vocab_size = config.vocab_size.unwrap_or_default();
    let mut findings = Vec::new();
    let ids = source.token_ids();
    let said = ids.bos.iter().chain(&ids.eos).chain(&ids.pad);
    if let Some(id) = said.copied().find(|id| *id as usize >= vocab_size) {
        findings.push(Finding::fail(
            format!("token {id} is set as BOS, EOS or padding, but the vocabulary has {vocab_size} tokens"),
            "generation that uses it fails",
            "fix bos_token_id, eos_token_id and pad_token_id",
        ));
    }
    if source.ends().is_empty() && !config.is_reward_model() {
        findings.push(Finding::warn(
            "no eos_token_id",
            "no EOS token: programs generate until they are stopped",
            "set it in config.json and generation_config.json, if the model was trained with one",
        ));
    }
    if source.class().is_none() {
        findings.push(Finding::warn(
            "no transformers class implements this model",
            "only llmtui can load it",
            "state it in the card; docs/models.md lists the families that other programs load",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::pass(words(source, config)));
    }
    findings
}

/// `Qwen2ForCausalLM, 494 M parameters, context 32,768`
fn words(source: &ModelSource, config: &ModelConfig) -> String {
    let class = source.class().unwrap_or(source.family());
    format!(
        "{class}, {} parameters, context {}",
        human::short(source.n_params() as f64),
        human::grouped(config.seq_len as u64)
    )
}

fn adapter(subject: &Subject) -> Finding {
    let place = subject.place(&subject.folder);
    let unfit = |what: String| {
        Finding::fail(
            what,
            "PEFT builds the adapter from this config",
            "docs/models.md lists the supported adapters",
        )
    };
    let found = match Peft::find(&subject.folder) {
        Err(error) => unfit(error.to_string()),
        Ok(peft) => match peft.check() {
            Err(error) => unfit(error.to_string()),
            Ok(()) => named_base(&peft),
        },
    };
    found.at(place)
}

fn named_base(peft: &Peft) -> Finding {
    match peft.base() {
        None => Finding::fail(
            "its base model is not named",
            "PEFT loads the base by base_model_name_or_path",
            "write the hub id of the base there; for a run: --base-model ORG/NAME",
        ),
        Some(base) if !crate::hub::is_repo_id(base) => Finding::fail(
            format!("its base is {base}: a local path"),
            "other machines do not have that folder",
            "write the hub id of the base into base_model_name_or_path; for a run: --base-model ORG/NAME",
        ),
        Some(base) => {
            let targets: Vec<String> = peft.targets(&Joins::default()).into_iter().collect();
            Finding::pass(format!(
                "{} on {base}, {}: {}",
                peft.kind(),
                peft.sizes(),
                targets.join(", ")
            ))
        }
    }
}
