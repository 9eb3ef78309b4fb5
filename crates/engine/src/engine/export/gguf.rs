//! Exports one GGUF file, for llama.cpp and programs built on it, with a card.

use super::{ExportError, Folder, Format, Options, Source, card};
use crate::base::child::Child;
use crate::data::tokenizer::{self, GgufTokenizer};
use crate::gguf::Value;
use crate::kernels::quant::Kind;
use crate::llama_cpp;
use crate::models::ModelSource;
use std::io;

pub(super) const FORMAT: Format = Format {
    word: "gguf",
    summary: "one file that llama.cpp opens, quantized if asked, with tokenizer and chat template inside; in a folder, a model card beside it",
    dtypes: &[
        "f16", "f32", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q6_k",
    ],
    write,
};

fn write(source: &Source, options: &Options, folder: &mut Folder) -> Result<(), ExportError> {
    let cannot = |what: String| ExportError::Cannot {
        what,
        fix: "or use --format hf or --format safetensors".into(),
    };
    if source.model.config().is_reward_model() {
        return Err(ExportError::Cannot {
            what: "it is a reward model: a GGUF file has no place for its score (score.weight), and llama.cpp would read a language model without a head".into(),
            fix: "--format hf writes it for transformers (AutoModelForSequenceClassification), --format safetensors for llmtui".into(),
        });
    }
    let kind = Kind::by_word(&options.dtype).ok_or_else(|| cannot("no such type".into()))?;
    let tokenizer = tokenizer_keys(source)?;
    let title = source.title();
    let name = format!("{title}-{}.gguf", kind.name());
    let mut result = None;
    let done = folder.file(&name, &mut |out| {
        let written = llama_cpp::write(&source.model, kind, &title, &tokenizer.keys, out);
        let ended = written.as_ref().map(|_| ());
        // The cause is kept; this only ends the file.
        let ended = ended.map_err(|e| io::Error::other(e.to_string()));
        result = Some(written);
        ended
    });
    match (done, result) {
        (_, Some(Err(cause))) => return Err(cannot(cause.to_string())),
        (Err(error), _) => return Err(error),
        (Ok(()), Some(Ok(written))) => {
            folder.note_file(written.notes.into_iter().chain(tokenizer.notes).collect());
        }
        (Ok(()), None) => {}
    }
    let about = card::About::of(source);
    folder.text(
        card::FILE,
        &card::gguf_card(source, Some(&name), kind.name(), &about),
    )
}

/// The keys of the model's tokenizer: those of the file that it came from, or those that its tokenizer amounts to. A model
/// without one goes out without one.
///
/// # Errors
/// It has one that GGUF has no words for.
pub fn tokenizer_keys(source: &Source) -> Result<GgufTokenizer, ExportError> {
    let cannot = |what: String| ExportError::Cannot {
        what,
        fix: "--format hf writes the model with its tokenizer as it is".into(),
    };
    if let ModelSource::Gguf(file) = &source.from
        && source.tokenizer == file.path()
    {
        let keys = file.metadata().iter();
        let keys = keys.filter(|(key, _)| key.starts_with("tokenizer."));
        return Ok(GgufTokenizer {
            keys: keys
                .map(|(key, value)| (key.to_string(), value.clone()))
                .collect(),
            notes: Vec::new(),
        });
    }
    if source.tokenizer.is_dir() && !tokenizer::has_tokenizer(&source.tokenizer) {
        let none = (
            "tokenizer.ggml.model".into(),
            Value::String("no_vocab".into()),
        );
        return Ok(GgufTokenizer {
            keys: vec![none],
            notes: vec!["the folder has no tokenizer: the file has only the model".into()],
        });
    }
    let tokenizer = tokenizer::load(&source.tokenizer, &Child::of_this_program())
        .map_err(|e| cannot(e.to_string()))?;
    let mut keys = tokenizer
        .gguf_keys(source.model.shape().vocab_size)
        .map_err(|e| cannot(e.to_string()))?;
    keys.keys.extend(turn_end(&keys.keys, &source.from.ends()));
    Ok(keys)
}

/// The token that ends a turn, where the folder has another one beside the end of a text: generation_config.json lists both, a
/// GGUF file has a key for each.
fn turn_end(keys: &[(String, Value)], ends: &[u32]) -> Option<(String, Value)> {
    const EOS: &str = "tokenizer.ggml.eos_token_id";
    const EOT: &str = "tokenizer.ggml.eot_token_id";
    let said = |key: &str| {
        keys.iter()
            .find(|(own, _)| own == key)
            .map(|(_, value)| value)
    };
    let Some(Value::Unsigned(eos)) = said(EOS) else {
        return None;
    };
    let other = ends.iter().find(|id| u64::from(**id) != *eos)?;
    said(EOT)
        .is_none()
        .then(|| (EOT.to_string(), Value::Unsigned((*other).into())))
}
