//! Exports a Hugging Face model folder that transformers, vLLM and others load.

use super::folder::padded;
use super::{ExportError, FLOATS, Folder, Format, NO_PADDING, Options, Source, card, float};
use crate::base::child::Child;
use crate::data::tokenizer;
use crate::hf::{self, Naming, Outgoing};

pub(super) const FORMAT: Format = Format {
    word: "hf",
    summary: "a folder that transformers opens: config.json, safetensors, tokenizer, chat template, model card",
    dtypes: FLOATS,
    write,
};

fn write(source: &Source, options: &Options, folder: &mut Folder) -> Result<(), ExportError> {
    if hf::family_of(source.model.config()).is_none() {
        return Err(ExportError::Cannot {
            what: "no transformers class implements this combination of parts".into(),
            fix: "use --format safetensors (for llmtui); docs/models.md lists the families".into(),
        });
    }
    weights(source, options, Naming::Family, folder)?;
    write_side_files(source, folder)?;
    folder.text(
        "README.md",
        &card::card(source, &options.dtype, &card::About::default()),
    )
}

/// config.json and the files with weights.
pub(super) fn weights(
    source: &Source,
    options: &Options,
    naming: Naming,
    folder: &mut Folder,
) -> Result<(), ExportError> {
    let (model, dtype) = (&source.model, float(options));
    let config = hf::config_json_for(model, &source.ids, dtype, naming);
    folder.text(hf::CONFIG, &config)?;
    let outgoing = Outgoing::new(model, naming, dtype, options.max_shard_bytes);
    for (at, name) in outgoing.files().iter().enumerate() {
        folder.file(name, &mut |out| outgoing.write(at, out))?;
    }
    match outgoing.index_json() {
        Some(index) => folder.text(hf::INDEX, &index),
        None => Ok(()),
    }
}

/// The tokenizer's files and what generation starts from.
pub(super) fn write_side_files(source: &Source, folder: &mut Folder) -> Result<(), ExportError> {
    let pad = source.padding.as_deref();
    if source.model.config().is_reward_model() && pad.is_none() {
        folder.note(vec![NO_PADDING.into()]);
    }
    if source.tokenizer.is_dir() {
        folder.tokenizer(&source.tokenizer, pad)?;
    } else {
        // A GGUF file has its tokenizer inside.
        let tokenizer = tokenizer::load(&source.tokenizer, &Child::of_this_program());
        let tokenizer = tokenizer.map_err(|e| ExportError::Cannot {
            what: e.to_string(),
            fix: e.hint().into_owned(),
        })?;
        folder.text(hf::TOKENIZER, tokenizer.to_json())?;
        let config = tokenizer.config_json();
        let config = match pad {
            Some(pad) => padded(&config, pad),
            None => config,
        };
        folder.text(hf::TOKENIZER_CONFIG, &config)?;
    }
    // Which tokens end an answer is known where the tokenizer is.
    for place in [source.tokenizer.as_path(), source.from.path()] {
        if folder.copy(place, hf::GENERATION)? {
            return Ok(());
        }
    }
    folder.text(hf::GENERATION, &hf::generation_json(source.ids.clone()))
}
