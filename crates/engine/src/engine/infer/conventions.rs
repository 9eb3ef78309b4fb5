//! How texts and conversations become tokens and what ends an answer: as the model's files say, and as those of an adapter do that
//! was trained otherwise.

use super::form::Vocabulary;
use super::opening::{self, Training};
use crate::base::child::Child;
use crate::base::text::one_line;
use crate::data::chat::Template;
use crate::data::chat::tool_calls::Format;
use crate::data::tokenizer::{TokenBytes, Tokenizer};
use crate::engine::brought;
use crate::hf;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct Conventions {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<Template>,
    /// The format of thoughts and tool calls in its answers, where it is known.
    pub calls: Option<&'static Format>,
    /// Tokens that end a text or a turn.
    pub ends: Vec<u32>,
    /// Nothing where there is a template, which says how an answer ends.
    pub training: Training,
    /// What is needed for answers of a form, and for the bytes of tokens.
    pub vocabulary: Arc<Vocabulary>,
}

impl Conventions {
    /// Those of the files at `path`, which say that these tokens end a text; and why their template cannot be used.
    pub fn new(
        path: &Path,
        tokenizer: Tokenizer,
        said: Vec<u32>,
        vocab_size: usize,
        child: &Child,
    ) -> (Conventions, Option<String>) {
        let (template, note) = opening::template(&tokenizer, child);
        let calls = template.as_ref();
        let calls = calls.and_then(|template| Format::of(template, &tokenizer));
        let mut ends = opening::ends(said, &tokenizer, template.as_ref(), vocab_size);
        // Some files name it as an end: the model would fall silent behind its thoughts.
        let goes_on = calls.and_then(|format| tokenizer.id(format.message_end()?));
        ends.retain(|id| Some(*id) != goes_on);
        let training = match template {
            Some(_) => Training::default(),
            None => opening::training(path, &ends),
        };
        let tokenizer = Arc::new(tokenizer);
        let vocabulary = Vocabulary::new(Arc::clone(&tokenizer), ends.clone(), vocab_size);
        let conventions = Conventions {
            tokenizer,
            template,
            calls,
            ends,
            training,
            vocabulary: Arc::new(vocabulary),
        };
        (conventions, note)
    }

    pub fn token_bytes(&self) -> &TokenBytes {
        self.vocabulary.token_bytes()
    }
}

/// The model's own, and those that adapters bring.
pub(super) struct AllConventions {
    own: Conventions,
    /// By the adapter's name.
    brought: Vec<(String, Conventions)>,
    /// The adapter that answers.
    active: Option<String>,
}

impl AllConventions {
    /// The own ones of a model whose files say that the tokens `said` end a text, and those of these adapters of it, of which the
    /// first answers. An adapter that brings no template does not replace one that is there.
    pub fn new(
        own: Conventions,
        said: &[u32],
        adapters: &[(String, PathBuf)],
        vocab_size: usize,
        child: &Child,
    ) -> AllConventions {
        let of = |(name, folder): &(String, PathBuf)| {
            let tokenizer = brought::tokenizer_of(folder, &own.tokenizer, vocab_size, child)?;
            let said = [said, &hf::generation_ends(folder)].concat();
            let (theirs, _) = Conventions::new(folder, tokenizer, said, vocab_size, child);
            let is_used = theirs.template.is_some() || own.template.is_none();
            is_used.then(|| (name.clone(), theirs))
        };
        AllConventions {
            brought: adapters.iter().filter_map(of).collect(),
            active: adapters.first().map(|(name, _)| name.clone()),
            own,
        }
    }

    pub fn switch(&mut self, adapter: Option<&str>) {
        self.active = adapter.map(String::from);
    }

    /// Those of the adapter that answers, or else the model's own. A model without a template is asked with that of an adapter, so
    /// that it answers the same conversation.
    pub fn active(&self) -> &Conventions {
        let is_active = |name: &String| self.active.as_ref() == Some(name);
        let mut brought = self.brought.iter();
        if let Some((_, theirs)) = brought.find(|(name, _)| is_active(name)) {
            return theirs;
        }
        let mut others = self.brought.iter().map(|(_, theirs)| theirs);
        let other = others.find(|theirs| self.own.template.is_none() && theirs.template.is_some());
        other.unwrap_or(&self.own)
    }

    /// What to know of an adapter that answers in its own way.
    pub fn note(&self) -> Option<String> {
        let source = |of: &Conventions| of.template.as_ref().map(|t| t.source().to_string());
        let name = self.active.as_deref()?;
        let brings = self.brought.iter().any(|(own, _)| own == name);
        (brings && source(self.active()) != source(&self.own)).then(|| {
            format!(
                "conversations are written in the chat template of the adapter {}, which it was trained with",
                one_line(name)
            )
        })
    }
}
