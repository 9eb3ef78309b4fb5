//! The model as the server uses it: places for requests, and a thread with the scheduler, which owns the link to the inference
//! process.

use super::super::chat::session::gone;
use super::super::exit::Failure;
use super::scheduler::Scheduler;
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::link::{Incoming, Link};
use crate::wire::{Event, Prompt, StopReason, Wanted};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Requests that may wait or be answered; more are refused.
const PLACES: usize = 64;
/// Bytes of a request's answers that wait for a slow reader, who holds up nobody; beyond that they are cancelled.
pub const AHEAD: usize = 8 << 20;
/// How long a stream waits for a reader that takes nothing.
pub const SLOW: Duration = Duration::from_secs(30);
/// Why the model's process is gone, where nothing else is known.
const ENDED: &str = "it ended";

/// What the server says about its model.
#[derive(Debug, Clone)]
pub struct About {
    /// What requests may call it, each with the adapter that then answers (none: the base alone). The first is that of requests
    /// without a name.
    pub served: Vec<(String, Option<String>)>,
    pub context: u64,
    /// Answers that it writes at once.
    pub parallel: usize,
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
        /// The format of its tool calls, where it is known.
        tool_calls: Option<String>,
        /// What its prompt has begun of it, in a format of messages.
        opening: String,
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

impl Piece {
    /// About what it takes while it waits.
    fn bytes(&self) -> usize {
        let more: usize = match self {
            Piece::Begun { opening, .. } => opening.len(),
            Piece::Prompt(scores) => scores.iter().map(Score::bytes).sum(),
            Piece::Token { text, score } => text.len() + score.as_ref().map_or(0, Score::bytes),
            _ => 0,
        };
        size_of::<Piece>() + more
    }
}

impl Score {
    fn bytes(&self) -> usize {
        let top = self.top.iter().map(|of| size_of_val(of) + of.0.len());
        size_of::<Score>() + self.bytes.len() + top.sum::<usize>()
    }
}

/// An answer to write, and where its pieces go.
pub type Waiting = (Job, Reply);

/// Where an answer's pieces arrive, each with its part of the room for what waits.
pub type Pieces = mpsc::UnboundedReceiver<(Piece, OwnedSemaphorePermit)>;

/// Where an answer's pieces go. As many wait for their reader as there is room.
#[derive(Debug)]
pub struct Reply {
    pieces: mpsc::UnboundedSender<(Piece, OwnedSemaphorePermit)>,
    /// In bytes.
    room: Arc<Semaphore>,
}

impl Reply {
    pub fn new(room: &Arc<Semaphore>) -> (Reply, Pieces) {
        let (pieces, read) = mpsc::unbounded_channel();
        let room = Arc::clone(room);
        (Reply { pieces, room }, read)
    }

    /// False if the reader is gone, or too far behind.
    pub fn put(&self, piece: Piece) -> bool {
        let bytes = u32::try_from(piece.bytes()).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes);
        room.is_ok_and(|room| self.pieces.send((piece, room)).is_ok())
    }

    /// Nobody reads it any more.
    pub fn is_unread(&self) -> bool {
        self.pieces.is_closed()
    }
}

/// A running model.
pub struct Model {
    about: About,
    jobs: mpsc::UnboundedSender<Waiting>,
    places: Arc<Semaphore>,
    /// Why the model's process is gone, once it is.
    ended: watch::Receiver<Option<String>>,
}

/// A request's place among those that wait.
pub struct Place {
    #[expect(dead_code, reason = "held until the request is answered")]
    held: OwnedSemaphorePermit,
    /// For what waits of its answers, in bytes.
    room: Arc<Semaphore>,
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// [`PLACES`] others are.
    Busy,
    /// The model's process is gone, and why.
    Gone(String),
}

impl Model {
    /// Waits until the model is loaded, and answers from then on. `named`: adapters that it was started with, beside its own.
    ///
    /// # Errors
    /// It fails to load, with the reason; two would have one name.
    pub fn start(mut link: Link, name: &str, named: usize) -> anyhow::Result<Model> {
        let (about, in_use) = loaded(&mut link, name, named)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let (jobs, waiting) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let scheduler = Scheduler::new(link, in_use, about.parallel);
        std::thread::spawn(move || runtime.block_on(scheduler.run(waiting, end)));
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

    /// The adapter that a request's `model` names: `Some(None)` for the base alone, `None` for a name that is unknown.
    pub fn adapter_named(&self, name: &str) -> Option<Option<String>> {
        let known = self.about.served.iter().find(|(known, _)| known == name);
        known.map(|(_, adapter)| adapter.clone())
    }

    /// A place for a request and all its answers.
    ///
    /// # Errors
    /// None is free, or the model is gone.
    pub fn place(&self) -> Result<Place, NotTaken> {
        if let Some(why) = self.why_gone() {
            return Err(NotTaken::Gone(why));
        }
        let held = Arc::clone(&self.places).try_acquire_owned();
        let held = held.map_err(|_| NotTaken::Busy)?;
        let room = Arc::new(Semaphore::new(AHEAD));
        Ok(Place { held, room })
    }

    /// Begins an answer of a request that has a place; its pieces arrive one by one. Dropping the receiver cancels it; pieces that
    /// end without a last one are those of a reader who was too slow, or the model is gone.
    pub fn answer(&self, place: &Place, job: Job) -> Pieces {
        let (reply, pieces) = Reply::new(&place.room);
        // Without a model the receiver ends at once.
        let _ = self.jobs.send((job, reply));
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

impl About {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.served.iter().map(|(name, _)| name.as_str())
    }
}

/// What the model says of itself once it is loaded, and the adapter that answers then.
fn loaded(link: &mut Link, name: &str, named: usize) -> anyhow::Result<(About, Option<String>)> {
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) => {
                if let Event::Loaded {
                    template,
                    context,
                    notes,
                    adapters,
                    parallel,
                    ..
                } = envelope.event
                {
                    let about = About {
                        served: served(name, &adapters, named)?,
                        context,
                        parallel: parallel.unwrap_or(1).max(1) as usize,
                        template: template.is_some(),
                        notes: notes.iter().map(|note| one_line(note)).collect(),
                    };
                    return Ok((about, adapters.into_iter().next()));
                }
            }
            Incoming::CaughtUp => {}
            Incoming::Closed(why) => return Err(gone(why.as_deref()).into()),
        }
    }
}

/// What requests may call a model whose adapters are the `named` ones, then its own if it has one: by its name that answers, and
/// its base is `NAME-base`.
fn served(
    name: &str,
    adapters: &[String],
    named: usize,
) -> Result<Vec<(String, Option<String>)>, Failure> {
    let (named, own) = adapters.split_at(named.min(adapters.len()));
    let mut served = vec![(name.to_string(), own.first().cloned())];
    if !own.is_empty() {
        served.push((format!("{name}-base"), None));
    }
    for adapter in named {
        if served.iter().any(|(taken, _)| taken == adapter) {
            let what = format!(
                "the model and an adapter are both called {}",
                one_line(adapter)
            );
            let fix = "--name NAME gives the model another name";
            return Err(Failure::user_error(what, fix));
        }
        served.push((adapter.clone(), Some(adapter.clone())));
    }
    Ok(served)
}
