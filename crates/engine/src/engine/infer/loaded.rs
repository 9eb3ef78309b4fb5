//! A loaded model with its tokenizer and its template, from a checkpoint folder, a Hugging Face folder or a GGUF file.

use super::adapters::Adapters;
use super::conventions::{AllConventions, Conventions};
use super::form::{FormOf, UNFOLLOWED};
use super::written::{AnswerText, Written};
use super::{FormWork, GenerationEnd, NoAnswer, Progress, RenderedPrompt, TextModel};
use crate::base::child::Child;
use crate::base::human::{self, counted};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::base::text::one_line;
use crate::data::chat::tool_calls::{Format, Tools, unknown_calls};
use crate::data::chat::{ASK_WITHOUT_TOOLS, GenerationPrompt, Template};
use crate::data::render::decoded;
use crate::data::tokenizer::{self, TextStream};
use crate::data::{DataError, Message};
use crate::engine::checkpoint::{Fault, Manifest};
use crate::engine::merge::{Before, holds_already};
use crate::hf::{self, AdapterError};
use crate::kernels::errors::error_text;
use crate::kernels::numbers::Storage;
use crate::models::{self, SourceError};
use crate::nn::generate::{self, Asked, Constraint, Rows, WhenFull};
use crate::nn::{KvPrecision, Model, storage_name};
use crate::wire::{Event, Prompt, StopReason, Turn, Wanted};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a model cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Model(#[from] SourceError),
    #[error("{path}: {}", one_line(&why.to_string()))]
    Tokenizer { path: PathBuf, why: DataError },
    #[error(
        "{path}: the tokenizer has {tokenizer} tokens but the model {model}; they belong to different models"
    )]
    Vocabulary {
        path: PathBuf,
        tokenizer: usize,
        model: usize,
    },
    #[error("the checkpoint is damaged: {0}")]
    Damaged(#[from] Fault),
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    #[error("{what}")]
    Merged { what: String, fix: String },
}

impl LoadError {
    /// What to do about it.
    pub fn hint(&self) -> Cow<'_, str> {
        match self {
            LoadError::Model(error) => error.hint().into(),
            LoadError::Tokenizer { path, .. } if path.ends_with(hf::TOKENIZER) => {
                "put the model's own tokenizer.json there, as the tokenizers library writes it"
                    .into()
            }
            LoadError::Tokenizer { .. } => {
                "use the model's Hugging Face folder, with its tokenizer.json".into()
            }
            LoadError::Vocabulary { .. } => {
                "put this model's tokenizer files into its folder; if tokens were added, a run with train.resize_vocab=true adds their rows"
                    .into()
            }
            LoadError::Damaged(_) => Fault::HINT.into(),
            LoadError::Merged { fix, .. } => {
                format!("drop --adapter: the model already includes it; {fix}").into()
            }
            LoadError::Adapter(error @ (AdapterError::Unread(_) | AdapterError::Scores(_))) => {
                error.hint().into()
            }
            LoadError::Adapter(_) => {
                "name folders with adapter_config.json whose base is this model; llmtui merge merges both into one model".into()
            }
        }
    }
}

/// An answer has at least this part of the context, before turns are dropped for it.
const ROOM: usize = 4;

/// Answers that are written at once where nobody says how many, if there is memory for their contexts.
const PARALLEL: usize = 4;
/// One part in so many of the memory that is left is none for KV caches: the passes need it, and a cache that grows is there twice
/// for a moment.
const BESIDES: u64 = 5;
/// Most of them: [`Rows`] of more would not have the same bits as alone.
pub const MAX_PARALLEL: usize = generate::MAX_ROWS;

/// A loaded model.
pub struct LoadedModel {
    model: Model,
    /// Places of the answers that are being written, with keys and values of those before.
    rows: Rows,
    /// By row.
    answers: Vec<Option<Written>>,
    conventions: AllConventions,
    architecture: String,
    /// Number formats of weights that are kept in few bits.
    quantized: Option<String>,
    /// Notes for the user.
    notes: Vec<String>,
    adapters: Adapters,
}

impl LoadedModel {
    /// Loads what lies at a path: the model, for inference alone; its tokenizer of whatever kind, and its chat template where
    /// there is one. Foreign tokenizers and templates are tried out in a child process first.
    ///
    /// # Errors
    /// The missing or faulty part, with its file.
    pub fn load(path: &Path) -> Result<LoadedModel, LoadError> {
        LoadedModel::load_with(path, &[])
    }

    /// The same with adapters, the first of which answers; the model's own comes after them.
    ///
    /// # Errors
    /// As [`LoadedModel::load`]; an adapter of another model.
    pub fn load_with(path: &Path, folders: &[PathBuf]) -> Result<LoadedModel, LoadError> {
        for folder in folders {
            Manifest::verify_if_any(folder)?;
        }
        if let Some(Before { what, fix }) = holds_already(path, folders) {
            return Err(LoadError::Merged { what, fix });
        }
        let source = Manifest::open_verified::<LoadError>(path)?;
        let (model, adapters) = Adapters::over::<LoadError>(&source, folders)?;
        let foreign = adapters.of_other_bases(&model, folders.len())?;
        let child = Child::of_this_program();
        let place = source.tokenizer_of(model.shape().vocab_size, folders);
        let tokenizer = tokenizer::load(place, &child).map_err(|why| LoadError::Tokenizer {
            path: match place.is_dir() {
                true => place.join(hf::TOKENIZER),
                false => place.into(),
            },
            why,
        })?;
        let (known, vocab_size) = (tokenizer.vocab_size(), model.shape().vocab_size);
        if known > vocab_size {
            return Err(LoadError::Vocabulary {
                path: path.into(),
                tokenizer: known,
                model: vocab_size,
            });
        }
        let said = source.ends();
        let (own, note) = Conventions::new(path, tokenizer, said.clone(), vocab_size, &child);
        let named: Vec<(String, PathBuf)> =
            adapters.names().into_iter().zip(folders.to_vec()).collect();
        let conventions = AllConventions::new(own, &said, &named, vocab_size, &child);
        let notes = foreign.into_iter().chain(note).chain(models::notes(path));
        Ok(LoadedModel {
            notes: notes.chain(conventions.note()).collect(),
            architecture: source.family().into(),
            quantized: source.formats().map(|formats| formats.join(", ")),
            conventions,
            model,
            rows: Rows::new(1),
            answers: vec![None],
            adapters,
        })
    }

    /// The dtype of the KV cache from now on.
    ///
    /// # Errors
    /// A sentence: the model cannot have it.
    pub fn set_kv_cache(&mut self, precision: KvPrecision) -> Result<(), String> {
        self.model.set_kv_cache(precision).map_err(error_text)
    }

    /// Writes so many answers at once from now on; without a number a few, as far as their contexts fit four fifths of `memory`, in
    /// bytes.
    ///
    /// # Errors
    /// A sentence and what to do: so many do not fit.
    pub fn set_parallel(
        &mut self,
        wanted: Option<usize>,
        memory: u64,
    ) -> Result<(), (String, String)> {
        let each = self.model.context_bytes();
        let room = memory - memory.div_ceil(BESIDES);
        let fit = (room / each.max(1)) as usize;
        let n = wanted.unwrap_or(PARALLEL.min(fit).max(1));
        let (all, context) = (human::bytes(each * n as u64), self.model.shape().seq_len);
        if n > fit && wanted.is_some_and(|n| n > 1) {
            let what = format!(
                "{n} slots, each with the context of {context} tokens, need {all} for their KV caches, but only {} are available (80 % of {} free)",
                human::bytes(room),
                human::bytes(memory)
            );
            let bf16 = match self.model.kv_storage() {
                Storage::F32 => ", or --kv-cache bf16, which halves them",
                Storage::Bf16 => "",
            };
            return Err((what, format!("--parallel {}{bf16}", fit.clamp(1, n - 1))));
        }
        self.rows = Rows::new(n);
        self.answers = vec![None; n];
        if n > 1 || wanted.is_none() {
            let slots = counted(n as u64, "slot");
            self.notes
                .push(format!("{slots}; KV caches take up to {all}"));
        }
        Ok(())
    }

    /// The digest of the weights under its adapters: see [`Model::base_fingerprint`].
    ///
    /// # Errors
    /// A sentence: weights that cannot be read.
    pub fn base_fingerprint(&self) -> Result<String, String> {
        self.model.base_fingerprint().map_err(error_text)
    }

    /// A description of the model for viewers. `seconds`: how long loading took.
    pub fn about(&self, seconds: f64) -> Event {
        let (shape, active) = (self.model.shape(), self.conventions.active());
        Event::Loaded {
            architecture: self.architecture.clone(),
            n_params: self.model.n_params() as u64,
            vocab_size: shape.vocab_size as u64,
            context: shape.seq_len as u64,
            template: active.template.as_ref().map(|t| one_line(t.name())),
            quantized: self.quantized.clone(),
            kv_cache: Some(storage_name(self.model.kv_storage()).into()),
            seconds,
            notes: self.notes.clone(),
            adapters: self.adapters.names(),
            stop: active.training.stop.clone(),
            trained_by: active.training.method.clone(),
            parallel: Some(self.rows.count() as u64),
        }
    }

    /// A text without a prompt starts with the model's BOS token, or after an EOS token.
    fn of_text(&self, text: &str) -> Result<RenderedPrompt, String> {
        let tokenizer = &self.conventions.active().tokenizer;
        let mut tokens = tokenizer.encode_begun(text).map_err(|e| e.to_string())?;
        if tokens.is_empty() {
            tokens.extend(tokenizer.bos().or(tokenizer.eos()));
        }
        if tokens.is_empty() {
            let why = "the prompt is empty, and this model has no BOS token: type something";
            return Err(why.into());
        }
        let text = text.to_string();
        Ok(RenderedPrompt {
            text,
            tokens,
            dropped: 0,
            continues: true,
            tools: Vec::new(),
            tool_calls: None,
        })
    }

    /// The tokens as they are.
    fn of_tokens(&self, tokens: &[u32]) -> Result<RenderedPrompt, String> {
        let vocab_size = self.model.shape().vocab_size;
        if let Some(wrong) = tokens.iter().find(|id| **id as usize >= vocab_size) {
            return Err(format!(
                "the prompt's token {wrong} is outside of the vocabulary of {vocab_size} tokens"
            ));
        }
        match tokens.is_empty() {
            true => Err("the prompt is empty: give at least one token".into()),
            false => Ok(RenderedPrompt {
                text: self.conventions.active().tokenizer.decode(tokens),
                tokens: tokens.to_vec(),
                dropped: 0,
                continues: true,
                tools: Vec::new(),
                tool_calls: None,
            }),
        }
    }

    /// A conversation that leaves room for an answer: without its oldest turns, where it is too long. A system prompt stays, and
    /// so does the last turn.
    fn of_newest_turns(
        &self,
        turns: &[Turn],
        tools: &[Value],
        sampling: &Sampling,
        variables: &Map<String, Value>,
    ) -> Result<RenderedPrompt, String> {
        let template = self.template_with(variables)?;
        let context = self.model.shape().seq_len;
        let room = context.saturating_sub(sampling.max_new_tokens.min(context / ROOM));
        let first = turns
            .iter()
            .take_while(|turn| turn.role == "system")
            .count();
        // What is left begins with the user again.
        let users = (first + 1..turns.len()).filter(|at| turns[*at].role == "user");
        let begins: Vec<usize> = std::iter::once(first).chain(users).collect();
        newest(&begins, |from| {
            let kept = [&turns[..first], &turns[from..]].concat();
            let reading = self.of_turns(&template, &kept, tools)?;
            let fits = sampling.context != ContextLimit::Auto || reading.tokens.len() <= room;
            let dropped = from - first;
            Ok((RenderedPrompt { dropped, ..reading }, fits))
        })
    }

    /// The chat template with these variables besides.
    fn template_with(&self, variables: &Map<String, Value>) -> Result<Cow<'_, Template>, String> {
        let Some(template) = &self.conventions.active().template else {
            return Err(
                "this model has no chat template: it is a base model, which completes text. Send it raw text"
                    .into(),
            );
        };
        if let Some(name) = variables.keys().find(|name| !template.names(name)) {
            let name = one_line(name);
            return Err(format!(
                "this model's chat template has no variable `{name}`: leave it out"
            ));
        }
        Ok(match variables.is_empty() {
            true => Cow::Borrowed(template),
            false => Cow::Owned(template.given(variables)),
        })
    }

    /// A conversation as rendered by the template, up to the start of the assistant's turn.
    fn of_turns(
        &self,
        template: &Template,
        turns: &[Turn],
        tools: &[Value],
    ) -> Result<RenderedPrompt, String> {
        let active = self.conventions.active();
        let messages: Vec<Message> = turns.iter().map(message).collect();
        // As in training.
        let messages = decoded(&messages);
        // A started assistant turn follows the generation prompt.
        let (before, last) = match messages.split_last() {
            None => return Err("the conversation is empty: type a message".into()),
            Some((last, before)) if last.role == "assistant" => (before, Some(last)),
            Some(_) => (messages.as_slice(), None),
        };
        let render = |tools| {
            let text = template.render(before, tools, GenerationPrompt::With);
            text.map_err(|e| format!("{e}; {}", e.hint()))
        };
        let all = Value::from(tools);
        let text = render((!tools.is_empty()).then_some(&all))?;
        if !tools.is_empty() && render(None)? == text {
            return Err(format!(
                "this model's chat template does not render tools: it was not trained to call any; {ASK_WITHOUT_TOOLS}"
            ));
        }
        let begun = last.map_or_else(String::new, |last| begun(last, active.calls, &text));
        let format = active.calls.and_then(|format| format.behind(&text, &begun));
        let text = text + &begun;
        let tokens = active.tokenizer.encode(&text).map_err(|e| e.to_string())?;
        match tokens.is_empty() {
            true => Err("the template rendered the conversation to an empty text".into()),
            false => Ok(RenderedPrompt {
                text,
                tokens,
                dropped: 0,
                continues: !begun.is_empty(),
                tools: tools.to_vec(),
                tool_calls: format.map(|format| format.word),
            }),
        }
    }

    fn when_full(&self, sampling: &Sampling) -> WhenFull {
        match sampling.context {
            ContextLimit::Roll => WhenFull::Roll,
            // A conversation has dropped whole turns before it comes to this; plain text rolls on.
            ContextLimit::Auto if self.conventions.active().template.is_none() => WhenFull::Roll,
            ContextLimit::Auto | ContextLimit::Stop => WhenFull::Stop,
        }
    }

    /// What the user should know of an answer.
    fn message(&self, end: &GenerationEnd, prompt_tokens: usize, dropped: usize) -> String {
        match end.reason {
            StopReason::Context if dropped > 0 => {
                format!("{}, and the answer filled the rest", self.without(dropped))
            }
            StopReason::Context => self.full(),
            _ if dropped > 0 => self.without(dropped),
            // The newest token is written, and not read.
            _ if prompt_tokens + end.n_tokens > self.model.shape().seq_len + 1 => self.rolled(),
            _ => String::new(),
        }
    }

    fn full(&self) -> String {
        let context = self.model.shape().seq_len;
        format!("the context of {context} tokens is full")
    }

    fn without(&self, turns: usize) -> String {
        let context = self.model.shape().seq_len;
        let turns = counted(turns as u64, "oldest turn");
        format!("the context of {context} tokens is full: it was answered without the {turns}")
    }

    fn rolled(&self) -> String {
        let context = self.model.shape().seq_len;
        format!("the context of {context} tokens rolled: the oldest tokens were dropped")
    }
}

/// What is made of the first of `begins`, in order, that fits, or else of the last. A conversation may have thousands of turns, each of
/// which takes time to render: from the newest backwards in growing steps, then by halves.
fn newest<T>(
    begins: &[usize],
    make: impl Fn(usize) -> Result<(T, bool), String>,
) -> Result<T, String> {
    let Some((first, last)) = begins.first().zip(begins.last()) else {
        return Err("the conversation is empty: type a message".into());
    };
    let (whole, fits) = make(*first)?;
    if fits || begins.len() == 1 {
        return Ok(whole);
    }
    let (mut made, _) = make(*last)?;
    // The first does not fit, and of the last something is made; what fits lies between.
    let (mut long, mut made_at, mut step) = (0, begins.len() - 1, Some(1));
    while made_at - long > 1 {
        let at = match step {
            Some(step) => made_at.saturating_sub(step).max(long + 1),
            None => (long + made_at) / 2,
        };
        match make(begins[at])? {
            (now, true) => {
                (made, made_at) = (now, at);
                step = step.map(|step| 2 * step);
            }
            (_, false) => (long, step) = (at, None),
        }
    }
    Ok(made)
}

/// What a started turn has written so far behind `prompt`, in the format of the model's answers.
fn begun(turn: &Message, format: Option<&Format>, prompt: &str) -> String {
    let thought = turn.extra.get("reasoning_content").and_then(Value::as_str);
    match (format, turn.content.is_empty() && thought.is_none()) {
        (Some(format), false) => format.begun(&turn.content, thought, prompt),
        _ => turn.content.clone(),
    }
}

fn message(turn: &Turn) -> Message {
    Message {
        role: turn.role.clone(),
        content: turn.content.clone(),
        extra: turn.extra.clone(),
    }
}

impl TextModel for LoadedModel {
    fn read(&self, prompt: &Prompt, sampling: &Sampling) -> Result<RenderedPrompt, String> {
        self.read_with(prompt, sampling, &Map::new())
    }

    fn read_with(
        &self,
        prompt: &Prompt,
        sampling: &Sampling,
        variables: &Map<String, Value>,
    ) -> Result<RenderedPrompt, String> {
        let is_bare = matches!(prompt, Prompt::Text(_) | Prompt::Tokens(_));
        if is_bare && !variables.is_empty() {
            return Err("a text has no template, so it has no variables either".into());
        }
        match prompt {
            Prompt::Text(text) => self.of_text(text),
            Prompt::Tokens(tokens) => self.of_tokens(tokens),
            Prompt::Turns(turns) => self.of_newest_turns(turns, &[], sampling, variables),
            Prompt::WithTools { messages, tools } => {
                self.of_newest_turns(messages, tools, sampling, variables)
            }
        }
    }

    fn use_adapter(&mut self, name: Option<&str>) -> Result<(), String> {
        self.adapters.switch(&mut self.model, name)?;
        self.conventions.switch(name);
        // The caches were computed with other weights.
        self.rows.forget();
        Ok(())
    }

    fn rows(&self) -> usize {
        self.rows.count()
    }

    fn must_be_alone(&self, wanted: &Wanted) -> bool {
        wanted.repeatable && !Rows::are_independent()
    }

    fn form(&self, reading: &RenderedPrompt, wanted: &Wanted) -> Result<Option<FormWork>, String> {
        let format = reading.tool_calls.and_then(Format::named);
        let thinks = format.filter(|format| format.has_thoughts());
        let form = match (&wanted.calls, &wanted.json_schema, thinks) {
            (None, None, _) => return Ok(None),
            (None, Some(schema), None) => FormOf::Json((**schema).clone()),
            (None, Some(schema), Some(format)) => FormOf::Answer {
                format,
                prompt: format.opening(&reading.text).into(),
                calls: None,
                json_schema: Some((**schema).clone()),
            },
            (Some(calls), schema, _) => {
                let format = format.ok_or_else(unknown_calls)?;
                FormOf::Answer {
                    format,
                    prompt: format.opening(&reading.text).into(),
                    calls: Some((Tools::new(reading.tools.clone()), calls.clone())),
                    json_schema: schema.as_deref().cloned(),
                }
            }
        };
        let vocabulary = Arc::clone(&self.conventions.active().vocabulary);
        Ok(Some(Box::new(move || form.compile(&vocabulary))))
    }

    fn begin(
        &mut self,
        reading: &RenderedPrompt,
        sampling: &Sampling,
        wanted: &Wanted,
        form: Option<Box<dyn Constraint>>,
    ) -> Result<usize, NoAnswer> {
        let when_full = self.when_full(sampling);
        let (len, context) = (reading.tokens.len(), self.model.shape().seq_len);
        if wanted.prompt_logprobs && len > context {
            return Err(NoAnswer::Refused(format!(
                "the prompt has {len} tokens, more than the context of {context}: its log-probabilities need all of them"
            )));
        }
        if when_full == WhenFull::Stop && len > context {
            return Err(NoAnswer::Refused(format!(
                "the prompt has {len} tokens, more than the context of {context}: shorten it, start a new conversation, \
                 or let the context roll"
            )));
        }
        let active = self.conventions.active();
        let asked = Asked {
            prompt: reading.tokens.clone(),
            sampling: sampling.clone(),
            ends: active.ends.clone(),
            when_full,
            top: wanted.logprobs.unwrap_or(0),
            constraint: form,
            scores_prompt: wanted.prompt_logprobs,
            afresh: wanted.repeatable,
        };
        let row = self.rows.join(&self.model, asked).map_err(cannot_compute)?;
        let row = row.ok_or_else(|| {
            NoAnswer::Refused(format!("{} are being written already", self.rows.count()))
        })?;
        let stream = match reading.continues {
            true => TextStream::behind(&active.tokenizer, &reading.tokens),
            false => TextStream::default(),
        };
        let stops = match sampling.stop.is_empty() {
            true => &active.training.stop,
            false => &sampling.stop,
        };
        self.answers[row] = Some(Written {
            text: AnswerText::new(stream, stops, wanted.logprobs.is_some()),
            end_token: wanted.end_token,
            beyond: len.saturating_sub(context),
            prompt_tokens: len,
            dropped: reading.dropped,
        });
        Ok(row)
    }

    fn write(
        &mut self,
        hear: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Vec<(usize, Result<GenerationEnd, NoAnswer>)> {
        let active = self.conventions.active();
        let (rows, answers) = (&mut self.rows, &mut self.answers);
        let ended = rows.write(&mut self.model, &mut |progress| match progress {
            generate::Progress::Between => hear(Progress::Between),
            generate::Progress::Row(row, step) => match &mut answers[row] {
                Some(answer) => {
                    answer.hear(active, step, &mut |step| hear(Progress::Row(row, step)))
                }
                None => ControlFlow::Break(()),
            },
        });
        let ended = match ended {
            Ok(ended) => ended,
            // None of them can be written on.
            Err(error) => {
                let why = cannot_compute(error);
                let all = self.answers.iter_mut().enumerate();
                let all = all.filter_map(|(row, answer)| answer.take().map(|_| row));
                return all.map(|row| (row, Err(why.clone()))).collect();
            }
        };
        let mut ends = Vec::with_capacity(ended.len());
        for (row, generated) in ended {
            let Some(answer) = self.answers[row].take() else {
                continue;
            };
            let mut on_step = |step| hear(Progress::Row(row, step));
            let end = generated.map_err(cannot_compute).map(|generated| {
                let (prompt_tokens, dropped) = (answer.prompt_tokens, answer.dropped);
                let end = answer.end(self.conventions.active(), generated, &mut on_step);
                GenerationEnd {
                    message: self.message(&end, prompt_tokens, dropped),
                    ..end
                }
            });
            ends.push((row, end));
        }
        ends
    }

    fn leave(&mut self, row: usize) -> GenerationEnd {
        self.rows.leave(row);
        let answer = self.answers[row].take();
        GenerationEnd {
            n_tokens: answer.map_or(0, |answer| answer.text.n_tokens()),
            reason: StopReason::Cancelled,
            message: String::new(),
        }
    }
}

fn cannot_compute(error: candle_core::Error) -> NoAnswer {
    let why = error_text(error);
    // Who asked for the form can ask for another one.
    match why.find(UNFOLLOWED) {
        Some(at) => NoAnswer::Refused(why[at..].to_owned()),
        None => NoAnswer::Broken(format!("the model cannot compute: {why}")),
    }
}

#[cfg(test)]
mod tests;
