//! Printed lines of training programs, one per step: nanochat, torchtitan, nanoGPT, llm.c, modded-nanogpt and similar. A line
//! counts if it has a step and named numbers, or is a record of a Hugging Face trainer; the rest of the log is skipped.

use super::printed::Records;
use crate::base::clock::UnixMillis;
use crate::base::registry::Entry;
use crate::watch::names::{Mapping, Role};
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Facts, Format, Item, Source, json};
use crate::wire::id;
use regex::Regex;
use std::io;
use std::path::Path;

/// Longest line that is looked at, in bytes.
const MAX_TEXT: usize = 4_096;

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
    let (Some(parser), Some(records)) = (Parser::new(), Records::new()) else {
        return 0;
    };
    let has_loss = |line: Line| line.values.iter().any(|(name, _)| name.contains("loss"));
    let is_reading =
        |line: &&str| records.record(line).is_some() || parser.line(line).is_some_and(has_loss);
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
}

impl Printed {
    /// Passes over the data so far, of one by its number.
    fn passes(&mut self, epoch: f64) -> f64 {
        epoch - self.first_epoch.get_or_insert(epoch).min(1.0).floor()
    }
}

impl Printed {
    /// A line of a whole epoch has the newest step, or epochs are the steps; false where it says nothing new.
    fn of_an_epoch(&mut self, line: &mut Line) -> bool {
        let epoch = line.epoch.take().and_then(json::step_of);
        if let Some(newest) = self.newest {
            // The mean over the epoch is no reading of the step.
            let is_train = |name: &str| matches!(Mapping::default().role(name), Role::Metric(id, _) if id == id::TRAIN_LOSS);
            line.values.retain(|(name, _)| !is_train(name));
            line.step = Some(newest);
        } else {
            line.step = epoch;
            line.of = line.epochs.take();
        }
        line.step.is_some() && !line.values.is_empty()
    }
}

impl Source for Printed {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let (change, more) = self.tail.read()?;
        if change == Change::Replaced {
            self.records = Records::new();
            (self.first_epoch, self.newest) = (None, None);
            items.push(Item::Restart);
        }
        // A progress bar is drawn over itself: each of its states is a line.
        let returns = self.tail.buffer.iter_mut().filter(|b| **b == b'\r');
        returns.for_each(|b| *b = b'\n');
        for line in self.tail.lines() {
            let records = self.records.as_mut();
            if records.is_some_and(|records| records.take(&line, items)) {
                continue;
            }
            let Some(mut line) = self.parser.as_ref().and_then(|parser| parser.line(&line)) else {
                continue;
            };
            if let Some(step) = line.step {
                self.newest = Some(step);
            } else if line.epoch.is_some() && !self.of_an_epoch(&mut line) {
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

    fn changed(&self) -> Option<UnixMillis> {
        tail::changed(self.tail.path())
    }
}

#[derive(Debug, PartialEq)]
struct Line {
    /// None: the line is of an epoch.
    step: Option<u64>,
    /// `step 10/100`
    of: Option<u64>,
    /// `epoch 2/3`, as it is written, before the step or behind it.
    epoch: Option<f64>,
    epochs: Option<u64>,
    values: Vec<(String, f64)>,
}

/// Patterns of a linear-time engine: no line can make it slow.
struct Parser {
    step: Regex,
    epoch: Regex,
    value: Regex,
    colour: Regex,
    /// What stands behind the epoch in a progress bar of Lightning: `: 10%|█ | 5/50 [00:01<00:09, 4.9it/s, loss=2.3]`
    bar: Regex,
}

impl Parser {
    fn new() -> Option<Parser> {
        let number = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf)";
        Some(Parser {
            step: Regex::new(r"(?i)\b(?:step|iter|iteration)s?\b\s*[:=#]?\s*(\d[\d,]*)(?:\s*/\s*(\d[\d,]*))?").ok()?,
            epoch: Regex::new(r"(?i)\bepoch\b\s*[:=#(\[]?\s*(\d+(?:\.\d+)?)(?:\s*/\s*(\d+))?").ok()?,
            // A name, perhaps a colon, a number, perhaps a unit.
            value: Regex::new(&format!(
                r"(?i)([a-z][a-z_/@.\-]*(?:[ _][a-z][a-z_/@.\-]*){{0,3}})\s*(?:[:=]\s*|\s)({number})(ms|s|k|m|%)?(?:[^\w.]|$)"
            ))
            .ok()?,
            bar: Regex::new(r"^:?\s*\d{1,3}%\|[^|]*\|\s*(\d+)/(\d+)\s*\[[^,\]]*,([^\]]*)\]?").ok()?,
            colour: Regex::new("\u{1b}\\[[0-9;]*m").ok()?,
        })
    }

    fn line(&self, line: &str) -> Option<Line> {
        if line.len() > MAX_TEXT {
            return None;
        }
        let line = self.colour.replace_all(line, "");
        let Some(found) = self.step.captures(&line) else {
            return self.epoch_line(&line);
        };
        let whole = |at: usize| found.get(at)?.as_str().replace(',', "").parse().ok();
        let behind = &line[found.get(0)?.end()..];
        let values = self.values(behind);
        let step = whole(1)?;
        let epoch = self.epoch.captures(&line);
        let of_epoch = |at: usize| epoch.as_ref()?.get(at)?.as_str().parse::<f64>().ok();
        (!values.is_empty()).then_some(Line {
            step: Some(step),
            of: whole(2).filter(|of| *of >= step && *of > 0),
            epoch: of_epoch(1),
            epochs: of_epoch(2).and_then(json::step_of),
            values,
        })
    }

    /// A line that names an epoch and a loss, and no step.
    fn epoch_line(&self, line: &str) -> Option<Line> {
        let found = self.epoch.captures(line)?;
        let number = |at: usize| found.get(at)?.as_str().parse::<f64>().ok();
        let behind = &line[found.get(0)?.end()..];
        let is_loss =
            |values: &[(String, f64)]| values.iter().any(|(name, _)| name.contains("loss"));
        if let Some(bar) = self.bar.captures(behind) {
            let (at, of): (u64, u64) = (bar[1].parse().ok()?, bar[2].parse().ok()?);
            let mut values = self.values(&bar[3]);
            values.retain(|(name, _)| name != "v_num");
            let before = number(1).and_then(json::step_of)?.checked_mul(of)?;
            return is_loss(&values).then_some(Line {
                step: before.checked_add(at),
                of: None,
                epoch: None,
                epochs: None,
                values,
            });
        }
        let values = self.values(behind);
        is_loss(&values).then_some(Line {
            step: None,
            of: None,
            epoch: number(1),
            epochs: number(2).and_then(json::step_of),
            values,
        })
    }

    /// Numbers behind names.
    fn values(&self, text: &str) -> Vec<(String, f64)> {
        let mut values: Vec<(String, f64)> = Vec::new();
        for value in self.value.captures_iter(text) {
            let (odd, name) = parts(value[1].trim().to_lowercase());
            values.extend(
                odd.into_iter()
                    .filter_map(|(name, x)| reading(name, x, None)),
            );
            let Some(x) = json::text_number(&value[2].replace(',', "")) else {
                continue;
            };
            let unit = value.get(3).map(|unit| unit.as_str());
            values.extend(name.and_then(|name| reading(name, x, unit)));
        }
        values
    }
}

/// The name of a value without what stands before it: `loss nan grad norm` is a loss that is no number, and a name. What a line
/// counts of such numbers is no reading (`number of nan iterations`).
fn parts(name: String) -> (Vec<(String, f64)>, Option<String>) {
    if name.starts_with("number of") {
        return (Vec::new(), None);
    }
    let (mut odd, mut words) = (Vec::new(), Vec::new());
    for word in name.split(' ') {
        match json::text_number(word) {
            Some(x) if !words.is_empty() => odd.push((std::mem::take(&mut words).join(" "), x)),
            _ => words.push(word),
        }
    }
    (odd, (!words.is_empty()).then(|| words.join(" ")))
}

/// Times of a step get their unit, and what is no reading of the training is left out.
fn reading(name: String, x: f64, unit: Option<&str>) -> Option<(String, f64)> {
    let of_a_step = ["dt", "time", "step time", "step_avg"].contains(&name.as_str());
    match (unit, of_a_step) {
        (Some("ms"), true) => Some((id::STEP_MS.into(), x)),
        (Some("s"), true) => Some((id::STEP_MS.into(), x * 1e3)),
        (_, true) => None,
        (Some("k" | "K"), _) => Some((name, x * 1e3)),
        (Some("M"), _) => Some((name, x * 1e6)),
        // nanochat's first pass is 1, and done when the second one begins.
        _ if name == "epoch" => Some((name, (x - 1.0).max(0.0))),
        (Some("%"), _) if name.ends_with("mfu") => Some((name, x / 100.0)),
        // Minutes since the start, and what is left.
        _ if name.starts_with("total") || name == "eta" || name == "info" => None,
        _ => Some((name, x)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Values = Vec<(String, f64)>;

    fn read(line: &str) -> Option<(u64, Option<u64>, Values)> {
        let line = Parser::new().unwrap().line(line)?;
        Some((line.step?, line.of, line.values))
    }

    fn values(pairs: &[(&str, f64)]) -> Values {
        pairs
            .iter()
            .map(|(name, x)| ((*name).to_string(), *x))
            .collect()
    }

    #[test]
    fn lines_of_nanochat_are_read() {
        let line = "step 00010/21400 (0.05%) | loss: 9.0125 | lrm: 1.00 | dt: 412.35ms | tok/sec: 1,271,342 | bf16_mfu: 47.11 | epoch: 1 | total time: 0.07m";
        let found = values(&[
            ("loss", 9.0125),
            ("lrm", 1.0),
            ("step_ms", 412.35),
            ("tok/sec", 1_271_342.0),
            ("epoch", 0.0),
        ]);
        let (step, of, read) = read(line).unwrap();
        assert_eq!((step, of), (10, Some(21400)));
        for value in found {
            assert!(read.contains(&value), "{value:?} in {read:?}");
        }
        let (_, _, read) = self::read("Step 00250 | Validation bpb: 1.0223").unwrap();
        assert_eq!(read, values(&[("validation bpb", 1.0223)]));
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
    fn the_progress_bar_of_lightning_tells_steps_and_losses() {
        let log = "Epoch 0:   0%|          | 0/50 [00:00<?, ?it/s]\rEpoch 0:  10%|█         | 5/50 [00:01<00:09,  4.90it/s, v_num=0, train_loss=2.30]\rEpoch 1:   4%|▍ | 2/50 [00:01<00:09, 4.90it/s, v_num=0, train_loss=1.50]\n";
        let loss = |x: f64| values(&[("train_loss", x)]);
        assert_eq!(told(log), [(5, loss(2.3)), (52, loss(1.5))]);
    }

    #[test]
    fn lines_of_torchtitan_and_nanogpt_are_read() {
        let line = "[rank0]:\u{1b}[31m[titan] 2026-11-01 12:00:00,123 - root - INFO - step:  3  \u{1b}[32mloss:  8.1353  \u{1b}[38;2;180;60;0mgrad_norm:  1.5011  \u{1b}[34mtps: 7,101  \u{1b}[36mmfu: 0.17%\u{1b}[39m";
        let (step, _, read_values) = read(line).unwrap();
        assert_eq!(step, 3);
        for value in values(&[
            ("loss", 8.1353),
            ("grad_norm", 1.5011),
            ("tps", 7101.0),
            ("mfu", 0.17 / 100.0),
        ]) {
            assert!(read_values.contains(&value), "{value:?} in {read_values:?}");
        }
        let (step, _, losses) = read("step 250: train loss 1.9647, val loss 2.0601").unwrap();
        assert_eq!(
            (step, losses),
            (250, values(&[("train loss", 1.9647), ("val loss", 2.0601)]))
        );
        let (step, _, found) = read("iter 10: loss 3.2, time 20.5ms, mfu 3.1%").unwrap();
        assert_eq!(
            (step, found),
            (
                10,
                values(&[("loss", 3.2), ("step_ms", 20.5), ("mfu", 0.031)])
            )
        );
        let (_, _, found) = read("step 7 | loss nan").unwrap();
        assert!(found[0].1.is_nan());
    }

    #[test]
    fn lines_of_megatron_have_no_metric_of_what_they_count() {
        let line = " [2025-01-01 00:00:01] iteration       10/     500 | consumed samples:          640 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.000000E-04 | global batch size:    64 | lm loss: 7.800000E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |";
        let (step, of, read) = read(line).unwrap();
        assert_eq!((step, of), (10, Some(500)));
        assert!(
            read.iter()
                .all(|(name, x)| !name.contains("of") && x.is_finite()),
            "{read:?}"
        );
        for value in values(&[
            ("lm loss", 7.8),
            ("grad norm", 1.234),
            ("learning rate", 1e-4),
        ]) {
            assert!(read.contains(&value), "{value:?} in {read:?}");
        }
        // Where nothing but a space stands between them.
        let (_, _, odd) = self::read("iter 10 loss nan grad_norm inf lr 0.5").unwrap();
        let told: Vec<String> = odd.iter().map(|(name, x)| format!("{name} {x}")).collect();
        assert_eq!(told, ["loss NaN", "grad_norm inf", "lr 0.5"]);
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

    #[test]
    fn prose_is_no_reading() {
        for line in [
            "In the first step we load the model",
            "loss 3.2",
            "",
            "step by step 5 times",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        assert_eq!(
            read(&format!("step 1 loss 2 {}", "x".repeat(MAX_TEXT))),
            None
        );
    }
}
