//! The tokenizer and the template by which rows are read: those named, a spec's own, else a tokenizer trained on the beginning of
//! the data.

use super::{Item, Subject, What};
use crate::base::child::Child;
use crate::base::human::grouped;
use crate::data::chat::{AUTO, Template};
use crate::data::inspect::parts;
use crate::data::inspect::reader::{Reader, supervised, template_words};
use crate::data::inspect::row::tool_names;
use crate::data::render::TrainOn;
use crate::data::source::{self, ReadContext};
use crate::data::tokenizer::{self, ChatMarkers, TokenizerConfig};
use crate::data::vocabulary::{self, has_turns};
use crate::data::{DataConfig, DataError, OnBadRow, Tokenizer};
use std::path::Path;

impl Subject {
    pub(super) fn view(
        &self,
        beginning: &[Item],
        context: &ReadContext,
    ) -> Result<Reader, DataError> {
        let child = Child::of_this_program();
        let said = self.template.as_deref().unwrap_or(AUTO);
        let examples = || beginning.iter().flat_map(|item| &item.example);
        let turns = examples().any(|example| has_turns(&example.content));
        // ChatML writes no tools, Qwen's form of it does.
        let usual = match examples().any(|example| !tool_names(example).is_empty()) {
            true => "qwen",
            false => "chatml",
        };
        let template_for = |tokenizer: &Tokenizer| -> Result<Template, DataError> {
            match Template::choose(said, tokenizer, &child)? {
                Some(template) => Ok(template),
                None => Template::builtin(usual),
            }
        };
        if let Some(path) = &self.tokenizer {
            let tokenizer = tokenizer::load(Path::new(path), &child)?;
            let template = template_for(&tokenizer)?;
            let n = grouped(tokenizer.vocab_size() as u64);
            let words = template_words(&template, turns);
            let name = format!("{path} ({n} tokens), {words}");
            let train_on = match &self.what {
                What::Spec(config) => config.train_on,
                What::Path(_) => TrainOn::Auto,
            };
            return Ok(Reader::new(&name, tokenizer, Some(template), train_on));
        }
        let text = text_of(beginning);
        let What::Spec(config) = &self.what else {
            let bare = supervised(&text)?;
            let template = template_for(&bare)?;
            return Reader::of_trained(&bare, template, turns);
        };
        let tokenizer = match config.tokenizer {
            TokenizerConfig::Char(_) => alphabet(config, &self.reading(context))?,
            _ => {
                // As the run does: the marks of its template are tokens, and the ends of answers with them.
                let template = if said == AUTO { usual } else { said };
                let marks = match turns {
                    true => ChatMarkers::of_template(template),
                    false => ChatMarkers::None,
                };
                let kind = config.tokenizer.with_chat_markers(marks);
                kind.build(&text, &text)?
            }
        };
        let template = template_for(&tokenizer)?;
        let name = format!("the spec's tokenizer: {}", config.tokenizer.entry().title);
        Ok(Reader::new(
            &name,
            tokenizer,
            Some(template),
            config.train_on,
        ))
    }
}

/// The characters of the whole text, as in training; bad rows are findings here, and give none.
fn alphabet(config: &DataConfig, context: &ReadContext) -> Result<Tokenizer, DataError> {
    if config.is_corpus(&context.base) {
        let whole = source::read(config)?.text;
        return config.tokenizer.build(&whole, &whole);
    }
    let config = DataConfig {
        on_bad_row: OnBadRow::Skip,
        ..config.clone()
    };
    let sources = [config.all_sources(), config.val_source()].concat();
    Ok(vocabulary::tokenizer(&config, &sources, context, None)?.0)
}

/// The beginning as one text, for a tokenizer to be trained on.
fn text_of(beginning: &[Item]) -> String {
    let mut text = String::new();
    for part in beginning
        .iter()
        .flat_map(|item| &item.example)
        .flat_map(parts)
    {
        text.push_str(&part.text);
        text.push('\n');
    }
    text
}
