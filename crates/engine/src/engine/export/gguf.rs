//! Exports one GGUF file, for llama.cpp and programs built on it, with a card.

use super::{ExportError, Folder, Format, Options, Source, card};
use crate::base::child::Child;
use crate::base::text::one_line;
use crate::data::chat::{AUTO, Template};
use crate::data::render::turn_ends;
use crate::data::tokenizer::{self, GgufTokenizer, Tokenizer};
use crate::gguf::Value;
use crate::kernels::quant::Kind;
use crate::llama_cpp;
use crate::models::ModelSource;
use std::io;

pub(super) const FORMAT: Format = Format {
    word: "gguf",
    summary: "one file that llama.cpp opens, quantized if asked, with tokenizer and chat template inside; in a folder, a model card beside it",
    dtypes: &[
        "f16", "f32", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k",
    ],
    write,
};

fn write(source: &Source, options: &Options, folder: &mut Folder) -> Result<(), ExportError> {
    let cannot = |what: String| ExportError::Cannot {
        what,
        fix: "or use --format hf or --format safetensors".into(),
    };
    check_gguf(source)?;
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

/// Whether a GGUF file can hold the model at all, asked before its weights are measured or written.
///
/// # Errors
/// It is a reward model; names the formats that hold one.
pub fn check_gguf(source: &Source) -> Result<(), ExportError> {
    llama_cpp::check_head(source.model.config()).map_err(|e| ExportError::Cannot {
        what: e.to_string(),
        fix: "llmtui export --format hf writes it for transformers (AutoModelForSequenceClassification; --dtype bf16 halves its size), --format safetensors for llmtui".into(),
    })
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
    let child = Child::of_this_program();
    let tokenizer =
        tokenizer::load(&source.tokenizer, &child).map_err(|e| cannot(e.to_string()))?;
    let vocab_size = source.model.shape().vocab_size;
    let mut keys = tokenizer
        .gguf_keys(vocab_size)
        .map_err(|e| cannot(e.to_string()))?;
    match Template::choose(AUTO, &tokenizer, &child) {
        Ok(template) => {
            let end = template.and_then(|template| turn_end(&template, &tokenizer, vocab_size));
            keys.keys.extend(end);
        }
        Err(e) => keys.notes.push(format!(
            "its chat template cannot be used here, so the file names no token that ends a turn: {}",
            one_line(&e.to_string())
        )),
    }
    Ok(keys)
}

/// The key of the token that ends a turn, by the chat template; none where that is the EOS token. llama.cpp stops at EOS, at EOT
/// and at tokens that it knows by their text (src/llama-vocab.cpp), and its convert_hf_to_gguf.py names an EOT only where a turn
/// ends otherwise than the EOS token says. The further entries of `eos_token_id` in generation_config.json are no ends of
/// turns: those of Qwen2.5 and Llama 3.1 Instruct are the ends of texts.
fn turn_end(
    template: &Template,
    tokenizer: &Tokenizer,
    vocab_size: usize,
) -> Option<(String, Value)> {
    let end = *turn_ends(template, tokenizer).first()?;
    let is_new = tokenizer.eos() != Some(end) && (end as usize) < vocab_size;
    is_new.then(|| {
        let key = "tokenizer.ggml.eot_token_id".to_string();
        (key, Value::Unsigned(end.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::Marks;

    const TOKENIZER: &str = include_str!("../../../../../tests/fixtures/chat/tokenizer.json");

    /// The token of the key, for a tokenizer with this EOS token and a chat template that ends turns with `end`.
    fn eot(eos: &str, end: &str) -> Option<String> {
        let marks = Marks {
            eos: Some(eos.into()),
            ..Marks::default()
        };
        let tokenizer = Tokenizer::from_json(TOKENIZER)
            .unwrap()
            .with_marks(marks)
            .unwrap();
        let source = format!(
            "{{% for m in messages %}}{{{{ m.role }}}}: {{{{ m.content }}}}{end}{{% endfor %}}"
        );
        let template = Template::from_jinja("t", &source)
            .unwrap()
            .with_variable("eos_token", eos);
        let vocab_size = tokenizer.vocab_size();
        assert_eq!(turn_end(&template, &tokenizer, 2), None, "beyond the model");
        let (key, value) = turn_end(&template, &tokenizer, vocab_size)?;
        assert_eq!(key, "tokenizer.ggml.eot_token_id");
        let Value::Unsigned(id) = value else {
            panic!("{value:?}")
        };
        tokenizer.token(id as u32)
    }

    /// Of Qwen2.5 and Llama 3.1 Instruct the key had the end of a text, the other entry of generation_config.json.
    #[test]
    fn the_end_of_a_turn_is_the_templates_and_not_named_where_eos_says_it() {
        assert_eq!(eot("<|im_end|>", "<|im_end|>"), None);
        assert_eq!(eot("<|eot_id|>", "<|eot_id|>"), None);
        let named = |end: &str| Some(end.to_string());
        assert_eq!(eot("<|endoftext|>", "<|im_end|>"), named("<|im_end|>"));
        assert_eq!(eot("<eos>", "<end_of_turn>"), named("<end_of_turn>"));
        // Nothing ends a turn but what ends a text.
        assert_eq!(eot("</s>", ""), None);
    }
}
