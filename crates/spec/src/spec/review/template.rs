//! Prompts given to a chat model as plain texts instead of turns; and turns with the markers of another model's template.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::text::one_line;
use crate::data::DataConfig;
use crate::data::chat::{AUTO, SplitMarker};
use crate::data::tokenizer::TokenizerConfig;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let answers_itself = subject.spec.method.on_policy().is_some();
    if !answers_itself || subject.begins_at_random() || !subject.sizes.unused_template {
        return Vec::new();
    }
    vec![poor(
        "data.format",
        "the start model has a chat template, but all prompts are plain text and bypass it: a chat model may stop at once or continue the \
         question"
            .into(),
        "for user turns rename the column to `question`, or make every prompt a list `[{role: user, content: …}]`: llmtui data convert FILE --to \
         messages writes them"
            .into(),
        "docs/data.md; TRL applies the template only to conversational prompts",
    )]
}

/// Marks of the template that the tokenizer has no tokens for.
pub fn cut_marks(data: &DataConfig, cut: &[SplitMarker]) -> Option<Finding> {
    if cut.is_empty() {
        return None;
    }
    let names: Vec<String> = cut
        .iter()
        .map(|cut| format!("{} ({} tokens)", one_line(&cut.mark), cut.tokens))
        .collect();
    let own = match data.template == AUTO {
        true => "",
        false => "-s data.template=auto uses the tokenizer's own template, if it has one; ",
    };
    let what = format!(
        "the tokenizer splits markers of template {} into pieces: {}; the model has not learned that they delimit \
         turns",
        one_line(&data.template),
        names.join(", ")
    );
    let fix = format!("{own}-s data.template=plain ends turns with its EOS token; or use a tokenizer that has them as special tokens (data.tokenizer.file.path), for which train.resize_vocab adds rows to a start model");
    let source = "transformers, chat templates: special tokens of a template must be in the vocabulary";
    Some(poor("data.template", what, fix, source))
}

/// The same of a spec whose data are not read: for a template that it names, where the tokenizer is on this disk. A tokenizer
/// that cannot be read is reported elsewhere.
pub fn named_marks(data: &DataConfig) -> Option<Finding> {
    let TokenizerConfig::File(file) = &data.tokenizer else {
        return None;
    };
    if data.template == AUTO || !file.path.exists() {
        return None;
    }
    cut_marks(data, &data.cut_marks().ok()?)
}
