//! The tokens that a chat template adds to a conversation, and prompts that pass it by.

use crate::base::child::Child;
use crate::data::chat::{GenerationPrompt, PLAIN, Template};
use crate::data::formats::{Columns, FormatId, read};
use crate::data::tokenizer::Tokenizer;
use crate::data::{Message, Record, plain_prompt};

/// The template of most models, by its name.
pub const CHATML: &str = "chatml";

/// The built-in template for the conversations of a model that brings none: ChatML where its marks are tokens, else the one
/// that ends turns with the token that ends the model's texts. Marks in pieces would never end an answer.
pub fn default_template(tokenizer: &Tokenizer) -> &'static str {
    let cut = Template::builtin(CHATML).is_ok_and(|t| !t.cut_marks(tokenizer).is_empty());
    match cut && tokenizer.eos().is_some() {
        true => PLAIN,
        false => CHATML,
    }
}

/// Whether the first row's prompt is a text, as the data room asks it, and none that a template wrote before.
pub fn is_plain(sample: &[Record], format: FormatId, columns: &Columns) -> bool {
    const MARKS: [&str; 4] = ["<|", "[INST]", "<start_of_turn>", "</s>"];
    let first = sample
        .iter()
        .find_map(|row| read(format, row, columns).ok());
    let plain = |prompt: &str| !MARKS.iter().any(|mark| prompt.contains(mark));
    first.is_some_and(|example| plain_prompt(&example.content).is_some_and(plain))
}

/// Tokens that a chat template adds to a conversation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TemplateTokens {
    /// Before the first message: a system message of its own, for one.
    pub start: f64,
    /// Around each message.
    pub each: f64,
}

impl TemplateTokens {
    /// `<|im_start|>`, the role, a line break; `<|im_end|>`, a line break.
    pub const CHATML: TemplateTokens = TemplateTokens {
        start: 0.0,
        each: 5.0,
    };

    /// Counted with the tokenizer of a model and the template of this name, or the one that it brings; `None` where it has none.
    pub fn of(template: &str, tokenizer: &Tokenizer, child: &Child) -> Option<TemplateTokens> {
        let template = Template::choose(template, tokenizer, child).ok()??;
        TemplateTokens::count(tokenizer, &template)
    }

    fn count(tokenizer: &Tokenizer, template: &Template) -> Option<TemplateTokens> {
        let tokens = |text: &str| Some(tokenizer.encode(text).ok()?.len() as f64);
        let rendered = |exchanges: usize| {
            let exchange = [Message::new("user", "A"), Message::new("assistant", "A")];
            let messages = vec![exchange; exchanges].concat();
            let text = template.render(&messages, None, GenerationPrompt::Without);
            tokens(&text.ok()?)
        };
        let (one, two) = (rendered(1)?, rendered(2)?);
        let whole = (two - one) / 2.0;
        Some(TemplateTokens {
            start: (one - 2.0 * whole).max(0.0),
            each: (whole - tokens("A")?).max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::TokenizerConfig;

    /// Answers must end with a token: of a template whose marks are cut none would.
    #[test]
    fn a_vocabulary_without_chatmls_marks_gets_plain_turns() {
        let of = |markers: &str| {
            let config = serde_json::json!({"bpe": {"vocab_size": 300, "chat_markers": markers}});
            let config: TokenizerConfig = serde_json::from_value(config).unwrap();
            default_template(&config.build("a text", "a text").unwrap())
        };
        assert_eq!(of("chatml"), "chatml");
        assert_eq!(of("none"), "plain");
        assert_eq!(of("llama3"), "plain");
    }

    /// Letters are tokens: ChatML writes 16 + 10 around a question and 21 + 10 around an answer.
    #[test]
    fn a_template_is_counted_in_the_tokens_of_its_model() {
        let letters: String = (' '..='~').chain(['\n']).collect();
        let characters = TokenizerConfig::Char(Default::default());
        let tokenizer = characters.build(&letters, &letters).unwrap();
        let chatml = Template::builtin("chatml").unwrap();
        let counted = TemplateTokens::count(&tokenizer, &chatml).unwrap();
        let exchange = "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n";
        assert_eq!(counted.start, 0.0);
        assert_eq!(counted.each, exchange.len() as f64 / 2.0);
    }
}
