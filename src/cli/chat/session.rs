//! A plain-text conversation over a link to an inference engine: sending turns, printing answers. Calls of tools and their results are
//! in `results`.

mod answering;
mod results;

use super::answer::Answer;
use super::calls::Calls;
use super::flow::Flow;
use super::keyboard::Keyboard;
use super::line::{HELP, ParsedLine};
use super::{adapters, line};
use crate::base::sampling::Sampling;
use crate::base::text::{one_line, sanitize};
use crate::cli::exit::Failure;
use crate::link::{Incoming, Link, message};
use crate::wire::{Calling, Command, Event, Prompt, StopReason, Turn, Wanted};
use results::Last;
use serde_json::{Map, Value};
use std::io::Write;

/// Tokens of an answer in a conversation, at most: a model that was taught to ends it before.
pub const ANSWER: usize = 1024;

/// Conversation options.
#[derive(Debug, Clone, Default)]
pub struct ChatOptions {
    /// Its `max_new_tokens` is [`ANSWER`] in conversations, unless `limited`.
    pub sampling: Sampling,
    /// The length of answers was asked for.
    pub limited: bool,
    pub system: Option<String>,
    /// Definitions of tools the model may call.
    pub tools: Vec<Value>,
    /// Answers are JSON values of this schema.
    pub json_schema: Option<Value>,
    /// Variables of the chat template.
    pub template: Map<String, Value>,
    pub raw: bool,
    pub show_prompt: bool,
    pub json: bool,
    /// Standard output is a terminal: model output is sanitized, and statistics follow each answer.
    pub terminal: bool,
    /// Columns of that terminal: lines break at words.
    pub columns: Option<usize>,
}

/// A conversation with one model.
pub struct ChatSession<'a, W> {
    link: &'a mut Link,
    out: W,
    flow: Flow,
    options: ChatOptions,
    /// The model has a template, and raw text was not requested.
    converses: bool,
    turns: Vec<Turn>,
    calls: Calls,
    /// What of the answer is on the screen.
    last: Option<Last>,
    /// Tokens that the model can read at once.
    context: u64,
    /// Number format of its KV cache.
    kv_cache: Option<String>,
    notes: Vec<String>,
    /// Adapters that the model can be asked with.
    adapters: Vec<String>,
    /// The one that answers; none: the base alone.
    in_use: Option<String>,
}

/// The result of an input line.
#[derive(Debug, PartialEq)]
pub enum LineResult<'l> {
    /// A text for the model.
    Text(&'l str),
    /// Results of its tool calls.
    Results(Vec<Turn>),
    Obeyed,
    Refused,
    Quit,
}

/// The result of a turn.
#[derive(Debug)]
pub enum TurnResult {
    Answered,
    /// The model goes on, and the conversation stands as before the turn.
    Refused(Failure),
}

/// What a model without a chat template does, and where its answers end: by the run that it is a checkpoint of.
fn completes(trained_by: Option<&str>, stop: &[String]) -> String {
    let stop: Vec<String> = stop.iter().map(|stop| format!("{stop:?}")).collect();
    let ends = match stop.is_empty() {
        true => String::new(),
        false => format!(
            "; an answer ends at {}, as in the run's samples (--stop replaces that)",
            stop.join(" or ")
        ),
    };
    match trained_by {
        Some(method) => format!(
            "this model has no chat template: {method} trained it on prompts without one; write a prompt as in the data{ends}"
        ),
        None => format!("this model has no chat template: it completes text{ends}"),
    }
}

impl<'a, W: Write> ChatSession<'a, W> {
    /// Waits until the model is loaded.
    ///
    /// # Errors
    /// It fails to load, with the reason.
    pub fn begin(link: &'a mut Link, out: W, mut options: ChatOptions) -> anyhow::Result<Self> {
        let (template, context, mut notes, adapters, completes, kv_cache) = loop {
            match link.blocking_recv() {
                Incoming::Event(envelope) => {
                    if let Event::Loaded {
                        template,
                        context,
                        notes,
                        adapters,
                        stop,
                        trained_by,
                        kv_cache,
                        ..
                    } = envelope.event
                    {
                        let completes = completes(trained_by.as_deref(), &stop);
                        break (template, context, notes, adapters, completes, kv_cache);
                    }
                }
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => return Err(gone(why.as_deref()).into()),
            }
        };
        if template.is_none() && !options.raw {
            let said = [
                (options.system.is_some(), "--system"),
                (!options.tools.is_empty(), "--tools"),
                (!options.template.is_empty(), "--chat-template-kwargs"),
            ];
            if let Some((_, option)) = said.iter().find(|(said, _)| *said) {
                let what = format!("this model has no chat template, so {option} cannot be used");
                return Err(
                    Failure::user_error(what, "put it into the prompt and use --raw").into(),
                );
            }
            notes.push(completes);
        }
        let system = options
            .system
            .as_ref()
            .map(|s| Turn::new("system", s.as_str()));
        let converses = template.is_some() && !options.raw;
        if converses && !options.limited {
            options.sampling.max_new_tokens = ANSWER;
        }
        Ok(ChatSession {
            converses,
            turns: system.into_iter().collect(),
            calls: Calls::new(options.tools.clone()),
            last: None,
            context,
            kv_cache,
            notes: notes.iter().map(|note| one_line(note)).collect(),
            in_use: adapters.first().cloned(),
            adapters,
            link,
            out,
            flow: Flow::new(options.columns.filter(|_| options.terminal)),
            options,
        })
    }

    /// Notes for the user before the first turn.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether inputs are turns of one conversation.
    pub fn converses(&self) -> bool {
        self.converses
    }

    /// What a user who types may do with the adapters; of no use to a single prompt.
    pub fn adapter_hint(&self) -> Option<String> {
        let first = one_line(self.adapters.first()?);
        let all = one_line(&self.adapters.join(", "));
        Some(format!(
            "answers use the adapter {first}; /adapter NAME or /adapter off switches ({all})"
        ))
    }

    /// Handles an input line: executes a command, rejects an unknown one, or returns the text to send.
    ///
    /// # Errors
    /// The model's process is gone.
    pub fn handle_line<'l>(&mut self, line: &'l str) -> anyhow::Result<LineResult<'l>> {
        Ok(match line::parse(line) {
            // A blank line says nothing: a chat model would make up both sides of an empty turn, and a base model has no token
            // to begin from.
            ParsedLine::Text(text) if text.trim().is_empty() => LineResult::Obeyed,
            ParsedLine::Text(text) => LineResult::Text(text),
            ParsedLine::Quit => LineResult::Quit,
            ParsedLine::Help => {
                errln!("{HELP}");
                LineResult::Obeyed
            }
            ParsedLine::New => {
                self.turns.retain(|turn| turn.role == "system");
                self.calls.forget();
                match self.converses {
                    true => errln!("a new conversation"),
                    false => errln!("each line is already a separate prompt"),
                }
                LineResult::Obeyed
            }
            ParsedLine::Adapter(name) => self.adapter(name)?,
            ParsedLine::Tool(result) => self.tool(result),
            ParsedLine::Unknown(word) => {
                errln!("unknown command {}\n{HELP}", one_line(word));
                LineResult::Refused
            }
        })
    }

    /// `/adapter NAME`, `/adapter off`, `/adapter`. One that there is not is refused: the one before goes on answering.
    fn adapter(&mut self, name: Option<&str>) -> anyhow::Result<LineResult<'static>> {
        if self.adapters.is_empty() {
            errln!(
                "this model was opened without adapters; llmtui chat MODEL --adapter DIR opens it with one"
            );
            return Ok(match name {
                None | Some("off" | "none") => LineResult::Obeyed,
                Some(_) => LineResult::Refused,
            });
        }
        let name = match name {
            None => {
                for line in adapters::list(&self.adapters, self.in_use.as_deref()) {
                    errln!("{line}");
                }
                return Ok(LineResult::Obeyed);
            }
            Some("off" | "none") => None,
            Some(name) => Some(
                adapters::find(&self.adapters, name)
                    .unwrap_or(name)
                    .to_string(),
            ),
        };
        let asked = self.link.send(Command::UseAdapter { name })?;
        loop {
            match self.link.blocking_recv() {
                Incoming::Event(envelope) => match envelope.event {
                    Event::AdapterUsed { command, name } if command == asked => {
                        match &name {
                            Some(name) => errln!("adapter {}", one_line(name)),
                            None => errln!("the base alone"),
                        }
                        self.in_use = name;
                        return Ok(LineResult::Obeyed);
                    }
                    Event::Rejected { id, why } if id == asked => {
                        errln!("{}", sanitize(&why));
                        return Ok(LineResult::Refused);
                    }
                    _ => {}
                },
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => return Err(gone(why.as_deref()).into()),
            }
        }
    }

    /// Sends a turn and streams the answer, followed by a newline. Both are added to the conversation.
    ///
    /// # Errors
    /// The model rejects it, or its process is gone.
    pub fn send_turn(&mut self, text: &str) -> anyhow::Result<()> {
        match self.said(text, None)? {
            TurnResult::Answered => Ok(()),
            TurnResult::Refused(why) => Err(why.into()),
        }
    }

    /// [`ChatSession::send_turn`], interruptible by Ctrl-C; the partial answer is kept. A turn that the model rejects is reported and taken
    /// back: who types can say something else.
    ///
    /// # Errors
    /// The model's process is gone.
    pub fn send_turn_interruptible(
        &mut self,
        text: &str,
        keyboard: &mut Keyboard,
    ) -> anyhow::Result<()> {
        if let TurnResult::Refused(why) = self.said(text, Some(keyboard))? {
            errln!("{}", self.refused(&why));
        }
        Ok(())
    }

    /// Why a turn was not answered, and the state of the conversation.
    fn refused(&self, why: &Failure) -> String {
        let conversation = self.turns.iter().any(|turn| turn.role != "system");
        let rest = match (self.converses, conversation) {
            (false, _) => "",
            (true, false) => "\n  the turn is removed",
            (true, true) => "\n  the turn is removed; /new begins a new conversation",
        };
        format!("{why}{rest}")
    }

    fn said(&mut self, text: &str, keyboard: Option<&mut Keyboard>) -> anyhow::Result<TurnResult> {
        match self.converses {
            true => self.turned(text, vec![Turn::new("user", text)], keyboard),
            false => {
                if self.options.terminal && !self.options.json {
                    self.print(text)?;
                }
                let asked = self.asked(text, Prompt::Text(text.into()), keyboard)?;
                Ok(asked.map_or_else(TurnResult::Refused, |_| TurnResult::Answered))
            }
        }
    }

    /// The conversation with these turns and the answer to them; without them where there is none.
    fn turned(
        &mut self,
        said: &str,
        turns: Vec<Turn>,
        keyboard: Option<&mut Keyboard>,
    ) -> anyhow::Result<TurnResult> {
        let before = self.turns.len();
        self.turns.extend(turns);
        let messages = self.turns.clone();
        let prompt = match self.options.tools.is_empty() {
            true => Prompt::Turns(messages),
            false => Prompt::WithTools {
                messages,
                tools: self.options.tools.clone(),
            },
        };
        let answer = match self.asked(said, prompt, keyboard)? {
            Ok(answer) => answer,
            Err(why) => {
                self.turns.truncate(before);
                self.calls.take_back();
                return Ok(TurnResult::Refused(why));
            }
        };
        match answer.text.is_empty() && answer.reason == Some(StopReason::Cancelled) {
            // Interrupted before its first token: as if it had not been asked.
            true => {
                self.turns.truncate(before);
                self.calls.take_back();
            }
            false => {
                let turn = self.calls.turn(&answer.text, self.turns.len());
                self.turns.push(turn);
                self.say_who_waits();
            }
        }
        Ok(TurnResult::Answered)
    }

    /// Asks, and shows the answer; or says why there is none.
    fn asked(
        &mut self,
        said: &str,
        prompt: Prompt,
        keyboard: Option<&mut Keyboard>,
    ) -> anyhow::Result<Result<Answer, Failure>> {
        let json_schema = self.options.json_schema.clone().map(Box::new);
        let has_tools = !self.options.tools.is_empty();
        let asked = self.link.send(Command::Generate {
            prompt,
            sampling: self.options.sampling.clone(),
            wanted: Wanted {
                // Next to an answer of a form, calls are known to the parser as well.
                calls: json_schema
                    .as_ref()
                    .filter(|_| has_tools)
                    .map(|_| Calling::default()),
                json_schema,
                template: match self.converses {
                    true => Box::new(self.options.template.clone()),
                    false => Box::default(),
                },
                ..Wanted::default()
            },
        })?;
        let mut answer = Answer {
            context: self.context,
            ..Answer::default()
        };
        self.last = None;
        self.calls.begin(None, false);
        let refused = self.answer(asked, keyboard, &mut answer);
        let is_read = self.options.terminal || self.calls.has_thoughts();
        if is_read && !self.options.json {
            let rest = self.calls.finish();
            self.show(rest)?;
        }
        if !matches!(refused, Ok(None)) {
            self.break_off(&answer)?;
        }
        if let Some(why) = refused? {
            return Ok(Err(why));
        }
        self.end(said, &answer)?;
        Ok(Ok(answer))
    }
}

/// The error output of the dead process; its prefix is stripped, ours is added.
pub fn gone(why: Option<&str>) -> Failure {
    let why = why.unwrap_or("the model's process ended");
    if let Some(failure) = crate::cli::allocation_failure::of_child(why) {
        return failure;
    }
    let said = message::parts(why);
    let (what, hint) =
        said.unwrap_or_else(|| (why.lines().next().unwrap_or_default().into(), String::new()));
    Failure::user_error(what, hint)
}

#[cfg(test)]
mod tests;
