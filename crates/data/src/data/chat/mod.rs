//! Chat templates: from turns to the text that a model is trained on, in Hugging Face's dialect of Jinja. Tokenization and
//! the loss mask are in [`super::render`].

mod bounded;
mod builtin;
mod calls;
mod choose;
mod dialect;
mod json;
mod missing;
mod row;
mod scan;
pub mod tool_calls;
mod validate;

pub use builtin::{BUILTIN, Builtin, PLAIN};
pub use choose::AUTO;
pub(super) use missing::marks_in;
pub use missing::{ASK_WITHOUT_TOOLS, SplitMarker, THOUGHTS_FIX, TOOLS_FIX};
pub use row::{Formula, RowTemplate};
pub(super) use validate::PARSER;

use super::{DataError, Message};
use crate::base::digest::hex;
use crate::base::text::one_line;
use crate::kernels::allocations::budget::BudgetExceeded;
use bounded::{Engine, RenderError};
use calls::CallForm;
use dialect::{GENERATED_END, GENERATED_START, Raised};
use jiff::civil::Date;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::error::Error as _;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The name under which the engine knows the one template it has.
const NAME: &str = "template";

/// Largest rendered conversation.
const MAX_OUTPUT: usize = 64 << 20;

/// The day that templates get when they ask for today's date, as Llama 3.2's does: the one that Llama 3.1's own
/// template falls back to. A training text that changed from day to day could be neither cached nor resumed.
pub const TODAY: Date = jiff::civil::date(2024, 7, 26);

/// Whether the text ends where the assistant begins to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// The conversation as it is.
    Without,
    /// With the beginning of the assistant's turn after it.
    With,
}

/// A conversation as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    /// The bytes that the template's `generation` blocks wrote, in order; empty where it has none.
    pub generated: Vec<Range<usize>>,
}

/// One chat template, compiled. Cheap to share, not to clone.
#[derive(Clone)]
pub struct Template {
    name: String,
    source: Arc<str>,
    engine: Engine,
    variables: Map<String, Value>,
    tagged: bool,
    /// The end-of-turn token of the assistant, if the template declares one.
    turn_end: Option<&'static str>,
    /// In which form it writes tool calls, once a turn has one.
    calls: OnceLock<CallForm>,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template")
            .field("name", &self.name)
            .field("variables", &self.variables)
            .field("tagged", &self.tagged)
            .finish_non_exhaustive()
    }
}

impl Template {
    /// Compiles a template's text. `name` is for messages: a file, a model, a built-in name.
    ///
    /// # Errors
    /// Not a template, or larger or deeper than a chat template has reason to be.
    pub fn from_jinja(name: &str, source: &str) -> Result<Template, DataError> {
        let fault = |what: String| DataError::Template {
            place: match name.starts_with("the ") {
                true => place(name),
                false => one_line(name),
            },
            what: one_line(&what),
            fix: "fix the template, or choose a built-in one with data.template",
        };
        let scanned = scan::scan(source).map_err(fault)?;
        let mut env = dialect::environment(TODAY);
        env.add_template_owned(NAME, scanned.template)
            .map_err(|e| fault(explain(&e)))?;
        Ok(Template {
            name: name.to_string(),
            source: source.into(),
            engine: Engine::new(env),
            variables: Map::new(),
            tagged: scanned.has_generation,
            turn_end: None,
            calls: OnceLock::new(),
        })
    }

    /// The same with a variable that the template may ask for: `bos_token`, `eos_token`, `enable_thinking`, …
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: impl Into<Value>) -> Template {
        self.variables.insert(name.to_string(), value.into());
        self.calls = OnceLock::new();
        self
    }

    /// The same for one conversation, with these variables besides.
    #[must_use]
    pub fn given(&self, variables: &Map<String, Value>) -> Template {
        let mut template = self.clone();
        template.variables.extend(variables.clone());
        template
    }

    /// Whether its text names a variable.
    pub fn names(&self, variable: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        self.source.match_indices(variable).any(|(at, _)| {
            let before = self.source[..at].chars().next_back();
            let behind = self.source[at + variable.len()..].chars().next();
            !before.is_some_and(is_part) && !behind.is_some_and(is_part)
        })
    }

    /// For messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The template's text, to be stored beside a model.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The template's variables besides the turns.
    pub fn variables(&self) -> &Map<String, Value> {
        &self.variables
    }

    /// A string variable, e.g. `eos_token`.
    pub fn token(&self, name: &str) -> Option<&str> {
        self.variables.get(name).and_then(Value::as_str)
    }

    /// Whether the template itself marks the assistant's text with `{% generation %}`.
    pub fn marks_generation(&self) -> bool {
        self.tagged
    }

    /// The text that ends an assistant's turn, where it is known: `<|im_end|>`.
    pub fn turn_end(&self) -> Option<&str> {
        let said = self.turn_end.or_else(|| self.token("eos_token"));
        said.filter(|end| !end.is_empty())
    }

    /// What the template writes after the answer at the end of a conversation: `<|im_end|>` and a line's end, say.
    pub fn answer_suffix(&self) -> String {
        const ANSWER: &str = "An answer.";
        let turns = [
            Message::new("user", "A question?"),
            Message::new("assistant", ANSWER),
        ];
        let text = self.render(&turns, None, GenerationPrompt::Without);
        let behind = text.ok().and_then(|text| {
            let (_, behind) = text.rsplit_once(ANSWER)?;
            Some(behind.to_string())
        });
        behind.unwrap_or_else(|| self.turn_end().unwrap_or_default().into())
    }

    /// SHA-256 in hex of everything that decides how turns become text: two runs whose fingerprints differ speak
    /// different formats.
    pub fn fingerprint(&self) -> String {
        let mut names: Vec<&String> = self.variables.keys().collect();
        names.sort();
        let mut hash = Sha256::new();
        hash.update(self.source.as_bytes());
        for name in names {
            hash.update([0]);
            hash.update(format!("{name}={}", self.variables[name]));
        }
        hex(&hash.finalize())
    }

    /// Turns to text, as transformers' `apply_chat_template(tokenize=False)`.
    ///
    /// # Errors
    /// The template's own refusal (`raise_exception`), or whatever breaks in it.
    pub fn render(
        &self,
        messages: &[Message],
        tools: Option<&Value>,
        prompt: GenerationPrompt,
    ) -> Result<String, DataError> {
        Ok(self.render_marked(messages, tools, prompt)?.text)
    }

    /// [`Template::render`] with the places that `generation` blocks wrote.
    ///
    /// # Errors
    /// As [`Template::render`]; and turns that hold the two noncharacters which stand for those places in between.
    pub fn render_marked(
        &self,
        messages: &[Message],
        tools: Option<&Value>,
        prompt: GenerationPrompt,
    ) -> Result<Rendered, DataError> {
        let has_calls = messages.iter().any(calls::has_calls);
        let form = match has_calls {
            true => *self.calls.get_or_init(|| CallForm::of(self)),
            false => CallForm::default(),
        };
        self.render_in(form, messages, tools, prompt)
    }

    /// The same with tool calls in a given form.
    fn render_in(
        &self,
        form: CallForm,
        messages: &[Message],
        tools: Option<&Value>,
        prompt: GenerationPrompt,
    ) -> Result<Rendered, DataError> {
        let context = self.context(form, messages, tools, prompt);
        let text = self
            .engine
            .print(NAME, context)
            .map_err(|broken| match broken {
                RenderError::Full => self.fault(
                    format!("it printed more than {MAX_OUTPUT} bytes"),
                    FIX_TEMPLATE,
                ),
                RenderError::NotText => {
                    self.fault("it printed something that is not text".into(), FIX_TEMPLATE)
                }
                RenderError::Engine(error) => self.broken(&error),
                RenderError::BudgetExceeded(why) => self.fault(overdrawn(&why), FIX_HOSTILE),
            })?;
        match self.tagged {
            true => self.without_marks(&text),
            false => Ok(Rendered {
                text,
                generated: Vec::new(),
            }),
        }
    }

    fn context(
        &self,
        form: CallForm,
        messages: &[Message],
        tools: Option<&Value>,
        prompt: GenerationPrompt,
    ) -> Map<String, Value> {
        let messages = form.turns(messages);
        let messages = messages.iter().map(|m| as_template_sees_it(m, form));
        let messages: Vec<Value> = messages.collect();
        let mut context = self.variables.clone();
        context.insert("messages".into(), messages.into());
        context.insert("tools".into(), tools.cloned().unwrap_or(Value::Null));
        context.insert("documents".into(), Value::Null);
        let prompt = prompt == GenerationPrompt::With;
        context.insert("add_generation_prompt".into(), prompt.into());
        context
    }

    /// Removes the markers and records the spans between them.
    fn without_marks(&self, marked: &str) -> Result<Rendered, DataError> {
        let mut rendered = Rendered {
            text: String::with_capacity(marked.len()),
            ..Default::default()
        };
        let mut open = None;
        for piece in marked.split_inclusive([GENERATED_START, GENERATED_END]) {
            let text = piece.trim_end_matches([GENERATED_START, GENERATED_END]);
            rendered.text.push_str(text);
            let at = rendered.text.len();
            match (piece[text.len()..].chars().next(), open) {
                (None, _) => {}
                (Some(GENERATED_START), None) => open = Some(at),
                (Some(GENERATED_END), Some(start)) => {
                    rendered.generated.push(start..at);
                    open = None;
                }
                _ => return Err(self.fault(
                    "the turns contain U+FDD0 or U+FDD1, or generation blocks are nested".into(),
                    "remove these characters from the data: Unicode reserves them for internal use",
                )),
            }
        }
        Ok(rendered)
    }

    /// An error of the engine in the words of this room.
    fn broken(&self, error: &minijinja::Error) -> DataError {
        let mut cause = error.source();
        while let Some(inner) = cause {
            if let Some(Raised(message)) = inner.downcast_ref() {
                return self.fault(
                    format!("it rejects this conversation: {message}"),
                    "change the turns as the template requires, or choose another with data.template",
                );
            }
            cause = inner.source();
        }
        let fix = match error.kind() {
            minijinja::ErrorKind::OutOfFuel => {
                "the template does not terminate, or the conversation is far too long"
            }
            _ => FIX_TEMPLATE,
        };
        self.fault(explain(error), fix)
    }

    /// It, in a sentence.
    pub fn place(&self) -> String {
        place(&self.name)
    }

    fn fault(&self, what: String, fix: &'static str) -> DataError {
        DataError::Template {
            place: self.place(),
            what: one_line(&what),
            fix,
        }
    }
}

/// `the template chatml`, `the tokenizer's template`
fn place(name: &str) -> String {
    one_line(&match name.starts_with("the ") {
        true => format!("{name} template"),
        false => format!("the template {name}"),
    })
}

const FIX_TEMPLATE: &str =
    "fix the template, give the rows what it needs, or choose another with data.template";

const FIX_HOSTILE: &str = "do not use this template: choose a built-in one with data.template";

/// A budget that ran out, as the fault of who wrote the template.
fn overdrawn(why: &BudgetExceeded) -> String {
    format!("{why}, as in a malicious template")
}

/// The engine's error message, with its line number, on one line.
fn explain(error: &minijinja::Error) -> String {
    let what = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_string);
    match error.line() {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    }
}

/// Fields of a message that hold its thoughts, in the names of several programs.
pub(in crate::data) const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message as transformers hands it to templates: without keys that hold nothing, the reasoning under the names that
/// templates ask for, and tool calls in the form that this template writes.
fn as_template_sees_it(message: &Message, form: CallForm) -> Value {
    let mut map = Map::new();
    map.insert("role".into(), message.role.clone().into());
    map.insert("content".into(), message.content.clone().into());
    let given = message.extra.iter().filter(|(_, value)| !value.is_null());
    map.extend(given.map(|(key, value)| (key.clone(), value.clone())));
    let reasoning = REASONING.into_iter().find_map(|key| map.get(key).cloned());
    if let Some(reasoning) = reasoning {
        map.entry("thinking").or_insert_with(|| reasoning.clone());
        map.insert("reasoning_content".into(), reasoning);
    }
    if calls::has_calls(message) {
        form.apply(&mut map);
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests;
