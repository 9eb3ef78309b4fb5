//! Counts with another meaning here: held-out rows, KTO's micro-batch, and the units of rollouts.

use super::{KeyOutcome, Line, Reader, plain};
use crate::spec::draft::shown;
use serde_json::Value;

const HELD_OUT_ROWS: &str = "random rows of all sources together";

impl Reader {
    /// A count of rows.
    pub(super) fn held_out_rows(&mut self, theirs: String, rows: f64) {
        self.set(
            theirs,
            "data.val_rows",
            &shown(&Value::from(rows)),
            HELD_OUT_ROWS,
        );
    }

    /// What TRL writes at once, in micro-steps or in answers. Here it is counted in optimizer steps.
    pub(super) fn generation(&mut self, theirs: String, counts: &[&str], value: &Value) {
        let step: u64 = counts
            .iter()
            .map(|path| self.whole(path).unwrap_or(1))
            .product();
        let all = value.as_u64().filter(|n| *n > 0);
        match all.filter(|n| n.is_multiple_of(step.max(1))) {
            Some(n) => self.set(theirs, "rollout.steps", &(n / step).to_string(), ""),
            None => {
                let words = format!(
                    "a rollout is for whole optimizer steps here, of {step} each ({}): rollout.steps",
                    counts.join(" × ")
                );
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }

    /// Counts optimizer steps where the tool's method counts rollouts.
    pub(super) fn counted_rollouts(&mut self) {
        let parts = ["rollout.steps", "rollout.epochs"].map(|path| self.whole(path).unwrap_or(1));
        let cycle: u64 = parts.iter().product();
        let method = plain(&self.draft.value("method"));
        if !self.dialect.tool().counts_rollouts(&method) || cycle == 1 {
            return;
        }
        let words = format!("a step of the tool is a whole rollout, {cycle} optimizer steps here");
        let warm_up = self.draft.resolve_wildcard("schedule.*.warmup_steps");
        let paths = ["train.max_steps", "train.log_every", "checkpoint.every"];
        for path in paths.into_iter().chain(warm_up.as_deref()) {
            let ours = format!("{path}: ");
            let is_of_file =
                |line: &Line| line.outcome != KeyOutcome::Default && line.ours.starts_with(&ours);
            let line = self.lines.iter().position(is_of_file);
            if let (Some(at), Some(rollouts)) = (line, self.whole(path)) {
                let theirs = self.lines.remove(at).theirs;
                let steps = rollouts.saturating_mul(cycle).to_string();
                self.set(theirs, path, &steps, &words);
            }
        }
    }

    fn whole(&self, path: &str) -> Option<u64> {
        self.draft.value(path).as_u64()
    }

    /// KTO's baseline needs other answers in the micro-batch. With one row there are none: use more rows per micro-batch and fewer
    /// micro-batches, with as many rows in a step if possible.
    pub(super) fn judged_batch(&mut self) {
        const ROWS: &str = "train.micro_batch_size";
        const PARTS: &str = "train.grad_accum_steps";
        if self.draft.value("method") != "kto" || self.whole(ROWS) != Some(1) {
            return;
        }
        let parts = self.whole(PARTS).unwrap_or(1);
        // The product stays where it can.
        let rows = (2..=parts.min(64)).find(|n| parts.is_multiple_of(*n));
        let (rows, rest, words) = match rows {
            Some(n) => (n, parts / n, "as many rows in a step as there"),
            None => (2, parts, "twice as many rows in a step as there"),
        };
        let words = format!("{words}: the KL baseline needs other answers in the micro-batch");
        for (path, value) in [(ROWS, rows), (PARTS, rest)] {
            if self.whole(path) == Some(value) {
                continue;
            }
            let at = self
                .lines
                .iter()
                .position(|line| line.ours.starts_with(path));
            let theirs = match at {
                Some(at) => self.lines.remove(at).theirs,
                None => format!("({path})"),
            };
            self.set(theirs, path, &value.to_string(), &words);
        }
    }
}
