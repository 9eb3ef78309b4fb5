//! Inference is an engine too: it holds one model and answers `Generate` with `Token` events, as many prompts at once as the model
//! has rows, in the order in which they come. The transport of its lines is up to the link.

mod adapters;
mod conventions;
mod form;
mod loaded;
mod opening;
mod preparing;
mod server;
mod stops;
mod written;

pub use loaded::{LoadError, LoadedModel, MAX_PARALLEL};
pub use server::serve;

use crate::base::sampling::Sampling;
use crate::nn::generate::Constraint;
use crate::wire::{CommandId, LikelyToken, Prompt, PromptToken, Request, StopReason, Wanted};
use std::ops::ControlFlow;

/// Most alternatives to a token.
const MAX_ALTERNATIVES: usize = 100;

/// A request, or a parse error with its id.
pub type InboxItem = Result<Request, (CommandId, String)>;

/// A piece of an answer: one token's text (empty while a character is incomplete), its log-probability and the entropy of
/// its place, in nats. Text that belongs to no token of its own, held back until it was sure, has NaN for both.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub text: String,
    pub logprob: f32,
    pub entropy: f32,
    /// The token's id; none for text held back at the end.
    pub id: Option<u32>,
    /// The token's own bytes, where log-probabilities are wanted.
    pub bytes: Option<Vec<u8>>,
    /// The most likely tokens at its place, where they are wanted.
    pub top: Vec<LikelyToken>,
}

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The prompt as one text.
    pub text: String,
    pub tokens: Vec<u32>,
    /// Turns that it leaves out, the oldest ones.
    pub dropped: usize,
    /// What is generated continues its text, with a space between words; the answer to a turn is a text of its own.
    pub continues: bool,
    /// The tools in it: their definitions.
    pub tools: Vec<serde_json::Value>,
    /// The format of thoughts and tool calls in the answer, where it is known.
    pub tool_calls: Option<&'static str>,
}

/// Makes the form of an answer. It takes long for a large one, and needs no model: another thread can do it.
pub type FormWork = Box<dyn FnOnce() -> Result<Box<dyn Constraint>, String> + Send>;

/// Progress of a generation.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// So many tokens of the prompt are read by now, `kept` of them for an earlier prompt.
    Read {
        tokens: usize,
        kept: usize,
    },
    /// The next tokens of the prompt, where their log-probabilities are wanted.
    Scored(Vec<PromptToken>),
    Wrote(Piece),
}

/// What happened while answers were written.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// Of the answer in this row. A break ends it.
    Row(usize, Step),
    /// Between two passes over the model. A break returns to the caller.
    Between,
}

/// How a continuation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationEnd {
    pub n_tokens: usize,
    /// `Length`, `Stop`, `Context`, or `Cancelled` when the callback broke off.
    pub reason: StopReason,
    /// A sentence for the user, where the reason needs one.
    pub message: String,
}

/// Why there is no answer, as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The model does not take what it was asked.
    #[error("{0}")]
    Refused(String),
    /// It cannot compute: too little memory, damaged weights.
    #[error("{0}")]
    Broken(String),
}

impl From<String> for NoAnswer {
    fn from(why: String) -> NoAnswer {
        NoAnswer::Refused(why)
    }
}

impl From<NoAnswer> for String {
    fn from(why: NoAnswer) -> String {
        why.to_string()
    }
}

/// Something that continues text.
pub trait TextModel {
    /// Renders a prompt. Of a conversation that does not fit the context, oldest turns are left out if `sampling` lets them.
    ///
    /// # Errors
    /// A sentence for the user: an empty prompt, no chat template, or turns or tools that it refuses.
    fn read(&self, prompt: &Prompt, sampling: &Sampling) -> Result<RenderedPrompt, String>;

    /// [`TextModel::read`] with these variables of the chat template.
    ///
    /// # Errors
    /// As [`TextModel::read`]; or the template has no such variable.
    fn read_with(
        &self,
        prompt: &Prompt,
        sampling: &Sampling,
        variables: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<RenderedPrompt, String> {
        match variables.is_empty() {
            true => self.read(prompt, sampling),
            false => Err("this model has no chat template, so it has no variables either".into()),
        }
    }

    /// Answers that can be written at once.
    fn rows(&self) -> usize {
        1
    }

    /// Whether an answer would not be the same beside others, though it must be.
    fn must_be_alone(&self, _wanted: &Wanted) -> bool {
        false
    }

    /// What makes the form that an answer must have, if any.
    ///
    /// # Errors
    /// A sentence: the model cannot have such a form.
    fn form(
        &self,
        _reading: &RenderedPrompt,
        _wanted: &Wanted,
    ) -> Result<Option<FormWork>, String> {
        Ok(None)
    }

    /// Begins an answer of this form in a free row, which it returns.
    ///
    /// # Errors
    /// A prompt longer than the context where that may not roll; no free row.
    fn begin(
        &mut self,
        reading: &RenderedPrompt,
        sampling: &Sampling,
        wanted: &Wanted,
        form: Option<Box<dyn Constraint>>,
    ) -> Result<usize, NoAnswer>;

    /// Writes all answers on, until one has ended or `hear` breaks between two passes. It is called for every token and between the
    /// chunks of a long prompt. Returns the answers that ended, with their rows.
    fn write(
        &mut self,
        hear: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Vec<(usize, Result<GenerationEnd, NoAnswer>)>;

    /// Ends the answer in this row as cancelled.
    fn leave(&mut self, row: usize) -> GenerationEnd;

    /// One answer from its beginning to its end; `on_step` may cancel it.
    ///
    /// # Errors
    /// Those of [`TextModel::begin`], a form that cannot be followed, and failures of the model.
    fn answer(
        &mut self,
        reading: &RenderedPrompt,
        sampling: &Sampling,
        wanted: &Wanted,
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<GenerationEnd, NoAnswer> {
        let form = self.form(reading, wanted)?;
        let form = form.map(|make| make()).transpose()?;
        let own = self.begin(reading, sampling, wanted, form)?;
        loop {
            let ended = self.write(&mut |progress| match progress {
                Progress::Row(row, step) if row == own => on_step(step),
                Progress::Row(..) | Progress::Between => ControlFlow::Continue(()),
            });
            if let Some((_, end)) = ended.into_iter().find(|(row, _)| *row == own) {
                return end;
            }
        }
    }

    /// [`TextModel::answer`] with nothing but the text.
    ///
    /// # Errors
    /// As [`TextModel::answer`].
    fn generate(
        &mut self,
        reading: &RenderedPrompt,
        sampling: &Sampling,
        on_step: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<GenerationEnd, NoAnswer> {
        self.answer(reading, sampling, &Wanted::default(), on_step)
    }

    /// Answers with the adapter of this name from now on, or with none.
    ///
    /// # Errors
    /// A sentence for the user: the name is unknown, or memory is short.
    fn use_adapter(&mut self, name: Option<&str>) -> Result<(), String> {
        match name {
            None => Ok(()),
            Some(_) => Err(
                "this model has no adapters: load some with llmtui chat MODEL --adapter DIR".into(),
            ),
        }
    }
}

/// Settings come from other processes: each is checked before the model sees it. `most` tokens may be written.
pub(super) fn check(sampling: &Sampling, most: usize) -> Result<(), String> {
    let Sampling {
        temperature,
        top_p,
        min_p,
        repetition_penalty,
        max_new_tokens,
        ..
    } = sampling;
    if !(temperature.is_finite() && *temperature >= 0.0) {
        Err(format!(
            "temperature must be a number of at least 0, not {temperature}"
        ))
    } else if !(*top_p > 0.0 && *top_p <= 1.0) {
        Err(format!("top_p must be above 0 and at most 1, not {top_p}"))
    } else if !(0.0..=1.0).contains(min_p) {
        Err(format!("min_p must be from 0 to 1, not {min_p}"))
    } else if !(0.01..=100.0).contains(repetition_penalty) {
        Err(format!(
            "repetition_penalty must be from 0.01 to 100, not {repetition_penalty}"
        ))
    } else if *max_new_tokens > most {
        Err(format!(
            "max_new_tokens must be at most {most}, not {max_new_tokens}"
        ))
    } else {
        Ok(())
    }
}

fn check_wanted(wanted: &Wanted) -> Result<(), String> {
    match wanted.logprobs {
        Some(most) if most > MAX_ALTERNATIVES => Err(format!(
            "logprobs must be at most {MAX_ALTERNATIVES}, not {most}"
        )),
        _ => Ok(()),
    }
}
