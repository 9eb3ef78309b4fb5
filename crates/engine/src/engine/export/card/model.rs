//! The part of a card that says what the model is, and how it is loaded.

use super::super::adapter_source::AdapterSource;
use super::super::{NO_PADDING, Source, Subject};
use super::{plain, table};
use crate::base::human;
use crate::base::text::one_line;
use crate::hf::{self, Dtype, Naming, Outgoing};
use crate::nn::{HeadKind, ModelConfig, param_infos};

/// The class of transformers that opens a model; `None` where there is none.
pub(super) fn class_of(config: &ModelConfig) -> Option<&'static str> {
    hf::family_of(config).map(|family| family.class_of(config))
}

/// A model folder: what it is, and how it is loaded.
pub(super) fn model(source: &Subject, dtype: &str) -> String {
    let class = class_of(&source.config);
    let naming = match class {
        Some(_) => Naming::Family,
        None => Naming::Own,
    };
    // As the files have them: some classes store biases of zero that are none of this model's.
    let without_values = ModelConfig {
        value_head: false,
        ..source.config.clone()
    };
    let infos = param_infos(&without_values, source.vocab_size);
    let of = (&source.config, &infos[..]);
    let n = Outgoing::of(of, naming, Dtype::default(), u64::MAX).n_values();
    let named = class.map_or_else(
        || "none of transformers: only llmtui loads it".into(),
        String::from,
    );
    let facts = facts(source, [("class", named)], n as u64, dtype);
    let loading = match class {
        Some(_) => with_transformers(source),
        None => with_llmtui(source),
    };
    format!(
        "{facts}\n{}{}\n\n{loading}",
        merged(source),
        answers(source)
    )
}

/// A GGUF file: `file` is its name, where that is known.
pub(super) fn gguf(source: &Source, file: Option<&str>, dtype: &str) -> String {
    let architecture = ("architecture", source.from.family().to_string());
    let n = source.model.n_params() as u64;
    let facts = facts(source, [architecture], n, dtype);
    // A name between quotes of the shell.
    let file = one_line(file.unwrap_or("FILE.gguf")).replace('\'', r"'\''");
    format!(
        "A GGUF file, for llama.cpp and programs built on it.\n\n{facts}\n{}{}\n\n```sh\nllama-cli -m '{file}'\nllmtui chat '{file}'\n```\n",
        merged(source),
        answers(source)
    )
}

fn facts<const N: usize>(
    source: &Subject,
    first: [(&str, String); N],
    n_params: u64,
    dtype: &str,
) -> String {
    let shape = source.config.shape(source.vocab_size);
    let heads = format!(
        "{}, {}, {} ({})",
        shape.n_layer, shape.d_model, shape.n_head, shape.n_kv_head
    );
    let sizes = [
        ("parameters", human::grouped(n_params)),
        ("layers, width, heads (key/value)", heads),
        (
            "context",
            format!("{} tokens", human::grouped(shape.seq_len as u64)),
        ),
        (
            "vocabulary",
            format!("{} tokens", human::grouped(shape.vocab_size as u64)),
        ),
        ("dtype", dtype.to_string()),
    ];
    let all = first.into_iter().chain(sizes);
    table(&named(all.collect()))
}

/// What is merged in the weights; nothing of weights that were not.
fn merged(source: &Subject) -> String {
    let Some(merge) = &source.merge else {
        return match source.from.adapter() {
            Some(_) => "The trained adapter is merged into these weights.\n\n".into(),
            None => String::new(),
        };
    };
    let part = |(name, weight): &(String, f64)| match *weight == 1.0 {
        true => plain(name),
        false => format!("{} (weight {weight})", plain(name)),
    };
    let parts: Vec<String> = merge.parts.iter().map(part).collect();
    let (parts, base) = (parts.join(", "), merge.base.as_deref().map(plain));
    match (merge.method, base) {
        (None, base) => format!(
            "These are the weights of {} with adapters merged into them: {parts}.\n\n",
            base.unwrap_or_default()
        ),
        (Some(method), None) => {
            format!("This model is a merge by the method `{method}` of {parts}.\n\n")
        }
        (Some(method), Some(base)) => format!(
            "This model is a merge by the method `{method}` of {parts}; their base is {base}.\n\n"
        ),
    }
}

fn answers(source: &Subject) -> &'static str {
    match source.from.has_chat_template() {
        _ if source.config.is_reward_model() => {
            "It is a reward model: its single logit scores a text, read at the last non-padding token."
        }
        true => "It has a chat template.",
        false => "It has no chat template: it completes text.",
    }
}

fn with_transformers(source: &Subject) -> String {
    let opener = kind(&source.config).1;
    format!(
        "```python\nfrom transformers import {opener}, AutoTokenizer\n\n\
         model = {opener}.from_pretrained(\"FOLDER\")\n\
         tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n{}```\n",
        match source.config.is_reward_model() {
            true => scoring(source.ids.pad),
            false => String::new(),
        }
    )
}

fn with_llmtui(source: &Subject) -> String {
    let command = match source.config.is_reward_model() {
        true => "llmtui score FOLDER answers.jsonl",
        false => "llmtui chat FOLDER",
    };
    format!("```sh\n{command}\n```\n")
}

/// Lines of Python that score texts.
fn scoring(pad: Option<u32>) -> String {
    let inputs = match pad {
        Some(_) => {
            "# padded on the right, as in training\ntokenizer.padding_side = \"right\"\ninputs = tokenizer(texts, padding=True".into()
        }
        None => format!("# {NO_PADDING}\ninputs = tokenizer(text"),
    };
    format!("\n{inputs}, return_tensors=\"pt\")\nscores = model(**inputs).logits[:, 0]\n")
}

/// What an adapter is, its base, and how to load both with PEFT.
pub(super) fn adapter(source: &AdapterSource, dtype: &str, opener: &str) -> String {
    let peft = &source.peft;
    let whole = peft.whole();
    let listed = |names: std::collections::BTreeSet<String>| {
        let names: Vec<String> = names.into_iter().collect();
        names.join(", ")
    };
    let base = source.base.as_deref().unwrap_or("not said");
    let mut facts = vec![
        ("adapter", format!("{}, {}", peft.kind(), peft.sizes())),
        ("base", base.to_string()),
        ("targets", listed(source.targets())),
        ("parameters", human::grouped(peft.n_values())),
        ("dtype", dtype.to_string()),
    ];
    if !whole.is_empty() {
        facts.insert(3, ("trained whole", listed(whole)));
    }
    if let Some(digest) = peft.base_fingerprint() {
        facts.push(("fingerprint of the base", digest.to_string()));
    }
    let note = match source.base_is_public() {
        true => String::new(),
        false => "*To be written by the publisher: the id of its base on the hub, here and as base_model.*\n\n".into(),
    };
    // One number, not transformers' two labels.
    let labels = match (opener.contains("Sequence"), &source.pad) {
        (true, Some((pad, _))) => format!(", num_labels=1, pad_token_id={pad}"),
        (true, None) => ", num_labels=1".into(),
        (false, _) => String::new(),
    };
    let scoring = match opener.contains("Sequence") {
        true => scoring(source.pad.as_ref().map(|(pad, _)| *pad)),
        false => String::new(),
    };
    let id = match source.base_is_public() {
        true => base,
        false => "BASE",
    };
    // PEFT puts tables on tables of the same size alone.
    let resized = match source.grown {
        Some(rows) => format!("base.resize_token_embeddings({rows})\n"),
        None => String::new(),
    };
    let longer = source.longer.as_ref();
    let longer = longer.map_or(String::new(), |arguments| format!(", {arguments}"));
    let tokenizer = match crate::data::tokenizer::has_tokenizer(peft.folder()) {
        true => "FOLDER",
        false => id,
    };
    format!(
        "It is an adapter: small matrices that modify the weights of a base model, which is not included.\n\n{}\n{note}\
         ```python\nfrom peft import PeftModel\nfrom transformers import {opener}, AutoTokenizer\n\n\
         base = {opener}.from_pretrained(\"{id}\"{labels}{longer})\n{resized}model = PeftModel.from_pretrained(base, \"FOLDER\")\n\
         tokenizer = AutoTokenizer.from_pretrained(\"{tokenizer}\")\n{scoring}```\n\n\
         `model.merge_and_unload()` adds it to the weights; `llmtui merge --base MODEL --adapter FOLDER --to DIR` does the same.\n",
        table(&named(facts))
    )
}

/// The hub's task of a model, and the class of transformers that opens it.
pub(super) fn kind(config: &ModelConfig) -> (&'static str, &'static str) {
    kind_of(config.head)
}

pub(super) fn kind_of(head: HeadKind) -> (&'static str, &'static str) {
    match head {
        HeadKind::Vocabulary => ("text-generation", "AutoModelForCausalLM"),
        HeadKind::Score => ("text-classification", "AutoModelForSequenceClassification"),
    }
}

fn named(facts: Vec<(&str, String)>) -> Vec<(String, String)> {
    let owned = facts
        .into_iter()
        .map(|(name, value)| (name.to_string(), value));
    owned.collect()
}
