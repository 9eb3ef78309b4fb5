//! What training programs print, one line a step: nanochat, torchtitan, nanoGPT, llm.c, modded-nanogpt and their like. A line counts
//! where it names a step and has numbers behind names; the rest of the log is passed over.

use crate::base::clock::UnixMillis;
use crate::base::registry::Entry;
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Facts, Format, Item, Source, json};
use regex::Regex;
use std::io;
use std::path::Path;

/// Longest line that is looked at, in bytes.
const MAX_TEXT: usize = 4_096;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "text",
        title: "printed log",
        summary: "lines such as `step 10/100 | loss: 3.2 | lr: 1e-3` of nanochat, torchtitan, nanoGPT and their like",
        source: "nanochat, scripts/base_train.py; torchtitan, components/metrics.py; nanoGPT, train.py",
    },
    rank: 4,
    is,
    open: |path, _, _| {
        Box::new(Printed {
            tail: Tail::new(path),
            parser: Parser::new(),
        })
    },
};

fn is(path: &Path, head: &[u8]) -> bool {
    let named = path
        .extension()
        .is_none_or(|e| e == "log" || e == "txt" || e == "out" || e == "err");
    if !named {
        return false;
    }
    let text = String::from_utf8_lossy(head);
    let Some(parser) = Parser::new() else {
        return false;
    };
    text.lines().any(|line| {
        parser
            .line(line)
            .is_some_and(|line| line.values.iter().any(|(name, _)| name.contains("loss")))
    })
}

struct Printed {
    tail: Tail,
    parser: Option<Parser>,
}

impl Source for Printed {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let (change, more) = self.tail.read()?;
        if change == Change::Replaced {
            items.push(Item::Restart);
        }
        for line in self.tail.lines() {
            let Some(line) = self.parser.as_ref().and_then(|parser| parser.line(&line)) else {
                continue;
            };
            if let Some(max_steps) = line.of {
                items.push(Item::Facts(Facts {
                    max_steps: Some(max_steps),
                    ..Facts::default()
                }));
            }
            items.push(Item::Readings {
                step: Some(line.step),
                t: None,
                values: line.values,
            });
        }
        Ok(more)
    }

    fn changed(&self) -> Option<UnixMillis> {
        tail::changed(self.tail.path())
    }
}

#[derive(Debug, PartialEq)]
struct Line {
    step: u64,
    /// `step 10/100`
    of: Option<u64>,
    values: Vec<(String, f64)>,
}

/// Patterns of a linear-time engine: no line can make it slow.
struct Parser {
    step: Regex,
    value: Regex,
    colour: Regex,
}

impl Parser {
    fn new() -> Option<Parser> {
        let number = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf)";
        Some(Parser {
            step: Regex::new(r"(?i)\b(?:step|iter|iteration)s?\b\s*[:=#]?\s*(\d[\d,]*)(?:\s*/\s*(\d[\d,]*))?").ok()?,
            // A name, perhaps a colon, a number, perhaps a unit.
            value: Regex::new(&format!(
                r"(?i)([a-z][a-z_/@.\-]*(?:[ _][a-z][a-z_/@.\-]*){{0,2}})\s*(?:[:=]\s*|\s)({number})(ms|s|k|m|%)?(?:[^\w.]|$)"
            ))
            .ok()?,
            colour: Regex::new("\u{1b}\\[[0-9;]*m").ok()?,
        })
    }

    fn line(&self, line: &str) -> Option<Line> {
        if line.len() > MAX_TEXT {
            return None;
        }
        let line = self.colour.replace_all(line, "");
        let found = self.step.captures(&line)?;
        let whole = |at: usize| found.get(at)?.as_str().replace(',', "").parse().ok();
        let behind = &line[found.get(0)?.end()..];
        let values: Vec<(String, f64)> = self
            .value
            .captures_iter(behind)
            .filter_map(|value| {
                let name = value[1].trim().to_lowercase();
                let x = json::text_number(&value[2].replace(',', ""))?;
                reading(name, x, value.get(3).map(|unit| unit.as_str()))
            })
            .collect();
        let step = whole(1)?;
        (!values.is_empty()).then_some(Line {
            step,
            of: whole(2).filter(|of| *of >= step && *of > 0),
            values,
        })
    }
}

/// Times of a step get their unit, and what is no reading of the training is left out.
fn reading(name: String, x: f64, unit: Option<&str>) -> Option<(String, f64)> {
    let of_a_step = ["dt", "time", "step time", "step_avg"].contains(&name.as_str());
    match (unit, of_a_step) {
        (Some("ms"), true) => Some(("step_ms".into(), x)),
        (Some("s"), true) => Some(("step_ms".into(), x * 1e3)),
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
        Some((line.step, line.of, line.values))
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
