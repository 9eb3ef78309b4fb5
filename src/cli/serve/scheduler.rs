//! Who is answered when: the jobs that wait, in their order, as many of them with the model's process as it has rows, and each piece
//! that comes from there to the answer that it belongs to.
//!
//! Nothing here waits for a reader. One who is slow finds the pieces later; one who is gone, or far behind, has its answer
//! cancelled.

use super::super::chat::session::gone;
use super::model::{Piece, Reply, Score, Waiting};
use crate::data::chat::tool_calls::Format;
use crate::link::{Incoming, Link, SendError};
use crate::wire::{Command, CommandId, Event, LikelyToken, Num, PromptToken, StopReason};
use std::collections::{HashMap, VecDeque};
use tokio::sync::{mpsc, watch};

/// An answer that is being written.
struct Running {
    /// None where nobody reads it any more.
    reply: Option<Reply>,
    is_cancelled: bool,
}

pub struct Scheduler {
    link: Link,
    /// Answers that are written at once.
    parallel: usize,
    /// The adapter that answers.
    in_use: Option<String>,
    waiting: VecDeque<Waiting>,
    running: HashMap<CommandId, Running>,
    /// The change to the adapter of the next job, which waits for it.
    switching: Option<CommandId>,
}

impl Scheduler {
    pub fn new(link: Link, in_use: Option<String>, parallel: usize) -> Scheduler {
        Scheduler {
            link,
            parallel,
            in_use,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            switching: None,
        }
    }

    /// Until nobody asks any more, or the process is gone. `end` gets the reason before anybody's pieces end without one.
    pub async fn run(
        mut self,
        mut jobs: mpsc::UnboundedReceiver<Waiting>,
        end: watch::Sender<Option<String>>,
    ) {
        loop {
            if let Err(why) = self.begin_next() {
                return self.fail_all(why, &end);
            }
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => self.waiting.push_back(job),
                    None => return,
                },
                event = self.link.recv() => {
                    let heard = match event {
                        Incoming::Event(envelope) => self.hear(envelope.event),
                        Incoming::CaughtUp => Ok(()),
                        Incoming::Closed(why) => Err(gone(why.as_deref()).what),
                    };
                    if let Err(why) = heard {
                        return self.fail_all(why, &end);
                    }
                }
            }
        }
    }

    /// The process is gone: all who wait get the reason.
    fn fail_all(self, why: String, end: &watch::Sender<Option<String>>) {
        let _ = end.send(Some(why.clone()));
        for reply in self
            .running
            .into_values()
            .filter_map(|running| running.reply)
        {
            reply.put(Piece::Gone(why.clone()));
        }
    }

    /// Asks for the jobs that have a row. One with another adapter waits until the rows are empty, and those behind it wait as well.
    fn begin_next(&mut self) -> Result<(), String> {
        // Nobody waits for those any more; the adapter of the first may be on its way.
        if self.switching.is_none() {
            self.waiting.retain(|(_, reply)| !reply.is_unread());
        }
        while self.switching.is_none() && self.running.len() < self.parallel {
            let Some((job, _)) = self.waiting.front() else {
                return Ok(());
            };
            if job.adapter != self.in_use {
                if self.running.is_empty() {
                    let name = job.adapter.clone();
                    let asked = self.send(Command::UseAdapter { name });
                    self.switching = asked.map_err(|e| e.to_string())?;
                }
                return Ok(());
            }
            let asked = self.send(Command::Generate {
                prompt: job.prompt.clone(),
                sampling: job.sampling.clone(),
                wanted: job.wanted.clone(),
            });
            if asked == Ok(None) {
                return Ok(());
            }
            let Some((_, reply)) = self.waiting.pop_front() else {
                return Ok(());
            };
            match asked {
                Ok(id) => {
                    let running = Running {
                        reply: Some(reply),
                        is_cancelled: false,
                    };
                    self.running.extend(id.map(|id| (id, running)));
                }
                Err(error @ SendError::TooLong(_)) => {
                    reply.put(Piece::Refused(error.to_string()));
                }
                Err(error) => {
                    reply.put(Piece::Gone(error.to_string()));
                    return Err(error.to_string());
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::AdapterUsed { command, name } if self.switching == Some(command) => {
                self.switching = None;
                self.in_use = name;
            }
            Event::Rejected { id, why } if self.switching == Some(id) => {
                self.switching = None;
                if let Some((_, reply)) = self.waiting.pop_front() {
                    reply.put(Piece::Refused(why));
                }
            }
            event => {
                if let Some((id, piece)) = piece(event) {
                    self.pass_on(id, piece);
                }
            }
        }
        self.cancel_unread()
    }

    fn pass_on(&mut self, id: CommandId, piece: Piece) {
        let is_last = !matches!(
            piece,
            Piece::Begun { .. } | Piece::Prompt(_) | Piece::Token { .. }
        );
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        // A reader that is gone, or too far behind, finds that the pieces end.
        running.reply.take_if(|reply| !reply.put(piece));
        if is_last {
            self.running.remove(&id);
        }
    }

    /// Cancels the answers that nobody reads any more: each pass over the model has an event, after which they are looked for.
    fn cancel_unread(&mut self) -> Result<(), String> {
        let is_unread = |running: &Running| {
            let reply = running.reply.as_ref();
            !running.is_cancelled && reply.is_none_or(Reply::is_unread)
        };
        let unread = self
            .running
            .iter()
            .filter(|(_, running)| is_unread(running));
        for target in unread.map(|(id, _)| *id).collect::<Vec<_>>() {
            let asked = self.send(Command::Cancel { target });
            if let Some(running) = self.running.get_mut(&target) {
                running.is_cancelled = asked.map_err(|e| e.to_string())?.is_some();
            }
        }
        Ok(())
    }

    /// None if the process has not read the commands before; it will have an event when it has.
    fn send(&mut self, command: Command) -> Result<Option<CommandId>, SendError> {
        match self.link.send(command) {
            Ok(id) => Ok(Some(id)),
            Err(SendError::Busy) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The event as a piece of an answer, by the command that asked for that.
fn piece(event: Event) -> Option<(CommandId, Piece)> {
    Some(match event {
        Event::Prompted {
            command,
            text,
            tool_calls,
            prompt_tokens,
        } => {
            let format = tool_calls.as_deref().and_then(Format::named);
            let begun = Piece::Begun {
                opening: format.map_or("", |format| format.opening(&text)).into(),
                tool_calls,
                prompt_tokens,
            };
            (command, begun)
        }
        Event::Token {
            command,
            text,
            logprob,
            id,
            bytes,
            top,
            ..
        } => {
            let token = Piece::Token {
                score: id.map(|_| Score {
                    bytes: bytes.unwrap_or_else(|| text.clone().into_bytes()),
                    logprob: finite(logprob),
                    top: likely(top),
                }),
                text,
            };
            (command, token)
        }
        Event::PromptScored { command, tokens } => {
            let score = |token: PromptToken| Score {
                bytes: token.bytes,
                logprob: token.logprob.and_then(finite),
                top: likely(token.top),
            };
            let scores = tokens.into_iter().map(score).collect();
            (command, Piece::Prompt(scores))
        }
        Event::Generated {
            command,
            reason: StopReason::Failed,
            message,
            broken,
            ..
        } => match broken {
            true => (command, Piece::Broken(message)),
            false => (command, Piece::Refused(message)),
        },
        Event::Generated {
            command,
            n_tokens,
            prompt_tokens,
            seconds,
            reason,
            ..
        } => {
            let done = Piece::Done {
                reason,
                n_tokens,
                prompt_tokens,
                seconds,
            };
            (command, done)
        }
        Event::Rejected { id, why } => (id, Piece::Refused(why)),
        _ => return None,
    })
}

/// JSON has no other numbers.
fn finite(number: Num) -> Option<f64> {
    Some(number.0).filter(|x| x.is_finite())
}

fn likely(top: Vec<LikelyToken>) -> Vec<(Vec<u8>, f64)> {
    let pairs = top
        .into_iter()
        .filter_map(|token| Some((token.bytes, finite(token.logprob)?)));
    pairs.collect()
}
