//! The built-in templates, by the names that `data.template` accepts. Their texts are files of `assets/templates`; this table
//! has the facts that are not in the text.

use super::Template;
use crate::data::DataError;
use crate::embed;

/// One built-in template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// The word in a spec, and the file's name.
    pub name: &'static str,
    /// Whose format it is.
    pub about: &'static str,
    pub bos_token: Option<&'static str>,
    pub eos_token: Option<&'static str>,
    /// The end-of-turn token of the assistant.
    pub turn_end: &'static str,
}

/// A template that belongs to no model: plain words, and the tokenizer's end-of-text token after every turn. It trains where a
/// vocabulary has no marks for turns.
pub const PLAIN: &str = "plain";

/// The built-in templates of models.
pub const BUILTIN: &[Builtin] = &[
    Builtin {
        name: "chatml",
        about: "ChatML: every turn between <|im_start|> and <|im_end|>; no default system prompt",
        bos_token: None,
        eos_token: Some("<|im_end|>"),
        turn_end: "<|im_end|>",
    },
    Builtin {
        name: "llama3",
        about: "Llama 3: headers and <|eot_id|>",
        bos_token: Some("<|begin_of_text|>"),
        eos_token: Some("<|eot_id|>"),
        turn_end: "<|eot_id|>",
    },
    Builtin {
        name: "qwen",
        about: "Qwen 2.5: ChatML with its system prompt and tools",
        bos_token: None,
        eos_token: Some("<|im_end|>"),
        turn_end: "<|im_end|>",
    },
    Builtin {
        name: "qwen3",
        about: "Qwen 3: ChatML with thoughts and tools; only turns after the last question keep their thoughts",
        bos_token: None,
        eos_token: Some("<|im_end|>"),
        turn_end: "<|im_end|>",
    },
    Builtin {
        name: "mistral",
        about: "Mistral Nemo: [INST] and tools; the system prompt is in the last user turn",
        bos_token: Some("<s>"),
        eos_token: Some("</s>"),
        turn_end: "</s>",
    },
    Builtin {
        name: "gemma",
        about: "Gemma and Gemma 2: <start_of_turn>, no system turn",
        bos_token: Some("<bos>"),
        eos_token: Some("<eos>"),
        turn_end: "<end_of_turn>",
    },
    Builtin {
        name: "gemma3",
        about: "Gemma 3: as Gemma, the system prompt in front of the first user turn",
        bos_token: Some("<bos>"),
        eos_token: Some("<eos>"),
        turn_end: "<end_of_turn>",
    },
    Builtin {
        name: "phi3",
        about: "Phi-3: <|user|>, <|assistant|> and <|end|>",
        bos_token: None,
        eos_token: Some("<|endoftext|>"),
        turn_end: "<|end|>",
    },
];

impl Template {
    /// A built-in template, with the special tokens of its models; [`PLAIN`] with none, until it gets a tokenizer's.
    ///
    /// # Errors
    /// No template has this name.
    pub fn builtin(name: &str) -> Result<Template, DataError> {
        let found = BUILTIN.iter().find(|b| b.name == name);
        let source = embed::text(&format!("assets/templates/{name}.jinja"));
        if let (PLAIN, Some(source)) = (name, source) {
            let mut template = Template::from_jinja(name, source)?;
            template.engine = template.engine.trusted();
            // A vocabulary without such tokens prints nothing there.
            return Ok(["bos_token", "eos_token"]
                .into_iter()
                .fold(template, |template, token| {
                    template.with_variable(token, "")
                }));
        }
        let (Some(builtin), Some(source)) = (found, source) else {
            let names = BUILTIN.iter().map(|b| b.name);
            let names: Vec<&str> = names.chain([PLAIN]).collect();
            return Err(DataError::Template {
                place: "data.template".into(),
                what: format!(
                    "unknown built-in template `{}`; there are {}",
                    crate::base::text::one_line(name),
                    names.join(", ")
                ),
                fix: "name one of them, or a file that ends in .jinja",
            });
        };
        let mut template = Template::from_jinja(name, source)?;
        for (variable, token) in [
            ("bos_token", builtin.bos_token),
            ("eos_token", builtin.eos_token),
        ] {
            if let Some(token) = token {
                template = template.with_variable(variable, token);
            }
        }
        template.engine = template.engine.trusted();
        template.turn_end = Some(builtin.turn_end);
        Ok(template)
    }
}
