//! The model as the server uses it: a thread that owns the link to the inference process and answers one job after the other.

use super::super::chat::session::gone;
use super::super::exit::Failure;
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::link::{Incoming, Link, SendError};
use crate::wire::{
    Command, CommandId, Event, LikelyToken, Num, Prompt, PromptToken, StopReason, Wanted,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Requests that may wait or be answered; more are refused.
const PLACES: usize = 64;
/// Pieces of an answer that wait for a slow reader before the model waits as well.
const PIECES: usize = 256;
/// How long the model waits for a reader that takes nothing. The next requests wait with it.
pub const SLOW: Duration = Duration::from_secs(30);
/// Why the model's process is gone, where nothing else is known.
const ENDED: &str = "it ended";

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
    pub wanted: Wanted,
    /// The adapter; none: the base alone.
    pub adapter: Option<String>,
}

/// A token's log-probability.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    pub bytes: Vec<u8>,
    /// In nats; none of the first token of a text.
    pub logprob: Option<f64>,
    /// Bytes and log-probabilities of the most likely tokens at its place, likeliest first.
    pub top: Vec<(Vec<u8>, f64)>,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// The first one of an answer.
    Begun {
        /// The format of its tool calls, where there are tools and it is known.
        tool_calls: Option<String>,
        prompt_tokens: u64,
    },
    /// Tokens of the prompt, where they are wanted.
    Prompt(Vec<Score>),
    Token {
        text: String,
        /// Absent for text that has no token of its own.
        score: Option<Score>,
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
    /// The model could not compute, and why.
    Broken(String),
    /// The model's process is gone, and why.
    Gone(String),
}

type Waiting = (Job, mpsc::Sender<Piece>);

/// A running model.
pub struct Model {
    about: About,
    jobs: mpsc::UnboundedSender<Waiting>,
    places: Arc<Semaphore>,
    /// Why the model's process is gone, once it is.
    ended: watch::Receiver<Option<String>>,
}

/// A request's place among those that wait.
pub struct Place(
    #[expect(dead_code, reason = "held until the request is answered")] OwnedSemaphorePermit,
);

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// [`PLACES`] others are.
    Busy,
    /// The model's process is gone, and why.
    Gone(String),
}

impl Model {
    /// Waits until the model is loaded, and answers from then on.
    ///
    /// # Errors
    /// It fails to load, with the reason.
    pub fn start(mut link: Link, name: String) -> anyhow::Result<Model> {
        let about = loaded(&mut link, name)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let (jobs, waiting) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let in_use = about.names.get(1).cloned();
        std::thread::spawn(move || {
            let answering = Answering { link, in_use };
            runtime.block_on(answering.all(waiting, end));
        });
        let places = Arc::new(Semaphore::new(PLACES));
        Ok(Model {
            about,
            jobs,
            places,
            ended,
        })
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    /// The adapter that a request's `model` names: `Some(None)` for the model itself, `None` for a name that is unknown.
    pub fn adapter_named(&self, name: &str) -> Option<Option<String>> {
        let at = self.about.names.iter().position(|known| known == name)?;
        Some((at > 0).then(|| name.to_string()))
    }

    /// A place for a request and all its answers.
    ///
    /// # Errors
    /// None is free, or the model is gone.
    pub fn place(&self) -> Result<Place, NotTaken> {
        if let Some(why) = self.why_gone() {
            return Err(NotTaken::Gone(why));
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map(Place).map_err(|_| NotTaken::Busy)
    }

    /// Begins an answer of a request that has a place; its pieces arrive one by one. Dropping the receiver cancels it; pieces that
    /// end without a last one are those of a reader who was too slow, or the model is gone.
    pub fn answer(&self, _: &Place, job: Job) -> mpsc::Receiver<Piece> {
        let (send, pieces) = mpsc::channel(PIECES);
        // Without a model the receiver ends at once.
        let _ = self.jobs.send((job, send));
        pieces
    }

    /// Why the model's process is gone, if it is.
    pub fn why_gone(&self) -> Option<String> {
        let why = self.ended.borrow().clone();
        let is_over = || self.ended.has_changed().is_err();
        why.or_else(|| is_over().then(|| ENDED.into()))
    }

    /// Waits until the model's process is gone, and says why.
    pub async fn end(&self) -> String {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await;
        let why = ended.ok().and_then(|why| why.clone());
        why.unwrap_or_else(|| ENDED.into())
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
                    if adapters.contains(&name) {
                        let what = format!("the model and an adapter are both called {name}");
                        let fix = format!("--name {name}-base, or another name for the model");
                        return Err(Failure::user_error(what, fix).into());
                    }
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
    /// Until nobody asks any more, or the process is gone. `end` gets the reason before anybody's pieces end without one.
    async fn all(
        mut self,
        mut waiting: mpsc::UnboundedReceiver<Waiting>,
        end: watch::Sender<Option<String>>,
    ) {
        loop {
            let next = tokio::select! {
                next = waiting.recv() => next,
                event = self.event() => match event {
                    Ok(_) => continue,
                    Err(why) => {
                        let _ = end.send(Some(why));
                        return;
                    }
                }
            };
            let Some((job, reply)) = next else {
                return;
            };
            if let Err(why) = self.one(job, &reply).await {
                let _ = end.send(Some(why.clone()));
                let _ = reply.try_send(Piece::Gone(why));
                return;
            }
        }
    }

    /// One answer; fails if the process is gone.
    async fn one(&mut self, job: Job, reply: &mpsc::Sender<Piece>) -> Result<(), String> {
        // Nobody waits for it any more.
        if reply.is_closed() {
            return Ok(());
        }
        if job.adapter != self.in_use
            && let Err(refused) = self.switch(job.adapter).await?
        {
            let _ = reply.try_send(Piece::Refused(refused));
            return Ok(());
        }
        let asked = self.link.send(Command::Generate {
            prompt: job.prompt,
            sampling: job.sampling,
            wanted: job.wanted,
        });
        let asked = match asked {
            Err(error @ SendError::TooLong(_)) => {
                let _ = reply.try_send(Piece::Refused(error.to_string()));
                return Ok(());
            }
            asked => asked.map_err(|e| e.to_string())?,
        };
        let mut is_heard = true;
        loop {
            let event = tokio::select! {
                event = self.event() => event?,
                () = reply.closed(), if is_heard => {
                    is_heard = false;
                    self.send(Command::Cancel { target: asked })?;
                    continue;
                }
            };
            let Some(piece) = piece(asked, event) else {
                continue;
            };
            let is_last = !matches!(
                piece,
                Piece::Begun { .. } | Piece::Prompt(_) | Piece::Token { .. }
            );
            if is_heard && reply.send_timeout(piece, SLOW).await.is_err() && !is_last {
                is_heard = false;
                self.send(Command::Cancel { target: asked })?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Uses another adapter, or none; the inner error is the engine's reason against it.
    async fn switch(&mut self, name: Option<String>) -> Result<Result<(), String>, String> {
        let asked = self.send(Command::UseAdapter { name })?;
        loop {
            match self.event().await? {
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

    async fn event(&mut self) -> Result<Event, String> {
        loop {
            match self.link.recv().await {
                Incoming::Event(envelope) => return Ok(envelope.event),
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => return Err(gone(why.as_deref()).what),
            }
        }
    }
}

/// The event as a piece of this answer.
fn piece(asked: CommandId, event: Event) -> Option<Piece> {
    Some(match event {
        Event::Prompted {
            command,
            tool_calls,
            prompt_tokens,
            ..
        } if command == asked => Piece::Begun {
            tool_calls,
            prompt_tokens,
        },
        Event::Token {
            command,
            text,
            logprob,
            id,
            bytes,
            top,
            ..
        } if command == asked => Piece::Token {
            score: id.map(|_| Score {
                bytes: bytes.unwrap_or_else(|| text.clone().into_bytes()),
                logprob: finite(logprob),
                top: likely(top),
            }),
            text,
        },
        Event::PromptScored { command, tokens } if command == asked => {
            let score = |token: PromptToken| Score {
                bytes: token.bytes,
                logprob: token.logprob.and_then(finite),
                top: likely(token.top),
            };
            Piece::Prompt(tokens.into_iter().map(score).collect())
        }
        Event::Generated {
            command,
            reason: StopReason::Failed,
            message,
            broken,
            ..
        } if command == asked => match broken {
            true => Piece::Broken(message),
            false => Piece::Refused(message),
        },
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
