//! Printed lines of training programs, one per step: nanochat, torchtitan, nanoGPT, llm.c, modded-nanogpt and similar. A line
//! counts if it has a step and named numbers, or is a record of a Hugging Face trainer; the rest of the log is skipped.

use super::lines::{Line, Parser, has_loss};
use super::printed::Records;
use crate::base::clock::UnixMillis;
use crate::base::registry::Entry;
use crate::base::text::one_line;
use crate::watch::names::{Mapping, Role};
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Facts, Format, Item, Source, json};
use crate::wire::id;
use std::io;
use std::path::Path;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "text",
        title: "printed log",
        summary: "lines such as `step 10/100 | loss: 3.2 | lr: 1e-3` of nanochat, torchtitan, nanoGPT and their like, and `{'loss': 3.2, …}` of Hugging Face's trainers",
        source: "nanochat, scripts/base_train.py; torchtitan, components/metrics.py; nanoGPT, train.py",
    },
    rank: 4,
    is,
    open: |path, _, _| {
        Box::new(Printed {
            tail: Tail::new(path),
            parser: Parser::new(),
            records: Records::new(),
            first_epoch: None,
            newest: None,
            epochs: EpochLines::default(),
            told_unclear: false,
        })
    },
};

/// Whether a file may be a printed log, by its name.
pub fn is_candidate(path: &Path) -> bool {
    path.extension()
        .is_none_or(|e| e == "log" || e == "txt" || e == "out" || e == "err")
}

/// By any part of it: what a program prints before its first step may be long.
fn is(path: &Path, part: &[u8]) -> bool {
    // Text has neither; a pattern is not tried on weights without an ending.
    is_candidate(path) && !part.contains(&0) && readings(part, 1) > 0
}

/// Lines of a part of a log that hold a loss, at most so many.
pub fn readings(part: &[u8], most: usize) -> usize {
    let text = String::from_utf8_lossy(part);
    let (Some(mut parser), Some(records)) = (Parser::new(), Records::new()) else {
        return 0;
    };
    // A loss alone, without a step or an epoch, is prose as often as not.
    let is_placed = |line: &Line| line.step.is_some() || line.epoch.is_some();
    let has_reading = |line: Line| is_placed(&line) && has_loss(&line.values);
    let is_reading =
        |line: &&str| records.record(line).is_some() || parser.line(line).is_some_and(has_reading);
    text.split(['\n', '\r'])
        .filter(is_reading)
        .take(most)
        .count()
}

struct Printed {
    tail: Tail,
    parser: Option<Parser>,
    records: Option<Records>,
    /// Programs count their passes over the data from 0 or from 1.
    first_epoch: Option<f64>,
    /// The newest step of a line that names one.
    newest: Option<u64>,
    epochs: EpochLines,
    /// A comma that may be either was reported.
    told_unclear: bool,
}

/// Lines that name an epoch and no step, of a log that has no steps: epochs are the steps, unless there are several lines of one.
#[derive(Debug, Default)]
struct EpochLines {
    epoch: Option<u64>,
    step: u64,
    /// What was read at that step.
    told: Vec<(String, f64)>,
    /// Lines are counted.
    counting: bool,
}

impl EpochLines {
    /// The step of a line; it is reported once that lines are counted.
    fn step(&mut self, epoch: u64, values: &[(String, f64)], items: &mut Vec<Item>) -> u64 {
        let is_new = self.epoch != Some(epoch);
        // A line that was printed twice is one.
        let differs = |(name, x): &(String, f64)| {
            let mut told = self.told.iter().filter(|(known, _)| known == name);
            told.any(|(_, y)| x.to_bits() != y.to_bits())
        };
        let repeats = values.iter().any(differs);
        if !is_new && repeats && !self.counting {
            self.counting = true;
            items.push(Item::Trouble(format!(
                "several lines of epoch {epoch} have a loss and name no step: lines are counted as steps; print the step in each line"
            )));
        }
        if is_new || repeats {
            self.told.clear();
            self.step = match self.counting {
                true => self.step + 1,
                false => epoch,
            };
        }
        self.epoch = Some(epoch);
        self.told.extend_from_slice(values);
        self.step
    }
}

impl Printed {
    /// Passes over the data so far, of one by its number.
    fn passes(&mut self, epoch: f64) -> f64 {
        epoch - self.first_epoch.get_or_insert(epoch).min(1.0).floor()
    }

    /// Gives a line without a step the one that it belongs to; false where it says nothing new.
    fn place(&mut self, line: &mut Line, items: &mut Vec<Item>) -> bool {
        let Some(epoch) = line.epoch.take() else {
            // A validation loss on a line of its own. llm.c prints the first one before its first step.
            let of_epochs = self.epochs.epoch.map(|_| self.epochs.step);
            line.step = self.newest.or(of_epochs).or(Some(0));
            return true;
        };
        if let Some((at, of)) = line.within {
            let before = json::step_of(self.passes(epoch)).and_then(|n| n.checked_mul(of));
            line.step = before.and_then(|before| before.checked_add(at));
            line.of = line.epochs.take().and_then(|epochs| epochs.checked_mul(of));
            self.newest = line.step.or(self.newest);
            return line.step.is_some();
        }
        // The time of an epoch is not that of a step.
        line.values.retain(|(name, _)| name != id::STEP_MS);
        if let Some(newest) = self.newest {
            // The mean over the epoch is no reading of the step.
            let is_train = |name: &str| matches!(Mapping::default().role(name), Role::Metric(id, _) if id == id::TRAIN_LOSS);
            line.values.retain(|(name, _)| !is_train(name));
            line.step = Some(newest);
        } else if let Some(epoch) = json::step_of(epoch) {
            // Only the second epoch shows that each has one line, so that their number is that of steps.
            let is_second = self.epochs.epoch.is_some_and(|before| before != epoch);
            line.step = Some(self.epochs.step(epoch, &line.values, items));
            let epochs = line.epochs.take();
            line.of = epochs.filter(|_| is_second && !self.epochs.counting);
        }
        line.step.is_some() && !line.values.is_empty()
    }

    /// Takes a record of a Hugging Face trainer; false where the line is none.
    fn take_record(&mut self, line: &str, items: &mut Vec<Item>) -> bool {
        let before = items.len();
        let records = self.records.as_mut();
        let taken = records.is_some_and(|records| records.take(line, items));
        if let Some(Item::Readings { step, .. }) = items[before..].last() {
            self.newest = step.or(self.newest);
        }
        taken
    }
}

impl Source for Printed {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let (change, more) = self.tail.read()?;
        if change == Change::Replaced {
            (self.parser, self.records) = (Parser::new(), Records::new());
            (self.first_epoch, self.newest) = (None, None);
            self.epochs = EpochLines::default();
            items.push(Item::Restart);
        }
        // A progress bar is drawn over itself: each of its states is a line.
        let returns = self.tail.buffer.iter_mut().filter(|b| **b == b'\r');
        returns.for_each(|b| *b = b'\n');
        for line in self.tail.lines() {
            if self.take_record(&line, items) {
                continue;
            }
            let Some(parser) = &mut self.parser else {
                continue;
            };
            let text = line;
            let Some(mut line) = parser.line(&text) else {
                continue;
            };
            if !self.told_unclear && parser.is_unclear(&text) {
                self.told_unclear = true;
                items.push(Item::Trouble(format!(
                    "`{}`: a comma before three digits is taken for one of thousands until a line shows that it is a decimal one; print numbers with a point",
                    one_line(&text.chars().take(80).collect::<String>())
                )));
            }
            if let Some(step) = line.step {
                self.newest = Some(step);
            } else if !self.place(&mut line, items) {
                continue;
            }
            if let Some(max_steps) = line.of {
                items.push(Item::Facts(Facts {
                    max_steps: Some(max_steps),
                    passes: line.epochs,
                    ..Facts::default()
                }));
            }
            if let Some(epoch) = line.epoch {
                let passes = self.passes(epoch);
                line.values.retain(|(name, _)| name != "epoch");
                line.values.push(("epoch".into(), passes));
            }
            items.push(Item::Readings {
                step: line.step,
                t: None,
                values: line.values,
            });
        }
        if let Some(records) = &mut self.records {
            records.peek(&self.tail.buffer, items);
        }
        Ok(more)
    }

    fn lines_of(&mut self) -> Option<&mut Tail> {
        Some(&mut self.tail)
    }

    fn changed(&self) -> Option<UnixMillis> {
        tail::changed(self.tail.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Values = Vec<(String, f64)>;

    fn values(pairs: &[(&str, f64)]) -> Values {
        pairs
            .iter()
            .map(|(name, x)| ((*name).to_string(), *x))
            .collect()
    }

    /// Steps and values of a printed log.
    fn told(log: &str) -> Vec<(u64, Values)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.log");
        std::fs::write(&path, log).unwrap();
        let mut items = Vec::new();
        let mut source = (FORMAT.open)(&path, true, &Mapping::default());
        while source.poll(&mut items).unwrap() {}
        let readings = items.into_iter().filter_map(|item| match item {
            Item::Readings { step, values, .. } => Some((step?, values)),
            _ => None,
        });
        readings.collect()
    }

    #[test]
    fn a_line_of_an_epoch_has_the_newest_step_or_is_one() {
        let log =
            "step 10 | loss 3.0\nepoch 1 | train loss 3.1 | val loss 2.9\nstep 20 | loss 2.0\n";
        let expected = vec![
            (10, values(&[("loss", 3.0)])),
            (10, values(&[("val loss", 2.9)])),
            (20, values(&[("loss", 2.0)])),
        ];
        assert_eq!(told(log), expected);
        let epochs = "Epoch 1: train loss 3.0, val loss 3.1\nEpoch 2: train loss 2.0, val loss 2.1\nEpoch 3: done\n";
        let row = |x: f64| values(&[("train loss", x), ("val loss", x + 0.1)]);
        assert_eq!(told(epochs), [(1, row(3.0)), (2, row(2.0))]);
    }

    #[test]
    fn a_place_within_an_epoch_is_a_step() {
        // PyTorch's examples, whose epochs begin with 1, and fairseq.
        let log = "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 9.18 | loss  5.34 | ppl   207.69\n| epoch   2 |   200/ 2983 batches | lr 20.00 | ms/batch 9.18 | loss  5.22 | ppl   184.70\n| end of epoch   2 | time: 30.12s | valid loss  5.10 | valid ppl   164.69\n";
        let read = told(log);
        let steps: Vec<u64> = read.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [200, 3183, 3183]);
        let end = values(&[("valid loss", 5.1), ("valid ppl", 164.69)]);
        assert_eq!(read[2].1, end, "the time of an epoch is not that of a step");
        let mnist = "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.3\nTrain Epoch: 1 [640/60000 (1%)]\tLoss: 2.2\nTrain Epoch: 2 [0/60000 (0%)]\tLoss: 0.5\n";
        let loss = |x: f64| values(&[("loss", x)]);
        assert_eq!(
            told(mnist),
            [(0, loss(2.3)), (640, loss(2.2)), (60_000, loss(0.5))]
        );
        let fairseq = "epoch 001: 59 / 1000 loss=3.7, ppl=20.1, num_updates=59\nepoch 001 | valid on 'valid' subset | loss 3.5 | wps 9 | num_updates 59\n";
        let read = told(fairseq);
        assert_eq!((read[0].0, read[1].0), (59, 59));
        assert!(read[1].1.contains(&("val_loss".into(), 3.5)), "{read:?}");
        // ImageNet
        let log = "Epoch: [0][  10/5005]\tTime  0.5 (  1.0)\tLoss 6.9e+00 (7.0e+00)\nEpoch: [1][  10/5005]\tTime  0.5 (  1.0)\tLoss 5.9e+00 (6.0e+00)\n";
        assert_eq!(told(log), [(10, loss(6.9)), (5015, loss(5.9))]);
    }

    #[test]
    fn several_lines_of_one_epoch_are_counted_and_reported() {
        let line = |epoch: u32, loss: f64| format!("epoch {epoch} | loss {loss}\n");
        let log: String = (0..12)
            .map(|i| line(1 + i / 4, 3.0 - f64::from(i) * 0.1))
            .collect();
        let state = fold("run.log", &log);
        let steps = state.series["train/loss"].recent().map(|p| p.step);
        assert!(steps.eq(1..=12), "{:?}", state.series["train/loss"]);
        assert_eq!(state.n_warnings, 1);
        let reported = state
            .log
            .iter()
            .any(|line| line.text.contains("print the step"));
        assert!(reported, "{:?}", state.log);
        // Printed by two loggers, it is one reading; each of a line of its own is of the same epoch.
        for log in [
            [line(1, 3.0), line(1, 3.0), line(2, 2.0)].concat(),
            format!("{}epoch 1 | val_loss 3.5\n{}", line(1, 3.0), line(2, 2.0)),
        ] {
            let state = fold("run.log", &log);
            let ends = (
                state.series["train/loss"].len(),
                state.step,
                state.n_warnings,
            );
            assert_eq!(ends, (2, 2, 0), "{log}");
        }
    }

    #[test]
    fn a_validation_loss_on_a_line_of_its_own_has_the_newest_step() {
        let log = "val loss 8.1\nstep    1/100 | loss 7.8 (+nanz)| norm 1.5 (+nanz)| lr 6.00e-04 | 3056.36 ms | 42.6% bf16 MFU | 171545 tok/s\nval loss 7.7\n";
        let state = fold("main.log", log);
        let points = state.series["val/loss"].recent();
        let points: Vec<(u64, f64)> = points.map(|p| (p.step, p.value)).collect();
        assert_eq!(points, [(0, 8.1), (1, 7.7)]);
        assert_eq!(readings(b"val loss 8.1\n", 9), 0, "no log by itself");
    }

    #[test]
    fn the_progress_bar_of_lightning_tells_steps_and_losses() {
        let log = "Epoch 0:   0%|          | 0/50 [00:00<?, ?it/s]\rEpoch 0:  10%|█         | 5/50 [00:01<00:09,  4.90it/s, v_num=0, train_loss=2.30]\rEpoch 1:   4%|▍ | 2/50 [00:01<00:09, 4.90it/s, v_num=0, train_loss=1.50]\n";
        let loss = |x: f64| values(&[("train_loss", x)]);
        assert_eq!(told(log), [(5, loss(2.3)), (52, loss(1.5))]);
    }

    /// Steps and losses, and the last step, of a log that is read as a whole.
    fn fold(name: &str, log: &str) -> crate::run::RunState {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, log).unwrap();
        let found = crate::watch::find(&path, None).unwrap();
        let clock = Box::new(crate::base::clock::SystemClock::new());
        let mut watched = crate::watch::ExternalRun::open(found, Mapping::default(), clock);
        let mut state = crate::run::RunState::new();
        watched.read_all(|envelope| state.apply(envelope)).unwrap();
        state
    }

    #[test]
    fn a_step_that_begins_again_with_each_epoch_counts_on() {
        let log = "Epoch 1/3, Step 10/20, Loss: 3.0\nEpoch 1/3, Step 20/20, Loss: 2.8\nEpoch 2/3, Step 10/20, Loss: 2.5\n";
        let state = fold("run.log", log);
        let losses = state.series["train/loss"].recent();
        let losses: Vec<(u64, f64)> = losses.map(|p| (p.step, p.value)).collect();
        assert_eq!(losses, [(10, 3.0), (20, 2.8), (30, 2.5)]);
        assert_eq!(state.head.unwrap().max_steps, 60);
        for log in [
            "epoch 0 | step 5 | loss 3\nepoch 1 | step 5 | loss 2\n",
            "step 5 | epoch 0 | loss 3\nstep 5 | epoch 1 | loss 2\n",
        ] {
            let state = fold("run.log", log);
            assert_eq!(
                (state.series["train/loss"].len(), state.step),
                (2, 10),
                "{log}"
            );
        }
    }

    #[test]
    fn a_trainers_printed_records_are_a_log() {
        let log = "Loading\n\r  0%|          | 0/80 [00:00<?, ?it/s]\r 6%|▏         | 5/80 [00:00<00:06, 18.21it/s]\r      \r{'loss': '1.753', 'grad_norm': '0.9', 'epoch': '0.05'}\n\r  6%|▍         | 5/80 [00:00<00:06, 18.21it/s]";
        let state = fold("train.log", log);
        assert_eq!((state.latest("train/loss"), state.step), (Some(1.753), 5));
        assert_eq!(state.head.unwrap().max_steps, 80);
    }
}
