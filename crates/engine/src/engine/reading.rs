//! Reads and tokenizes a run's data on its own thread, so that a stop is handled meanwhile: training a tokenizer or
//! tokenizing gigabytes takes minutes, and stopping loses nothing.

use super::emit::Port;
use super::{EngineError, EngineJob, in_pool};
use crate::base::human;
use crate::base::text::one_line;
use crate::data::{DataEnv, Dataset, Progress, Request};
use crate::spec::RunSpec;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often long work reports progress.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// How often a waiting engine looks for a stop.
const LISTEN_EVERY: Duration = Duration::from_millis(50);

enum Message {
    Progress(Progress),
    Done(Box<Result<Dataset, EngineError>>),
}

/// Opens the data and logs the notices.
///
/// # Errors
/// The data cannot be used, or [`EngineError::Stopped`]: the thread is then left to itself and ends with the process.
pub(super) fn read_data(
    job: &EngineJob,
    port: &mut Port<'_>,
    step: u64,
) -> Result<Dataset, EngineError> {
    let (tx, rx) = channel();
    let own = job.clone();
    let thread = std::thread::Builder::new()
        .name("read-data".into())
        .spawn(move || {
            let done = in_pool(&own, || open(&own, &tx));
            // Nobody waits any more after a stop.
            let _ = tx.send(Message::Done(Box::new(done)));
        })
        .map_err(|e| {
            EngineError::Machine(format!("the data reader thread cannot be started: {e}"))
        })?;
    let data = wait(port, step, &rx, thread)?;
    for note in &data.notes {
        port.note(step, note.clone());
    }
    Ok(data)
}

fn open(job: &EngineJob, tx: &Sender<Message>) -> Result<Dataset, EngineError> {
    let mut progress = |progress: &Progress| {
        let _ = tx.send(Message::Progress(progress.clone()));
    };
    let request = Request {
        progress: Some(&mut progress),
        ..job.spec.data_request(&DataEnv::from_env(&job.env))
    };
    Ok(Dataset::open(&job.spec.data, request)?)
}

fn wait(
    port: &mut Port<'_>,
    step: u64,
    rx: &Receiver<Message>,
    thread: JoinHandle<()>,
) -> Result<Dataset, EngineError> {
    let mut told = Duration::ZERO;
    loop {
        match rx.recv_timeout(LISTEN_EVERY) {
            Ok(Message::Progress(progress)) => {
                let now = port.clock.elapsed();
                if progress.tokens > 0 && (progress.done || now - told >= TELL_EVERY) {
                    told = now;
                    port.note(step, tokenizing(&progress));
                }
            }
            Ok(Message::Done(result)) => return *result,
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return Err(EngineError::Setup("the data could not be read".into())),
            },
            Err(RecvTimeoutError::Timeout) => {}
        }
        if port.stop_requested() {
            return Err(EngineError::Stopped);
        }
    }
}

fn tokenizing(progress: &Progress) -> String {
    let done = if progress.done {
        "tokenized"
    } else {
        "tokenizing"
    };
    format!(
        "{done} {}: {} rows, {} tokens, {} tokens/s",
        one_line(&progress.source),
        human::grouped(progress.rows),
        human::grouped(progress.tokens),
        human::short(progress.tokens as f64 / progress.seconds.max(1e-3)),
    )
}

/// What each source of a mix will give over all steps of the run, and how often small ones are read again.
pub(super) fn mixed(data: &Dataset, spec: &RunSpec) -> Option<String> {
    let sources = data.sources();
    if sources.len() < 2 {
        return None;
    }
    let train = &spec.train;
    let micro_steps = train.micro_steps(train.max_steps);
    let epochs = data.epochs(spec.seed, micro_steps, train.micro_batch_size);
    let words = sources.iter().zip(epochs).map(|(source, epochs)| {
        let again = if epochs > 1.0 {
            ", so it is repeated"
        } else {
            ""
        };
        format!(
            "{} {} of the tokens ({epochs:.2} epochs over the run{again})",
            one_line(&source.name),
            human::percent(source.share, 1)
        )
    });
    Some(format!("mix: {}", words.collect::<Vec<_>>().join("; ")))
}
