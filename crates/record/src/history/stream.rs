//! A file of records that grows with its run: what is new since the last look.

use super::{Body, Curves, Format, Increment};

/// What was written so far, by one format.
#[derive(Debug)]
pub struct Stream {
    format: &'static Format,
    begun: bool,
    /// Of the newest record that was written.
    serial: u64,
    /// The latest step among those that were written.
    step: u64,
}

impl Stream {
    pub fn new(format: &'static Format) -> Stream {
        Stream {
            format,
            begun: false,
            serial: 0,
            step: 0,
        }
    }

    /// What is to be appended; `ended`: no more will come.
    pub fn bytes(&mut self, curves: &mut Curves, ended: bool) -> Vec<u8> {
        let Body::Records {
            head,
            news,
            by_step,
        } = &self.format.body
        else {
            return Vec::new();
        };
        let mut bytes = Vec::new();
        if !self.begun {
            // The head says what the run is.
            if curves.state.head.is_none() && !ended {
                return bytes;
            }
            self.begun = true;
            bytes = head(curves);
        }
        let dropped_from = curves.dropped_from().filter(|step| *step <= self.step);
        self.step = dropped_from.map_or(self.step, |step| step.saturating_sub(1));
        let all = curves.records();
        let new = &all[all.partition_point(|record| record.serial <= self.serial)..];
        let newest = new.iter().map(|record| record.step).max();
        // More may be measured at the newest step.
        let waits = |step: u64| *by_step && !ended && Some(step) == newest;
        let n = new.iter().position(|record| waits(record.step));
        let records = &new[..n.unwrap_or(new.len())];
        let increment = Increment {
            dropped_from,
            records,
        };
        bytes.extend(news(curves, &increment));
        if let Some(last) = records.last() {
            self.serial = last.serial;
        }
        let written = records.iter().map(|record| record.step).max();
        self.step = self.step.max(written.unwrap_or(0));
        bytes
    }
}
