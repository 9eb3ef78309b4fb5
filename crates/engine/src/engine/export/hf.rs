//! Exports a Hugging Face model folder that transformers, vLLM and others load.

use super::folder::Restated;
use super::{
    ExportError, FLOATS, Folder, Format, NO_PADDING, Options, Source, Subject, Values, card, float,
};
use crate::base::child::Child;
use crate::base::files::read_plain_text;
use crate::data::tokenizer::{self, is_qwen2};
use crate::hf::{self, Dtype, Naming, Outgoing};
use crate::nn::ModelConfig;
use std::path::Path;

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
    let family = hf::family_of(source.model.config()).map(|family| family.model_type());
    write_side_files(source, family, folder)?;
    folder.text(
        card::FILE,
        &card::card(source, &options.dtype, &card::About::of(source)),
    )
}

/// config.json and the files with weights.
pub(super) fn weights(
    source: &Source,
    options: &Options,
    naming: Naming,
    folder: &mut Folder,
) -> Result<(), ExportError> {
    let (model, dtype) = (&source.model, float(FORMAT.word, options)?);
    let config = hf::config_json_for(model, &source.ids, dtype, naming);
    folder.text(hf::CONFIG, &config)?;
    let outgoing = Outgoing::new(model, naming, dtype, options.max_shard_bytes);
    for (at, name) in outgoing.files().iter().enumerate() {
        folder.file(name, &mut |out| outgoing.write(at, model, out))?;
    }
    index(&outgoing, folder)
}

fn index(outgoing: &Outgoing, folder: &mut Folder) -> Result<(), ExportError> {
    match outgoing.index_json() {
        Some(index) => folder.text(hf::INDEX, &index),
        None => Ok(()),
    }
}

/// A folder of weights that come one tensor after another, in files as `outgoing` has them.
pub(super) fn write_each(
    subject: &Subject,
    outgoing: &Outgoing,
    dtype: Dtype,
    folder: &mut Folder,
    values: Values<'_>,
) -> Result<(), ExportError> {
    let of = (&subject.config, subject.vocab_size);
    let family = hf::family_of(of.0).map(|family| family.model_type());
    let naming = naming(of.0);
    let config = hf::config_json_of(of, &subject.ids, dtype, naming);
    folder.text(hf::CONFIG, &config)?;
    for (at, name) in outgoing.files().iter().enumerate() {
        folder.file(name, &mut |out| outgoing.write_each(at, values, out))?;
    }
    index(outgoing, folder)?;
    write_side_files(subject, family, folder)?;
    match family {
        Some(_) => folder.text(
            card::FILE,
            &card::card(subject, dtype.word(), &card::About::of(subject)),
        ),
        None => Ok(()),
    }
}

/// The names of transformers where one of its classes computes the model, else ours.
pub(in super::super) fn naming(config: &ModelConfig) -> Naming {
    match hf::family_of(config) {
        Some(_) => Naming::Family,
        None => Naming::Own,
    }
}

/// What to know of a tokenizer that transformers 5 builds anew beside the model's type, whatever class its files name.
fn forced(family: Option<&str>, tokenizer: &str) -> Vec<String> {
    let json: serde_json::Value = serde_json::from_str(tokenizer).unwrap_or_default();
    let is_other = family == Some("qwen2") && !is_qwen2(&json);
    let note = || {
        "transformers 5 gives every qwen2 model Qwen2Tokenizer, which cuts texts otherwise than this tokenizer.json: \
         load it with PreTrainedTokenizerFast.from_pretrained(DIR), not with AutoTokenizer"
    };
    is_other.then(note).into_iter().map(String::from).collect()
}

/// The same of a folder's.
fn rebuilt(family: Option<&str>, folder: &Path) -> Vec<String> {
    let text = read_plain_text(folder.join(hf::TOKENIZER));
    text.map_or_else(|_| Vec::new(), |text| forced(family, &text))
}

/// The tokenizer's files and what generation starts from, beside a config.json of this family of transformers.
pub(super) fn write_side_files(
    source: &Subject,
    family: Option<&str>,
    folder: &mut Folder,
) -> Result<(), ExportError> {
    let pad = source.padding.as_deref();
    if source.config.is_reward_model() && pad.is_none() {
        folder.note(vec![NO_PADDING.into()]);
    }
    let restated = Restated {
        pad,
        is_generic: family.is_some_and(|family| family != source.from.family()),
    };
    if source.tokenizer.is_dir() {
        folder.tokenizer(&source.tokenizer, restated)?;
        folder.note(rebuilt(family, &source.tokenizer));
    } else {
        // A GGUF file has its tokenizer inside.
        let tokenizer = tokenizer::load(&source.tokenizer, &Child::of_this_program());
        let tokenizer = tokenizer.map_err(|e| ExportError::Cannot {
            what: e.to_string(),
            fix: e.hint().into_owned(),
        })?;
        folder.text(hf::TOKENIZER, tokenizer.to_json())?;
        let config = restated.applied(&tokenizer.config_json());
        folder.text(hf::TOKENIZER_CONFIG, &config)?;
        folder.note(forced(family, tokenizer.to_json()));
    }
    // Which tokens end an answer is known where the tokenizer is.
    for place in [source.tokenizer.as_path(), source.from.path()] {
        if folder.copy(place, hf::GENERATION)? {
            return Ok(());
        }
    }
    folder.text(
        hf::GENERATION,
        &hf::generation_json(source.ids.clone(), None),
    )
}
