//! One printed line of a training program: its step or its epoch, and the numbers that have a name. What a line means beside
//! those before it is decided by `text`.

use crate::watch::json::{self, Comma};
use crate::watch::names::{Mapping, Role, is_held_out};
use crate::wire::id::{self, MFU};
use regex::{Captures, Regex};

/// Longest line that is looked at, in bytes.
const MAX_TEXT: usize = 4_096;

/// Words that make a line one of held-out data, before its step or right behind it.
const HELD_OUT: &[&str] = &[
    "validate",
    "validating",
    "validation",
    "valid",
    "val",
    "evaluate",
    "evaluating",
    "evaluation",
    "eval",
    "dev",
];
const TEST: &[&str] = &["test", "testing"];
/// What may stand between such a word and the step.
const BETWEEN: &[&str] = &["after", "at", "for", "in", "loss", "of", "results"];
/// Before `steps` they make it a setting.
const SETTINGS: &[&str] = &["accumulation", "total", "max", "warmup"];

pub type Values = Vec<(String, f64)>;

/// What a line says.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// `None`: the line is of an epoch, or of the newest step where it names no epoch either.
    pub step: Option<u64>,
    /// `step 10/100`
    pub of: Option<u64>,
    /// `epoch 2/3`, as it is written, before the step or behind it.
    pub epoch: Option<f64>,
    pub epochs: Option<u64>,
    /// `epoch 2 | 200/2983 batches`: where in the epoch it is, and how long that is.
    pub within: Option<(u64, u64)>,
    pub values: Values,
}

/// Which data the readings of a line are of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Set {
    Training,
    HeldOut,
    Test,
}

/// Patterns of a linear-time engine: no line can make it slow.
pub struct Parser {
    step: Regex,
    epoch: Regex,
    value: Regex,
    colour: Regex,
    /// What stands behind the epoch in a progress bar of Lightning: `: 10%|█ | 5/50 [00:01<00:09, 4.9it/s, loss=2.3]`
    bar: Regex,
    /// What else may stand behind it: ` | 200/2983 batches`, ` [12800/60000 (21%)]`
    within: Regex,
    /// A validation loss on a line of its own (llm.c).
    alone: Regex,
    tag: Regex,
    /// A loss, a learning rate or a norm was printed with a decimal comma: the log's other ones have it too.
    decimal_comma: bool,
}

impl Parser {
    pub fn new() -> Option<Parser> {
        let number = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf)";
        let word = r"[a-z][a-z0-9_/@.\-]*";
        Some(Parser {
            step: Regex::new(r"(?i)\b(?:step|iter|iteration)s?\b\s*[:=#]?\s*[(\[]?\s*(\d[\d,]*)(?:\s*/\s*(\d[\d,]*))?").ok()?,
            epoch: Regex::new(r"(?i)\bepoch\b[\s:=#(\[]*(\d+(?:\.\d+)?)(?:\s*/\s*(\d+))?").ok()?,
            // A whole name, perhaps a colon, a number, perhaps a unit.
            value: Regex::new(&format!(
                r"(?i)(?-u:\b)({word}(?:[ _]{word}){{0,3}})\s*(?:[:=]\s*|\s)({number})(ms|s|k|m|%)?(?:[^\w.]|$)"
            ))
            .ok()?,
            bar: Regex::new(r"^:?\s*\d{1,3}%\|[^|]*\|\s*(\d+)/(\d+)\s*\[[^,\]]*,([^\]]*)\]?").ok()?,
            within: Regex::new(r"^[\s\[\](|:,]*(\d+)\s*/\s*(\d+)(?:[^/\d]|$)").ok()?,
            alone: Regex::new(r"(?i)^\s*(?:val|valid|validation|eval)[ _]loss\b").ok()?,
            tag: Regex::new(r"[\[(](\w+)[\])]").ok()?,
            colour: Regex::new("\u{1b}\\[[0-9;]*m").ok()?,
            decimal_comma: false,
        })
    }

    /// What a line says; `None` where it is no reading.
    pub fn line(&mut self, line: &str) -> Option<Line> {
        if line.len() > MAX_TEXT {
            return None;
        }
        let line = self.colour.replace_all(line, "").into_owned();
        if line.contains(',') {
            let is_shown = self.commas(&line).any(|comma| comma == Comma::Decimal);
            self.decimal_comma |= is_shown;
        }
        let mut steps = self.step.captures_iter(&line);
        let Some(found) = steps.find(|found| is_axis(&line, found)) else {
            return self.epoch_line(&line).or_else(|| self.lone_line(&line));
        };
        let whole = |at: usize| found.get(at)?.as_str().replace(',', "").parse().ok();
        let values = self.values_beside(&line, &found)?;
        let step = whole(1)?;
        let epoch = self.epoch.captures(&line);
        let of_epoch = |at: usize| epoch.as_ref()?.get(at)?.as_str().parse::<f64>().ok();
        (!values.is_empty()).then_some(Line {
            step: Some(step),
            of: whole(2).filter(|of| *of >= step && *of > 0),
            epoch: of_epoch(1),
            epochs: of_epoch(2).and_then(json::step_of),
            within: None,
            values,
        })
    }

    /// What the commas are in the numbers of a line that have a fraction.
    fn commas<'a>(&'a self, line: &'a str) -> impl Iterator<Item = Comma> + 'a {
        let values = self.value.captures_iter(line);
        let fractions = values.filter(|value| has_fraction(&value[1]));
        fractions.map(|value| json::comma(number_of(&value[2])))
    }

    /// Whether a line has a number with a fraction whose comma may be one of thousands, in a log that has not shown yet which it is.
    pub fn is_unclear(&self, line: &str) -> bool {
        !self.decimal_comma
            && line.contains(',')
            && self.commas(line).any(|comma| comma == Comma::Unclear)
    }

    /// A line that names an epoch and a loss, and no step.
    fn epoch_line(&self, line: &str) -> Option<Line> {
        let found = self.epoch.captures(line)?;
        let number = |at: usize| found.get(at)?.as_str().parse::<f64>().ok();
        let behind = &line[found.get(0)?.end()..];
        if let Some(bar) = self.bar.captures(behind) {
            return self.bar_line(number(1)?, &bar);
        }
        let values = self.values_beside(line, &found)?;
        let within = self.within.captures(behind).and_then(|within| {
            let (at, of): (u64, u64) = (within[1].parse().ok()?, within[2].parse().ok()?);
            (of > 0 && at <= of).then_some((at, of))
        });
        has_loss(&values).then_some(Line {
            step: None,
            of: None,
            epoch: number(1),
            epochs: number(2).and_then(json::step_of),
            within,
            values,
        })
    }

    fn bar_line(&self, epoch: f64, bar: &Captures<'_>) -> Option<Line> {
        let (at, of): (u64, u64) = (bar[1].parse().ok()?, bar[2].parse().ok()?);
        let mut values = self.values(&bar[3]);
        values.retain(|(name, _)| name != "v_num");
        let before = json::step_of(epoch)?.checked_mul(of)?;
        has_loss(&values).then_some(Line {
            step: Some(before.checked_add(at)?),
            of: None,
            epoch: None,
            epochs: None,
            within: None,
            values,
        })
    }

    /// A line that begins with a validation loss, and names neither a step nor an epoch.
    fn lone_line(&self, line: &str) -> Option<Line> {
        if !self.alone.is_match(line) {
            return None;
        }
        let mut values = self.values(line);
        values.retain(|(name, _)| id_of(name).is_some_and(|id| is_held_out(&id)));
        (!values.is_empty()).then_some(Line {
            step: None,
            of: None,
            epoch: None,
            epochs: None,
            within: None,
            values,
        })
    }

    /// The readings behind a step or an epoch, under names that say which data they are of.
    fn values_beside(&self, line: &str, found: &Captures<'_>) -> Option<Values> {
        let found = found.get(0)?;
        let (before, behind) = (&line[..found.start()], &line[found.end()..]);
        let values = self.values(behind);
        Some(match self.set(before, behind) {
            Set::Training => values,
            Set::HeldOut => renamed(values, "val"),
            Set::Test => renamed(values, "test"),
        })
    }

    /// By the word right before the step, a tag in brackets before it, or a title right behind it.
    fn set(&self, before: &str, behind: &str) -> Set {
        let is_word = |c: char| c.is_alphanumeric();
        let of = |word: &str| {
            let is = |list: &[&str]| list.contains(&word.to_lowercase().as_str());
            if is(HELD_OUT) {
                Set::HeldOut
            } else if is(TEST) {
                Set::Test
            } else {
                Set::Training
            }
        };
        let rest = behind.trim_start_matches(|c| !is_word(c));
        let first = rest.split(|c| !is_word(c)).next().unwrap_or_default();
        let next = rest[first.len()..].trim_start();
        let is_title = next.starts_with(['|', ']']) || next.starts_with("on ");
        let mut tags = self.tag.captures_iter(before);
        match of(last_word(before)) {
            Set::Training if is_title => of(first),
            // A test may be the name of the run.
            Set::Training if tags.any(|tag| of(&tag[1]) == Set::HeldOut) => Set::HeldOut,
            set => set,
        }
    }

    /// Numbers behind names; the first one of each name.
    fn values(&self, text: &str) -> Values {
        let mut values = Values::new();
        let mut add = |value: Option<(String, f64)>| {
            let is_new = |(name, _): &(String, f64)| values.iter().all(|(known, _)| known != name);
            if let Some(value) = value.filter(is_new) {
                values.push(value);
            }
        };
        for value in self.value.captures_iter(text) {
            let (odd, name) = parts(value[1].trim().to_lowercase());
            for (name, x) in odd {
                add(reading(name, x, None));
            }
            let behind = value.get(2).map_or("", |number| &text[number.end()..]);
            // A number of tokens has commas of thousands in any log.
            let decimal = self.decimal_comma && name.as_deref().is_some_and(has_fraction);
            let Some(x) = json::comma_number(number_of(&value[2]), decimal) else {
                continue;
            };
            if is_clock(behind) {
                continue;
            }
            let unit = value.get(3).map(|unit| unit.as_str());
            add(name.and_then(|name| reading(name, x, unit)));
        }
        // litgpt: `loss train: 3.2, val: 3.4`
        if values.iter().any(|(name, _)| name == "loss train") {
            let val = values.iter_mut().find(|(name, _)| name == "val");
            if let Some((name, _)) = val {
                *name = "val loss".into();
            }
        }
        values
    }
}

/// The last word that says something, up to the end of a sentence.
fn last_word(text: &str) -> &str {
    let gap: &[char] = &[' ', '\t', ']', ')', '|', ':', '-', '_', '>'];
    let mut rest = text;
    loop {
        rest = rest.trim_end_matches(gap);
        // `gpu-dev` and `llm_test` are names.
        let mut words = rest.rsplit(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_'));
        let word = words.next().unwrap_or_default();
        if word.is_empty() || !BETWEEN.contains(&word.to_lowercase().as_str()) {
            return word;
        }
        rest = &rest[..rest.len() - word.len()];
    }
}

/// Whether a step is that of the line, not a setting: `gradient accumulation steps 4`.
fn is_axis(line: &str, found: &Captures<'_>) -> bool {
    let Some(found) = found.get(0) else {
        return false;
    };
    let before = line[..found.start()].trim_end().to_lowercase();
    let word = before.rsplit(|c: char| !c.is_alphanumeric()).next();
    let is_plural = ["steps", "iters", "iterations"]
        .iter()
        .any(|plural| found.as_str().to_lowercase().starts_with(plural));
    !(is_plural && word.is_some_and(|word| SETTINGS.contains(&word)))
}

/// `0:10:00` has no number behind its name.
fn is_clock(behind_number: &str) -> bool {
    let rest = behind_number.strip_prefix(':');
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a line has a loss of any kind.
pub fn has_loss(values: &[(String, f64)]) -> bool {
    values.iter().any(|(name, _)| name.contains("loss"))
}

/// Whether a number of this name has a fraction.
fn has_fraction(name: &str) -> bool {
    let name = name.trim().to_lowercase();
    name.ends_with("loss")
        || id_of(&name).is_some_and(|id| {
            let known = [id::TRAIN_LOSS, id::VAL_LOSS, id::LR, id::GRAD_NORM];
            known.contains(&id.as_str())
        })
}

/// A number without the comma that ends it in a list: `loss 2.5, lr 0.1`.
fn number_of(text: &str) -> &str {
    text.trim_end_matches(',')
}

fn id_of(name: &str) -> Option<String> {
    match Mapping::default().role(name) {
        Role::Metric(id, _) => Some(id),
        _ => None,
    }
}

/// The readings of a line that is not of the training. How fast that went, and the training's own settings, are no readings of it.
fn renamed(values: Values, set: &str) -> Values {
    let rename = |(name, x): (String, f64)| {
        let id = id_of(&name)?;
        let name = match id.as_str() {
            id::EPOCHS => name,
            id::STEP_MS | id::TOK_PER_SEC | id::GRAD_NORM | id::LR | MFU => return None,
            id::TRAIN_LOSS => format!("{set}_loss"),
            id if is_held_out(id) => name,
            _ => format!("{set}_{name}"),
        };
        Some((name, x))
    };
    values.into_iter().filter_map(rename).collect()
}

/// The name of a value without what stands before it: `loss nan grad norm` is a loss that is no number, and a name. What a line
/// counts of such numbers is no reading (`number of nan iterations`).
fn parts(name: String) -> (Values, Option<String>) {
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
        (Some("%"), _) if name.ends_with(MFU) => Some((MFU.into(), x / 100.0)),
        // Minutes since the start, and what is left.
        _ if name.starts_with("total") || name == "eta" || name == "info" => None,
        _ => Some((name, x)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_line_of_held_out_data_has_no_training_loss() {
        let held_out = |line: &str| read(line).unwrap().2;
        // torchtitan
        let line = "[rank0]:[titan] 2026-11-01 12:00:00,123 - root - INFO - validate step: 100  loss:  5.1784  memory: 11.20GiB(12.75%)  tps: 9,101";
        assert_eq!(held_out(line), values(&[("val_loss", 5.1784)]));
        let loss = values(&[("val_loss", 4.24), ("val_ppl", 69.4)]);
        for line in [
            "[valid] step 50 | loss 4.24 | ppl 69.4 | dt 3.0ms | lr 1e-3",
            "[eval] rank 0: step 50 | loss 4.24 | ppl 69.4",
            "Evaluation results at step 50: loss 4.24, ppl 69.4",
            "step 50 | validation | loss 4.24 | ppl 69.4",
        ] {
            assert_eq!(held_out(line), loss, "{line}");
        }
        // Megatron-LM
        let line = " validation loss at iteration 500 | lm loss value: 3.500000E+00 | lm loss PPL: 3.311545E+01 |";
        let ids: Vec<String> = held_out(line)
            .iter()
            .filter_map(|(n, _)| id_of(n))
            .collect();
        assert_eq!(ids, ["val/loss", "val/ppl"]);
        // A test set is neither, and training stays what it is.
        let test = held_out("test step 50 | loss 4.5");
        assert_eq!(test, values(&[("test_loss", 4.5)]));
        for line in [
            "[train] step 50 | loss 4.24",
            "[gpu-dev] step 50 | loss 4.24",
            "INFO:llm_test:step 50 loss 4.24",
            "Saved after validation. Step 50 | loss 4.24",
            "[val_every=10] step 50 | loss 4.24",
        ] {
            assert_eq!(held_out(line), values(&[("loss", 4.24)]), "{line}");
        }
    }

    #[test]
    fn a_name_is_a_whole_one_and_the_first_of_its_name_counts() {
        let (_, _, found) = read("step=1 loss=7.83 lr=1e-3 l1_loss=0.1234 z2_loss=0.5").unwrap();
        let all = [
            ("loss", 7.83),
            ("lr", 1e-3),
            ("l1_loss", 0.1234),
            ("z2_loss", 0.5),
        ];
        assert_eq!(found, values(&all));
        let (_, _, found) =
            read("iteration 10/ 500 | lm loss: 6.5E+00 | mtp_1 loss: 7.5E+00 | loss scale: 1.0 |")
                .unwrap();
        let all = [("lm loss", 6.5), ("mtp_1 loss", 7.5), ("loss scale", 1.0)];
        assert_eq!(found, values(&all));
        let (_, _, found) =
            read("step 3 | loss 2.5 (rank 1: loss 9.0) | bf16_mfu: 47.1 | 0.07m").unwrap();
        assert_eq!(found[0], ("loss".into(), 2.5));
        assert_eq!(found.iter().filter(|(name, _)| name == "loss").count(), 1);
        assert!(found.contains(&("bf16_mfu".into(), 47.1)), "{found:?}");
    }

    #[test]
    fn lines_of_litgpt_have_both_losses_and_no_clock() {
        let line = "Epoch 1 | iter 4 step 1 | loss train: 7.836, val: 3.478 | iter time: 200.10 ms (step) remaining time: 0:10:00";
        let (step, _, found) = read(line).unwrap();
        assert_eq!(step, 4);
        for value in values(&[("loss train", 7.836), ("val loss", 3.478)]) {
            assert!(found.contains(&value), "{value:?} in {found:?}");
        }
        let names = found.iter().map(|(name, _)| name.as_str());
        assert!(
            !names.clone().any(|name| name.contains("remaining")),
            "{found:?}"
        );
        let (_, _, found) = read(&line.replace("3.478", "n/a")).unwrap();
        assert!(
            found.iter().all(|(name, _)| !name.starts_with("val")),
            "{found:?}"
        );
    }

    #[test]
    fn a_decimal_comma_is_read_where_the_log_shows_that_it_is_one() {
        let (_, _, found) = read("step=1,000 loss=2,345 lr=1,0e-4 tokens=1,234").unwrap();
        let all = [("loss", 2.345), ("lr", 1e-4), ("tokens", 1234.0)];
        assert_eq!(found, values(&all));
        let (step, _, found) = read("step 1,000, loss: 0,345, grad norm: 1,5").unwrap();
        assert_eq!(step, 1000);
        assert_eq!(found, values(&[("loss", 0.345), ("grad norm", 1.5)]));
        // Later lines of the same log.
        let mut parser = Parser::new().unwrap();
        let mut loss = |line: &str| {
            let unclear = parser.is_unclear(line);
            (unclear, parser.line(line).unwrap().values[0].1)
        };
        assert_eq!(loss("step 1 | loss 2,345"), (true, 2345.0));
        assert_eq!(loss("step 2 | loss 2,34"), (false, 2.34));
        assert_eq!(loss("step 3 | loss 2,345"), (false, 2.345));
        // Thousands stay what they are.
        let (_, _, found) =
            read("step 5 | loss 2.5 | tok/sec: 1,271 | loss scale: 65,536").unwrap();
        let all = [("loss", 2.5), ("tok/sec", 1271.0), ("loss scale", 65_536.0)];
        assert_eq!(found, values(&all));
    }

    #[test]
    fn settings_and_steps_in_brackets_are_told_apart() {
        let start =
            "gradient accumulation steps 1, sequence length 2048, total steps 100 (warmup 2)";
        assert_eq!(read(start), None);
        let loss = values(&[("loss", 0.25)]);
        let bracketed = read("Epoch [1/5], Step [100/600], Loss: 0.25");
        assert_eq!(bracketed, Some((100, Some(600), loss)));
    }
}
