//! Prefetches batches on a thread that works one or two optimizer steps ahead of the engine. Because a batch is a function of
//! its index, prefetching changes no bit, and a resume needs only the index to start at.

use super::{Batch, Dataset};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Steps that lie ready at most, besides the one that the thread has in hand.
const AHEAD: usize = 2;

/// The micro-batches of one optimizer step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepBatches {
    /// Number of the first micro-step, from 0.
    pub micro_step: u64,
    pub batches: Vec<Batch>,
}

impl StepBatches {
    /// Tokens of each source that are not padding; empty where there is one text.
    pub fn by_source(&self) -> Vec<u64> {
        let mut sums = Vec::new();
        for batch in &self.batches {
            sums.resize(batch.tokens.len().max(sums.len()), 0);
            for (sum, tokens) in sums.iter_mut().zip(&batch.tokens) {
                *sum += tokens;
            }
        }
        sums
    }

    /// Tokens that are not padding.
    pub fn n_tokens(&self) -> u64 {
        self.batches.iter().map(Batch::n_tokens).sum()
    }
}

/// How a run takes its batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSchedule {
    pub seed: u64,
    /// Rows of a micro-batch.
    pub batch_size: usize,
    /// Micro-batches of an optimizer step, but for those of `ramp`.
    pub accum: usize,
    /// Smaller steps at the beginning: the last step of each stage, and the micro-batches of its steps.
    pub ramp: Vec<(u64, usize)>,
}

impl BatchSchedule {
    fn accum(&self, step: u64) -> usize {
        let stage = self.ramp.iter().find(|(until, _)| step <= *until);
        stage.map_or(self.accum, |(_, accum)| *accum)
    }

    /// Where the next step begins.
    fn behind(&self, start: StepStart) -> StepStart {
        StepStart {
            step: start.step + 1,
            micro_step: start.micro_step + self.accum(start.step) as u64,
        }
    }
}

/// Where in a run a step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepStart {
    /// Number of the optimizer step, from 1.
    pub step: u64,
    /// Number of its first micro-step, from 0.
    pub micro_step: u64,
}

/// When batches are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// On a thread, ahead of their use.
    Ahead,
    /// When they are asked for.
    Off,
}

/// Hands out the batches of one step after the other.
#[derive(Debug)]
pub struct Loader {
    data: Arc<Dataset>,
    schedule: BatchSchedule,
    prefetch: Prefetch,
    worker: Option<Worker>,
}

/// Both ends of the thread; dropping them ends it.
#[derive(Debug)]
struct Worker {
    /// What comes next.
    next: StepStart,
    ready: Receiver<StepBatches>,
    used: SyncSender<StepBatches>,
}

impl Loader {
    pub fn new(data: Arc<Dataset>, schedule: BatchSchedule, prefetch: Prefetch) -> Loader {
        Loader {
            data,
            schedule,
            prefetch,
            worker: None,
        }
    }

    /// The step that begins there. Consecutive steps are prefetched; any other restarts the prefetch.
    pub fn batches(&mut self, start: StepStart) -> StepBatches {
        if self.prefetch == Prefetch::Ahead {
            if self.worker.as_ref().is_none_or(|w| w.next != start) {
                self.worker = self.start(start);
            }
            if let Some(worker) = &mut self.worker
                && let Ok(step) = worker.ready.recv()
            {
                worker.next = self.schedule.behind(start);
                return step;
            }
            self.worker = None;
        }
        let mut step = StepBatches::default();
        fill(&self.data, &self.schedule, start, &mut step);
        step
    }

    /// Gives a step back whose memory may be used again.
    pub fn give_back(&mut self, step: StepBatches) {
        if let Some(worker) = &self.worker {
            let _ = worker.used.try_send(step);
        }
    }

    /// None where the system has no thread left: then batches are made when they are asked for.
    fn start(&self, from: StepStart) -> Option<Worker> {
        let (send, ready) = sync_channel(AHEAD);
        let (used, back) = sync_channel::<StepBatches>(AHEAD + 1);
        let (data, schedule) = (self.data.clone(), self.schedule.clone());
        let work = move || {
            let mut start = from;
            loop {
                let mut step = back.try_recv().unwrap_or_default();
                fill(&data, &schedule, start, &mut step);
                start = schedule.behind(start);
                if send.send(step).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("batches".into());
        thread.spawn(work).ok()?;
        Some(Worker {
            next: from,
            ready,
            used,
        })
    }
}

fn fill(data: &Dataset, schedule: &BatchSchedule, start: StepStart, step: &mut StepBatches) {
    step.micro_step = start.micro_step;
    step.batches
        .resize_with(schedule.accum(start.step), Batch::default);
    for (i, batch) in step.batches.iter_mut().enumerate() {
        data.fill_train_batch(
            batch,
            schedule.seed,
            start.micro_step + i as u64,
            schedule.batch_size,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataConfig;

    #[test]
    fn working_ahead_changes_no_batch_and_a_jump_begins_anew() {
        let data = Arc::new(Dataset::prepare(&DataConfig::default(), 16).unwrap());
        let schedule = BatchSchedule {
            seed: 3,
            batch_size: 2,
            accum: 3,
            ramp: vec![(2, 1), (4, 2)],
        };
        let mut ahead = Loader::new(data.clone(), schedule.clone(), Prefetch::Ahead);
        let mut plain = Loader::new(data.clone(), schedule, Prefetch::Off);
        let places = [(1, 0, 1), (2, 1, 1), (3, 2, 2), (4, 4, 2), (5, 6, 3)];
        // The last two as after a rescue that passes batches over.
        let jumps = [(6, 9, 3), (40, 100, 3), (41, 103, 3), (3, 2, 2), (4, 11, 2)];
        for (step, micro_step, accum) in places.into_iter().chain(jumps) {
            let start = StepStart { step, micro_step };
            let found = ahead.batches(start);
            assert_eq!(found, plain.batches(start), "{start:?}");
            let all = (micro_step..).take(accum);
            let alone: Vec<Batch> = all.map(|micro| data.train_batch(3, micro, 2)).collect();
            assert_eq!(found.batches, alone);
            assert_eq!(found.n_tokens(), 32 * accum as u64);
            ahead.give_back(found);
        }
    }
}
