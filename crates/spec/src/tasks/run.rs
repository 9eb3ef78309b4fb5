//! Runs all items of a task: answered ones are not repeated, shared prefixes are prefilled once, and every answer is stored
//! as soon as it is complete.

use super::answers::{self, SIDE_BY_SIDE};
use super::config::Kind;
use super::error::TaskError;
use super::items::Item;
use super::record::{Header, Record, RecordWriter};
use super::score::{self, Work};
use super::subject::Subject;
use super::task::Prepared;
use crate::base::digest::hex;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Items are sorted by so many of their first tokens: beginnings that are worth reading once.
const SHARED: usize = 32;

/// What is run, and where its records go.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub prepared: &'a Prepared,
    /// The folder of this model's records.
    pub folder: &'a Path,
    /// The model's name, for people.
    pub model: &'a str,
    pub fingerprint: &'a str,
}

/// How far it is. `work` counts tokens, or answers where they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub items: usize,
    pub of: usize,
    pub work: usize,
    pub of_work: usize,
}

/// All records of a task, in the order of its items.
#[derive(Debug)]
pub struct Outcome {
    pub records: Vec<Record>,
    /// How many of them were there before.
    pub kept: usize,
    pub file: PathBuf,
}

impl Request<'_> {
    pub(super) fn header(&self) -> Header {
        let config = self.prepared.task.config();
        Header {
            task: config.name.clone(),
            version: config.version,
            items: self.prepared.items.len(),
            digest: self.prepared.digest.clone(),
            model: self.model.into(),
            fingerprint: self.fingerprint.into(),
            llmtui: env!("CARGO_PKG_VERSION").into(),
            file: self.prepared.task.file().map(Path::to_path_buf),
            shots: Some(config.shots.as_ref().map_or(0, |shots| shots.count)),
            limited: self.prepared.limited,
        }
    }

    /// One file for each thing asked of each model.
    pub fn file(&self) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(&self.prepared.digest);
        hash.update(self.fingerprint);
        let name = &self.prepared.task.config().name;
        self.folder
            .join(format!("{name}-{}.jsonl", &hex(&hash.finalize())[..12]))
    }
}

/// A task under way.
pub struct Run<'a> {
    request: Request<'a>,
    keeper: RecordWriter,
    records: Vec<Record>,
    kept: usize,
}

impl<'a> Run<'a> {
    /// Takes up what was answered before; writes nothing yet.
    ///
    /// # Errors
    /// The disk.
    pub fn open(request: Request<'a>) -> Result<Run<'a>, TaskError> {
        let (keeper, mut records) = RecordWriter::open(&request.file(), &request.header())?;
        let items = request.prepared.items.len();
        let mut seen = HashSet::new();
        records.retain(|record| record.item < items && seen.insert(record.item));
        Ok(Run {
            kept: records.len(),
            request,
            keeper,
            records,
        })
    }

    /// Items that were answered so far, and all.
    pub fn answered(&self) -> (usize, usize) {
        (self.records.len(), self.request.prepared.items.len())
    }

    /// Whether nothing is left to ask.
    pub fn is_whole(&self) -> bool {
        self.records.len() == self.request.prepared.items.len()
    }

    /// Asks what is left; `on_progress` may break it off, and what was answered by then is kept.
    ///
    /// # Errors
    /// Items that the tokenizer or the context cannot hold, the disk, the model.
    pub fn evaluate(
        &mut self,
        subject: &mut Subject,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), TaskError> {
        let done: HashSet<usize> = self.records.iter().map(|record| record.item).collect();
        let items = &self.request.prepared.items;
        let left: Vec<&Item> = items.iter().filter(|i| !done.contains(&i.number)).collect();
        match self.request.prepared.task.config().kind {
            Kind::Answer => self.write(subject, &left, on_progress),
            _ => self.score(subject, &left, on_progress),
        }
    }

    fn score(
        &mut self,
        subject: &mut Subject,
        left: &[&Item],
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), TaskError> {
        let name = self.request.prepared.task.config().name.clone();
        let works = left.iter().map(|item| Work::new(subject, &name, item));
        let mut works: Vec<Work> = works.collect::<Result<_, _>>()?;
        // Shared beginnings next to each other; short ones last, so that the time left is not underestimated.
        works.sort_by(|a, b| {
            let order = b.order().len().cmp(&a.order().len());
            a.order()
                .iter()
                .take(SHARED)
                .cmp(b.order().iter().take(SHARED))
                .then(order)
        });
        let of_work = works.iter().map(Work::tokens).sum();
        let (mut work, mut rest) = (0, works.as_slice());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(score::fitting(subject, rest));
            self.keep(score::score(subject, part)?)?;
            work += part.iter().map(Work::tokens).sum::<usize>();
            if on_progress(self.progress(work, of_work)).is_break() {
                break;
            }
            rest = others;
        }
        Ok(())
    }

    fn write(
        &mut self,
        subject: &mut Subject,
        left: &[&Item],
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), TaskError> {
        let prepared = self.request.prepared;
        let mut work = 0;
        for part in left.chunks(SIDE_BY_SIDE) {
            let written = answers::write(subject, &prepared.task, part)?;
            self.keep(prepared.judged(part, written)?)?;
            work += part.len();
            if on_progress(self.progress(work, left.len())).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn progress(&self, work: usize, of_work: usize) -> Progress {
        Progress {
            items: self.records.len(),
            of: self.request.prepared.items.len(),
            work,
            of_work,
        }
    }

    fn keep(&mut self, records: Vec<Record>) -> Result<(), TaskError> {
        self.keeper.append(&records)?;
        self.records.extend(records);
        Ok(())
    }

    /// All records, in the order of the items.
    pub fn finish(mut self) -> Outcome {
        self.records.sort_by_key(|record| record.item);
        Outcome {
            records: self.records,
            kept: self.kept,
            file: self.request.file(),
        }
    }
}
