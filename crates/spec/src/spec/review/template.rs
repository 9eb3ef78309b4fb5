//! Prompts given to a chat model as plain texts instead of turns; and turns with the markers of another model's template.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::ssh::shell_quote;
use crate::base::text::one_line;
use crate::data::chat::{AUTO, SplitMarker};
use crate::data::formats::FormatId;
use crate::data::source::{Origin, SourceConfig};
use crate::data::tokenizer::TokenizerConfig;
use crate::data::{DataConfig, Unit};
use crate::methods::LossMask;
use crate::spec::RunSpec;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let needs = spec.method.needs();
    // Pretraining continues texts, whatever their columns are called.
    let asked = needs.unit != Unit::Text || needs.mask == LossMask::CompletionOnly;
    let Some(format) = subject.sizes.plain_prompts else {
        return Vec::new();
    };
    if !asked || subject.begins_at_random() {
        return Vec::new();
    }
    let effect = match (spec.method.on_policy(), needs.unit) {
        (Some(_), _) => "a chat model may stop at once or continue the question",
        (None, Unit::Ranked) => "it learns to score texts without it, and the answers of a chat have it",
        (None, _) => "it is trained to continue them as they are, while chat and serve ask it in its template",
    };
    vec![poor(
        "data.format",
        format!(
            "the start model has a chat template, but the prompts are plain text and bypass it: {effect}"
        ),
        as_turns(&spec.data, format),
        "docs/data.md; TRL applies the template only to conversational prompts",
    )]
}

/// What makes user turns of plain prompts.
fn as_turns(data: &DataConfig, format: FormatId) -> String {
    let sources = data.all_sources();
    let made = |source: &SourceConfig| matches!(source.origin, Origin::Synthetic(_));
    if sources.iter().all(made) {
        return "made-up prompts are plain text: name a file of your own (data.path), or start from a base model".into();
    }
    let parts = format.format().parts;
    if !parts.iter().any(|part| part.name == "question") {
        return "for user turns give the prompt a column of its own, `question`, beside chosen and rejected; or write lists of messages"
            .into();
    }
    let column = data.columns.get("prompt").unwrap_or("prompt");
    let quoted = shell_quote(column) != column;
    let setting = match data.sources.iter().any(|source| !source.columns.is_empty()) {
        true => "`question: COLUMN` among the columns of its source".to_string(),
        false if quoted => format!("data.columns: {{question: {}}}", one_line(column)),
        false => format!("-s data.columns.question={column}"),
    };
    format!(
        "{setting} makes user turns of them, which the template writes; or write each prompt as a list `[{{role: user, content: …}}]`"
    )
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

/// A template in place of the one that a start model was trained in.
pub fn other_template(data: &DataConfig) -> Finding {
    let named = one_line(&data.template);
    let what = format!(
        "the start model's tokenizer has a chat template, and template {named} writes turns otherwise: a chat model has not \
         learned where its turns begin and end"
    );
    let fix = "-s data.template=auto uses its own; for a base model another one is fine";
    let source = "transformers, chat templates: a model is to be asked in the format that it was trained in";
    poor("data.template", what, fix.into(), source)
}

/// The same of a spec whose data are not read: for a template that it names, where the tokenizer is on this disk. A tokenizer
/// that cannot be read is reported elsewhere.
pub fn named_template(spec: &RunSpec) -> Option<Finding> {
    let data = &spec.data;
    let TokenizerConfig::File(file) = &data.tokenizer else {
        return None;
    };
    if data.template == AUTO || !file.path.exists() {
        return None;
    }
    let (cut, replaces) = data.template_faults().ok()?;
    cut_marks(data, &cut).or_else(|| {
        let bypassed = replaces && spec.train.from.is_some();
        bypassed.then(|| other_template(data))
    })
}
