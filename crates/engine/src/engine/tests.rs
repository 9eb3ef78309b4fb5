//! Small runs: the loop, commands, resuming, and what happens when things break.

use super::*;
use crate::base::clock::{Clock, SystemClock};
use crate::base::finding::Status;
use crate::data::{DataEnv, Dataset};
use crate::metrics::{self, Repeatable};
use crate::spec::{SpecSources, load};
use crate::wire::{Command, Phase, StopWhen, Values};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};

mod adapters;
mod answers_diagnosed;
mod averages;
mod collapse;
mod commands;
mod distill;
mod documents;
mod expert_adapters;
mod extend;
mod faults;
mod length;
mod loop_;
mod merging;
mod merging_models;
mod moving_reference;
mod prechecked;
mod preferences;
mod queue;
mod rescue;
mod resume;
mod reward_adapters;
mod rollouts;
mod tasks;
mod vocabulary;

const BASE: &[&str] = &[
    "model.n_layer=1",
    "model.n_head=2",
    "model.d_model=16",
    "model.seq_len=16",
    "train.micro_batch_size=4",
    "train.threads=1",
    "train.max_steps=20",
    "schedule.cosine.warmup_steps=5",
    "eval.every=5",
    "eval.batches=2",
    "sample.every=10",
    "sample.sampling.max_new_tokens=8",
    "checkpoint.every=5",
    "preflight.enabled=false",
    "data.val_fraction=0.005",
];

/// The smallest model that learns, on the embedded corpus, with `words` (`key=value`) on top.
pub fn tiny(words: &[&str]) -> (RunSpec, Dataset) {
    // Epochs and steps on one command line contradict each other, and so do two forms of the warm-up.
    let has = |key: &str| words.iter().any(|word| word.starts_with(key));
    let replaced = |word: &str| {
        has("train.epochs=") && word.starts_with("train.max_steps=")
            || has("train.warmup_ratio=") && word.starts_with("schedule.cosine.warmup_steps=")
    };
    let base = BASE.iter().filter(|word| !replaced(word));
    let words: Vec<String> = base.chain(words).map(ToString::to_string).collect();
    let spec = load("quickstart", &words, &SpecSources::default())
        .unwrap()
        .spec;
    let data = spec.open_data(&DataEnv::default()).unwrap();
    (spec, data)
}

/// A run directory and what happened in it.
pub struct Run {
    pub job: EngineJob,
    _dir: tempfile::TempDir,
}

/// What a test does when an event goes by: commands to send, or a flag to raise.
type OnEvent<'a> = dyn FnMut(&Event, &SyncSender<Request>, &AtomicBool) + Send + 'a;

impl Run {
    pub fn new(words: &[&str]) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let spec = tiny(words).0;
        let yaml = spec.to_yaml();
        let run_dir = RunDir::create(dir.path(), "t", &yaml, "", &SystemClock::new()).unwrap();
        let job = EngineJob {
            env: Default::default(),
            run_dir,
            spec,
            force: false,
            stop_after: None,
            resume: false,
            fresh_optimizer: false,
            after: None,
        };
        Run { job, _dir: dir }
    }

    pub fn go(&self) -> Vec<Event> {
        self.go_with(&mut |_, _, _| {})
    }

    fn go_with(&self, on_event: &mut OnEvent<'_>) -> Vec<Event> {
        self.go_by(Arc::new(SystemClock::new()), on_event)
    }

    fn go_by(&self, clock: Arc<dyn Clock>, on_event: &mut OnEvent<'_>) -> Vec<Event> {
        let (send, receive) = sync_channel(64);
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let mut events = Vec::new();
        let mut emit = |event: Event| {
            on_event(&event, &send, &flag);
            events.push(event);
        };
        run(&self.job, &mut emit, receive, stop, clock);
        events
    }

    fn resumed(&self) -> Vec<Event> {
        self.resumed_with(&mut |_, _, _| {})
    }

    fn resumed_with(&self, on_event: &mut OnEvent<'_>) -> Vec<Event> {
        let job = EngineJob {
            env: Default::default(),
            resume: true,
            stop_after: None,
            ..self.job.clone()
        };
        let again = Run {
            job,
            _dir: tempfile::tempdir().unwrap(),
        };
        again.go_with(on_event)
    }

    fn checkpoint(&self, step: u64) -> std::path::PathBuf {
        self.job
            .run_dir
            .checkpoints_path()
            .join(checkpoint::name_of(step))
    }

    fn kept(&self) -> Vec<u64> {
        let kept = self.job.run_dir.checkpoints();
        kept.iter().map(|c| c.step).collect()
    }
}

/// Opens a run as the loop does and hands over what it works on.
fn opened<R>(
    run: &Run,
    look: impl FnOnce(
        &mut context::RunContext<'_, '_>,
        &mut step::Stepper,
        &mut checkpoint::checkpoints::Checkpoints,
    ) -> R,
) -> R {
    let (_send, receive) = sync_channel(1);
    let mut emit = |_: Event| {};
    let clock = Arc::new(SystemClock::new());
    let stop = Arc::new(AtomicBool::new(false));
    let mut port = Port::new(&mut emit, receive, stop, clock, &run.job.env);
    let data = prepare::data(&run.job, &mut port).unwrap();
    let (mut cx, mut stepper, mut checkpoints) =
        prepare::prepare(&run.job, data, &mut port).unwrap();
    look(&mut cx, &mut stepper, &mut checkpoints)
}

/// What preflight reserves on the disk is what the plan says and what the checkpoint takes, but for its small files.
fn checkpoint_is_as_large_as_predicted(run: &Run, step: u64) {
    let (predicted, planned) = opened(run, |cx, _, _| {
        let size = crate::plan::target::DataSize::of(cx.spec, &cx.data);
        let request = crate::plan::target::of_spec(cx.spec, size);
        let predicted = preflight::checkpoint_size(cx.spec, &cx.state, true);
        (predicted, crate::plan::work::checkpoint(&request))
    });
    assert_eq!(planned, predicted, "plan and preflight");
    let files = std::fs::read_dir(run.checkpoint(step)).unwrap();
    let taken: u64 = files.map(|f| f.unwrap().metadata().unwrap().len()).sum();
    let most = predicted.total();
    // Headers of safetensors, the tokenizer, the state.
    assert!(
        (most - 80_000..=most).contains(&taken),
        "{taken} bytes, at most {most} expected"
    );
}

/// Writes events as the run's log.
fn keep_log(run: &Run, events: &[Event]) {
    let lines: Vec<String> = in_envelopes(events)
        .iter()
        .map(crate::wire::encode)
        .collect();
    std::fs::write(run.job.run_dir.events_path(), lines.concat()).unwrap();
}

fn in_envelopes(events: &[Event]) -> Vec<crate::wire::Envelope> {
    let envelope = |(i, event): (usize, &Event)| crate::wire::Envelope {
        v: crate::wire::VERSION,
        seq: i as u64 + 1,
        t: Default::default(),
        event: event.clone(),
    };
    events.iter().enumerate().map(envelope).collect()
}

/// Sends `command` when the step goes by.
fn at(step: u64, command: Command) -> impl FnMut(&Event, &SyncSender<Request>, &AtomicBool) + Send {
    move |event, send, _| {
        if matches!(event, Event::Stepped { step: s, .. } if *s == step) {
            let command = command.clone();
            send.send(Request { id: 7, command }).unwrap();
        }
    }
}

fn finished(events: &[Event]) -> (Outcome, u64, String) {
    match events.last() {
        Some(Event::Finished {
            outcome,
            step,
            message,
            ..
        }) => (*outcome, *step, message.clone()),
        other => panic!("the last event is {other:?}"),
    }
}

/// One line of the loss log: step, kind, and the bits of each reading.
type Line = (u64, &'static str, Vec<(String, u64)>);

/// What must repeat to the bit: every reading but times, after roll-backs are applied.
fn loss_log(runs: &[&[Event]]) -> Vec<Line> {
    let mut log: Vec<Line> = Vec::new();
    for event in runs.iter().copied().flatten() {
        match event {
            Event::RolledBack { step } => log.retain(|line| line.0 <= *step),
            Event::Stepped { step, values, .. } => log.push((*step, "step", bits(values))),
            Event::Evaluated { step, values, .. } => log.push((*step, "eval", bits(values))),
            _ => {}
        }
    }
    log
}

fn bits(values: &Values) -> Vec<(String, u64)> {
    let repeats = |id: &str| metrics::find(id).is_some_and(|m| m.repeatable == Repeatable::Yes);
    let kept = values.iter().filter(|(id, _)| repeats(id));
    kept.map(|(id, x)| (id.clone(), x.0.to_bits())).collect()
}

fn same_files(a: &Path, b: &Path) {
    let names = |dir: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let read = |dir: &Path| std::fs::read(dir.join(&name)).unwrap();
        assert!(read(a) == read(b), "{name:?} differs");
    }
}

/// With `RUST_BACKTRACE` candle's own text of an error is a page of frames.
#[test]
fn errors_of_candle_become_sentences_without_their_backtrace() {
    use crate::llama_cpp::ModelFileError;
    use candle_core::Error;
    let traced = || {
        let inner = Box::new(Error::Msg("rank 0 ended without a word".into()));
        let backtrace = Box::new(std::backtrace::Backtrace::force_capture());
        Error::WithBacktrace { inner, backtrace }
    };
    let said = [
        EngineError::from(traced()).to_string(),
        merge::MergeError::from(traced()).to_string(),
        checkpoint::CheckpointError::from(traced()).to_string(),
        crate::hf::HfError::from(traced()).to_string(),
        ModelFileError::from(traced()).to_string(),
    ];
    for text in said {
        assert!(text.ends_with("rank 0 ended without a word"), "{text}");
    }
}
