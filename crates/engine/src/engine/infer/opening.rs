//! What a model's files define besides its weights: the chat template, the tokens that end a text, and of a run's checkpoint what
//! the run trained it on.

use crate::base::child::Child;
use crate::base::files::read_small_text;
use crate::base::text::one_line;
use crate::data::Unit;
use crate::data::chat::{AUTO, Template};
use crate::data::render::turn_ends;
use crate::data::tokenizer::Tokenizer;
use crate::engine::sample::answer_stops;
use crate::methods::LossMask;
use crate::run::RunDir;
use crate::spec::RunSpec;
use std::path::Path;

/// Largest spec that is read, in bytes.
const MAX_SPEC: u64 = 1 << 20;

/// The template that the files bring, or none and why it cannot be used. Foreign templates are tried out in `child`.
pub(super) fn template(tokenizer: &Tokenizer, child: &Child) -> (Option<Template>, Option<String>) {
    match Template::choose(AUTO, tokenizer, child) {
        Ok(template) => (template, None),
        Err(e) => {
            let note = format!(
                "its chat template cannot be used, so it completes texts: {}",
                one_line(&e.to_string())
            );
            (None, Some(note))
        }
    }
}

/// The tokens that end a text: those of the files, and those that the template puts after an answer. Ascending, each once.
pub(super) fn ends(
    said: Vec<u32>,
    tokenizer: &Tokenizer,
    template: Option<&Template>,
    vocab_size: usize,
) -> Vec<u32> {
    let mut ends: Vec<u32> = said
        .into_iter()
        .chain(tokenizer.eos())
        .chain(template.into_iter().flat_map(|t| turn_ends(t, tokenizer)))
        .filter(|id| (*id as usize) < vocab_size)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// What the run of a checkpoint says of its answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Training {
    /// Strings that end an answer, as in the run's samples.
    pub stop: Vec<String>,
    /// The method's title, where it trained on prompts with answers.
    pub method: Option<String>,
}

/// Of a checkpoint in a run's folder; nothing of any other folder, and where the run's spec cannot be read: the model answers all
/// the same. `ends` are the tokens that end a text.
pub(super) fn training(checkpoint: &Path, ends: &[u32]) -> Training {
    let Some(spec) = spec_of(checkpoint) else {
        return Training::default();
    };
    let needs = spec.method.needs();
    let on_answers = needs.mask == LossMask::CompletionOnly || needs.unit != Unit::Text;
    Training {
        stop: answer_stops(&spec, ends),
        method: on_answers.then(|| spec.method.entry().title.into()),
    }
}

fn spec_of(checkpoint: &Path) -> Option<RunSpec> {
    let checkpoint = std::path::absolute(checkpoint).ok()?;
    let run = RunDir::open(checkpoint.parent()?.parent()?).ok()?;
    let of_the_run = checkpoint.starts_with(run.checkpoints_path());
    let text = read_small_text(&run.spec_path(), MAX_SPEC).ok()?;
    RunSpec::from_yaml(&text).ok().filter(|_| of_the_run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::Marks;

    const TOKENIZER: &str = include_str!("../../../../../tests/fixtures/chat/tokenizer.json");

    /// Ends of a model whose files say that `<|endoftext|>` ends a text and whose template ends turns in its own way.
    fn with_template(source: &str) -> Vec<String> {
        let marks = Marks {
            eos: Some("<|endoftext|>".into()),
            ..Marks::default()
        };
        let tokenizer = Tokenizer::from_json(TOKENIZER)
            .unwrap()
            .with_marks(marks)
            .unwrap();
        let template = Template::from_jinja("t", source)
            .unwrap()
            .with_variable("eos_token", "<|endoftext|>");
        let ends = ends(vec![], &tokenizer, Some(&template), tokenizer.vocab_size());
        ends.iter()
            .map(|id| tokenizer.token(*id).unwrap())
            .collect()
    }

    #[test]
    fn what_a_template_puts_behind_an_answer_ends_one_whatever_the_end_of_text_is() {
        let chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
        let mut both = with_template(chatml);
        both.sort();
        assert_eq!(both, ["<|endoftext|>", "<|im_end|>"]);
        let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        assert_eq!(with_template(plain), ["<|endoftext|>"]);
    }
}
