//! The evaluated model, from files or during training; and the fingerprint of its files.

use super::error::TaskError;
use super::model::AskedModel;
use crate::base::digest::hex;
use crate::base::files::open_plain;
use crate::data::Message;
use crate::data::chat::tool_calls::Answers;
use crate::data::chat::{GenerationPrompt, Template};
use crate::data::render::turn_ends;
use crate::data::tokenizer::Tokenizer;
use crate::models::{ModelSource, SourceError, files_of};
use crate::nn::Model;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// A model read from files, with its tokenizer.
pub struct Loaded {
    model: Model,
    tokenizer: Tokenizer,
    ends: Vec<u32>,
    template: Option<Template>,
    answers: Answers,
}

impl Loaded {
    /// Loads a model for inference; `tokenizer` is its own.
    ///
    /// # Errors
    /// Its weights cannot be read.
    pub fn load(source: &ModelSource, tokenizer: Tokenizer) -> Result<Loaded, SourceError> {
        Ok(Loaded {
            model: source.load_for_inference()?,
            ends: source.ends(),
            tokenizer,
            template: None,
            answers: Answers::default(),
        })
    }

    /// Whether no weight is NaN or infinite. Values of a quantized file are looked at where it is read.
    pub fn is_finite(&self) -> bool {
        let finite = |weights: &[f32]| weights.iter().all(|x| x.is_finite());
        self.model.params().read_held(finite).unwrap_or(false)
    }

    /// With the template that tasks of turns are asked through.
    pub fn with_template(self, template: Option<Template>) -> Loaded {
        Loaded {
            answers: Answers::of(template.as_ref(), &self.tokenizer),
            template,
            ..self
        }
    }

    /// To be asked.
    pub fn subject(&mut self) -> Subject<'_> {
        let template = self.template.as_ref().map(|it| (it, self.answers));
        Subject::new(&mut self.model, &self.tokenizer, &self.ends).with_template(template)
    }
}

/// The model that is asked.
pub struct Subject<'a> {
    pub(super) model: &'a mut dyn AskedModel,
    pub(super) tokenizer: &'a Tokenizer,
    /// What stands for nothing before a continuation: the token that begins texts, or the one that ends them.
    pub(super) prefix: Option<u32>,
    /// Tokens that end an answer.
    pub(super) ends: Vec<u32>,
    template: Option<&'a Template>,
    /// How its answers to turns are read.
    pub(super) answers: Answers,
}

impl<'a> Subject<'a> {
    /// `ends`: tokens that end an answer, besides the tokenizer's own.
    pub fn new(
        model: &'a mut dyn AskedModel,
        tokenizer: &'a Tokenizer,
        ends: &[u32],
    ) -> Subject<'a> {
        let mut ends = ends.to_vec();
        ends.extend(tokenizer.eos());
        ends.retain(|id| (*id as usize) < model.shape().vocab_size);
        Subject {
            prefix: tokenizer.bos().or(tokenizer.eos()),
            ends,
            model,
            tokenizer,
            template: None,
            answers: Answers::default(),
        }
    }

    /// With the template that tasks of turns are asked through, and how answers to them are read; what ends an assistant's turn ends an
    /// answer.
    pub fn with_template(mut self, template: Option<(&'a Template, Answers)>) -> Subject<'a> {
        self.answers = template.map_or_else(Answers::default, |(_, answers)| answers);
        // Some files name it as an end: an answer would end behind its thoughts.
        let goes_on = self.answers.goes_on_behind();
        let goes_on = goes_on.and_then(|mark| self.tokenizer.id(mark));
        self.ends.retain(|id| Some(*id) != goes_on);
        let template = template.map(|(template, _)| template);
        self.template = template;
        let ends = template.map(|template| turn_ends(template, self.tokenizer));
        let known = self.model.shape().vocab_size;
        let ends = ends
            .into_iter()
            .flatten()
            .filter(|id| (*id as usize) < known);
        self.ends.extend(ends);
        self
    }

    /// What the template writes behind an answer; nothing without one.
    pub(super) fn answer_suffix(&self) -> String {
        self.template
            .map(Template::answer_suffix)
            .unwrap_or_default()
    }

    /// A prompt as a user's turn, up to where the assistant begins to speak, or with the beginning of what it says: as
    /// transformers' `continue_final_message`, white space at its end only where the template keeps it.
    ///
    /// # Errors
    /// There is no template, or it refuses.
    pub(super) fn as_turn(&self, prompt: &str, begun: Option<&str>) -> Result<String, String> {
        let Some(template) = self.template else {
            return Err("it needs a chat template, and this model has none: it is a base model, which completes text".into());
        };
        let user = Message::new("user", prompt);
        let text = match begun {
            None => template.render(&[user], None, GenerationPrompt::With),
            Some(begun) => {
                let turns = [user, Message::new("assistant", begun)];
                template.render(&turns, None, GenerationPrompt::Without)
            }
        };
        let mut text = text.map_err(|e| format!("{e}; {}", e.hint()))?;
        if let Some(begun) = begun {
            let at = text.rfind(begun.trim());
            let at = at.ok_or("its chat template does not write the assistant's turn as it is")?;
            let end = match text[at..].starts_with(begun.trim_start()) {
                true => begun.trim_start().len(),
                false => begun.trim().len(),
            };
            text.truncate(at + end);
        }
        Ok(text)
    }

    /// The token in front of texts, in words.
    pub fn begins_with(&self) -> String {
        let shown = |id: &u32| self.tokenizer.token(*id).unwrap_or_default();
        match self.tokenizer.lead() {
            [] => "nothing before a prompt".into(),
            lead => format!(
                "{} before a prompt",
                lead.iter().map(shown).collect::<String>()
            ),
        }
    }
}

/// SHA-256 over what decides a model's answers: weights, configuration, tokenizer and chat template, by name and contents; of
/// an adapter alone those of its base, too, and of a GGUF file in several parts all of them.
///
/// # Errors
/// A file cannot be read.
pub fn fingerprint(path: &Path) -> Result<String, TaskError> {
    // What it stands on is reported as the model is opened, where that is not here.
    let source = path.is_dir().then(|| ModelSource::open(path).ok());
    let mut hash = Sha256::new();
    for place in source.flatten().map_or(vec![path.into()], parts) {
        add(&mut hash, &place)?;
    }
    Ok(hex(&hash.finalize()))
}

/// The folder of a model and, of an adapter alone, what it stands on.
fn parts(source: ModelSource) -> Vec<PathBuf> {
    let mut at = Some(&source);
    let mut places = Vec::new();
    while let Some(source) = at {
        places.push(source.path().to_path_buf());
        at = source.base();
    }
    places
}

fn add(hash: &mut Sha256, path: &Path) -> Result<(), TaskError> {
    let mut files: Vec<PathBuf> = match path.is_dir() {
        // A model in several parts answers by all of them.
        false => files_of(path),
        true => std::fs::read_dir(path)
            .map_err(TaskError::io(path))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| decides(path))
            .collect(),
    };
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        hash.update(name.as_bytes());
        hash.update([0]);
        let mut reader = open_plain(&file).map_err(TaskError::io(&file))?;
        std::io::copy(&mut reader, hash).map_err(TaskError::io(&file))?;
    }
    Ok(())
}

fn decides(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let kind = file.extension().unwrap_or_default().to_string_lossy();
    match kind.as_ref() {
        "safetensors" => !name.starts_with("optimizer"),
        "json" => !["state.json", "manifest.json"].contains(&name.as_ref()),
        // merges.txt, and the chat template.
        "gguf" | "model" | "bin" | "txt" | "jinja" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{self, Value};
    use std::fs;

    #[test]
    fn what_decides_answers_changes_the_fingerprint_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let (base, adapter) = (dir.path().join("base"), dir.path().join("adapter"));
        for folder in [&base, &adapter] {
            fs::create_dir(folder).unwrap();
        }
        let config = serde_json::json!({"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64, "vocab_size": 65});
        fs::write(base.join("config.json"), config.to_string()).unwrap();
        fs::write(base.join("model.safetensors"), "weights").unwrap();
        let said = serde_json::json!({"base_model_name_or_path": base, "peft_type": "LORA"});
        fs::write(adapter.join("adapter_config.json"), said.to_string()).unwrap();
        let mut seen = Vec::new();
        for (folder, file, text) in [
            (&base, "model.safetensors", "other weights"),
            (&base, "merges.txt", "a b"),
            (&base, "chat_template.jinja", "{{ messages }}"),
            (&base, "chat_template.jinja", "{{ messages[0] }}"),
            (&adapter, "adapter_model.safetensors", "weights"),
        ] {
            fs::write(folder.join(file), text).unwrap();
            let both = [&base, &adapter].map(|folder| fingerprint(folder).unwrap());
            assert_ne!(both[0], both[1]);
            seen.push(both);
        }
        for two in seen.windows(2) {
            assert_ne!(two[0][1], two[1][1], "the adapter answers otherwise");
        }
        assert_ne!(seen[2][0], seen[3][0], "another template");
        assert_eq!(seen[3][0], seen[4][0], "the base is what it was");
        fs::write(base.join("state.json"), "{}").unwrap();
        assert_eq!(fingerprint(&base).unwrap(), seen[4][0]);
    }

    #[test]
    fn every_part_of_a_split_file_changes_the_fingerprint_whichever_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let part = |n: usize| dir.path().join(format!("big-{n:05}-of-00003.gguf"));
        let write = |n: usize, text: &str| write_gguf(&part(n), text, Some((n as u64 - 1, 3)));
        (1..=3).for_each(|n| write(n, "weights"));
        let all = || [1, 2, 3].map(|n| fingerprint(&part(n)).unwrap());
        let before = all();
        assert!(before.iter().all(|one| *one == before[0]));
        for n in [2, 3] {
            write(n, "other weights");
            assert!(all().iter().all(|one| *one != before[0]), "part {n}");
            write(n, "weights");
        }
        assert_eq!(all(), before);
    }

    #[test]
    fn whole_models_that_are_called_like_parts_have_fingerprints_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let called = |n: usize| dir.path().join(format!("a-{n:05}-of-00002.gguf"));
        (1..=2).for_each(|n| write_gguf(&called(n), "weights", None));
        let before = [1, 2].map(|n| fingerprint(&called(n)).unwrap());
        write_gguf(&called(2), "other weights", None);
        let after = [1, 2].map(|n| fingerprint(&called(n)).unwrap());
        assert_ne!(before[0], before[1], "its name is part of it");
        assert_eq!(before[0], after[0], "another model does not matter");
        assert_ne!(before[1], after[1]);
    }

    /// A file without tensors; `place` are the number of a part, from 0, and how many there are.
    fn write_gguf(path: &Path, says: &str, place: Option<(u64, u64)>) {
        let mut keys = vec![("general.name".to_string(), Value::String(says.into()))];
        if let Some((no, count)) = place {
            keys.push(("split.no".into(), Value::Unsigned(no)));
            keys.push(("split.count".into(), Value::Unsigned(count)));
        }
        let mut out = fs::File::create(path).unwrap();
        gguf::write(&mut out, &keys, &[], &mut |_, _| Ok(())).unwrap();
    }
}
