//! The output of transformers' Trainer, TRL and programs built on them: one Python dictionary per record, its numbers in
//! quotes since transformers 5, and a progress bar in between. Records have no step: it is taken from the bar that is redrawn
//! after each one. If the bar is not in the same log, or was written at other times, records are counted.

use crate::watch::names::{self, Mapping, Role};
use crate::watch::{Facts, Item, json};
use crate::wire::id;
use regex::Regex;

/// Longest record that is looked at, in bytes.
const MAX_RECORD: usize = 16 * 1024;
const EPOCH: &str = "epoch";

type Values = Vec<(String, f64)>;

/// Reads one log's records, in the order of its lines.
pub struct Records {
    entry: Regex,
    bar: Regex,
    /// A progress bar was seen.
    bars: bool,
    /// Steps of the bar of the training; evaluations have bars of their own.
    total: Option<u64>,
    /// Bars do not tell the steps of these records.
    counting: bool,
    /// Of the newest reported record.
    step: u64,
    /// A record whose step is not known yet.
    waiting: Option<Values>,
    /// The newest record that was reported, to which an evaluation of the same step belongs.
    told: Values,
}

impl Records {
    pub fn new() -> Option<Records> {
        let number = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)";
        Some(Records {
            entry: Regex::new(&format!(
                r"'([^'\\]{{1,128}})':\s*(?:'\s*({number})\s*'|({number}))\s*[,}}]"
            ))
            .ok()?,
            // Bars of downloads and data sets have a title in front.
            bar: Regex::new(r"^\s*\d{1,3}%\|[^|]*\|\s*(\d+)/(\d+)\s*\[").ok()?,
            bars: false,
            total: None,
            counting: false,
            step: 0,
            waiting: None,
            told: Vec::new(),
        })
    }

    /// Takes the beginning of a line that is not complete: a bar that is drawn until its next state follows.
    pub fn peek(&mut self, beginning: &[u8], items: &mut Vec<Item>) {
        let text = std::str::from_utf8(beginning).ok();
        let text = text.filter(|text| text.len() <= MAX_RECORD && self.bar.is_match(text));
        if let (Some(text), Some(_)) = (text, &self.waiting) {
            self.take(text, items);
        }
    }

    /// Takes a line, or the part of one up to a return of the carriage; true where it was a record or a bar.
    pub fn take(&mut self, line: &str, items: &mut Vec<Item>) -> bool {
        if let Some(bar) = self.bar.captures(line) {
            if let (Ok(at), Ok(total)) = (bar[1].parse(), bar[2].parse()) {
                self.bar(at, total, items);
            }
            return true;
        }
        match self.record(line) {
            Some(values) => self.next(values, items),
            None => return false,
        }
        true
    }

    /// The numbers of a record; `None` where the line holds none.
    pub fn record(&self, line: &str) -> Option<Values> {
        let from = line.find("{'")?;
        let record = &line[from..];
        if record.len() > MAX_RECORD || !record.trim_end().ends_with('}') {
            return None;
        }
        let values: Values = self
            .entry
            .captures_iter(record)
            .filter_map(|entry| {
                let number = entry.get(2).or(entry.get(3))?;
                Some((entry[1].to_string(), json::text_number(number.as_str())?))
            })
            .collect();
        // A printed configuration is no record.
        let is_loss = |name: &str| match Mapping::default().role(name) {
            Role::Metric(id, _) => id == id::TRAIN_LOSS || id == id::VAL_LOSS,
            _ => false,
        };
        let of_a_trainer = values.len() > 1 && values.iter().any(|(name, _)| name == EPOCH);
        (of_a_trainer || values.iter().any(|(name, _)| is_loss(name))).then_some(values)
    }

    fn next(&mut self, values: Values, items: &mut Vec<Item>) {
        let has_step = Mapping::default().step(&values).is_some();
        if names::is_summary(&values) || has_step {
            self.count(items);
            let step = (!has_step).then_some(self.step);
            return items.push(Item::Readings {
                step,
                t: None,
                values,
            });
        }
        if let Some(waiting) = &mut self.waiting {
            if of_one_step(waiting, &values) {
                return waiting.extend(values);
            }
            // Two records with no bar between them: they were written at other times than the bars.
            self.counting = true;
            self.count(items);
        }
        self.waiting = Some(values);
        if self.counting || !self.bars {
            self.count(items);
        }
    }

    fn bar(&mut self, at: u64, total: u64, items: &mut Vec<Item>) {
        self.bars = true;
        if self.counting || self.total.is_some_and(|known| known != total) {
            return;
        }
        let Some(values) = self.waiting.take() else {
            return;
        };
        if self.total.replace(total).is_none() {
            items.push(Item::Facts(Facts {
                max_steps: Some(total),
                ..Facts::default()
            }));
        }
        self.push_record(at, values, items);
    }

    /// Tells the record that waits as the next one, or as one more of the last step.
    fn count(&mut self, items: &mut Vec<Item>) {
        if let Some(values) = self.waiting.take() {
            let step = self.step + u64::from(!of_one_step(&self.told, &values));
            self.push_record(step, values, items);
        }
    }

    fn push_record(&mut self, step: u64, values: Values, items: &mut Vec<Item>) {
        self.step = step;
        self.told.clone_from(&values);
        items.push(Item::Readings {
            step: Some(step),
            t: None,
            values,
        });
    }
}

/// A record of training and one of an evaluation, at the same point of the same pass over the data.
fn of_one_step(a: &Values, b: &Values) -> bool {
    let find = |values: &Values, name: &str| values.iter().find(|(n, _)| n == name).map(|v| v.1);
    let apart = |(name, _): &(String, f64)| name == EPOCH || find(b, name).is_none();
    find(a, EPOCH).is_some() && find(a, EPOCH) == find(b, EPOCH) && a.iter().all(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Step and losses of each record, and the number of steps in the bar.
    fn read(log: &str) -> (Vec<(u64, Vec<f64>)>, Option<u64>) {
        let mut records = Records::new().unwrap();
        let mut items = Vec::new();
        for line in log.split(['\n', '\r']) {
            records.take(line, &mut items);
        }
        let max_steps = items.iter().find_map(|item| match item {
            Item::Facts(facts) => facts.max_steps,
            _ => None,
        });
        let told = items.into_iter().filter_map(|item| match item {
            Item::Readings { step, values, .. } => {
                let losses = values.iter().filter(|(name, _)| name.ends_with("loss"));
                Some((step?, losses.map(|(_, x)| *x).collect()))
            }
            _ => None,
        });
        (told.collect(), max_steps)
    }

    #[test]
    fn numbers_in_quotes_are_numbers_and_the_bar_behind_a_record_tells_its_step() {
        // Written by transformers 5.24, with an evaluation's bar inside the training's.
        let log = "\r  0%|          | 0/120 [00:00<?, ?it/s]\r  2%|▏         | 2/120 [00:00<00:06, 18.21it/s]\r      \r{'loss': '5.539', 'grad_norm': '0.8922', 'learning_rate': '0.0012', 'epoch': '0.05'}\n\r  4%|▍         | 5/120 [00:00<00:06, 18.21it/s]\r      \r{'loss': 'nan', 'grad_norm': '0.913', 'epoch': '0.1'}\n\r  8%|▊         | 10/120 [00:00<00:02, 46.12it/s]\n\r  0%|          | 0/4 [00:00<?, ?it/s]\u{1b}[A\r      \n\r      \r\u{1b}[A{'eval_loss': '4.563', 'eval_runtime': '0.0237', 'epoch': '0.1'}\n\r  8%|▊        | 10/120 [00:00<00:01, 65.10it/s]\n\r100%|██████████| 4/4 [00:00<00:00, 181.49it/s]\u{1b}[A\n{'train_runtime': '3.1', 'train_loss': '4.9', 'epoch': '1.2'}";
        let (told, max_steps) = read(log);
        assert_eq!((told.len(), max_steps), (4, Some(120)));
        assert_eq!(
            (told[0].clone(), told[2].clone()),
            ((5, vec![5.539]), (10, vec![4.563]))
        );
        assert!(told[1].0 == 10 && told[1].1[0].is_nan());
    }

    #[test]
    fn without_a_bar_records_count_and_an_evaluation_belongs_to_the_one_before() {
        let plain = "{'loss': 4.0, 'epoch': 0.05}\n[INFO] {'loss': 3.9, 'epoch': 0.1}\n{'eval_loss': 3.8, 'epoch': 0.1}\n{'loss': 3.7, 'epoch': 0.15}";
        let expected = [(1, 4.0), (2, 3.9), (2, 3.8), (3, 3.7)];
        let expected: Vec<_> = expected.iter().map(|(step, x)| (*step, vec![*x])).collect();
        assert_eq!(read(plain), (expected, None));
        // Bars that were written at other times, as where only one of both is buffered.
        let apart = " 90%|█| 90/100 [00:00<?, ?it/s]\n{'loss': 4.0, 'epoch': 0.05}\n{'loss': 3.9, 'epoch': 0.1}\n 95%|█| 95/100 [00:00<?, ?it/s]\n{'loss': 3.8, 'epoch': 0.15}";
        let steps: Vec<u64> = read(apart).0.iter().map(|(step, _)| *step).collect();
        assert_eq!((steps, read(apart).1), (vec![1, 2, 3], None));
    }

    #[test]
    fn a_printed_configuration_is_no_record() {
        let records = Records::new().unwrap();
        for line in [
            "{'lr': 0.1, 'batch': 8}",
            "{'loss': 'mse'}",
            "{'loss': 1.0",
            "loss: 1",
        ] {
            assert_eq!(records.record(line), None, "{line}");
        }
    }
}
