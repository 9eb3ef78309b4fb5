//! The queue of an inference engine: prompts that wait, those that are being answered, and the commands that come meanwhile.

use super::preparing::Pending;
use super::{
    GenerationEnd, InboxItem, NoAnswer, Piece, Progress, RenderedPrompt, Step, TextModel, check,
    check_wanted,
};
use crate::base::clock::Clock;
use crate::base::sampling::Sampling;
use crate::wire::{Command, CommandId, Event, Num, Prompt, Request, StopReason, Wanted};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// Prompts that may wait for those being answered.
const WAITING: usize = 16;
/// Most new tokens of one answer.
const MAX_NEW_TOKENS: usize = 1_000_000;
/// How often a form that is being made is looked after while nothing is written.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of a prompt that are echoed; of a longer one the end.
const MAX_PROMPT_ECHO: usize = 128 << 10;

/// Answers until the inbox closes or the viewer detaches.
pub fn serve(
    model: &mut dyn TextModel,
    inbox: &Receiver<InboxItem>,
    clock: &dyn Clock,
    emit: &mut dyn FnMut(Event),
) {
    let mut server = InferenceServer {
        inbox,
        emit,
        clock,
        waiting: VecDeque::new(),
        preparing: Vec::new(),
        abandoned: Vec::new(),
        rows: (0..model.rows()).map(|_| None).collect(),
        open: true,
    };
    while server.open {
        server.begin_next(model);
        if server.answering().next().is_none() {
            server.wait();
            continue;
        }
        for (row, end) in model.write(&mut |progress| server.hear(progress)) {
            server.end(row, end);
        }
        for row in 0..server.rows.len() {
            let is_over = |answering: &Answering| answering.is_cancelled || !server.open;
            if server.rows[row].as_ref().is_some_and(is_over) {
                let end = model.leave(row);
                server.end(row, Ok(end));
            }
        }
    }
    for preparing in std::mem::take(&mut server.preparing) {
        let now = clock.elapsed();
        (server.emit)(generated(&preparing.answering, Ok(cancelled()), now));
    }
}

/// A prompt that was accepted.
#[derive(Debug)]
struct Asked {
    id: CommandId,
    prompt: Prompt,
    sampling: Sampling,
    wanted: Wanted,
}

/// What waits for a free row; an adapter for all of them.
#[derive(Debug)]
enum Queued {
    Prompt(Box<Asked>),
    Adapter(CommandId, Option<String>),
}

impl Queued {
    fn id(&self) -> CommandId {
        match self {
            Queued::Prompt(asked) => asked.id,
            Queued::Adapter(id, _) => *id,
        }
    }
}

/// An answer that is being written.
#[derive(Debug)]
struct Answering {
    id: CommandId,
    prompt_tokens: usize,
    kept_tokens: usize,
    /// Nothing may be written beside it.
    is_alone: bool,
    is_cancelled: bool,
    begun: Duration,
    /// The prompt is read from then on.
    read_from: Duration,
    first_token: Option<Duration>,
}

/// An answer whose form is being made. A row is kept for it.
#[derive(Debug)]
struct Preparing {
    answering: Answering,
    reading: RenderedPrompt,
    sampling: Sampling,
    wanted: Wanted,
    form: Pending,
}

struct InferenceServer<'a> {
    inbox: &'a Receiver<InboxItem>,
    emit: &'a mut dyn FnMut(Event),
    clock: &'a dyn Clock,
    waiting: VecDeque<Queued>,
    preparing: Vec<Preparing>,
    /// Forms of cancelled answers, whose threads cannot be stopped.
    abandoned: Vec<Pending>,
    rows: Vec<Option<Answering>>,
    open: bool,
}

impl InferenceServer<'_> {
    fn answering(&self) -> impl Iterator<Item = &Answering> {
        self.rows.iter().flatten()
    }

    /// What has a row, or one that is kept for it.
    fn begun(&self) -> impl Iterator<Item = &Answering> {
        let preparing = self.preparing.iter();
        self.answering()
            .chain(preparing.map(|preparing| &preparing.answering))
    }

    fn is_idle(&self) -> bool {
        self.begun().next().is_none()
    }

    /// Whether the next that waits may begin: all in their order.
    fn may_begin(&self, must_be_alone: impl Fn(&Wanted) -> bool) -> bool {
        let is_idle = self.is_idle();
        match self.waiting.front() {
            None => false,
            Some(Queued::Adapter(..)) => is_idle,
            Some(Queued::Prompt(asked)) => {
                let has_row = self.begun().count() < self.rows.len()
                    && (!has_form(&asked.wanted) || self.has_thread());
                let is_together = !must_be_alone(&asked.wanted)
                    && !self.begun().any(|answering| answering.is_alone);
                has_row && (is_idle || is_together)
            }
        }
    }

    /// Whether one more form may be made: not more at once than there are rows, however many answers were cancelled.
    fn has_thread(&self) -> bool {
        let abandoned = self.abandoned.iter().filter(|form| !form.is_made());
        self.preparing.len() + abandoned.count() < self.rows.len()
    }

    fn begin_next(&mut self, model: &mut dyn TextModel) {
        self.abandoned.retain(|form| !form.is_made());
        self.begin_prepared(model);
        while self.open && self.may_begin(|wanted| model.must_be_alone(wanted)) {
            match self.waiting.pop_front() {
                Some(Queued::Prompt(asked)) => self.begin(model, *asked),
                Some(Queued::Adapter(id, name)) => match model.use_adapter(name.as_deref()) {
                    Ok(()) => (self.emit)(Event::AdapterUsed { command: id, name }),
                    Err(why) => self.reject(id, why),
                },
                None => return,
            }
        }
    }

    /// Begins the answers whose forms are there by now.
    fn begin_prepared(&mut self, model: &mut dyn TextModel) {
        let is_made = |preparing: &Preparing| preparing.form.is_made();
        while let Some(at) = self.preparing.iter().position(is_made) {
            let Preparing {
                mut answering,
                reading,
                sampling,
                wanted,
                form,
            } = self.preparing.remove(at);
            answering.read_from = self.clock.elapsed();
            let row = form
                .made()
                .and_then(|form| model.begin(&reading, &sampling, &wanted, Some(form)));
            self.take_row(answering, row);
        }
    }

    /// Blocks until something is asked for, or a form may be there.
    fn wait(&mut self) {
        // Where nothing is written, what waits does so for a form that was given up.
        let is_idle = self.preparing.is_empty() && self.waiting.is_empty();
        let heard = match is_idle {
            true => self
                .inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            false => self.inbox.recv_timeout(LOOK),
        };
        match heard {
            Ok(heard) => self.handle(heard),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.open = false,
        }
    }

    fn begin(&mut self, model: &mut dyn TextModel, asked: Asked) {
        let id = asked.id;
        let begun = self.clock.elapsed();
        let variables = &asked.wanted.template;
        let reading = match model.read_with(&asked.prompt, &asked.sampling, variables) {
            Ok(reading) => reading,
            Err(why) => {
                let why = Err(NoAnswer::Refused(why));
                return (self.emit)(generated(&Answering::of(id), why, Duration::ZERO));
            }
        };
        (self.emit)(Event::Prompted {
            command: id,
            text: end_of(&reading.text).into(),
            prompt_tokens: reading.tokens.len() as u64,
            tool_calls: reading.tool_calls.map(String::from),
        });
        let answering = Answering {
            id,
            prompt_tokens: reading.tokens.len(),
            kept_tokens: 0,
            is_alone: model.must_be_alone(&asked.wanted),
            is_cancelled: false,
            begun,
            read_from: self.clock.elapsed(),
            first_token: None,
        };
        let Asked {
            sampling, wanted, ..
        } = asked;
        match model.form(&reading, &wanted) {
            Ok(None) => {
                let row = model.begin(&reading, &sampling, &wanted, None);
                self.take_row(answering, row);
            }
            Ok(Some(work)) => match Pending::begin(work) {
                Ok(form) => self.preparing.push(Preparing {
                    answering,
                    reading,
                    sampling,
                    wanted,
                    form,
                }),
                Err(why) => self.take_row(answering, Err(why)),
            },
            Err(why) => self.take_row(answering, Err(why.into())),
        }
    }

    fn take_row(&mut self, answering: Answering, row: Result<usize, NoAnswer>) {
        match row {
            Ok(row) => self.rows[row] = Some(answering),
            Err(why) => (self.emit)(generated(&answering, Err(why), self.clock.elapsed())),
        }
    }

    /// Passes on what an answer has new; between two passes it breaks if the rows are to change.
    fn hear(&mut self, progress: Progress) -> ControlFlow<()> {
        let (row, step) = match progress {
            Progress::Row(row, step) => (row, step),
            Progress::Between => {
                self.poll_inbox();
                let is_cancelled = self.answering().any(|answering| answering.is_cancelled);
                let is_made = self
                    .preparing
                    .iter()
                    .any(|preparing| preparing.form.is_made());
                // One that must be alone is found out about where it begins.
                let may_begin = is_made || self.may_begin(|_| false);
                return match is_cancelled || !self.open || may_begin {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                };
            }
        };
        let Some(answering) = &mut self.rows[row] else {
            return ControlFlow::Break(());
        };
        let command = answering.id;
        (self.emit)(match step {
            Step::Read { tokens, kept } => {
                answering.kept_tokens = kept;
                Event::PromptRead {
                    command,
                    tokens: tokens as u64,
                    kept: kept as u64,
                }
            }
            Step::Scored(tokens) => Event::PromptScored { command, tokens },
            Step::Wrote(piece) => {
                answering
                    .first_token
                    .get_or_insert_with(|| self.clock.elapsed());
                token(command, piece)
            }
        });
        ControlFlow::Continue(())
    }

    fn end(&mut self, row: usize, end: Result<GenerationEnd, NoAnswer>) {
        if let Some(answering) = self.rows[row].take() {
            (self.emit)(generated(&answering, end, self.clock.elapsed()));
        }
    }

    /// What has arrived meanwhile.
    fn poll_inbox(&mut self) {
        while self.open {
            match self.inbox.try_recv() {
                Ok(heard) => self.handle(heard),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.open = false,
            }
        }
    }

    fn handle(&mut self, heard: InboxItem) {
        let Request { id, command } = match heard {
            Ok(request) => request,
            Err((id, why)) => return self.reject(id, why),
        };
        match command {
            Command::Generate {
                prompt,
                sampling,
                wanted,
            } => self.accept_prompt(Asked {
                id,
                prompt,
                sampling,
                wanted,
            }),
            Command::UseAdapter { .. } if self.waiting.len() >= WAITING => {
                self.reject(id, format!("the engine is busy: {WAITING} prompts wait"));
            }
            Command::UseAdapter { name } => {
                (self.emit)(Event::Accepted { id });
                self.waiting.push_back(Queued::Adapter(id, name));
            }
            Command::Cancel { target } => self.cancel(id, target),
            // The viewer hears this connection from its first event anyway.
            Command::Ping | Command::Subscribe { .. } => (self.emit)(Event::Accepted { id }),
            Command::Detach => self.open = false,
            _ => self.reject(
                id,
                "this engine only answers prompts and does not train".into(),
            ),
        }
    }

    fn accept_prompt(&mut self, asked: Asked) {
        let id = asked.id;
        let checked = check(&asked.sampling, MAX_NEW_TOKENS);
        if let Err(why) = checked.and_then(|()| check_wanted(&asked.wanted)) {
            return self.reject(id, why);
        }
        if self.waiting.len() >= WAITING {
            return self.reject(id, format!("the engine is busy: {WAITING} prompts wait"));
        }
        (self.emit)(Event::Accepted { id });
        self.waiting.push_back(Queued::Prompt(Box::new(asked)));
    }

    fn cancel(&mut self, id: CommandId, target: CommandId) {
        let mut answering = self.rows.iter_mut().flatten();
        let own = answering.find(|answering| answering.id == target && !answering.is_cancelled);
        if let Some(answering) = own {
            answering.is_cancelled = true;
            return (self.emit)(Event::Accepted { id });
        }
        let is_it = |preparing: &Preparing| preparing.answering.id == target;
        let (answering, now) = if let Some(at) = self.preparing.iter().position(is_it) {
            let preparing = self.preparing.remove(at);
            self.abandoned.push(preparing.form);
            (preparing.answering, self.clock.elapsed())
        } else if let Some(at) = self.waiting.iter().position(|p| p.id() == target) {
            self.waiting.remove(at);
            (Answering::of(target), Duration::ZERO)
        } else {
            return self.reject(id, format!("no answer {target} is in progress"));
        };
        (self.emit)(Event::Accepted { id });
        (self.emit)(generated(&answering, Ok(cancelled()), now));
    }

    fn reject(&mut self, id: CommandId, why: String) {
        (self.emit)(Event::Rejected { id, why });
    }
}

/// The end of an answer of which nothing is written.
fn cancelled() -> GenerationEnd {
    GenerationEnd {
        n_tokens: 0,
        reason: StopReason::Cancelled,
        message: String::new(),
    }
}

/// Whether a thread makes its form.
fn has_form(wanted: &Wanted) -> bool {
    wanted.json_schema.is_some() || wanted.calls.is_some()
}

impl Answering {
    /// One that did not begin.
    fn of(id: CommandId) -> Answering {
        Answering {
            id,
            prompt_tokens: 0,
            kept_tokens: 0,
            is_alone: false,
            is_cancelled: false,
            begun: Duration::ZERO,
            read_from: Duration::ZERO,
            first_token: None,
        }
    }
}

fn token(command: CommandId, piece: Piece) -> Event {
    Event::Token {
        command,
        text: piece.text,
        logprob: Num(piece.logprob.into()),
        entropy: Some(Num(piece.entropy.into())),
        id: piece.id,
        bytes: piece.bytes,
        top: piece.top,
    }
}

fn generated(answering: &Answering, end: Result<GenerationEnd, NoAnswer>, now: Duration) -> Event {
    let broken = matches!(end, Err(NoAnswer::Broken(_)));
    let end = end.unwrap_or_else(|why| GenerationEnd {
        n_tokens: 0,
        reason: StopReason::Failed,
        message: why.into(),
    });
    let prefill = answering
        .first_token
        .map(|first| first - answering.read_from);
    Event::Generated {
        command: answering.id,
        kept_tokens: answering.kept_tokens as u64,
        n_tokens: end.n_tokens as u64,
        prompt_tokens: answering.prompt_tokens as u64,
        seconds: (now - answering.begun).as_secs_f64(),
        prefill_seconds: prefill.unwrap_or_default().as_secs_f64(),
        reason: end.reason,
        message: end.message,
        broken,
    }
}

/// The last [`MAX_PROMPT_ECHO`] bytes.
fn end_of(text: &str) -> &str {
    let mut from = text.len().saturating_sub(MAX_PROMPT_ECHO);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests;
