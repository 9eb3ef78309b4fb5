//! The model as the server uses it: a thread that owns the link to the inference process and answers one job after the other.

use super::super::chat::session::gone;
use crate::base::clock::pause;
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::link::{Incoming, Link};
use crate::wire::{Command, CommandId, Event, Prompt, StopReason};
use std::time::Duration;
use tokio::sync::mpsc;

/// Jobs that may wait; more are refused.
const WAITING: usize = 64;
/// Pieces of an answer that wait for a slow reader before the model waits as well.
const PIECES: usize = 256;
/// How long the model waits for a reader that takes nothing, in pauses: half a minute. The next requests wait with it.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSES: usize = 1500;

/// What the server says about its model.
#[derive(Debug, Clone)]
pub struct About {
    /// The model's name, then its adapters'.
    pub names: Vec<String>,
    pub context: u64,
    /// Whether it has a chat template.
    pub template: bool,
    pub notes: Vec<String>,
}

/// One answer to write.
#[derive(Debug)]
pub struct Job {
    pub prompt: Prompt,
    pub sampling: Sampling,
    /// The adapter; none: the base alone.
    pub adapter: Option<String>,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Token {
        text: String,
        /// Absent for text that has no token of its own.
        logprob: Option<f64>,
    },
    /// The last one of an answer.
    Done {
        reason: StopReason,
        n_tokens: u64,
        prompt_tokens: u64,
        seconds: f64,
    },
    /// The model does not answer this request, and why.
    Refused(String),
    /// The model's process is gone, and why.
    Gone(String),
}

type Waiting = (Job, mpsc::Sender<Piece>);

/// A running model.
pub struct Model {
    about: About,
    jobs: mpsc::Sender<Waiting>,
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// [`WAITING`] jobs wait already.
    Busy,
    Gone,
}

impl Model {
    /// Waits until the model is loaded, and answers from then on.
    ///
    /// # Errors
    /// It fails to load, with the reason.
    pub fn start(mut link: Link, name: String) -> anyhow::Result<Model> {
        let about = loaded(&mut link, name)?;
        let (jobs, waiting) = mpsc::channel(WAITING);
        let in_use = about.names.get(1).cloned();
        std::thread::spawn(move || Answering { link, in_use }.all(waiting));
        Ok(Model { about, jobs })
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    /// The adapter that a request's `model` names: `Some(None)` for the model itself, `None` for a name that is unknown.
    pub fn adapter_named(&self, name: &str) -> Option<Option<String>> {
        let at = self.about.names.iter().position(|known| known == name)?;
        Some((at > 0).then(|| name.to_string()))
    }

    /// Begins an answer; its pieces arrive one by one. Dropping the receiver cancels it.
    ///
    /// # Errors
    /// Too many wait, or the model is gone.
    pub fn answer(&self, job: Job) -> Result<mpsc::Receiver<Piece>, NotTaken> {
        let (send, pieces) = mpsc::channel(PIECES);
        self.jobs.try_send((job, send)).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => NotTaken::Busy,
            mpsc::error::TrySendError::Closed(_) => NotTaken::Gone,
        })?;
        Ok(pieces)
    }
}

fn loaded(link: &mut Link, name: String) -> anyhow::Result<About> {
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) => {
                if let Event::Loaded {
                    template,
                    context,
                    notes,
                    adapters,
                    ..
                } = envelope.event
                {
                    return Ok(About {
                        names: std::iter::once(name).chain(adapters).collect(),
                        context,
                        template: template.is_some(),
                        notes: notes.iter().map(|note| one_line(note)).collect(),
                    });
                }
            }
            Incoming::CaughtUp => {}
            Incoming::Closed(why) => return Err(gone(why.as_deref()).into()),
        }
    }
}

/// The thread's state.
struct Answering {
    link: Link,
    in_use: Option<String>,
}

impl Answering {
    fn all(mut self, mut waiting: mpsc::Receiver<Waiting>) {
        while let Some((job, reply)) = waiting.blocking_recv() {
            // Nobody waits for it any more.
            if reply.is_closed() {
                continue;
            }
            if let Err(why) = self.one(job, &reply) {
                let _ = reply.blocking_send(Piece::Gone(why));
                return;
            }
        }
    }

    /// One answer; fails if the process is gone.
    fn one(&mut self, job: Job, reply: &mpsc::Sender<Piece>) -> Result<(), String> {
        if job.adapter != self.in_use {
            if let Err(refused) = self.switch(job.adapter)? {
                let _ = reply.blocking_send(Piece::Refused(refused));
                return Ok(());
            }
        }
        let asked = self.send(Command::Generate {
            prompt: job.prompt,
            sampling: job.sampling,
        })?;
        let mut is_heard = true;
        loop {
            let Some(piece) = piece(asked, self.event()?) else {
                continue;
            };
            let is_last = !matches!(piece, Piece::Token { .. });
            if is_heard && !is_taken(reply, piece) && !is_last {
                is_heard = false;
                self.send(Command::Cancel { target: asked })?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Uses another adapter, or none; the inner error is the engine's reason against it.
    fn switch(&mut self, name: Option<String>) -> Result<Result<(), String>, String> {
        let asked = self.send(Command::UseAdapter { name })?;
        loop {
            match self.event()? {
                Event::AdapterUsed { command, name } if command == asked => {
                    self.in_use = name;
                    return Ok(Ok(()));
                }
                Event::Rejected { id, why } if id == asked => return Ok(Err(why)),
                _ => {}
            }
        }
    }

    fn send(&mut self, command: Command) -> Result<CommandId, String> {
        self.link.send(command).map_err(|e| e.to_string())
    }

    fn event(&mut self) -> Result<Event, String> {
        loop {
            match self.link.blocking_recv() {
                Incoming::Event(envelope) => return Ok(envelope.event),
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => return Err(gone(why.as_deref()).what),
            }
        }
    }
}

/// Whether the reader takes a piece: it may have gone, or not read for too long.
fn is_taken(reply: &mpsc::Sender<Piece>, mut piece: Piece) -> bool {
    for _ in 0..PAUSES {
        match reply.try_send(piece) {
            Ok(()) => return true,
            Err(mpsc::error::TrySendError::Closed(_)) => return false,
            Err(mpsc::error::TrySendError::Full(back)) => piece = back,
        }
        pause(PAUSE);
    }
    false
}

/// The event as a piece of this answer.
fn piece(asked: CommandId, event: Event) -> Option<Piece> {
    Some(match event {
        Event::Token {
            command,
            text,
            logprob,
            id,
            ..
        } if command == asked => Piece::Token {
            text,
            logprob: Some(logprob.0).filter(|x| id.is_some() && x.is_finite()),
        },
        Event::Generated {
            command,
            reason: StopReason::Failed,
            message,
            ..
        } if command == asked => Piece::Refused(message),
        Event::Generated {
            command,
            n_tokens,
            prompt_tokens,
            seconds,
            reason,
            ..
        } if command == asked => Piece::Done {
            reason,
            n_tokens,
            prompt_tokens,
            seconds,
        },
        Event::Rejected { id, why } if id == asked => Piece::Refused(why),
        _ => return None,
    })
}
