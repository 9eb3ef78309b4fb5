//! The stub of a model card: what is known stands there, what only people know is asked for.

use super::{Options, Source};
use crate::base::human;
use crate::base::text::one_line;
use crate::hf;
use crate::nn::HeadKind;
use std::path::Path;

/// README.md of an exported folder.
pub fn card(source: &Source, options: &Options) -> String {
    let model = &source.model;
    let shape = model.shape();
    let class = hf::family_of(model.config()).map_or("", |family| family.class_of(model.config()));
    let (task, opener) = match model.config().head {
        HeadKind::Vocabulary => ("text-generation", "AutoModelForCausalLM"),
        HeadKind::Score => ("text-classification", "AutoModelForSequenceClassification"),
    };
    let chat = match source.from.has_chat_template() {
        _ if model.config().is_reward_model() => {
            "It is a reward model: its one logit says how good a text is, read at the last token that is no padding."
        }
        true => "It brings a chat template.",
        false => "It has no chat template: it continues text.",
    };
    format!(
        "---\nlibrary_name: transformers\npipeline_tag: {task}\ntags:\n- llmtui\n---\n\n\
         # {name}\n\n\
         Written by llmtui {version}. What it cannot know is asked for below.\n\n\
         | | |\n|---|---|\n\
         | class | {class} |\n\
         | parameters | {params} |\n\
         | layers, width, heads (key/value) | {n_layer}, {d_model}, {n_head} ({n_kv_head}) |\n\
         | context | {seq_len} tokens |\n\
         | vocabulary | {vocab} tokens |\n\
         | numbers | {dtype} |\n\n\
         {chat}\n\n\
         ```python\nfrom transformers import {opener}, AutoTokenizer\n\n\
         model = {opener}.from_pretrained(\"FOLDER\")\ntokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n\n\
         ## Training data\n\n*To be written by the publisher: which texts, from where, under which licence.*\n\n\
         ## Evaluation\n\n*To be written: measured how, on what, with which result.*\n\n\
         ## Limits and licence\n\n*To be written: what it must not be used for, and its licence.*\n",
        name = name(source.from.path()),
        version = env!("CARGO_PKG_VERSION"),
        params = human::grouped(model.n_params() as u64),
        n_layer = shape.n_layer,
        d_model = shape.d_model,
        n_head = shape.n_head,
        n_kv_head = shape.n_kv_head,
        seq_len = human::grouped(shape.seq_len as u64),
        vocab = human::grouped(shape.vocab_size as u64),
        dtype = options.dtype,
    )
}

/// A checkpoint is called after its run, other folders by their own name.
fn name(folder: &Path) -> String {
    let part = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name).unwrap_or_default();
        one_line(&name.to_string_lossy())
    };
    let above = folder.parent();
    match part(above).as_str() {
        "checkpoints" => format!(
            "{} {}",
            part(above.and_then(Path::parent)),
            part(Some(folder))
        ),
        _ => part(Some(folder)),
    }
}
