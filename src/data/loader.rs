//! Batches made ready while the engine computes: a thread that works one or two optimizer steps ahead. Because a batch is
//! a function of its number, working ahead changes no bit, and a resume needs nothing but the number to begin at.

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
    /// Tokens of each source that are no padding; empty where there is one text.
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

    /// Tokens that are no padding.
    pub fn n_tokens(&self) -> u64 {
        self.batches.iter().map(Batch::n_tokens).sum()
    }
}

/// How a run takes its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSchedule {
    pub seed: u64,
    /// Rows of a micro-batch.
    pub batch_size: usize,
    /// Micro-batches of an optimizer step.
    pub accum: usize,
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
    /// The micro-step of what comes next.
    next: u64,
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

    /// The step whose first micro-step is `micro_step`. Consecutive steps are prefetched; any other restarts the prefetch.
    pub fn batches(&mut self, micro_step: u64) -> StepBatches {
        if self.prefetch == Prefetch::Ahead {
            if self.worker.as_ref().is_none_or(|w| w.next != micro_step) {
                self.worker = self.start(micro_step);
            }
            if let Some(worker) = &mut self.worker
                && let Ok(step) = worker.ready.recv()
            {
                worker.next += self.schedule.accum as u64;
                return step;
            }
            self.worker = None;
        }
        let mut step = StepBatches::default();
        fill(&self.data, self.schedule, micro_step, &mut step);
        step
    }

    /// Gives a step back whose memory may be used again.
    pub fn give_back(&mut self, step: StepBatches) {
        if let Some(worker) = &self.worker {
            let _ = worker.used.try_send(step);
        }
    }

    /// None where the system has no thread left: then batches are made when they are asked for.
    fn start(&self, from: u64) -> Option<Worker> {
        let (send, ready) = sync_channel(AHEAD);
        let (used, back) = sync_channel::<StepBatches>(AHEAD + 1);
        let (data, schedule) = (self.data.clone(), self.schedule);
        let work = move || {
            let mut micro_step = from;
            loop {
                let mut step = back.try_recv().unwrap_or_default();
                fill(&data, schedule, micro_step, &mut step);
                micro_step += schedule.accum as u64;
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

fn fill(data: &Dataset, schedule: BatchSchedule, micro_step: u64, step: &mut StepBatches) {
    step.micro_step = micro_step;
    step.batches.resize_with(schedule.accum, Batch::default);
    for (i, batch) in step.batches.iter_mut().enumerate() {
        data.fill_train_batch(
            batch,
            schedule.seed,
            micro_step + i as u64,
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
            accum: 2,
        };
        let mut ahead = Loader::new(data.clone(), schedule, Prefetch::Ahead);
        let mut plain = Loader::new(data.clone(), schedule, Prefetch::Off);
        for micro_step in [0, 2, 4, 6, 8, 10, 100, 102, 4, 6] {
            let step = ahead.batches(micro_step);
            assert_eq!(step, plain.batches(micro_step), "{micro_step}");
            assert_eq!(step.batches[1], data.train_batch(3, micro_step + 1, 2));
            assert_eq!(step.n_tokens(), 64);
            ahead.give_back(step);
        }
    }
}
