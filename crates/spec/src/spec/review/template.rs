//! Prompts that a chat model would answer as turns, given to it as texts to continue; and turns in the marks of another
//! model's template.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::text::one_line;
use crate::data::DataConfig;
use crate::data::chat::{AUTO, CutMark};
use crate::data::tokenizer::TokenizerConfig;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let answers_itself = subject.spec.method.on_policy().is_some();
    if !answers_itself || subject.begins_at_random() || !subject.sizes.unused_template {
        return Vec::new();
    }
    vec![poor(
        "data.format",
        "the start model has a chat template, and all prompts are texts, which are continued without it: a chat model may end at once or \
         go on with the question"
            .into(),
        "for turns of a user name the column `question`, or make every prompt a list `[{role: user, content: …}]`: llmtui data convert FILE --to \
         messages writes them"
            .into(),
        "docs/data.md; TRL applies the template to conversational prompts alone",
    )]
}

/// Marks of the template that the tokenizer has no tokens for.
pub fn cut_marks(data: &DataConfig, cut: &[CutMark]) -> Option<Finding> {
    if cut.is_empty() {
        return None;
    }
    let names: Vec<String> = cut
        .iter()
        .map(|cut| format!("{} ({} tokens)", one_line(&cut.mark), cut.tokens))
        .collect();
    let own = match data.template == AUTO {
        true => "",
        false => "-s data.template=auto takes the tokenizer's own template, where it brings one; ",
    };
    let what = format!(
        "the tokenizer has no tokens for marks of template {}, and cuts them into pieces: {}; the model has not learned that they \
         begin and end turns",
        one_line(&data.template),
        names.join(", ")
    );
    let fix = format!("{own}-s data.template=plain ends turns with the token that ends its texts; or name a tokenizer that has them as special tokens (data.tokenizer.file.path), which train.resize_vocab gives rows in a start model");
    let source = "transformers, chat templates: special tokens of a template must be in the vocabulary";
    Some(poor("data.template", what, fix, source))
}

/// The same of a spec whose data are not read: for a template that it names, where the tokenizer is on this disk. A tokenizer
/// that cannot be read is told of elsewhere.
pub fn named_marks(data: &DataConfig) -> Option<Finding> {
    let TokenizerConfig::File(file) = &data.tokenizer else {
        return None;
    };
    if data.template == AUTO || !file.path.exists() {
        return None;
    }
    cut_marks(data, &data.cut_marks().ok()?)
}
