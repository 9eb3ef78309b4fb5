//! The examples of one source: its rows, read in the format that the spec names or that is detected.

use super::cleaning::{clean_command, reading_options};
use super::formats::{self, Columns, Detection, DetectionBasis, FormatChoice, FormatId};
use super::source::{self, ReadContext, Rows, SourceConfig};
use super::{DataError, Example, Place, Record, RowFault};
use crate::base::human::grouped;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Rows that a format is detected by.
const SAMPLE: usize = 64;
/// Bad rows skipped while looking for good ones to detect a format by.
const SAMPLE_FAULTS: usize = 1000;
/// Rows read behind one that ends a run, to see whether it is an exception.
pub(super) const LOOKED_BEHIND: u64 = 10_000;
/// Skipped rows that are listed one by one.
const LISTED: usize = 100;

/// The handling of unusable rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBadRow {
    /// Reading ends there.
    #[default]
    Error,
    /// It is left out, counted and listed.
    Skip,
}

/// Rows that were left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    pub count: u64,
    /// The first ones.
    pub first: Vec<RowFault>,
}

/// Iterates over the examples of a source with their places. After an error nothing more comes.
pub struct Examples {
    rows: Rows,
    waiting: VecDeque<Result<Record, RowFault>>,
    detection: Detection,
    columns: Columns,
    on_bad_row: OnBadRow,
    skipped: Skipped,
    /// Rows that may still come; `None`: all that there are.
    left: Option<u64>,
    /// Rows read so far.
    good: u64,
    /// A fault says how many rows have one.
    counts: bool,
    ended: bool,
}

/// Kinds of files whose rows have named columns.
const TABLES: [&str; 3] = ["csv", "tsv", "parquet"];

/// Opens a source and finds out how its rows are to be read. `format` holds for a source that does not say its own.
///
/// # Errors
/// The source cannot be opened, has no rows, or its format cannot be detected.
pub fn examples(
    source: &SourceConfig,
    format: FormatChoice,
    on_bad_row: OnBadRow,
    context: &ReadContext,
) -> Result<Examples, DataError> {
    let mut rows = source::rows(source, context)?;
    let said = source.format.or(format.id());
    let grounds = if said.is_some() {
        DetectionBasis::Spec
    } else {
        DetectionBasis::PlainText
    };
    // A plain text has no columns that could show anything else.
    let format = said.or((rows.kind() == "text").then_some(FormatId::Text));
    if let Some(format) = format {
        source.columns.check(format)?;
    }
    let enough = if format.is_some() { 1 } else { SAMPLE };
    let waiting = sample(&mut rows, enough, on_bad_row)?;
    let good: Vec<Record> = waiting.iter().flatten().cloned().collect();
    if good.is_empty() {
        return Err(match waiting.into_iter().find_map(Result::err) {
            Some(fault) => fault.into(),
            None if TABLES.contains(&rows.kind()) => DataError::Rowless {
                place: source.to_string(),
            },
            None => DataError::Empty {
                place: source.to_string(),
            },
        });
    }
    let detection = match format {
        Some(format) => Detection::chosen(format, grounds, &good, &source.columns),
        None => formats::detect(&good, &source.columns, context.unit)?,
    };
    Ok(Examples {
        rows,
        waiting,
        detection,
        columns: source.columns.clone(),
        on_bad_row,
        skipped: Skipped::default(),
        left: None,
        good: 0,
        counts: true,
        ended: false,
    })
}

fn sample(
    rows: &mut Rows,
    enough: usize,
    on_bad_row: OnBadRow,
) -> Result<VecDeque<Result<Record, RowFault>>, DataError> {
    let (mut taken, mut good, mut bad) = (VecDeque::new(), 0, 0);
    while good < enough && bad < SAMPLE_FAULTS {
        let Some(item) = rows.next() else { break };
        match &item {
            Ok(_) => good += 1,
            Err(fault) if good == 0 && (on_bad_row == OnBadRow::Error || rows.is_broken()) => {
                return Err(fault.clone().into());
            }
            Err(_) => bad += 1,
        }
        taken.push_back(item);
        if rows.is_broken() {
            break;
        }
    }
    Ok(taken)
}

impl Examples {
    /// The format and the grounds for it.
    pub fn detection(&self) -> &Detection {
        &self.detection
    }

    /// The first rows alone; those that are skipped do not count.
    #[must_use]
    pub fn at_most(mut self, rows: Option<u64>) -> Examples {
        self.left = rows;
        self
    }

    /// Rows left out so far.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The rows underneath: files, bytes read, notes.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Whether a row with this fault is left out; then it is counted and listed.
    pub(super) fn passes_over(&mut self, fault: &RowFault) -> bool {
        let whole = !(self.rows.is_broken() && self.waiting.is_empty());
        let skip = whole && self.on_bad_row == OnBadRow::Skip;
        if skip {
            self.skipped.count += 1;
            if self.skipped.first.len() < LISTED {
                self.skipped.first.push(fault.clone());
            }
        }
        skip
    }

    /// The same for a reader that counts faulty rows itself: those that cannot be rendered, too.
    #[must_use]
    pub(super) fn uncounted(mut self) -> Examples {
        self.counts = false;
        self
    }

    /// The fault that ends the reading, with its remedy among the other rows.
    fn among_others(&mut self, fault: RowFault) -> RowFault {
        if self.rows.is_broken() || !self.counts {
            return fault;
        }
        let (mut good, mut bad, mut all) = (self.good, 1, false);
        for _ in 0..LOOKED_BEHIND {
            let Some(record) = self.waiting.pop_front().or_else(|| self.rows.next()) else {
                all = true;
                break;
            };
            let read =
                record.and_then(|row| formats::read(self.detection.format, &row, &self.columns));
            match read {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
        let options = self.reading_options();
        of_several(fault, (good, bad), all, &clean_command("FILE", &options))
    }

    /// What `llmtui data clean` needs to read these rows in the same way.
    pub(super) fn reading_options(&self) -> String {
        let shown = matches!(
            self.detection.grounds,
            DetectionBasis::Rows | DetectionBasis::PlainText
        );
        let format = (!shown).then(|| self.detection.format.word());
        reading_options(format, self.columns.iter())
    }
}

/// A fault with the number of rows that have one, of those that were looked at or of all, and with the ways round them. Where most
/// rows can be read the columns are right and the row is wrong: a mapping that suits this row alone would be wrong for the others.
/// `clean` is the command that removes such rows.
pub(super) fn of_several(
    mut fault: RowFault,
    (good, bad): (u64, u64),
    all: bool,
    clean: &str,
) -> RowFault {
    const SKIP: &str = "data.on_bad_row: skip";
    if good <= bad {
        return fault;
    }
    let of = format!(
        "of {}{} rows {} cannot be read",
        if all { "" } else { "the first " },
        grouped(good + bad),
        grouped(bad)
    );
    let ways = format!("{SKIP} leaves such rows out, `{clean}` writes a copy without them");
    let maps = ["data.columns", "data.format"];
    let own = match maps.iter().any(|key| fault.fix.contains(key)) {
        true => "",
        false => fault.fix.as_str(),
    };
    fault.fix = match own {
        "" => format!("fix the row; {of}: {ways}"),
        own if own.contains(SKIP) => format!("{own}; {of}"),
        own if own.ends_with('?') => format!("{own} O{}: {ways}", &of[1..]),
        own => format!("{own}; {of}: {ways}"),
    };
    fault
}

impl Iterator for Examples {
    type Item = Result<(Place, Example), RowFault>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended && self.left != Some(0) {
            let record = self.waiting.pop_front().or_else(|| self.rows.next())?;
            let read = record.and_then(|record| {
                let example = formats::read(self.detection.format, &record, &self.columns)?;
                Ok((record.place, example))
            });
            match read {
                Ok(example) => {
                    self.left = self.left.map(|left| left - 1);
                    self.good += 1;
                    return Some(Ok(example));
                }
                Err(fault) if self.passes_over(&fault) => {}
                Err(fault) => {
                    self.ended = true;
                    return Some(Err(self.among_others(fault)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Content;

    fn open(text: &str, format: FormatChoice, on_bad_row: OnBadRow) -> Result<Examples, DataError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.jsonl"), text).unwrap();
        let context = ReadContext {
            base: dir.path().to_path_buf(),
            ..ReadContext::default()
        };
        examples(&SourceConfig::path("a.jsonl"), format, on_bad_row, &context)
    }

    #[test]
    fn a_text_column_gives_documents_and_says_so() {
        let found = open(
            "{\"text\":\"a\"}\n{\"text\":\"b\"}\n",
            FormatChoice::Auto,
            OnBadRow::Error,
        )
        .unwrap();
        assert_eq!(
            found.detection().to_string(),
            "text (text), by the first 2 rows"
        );
        let contents: Vec<Content> = found.map(|e| e.unwrap().1.content).collect();
        assert_eq!(
            contents,
            [Content::Text("a".into()), Content::Text("b".into())]
        );
    }

    #[test]
    fn a_bad_row_ends_reading_or_is_counted_and_listed() {
        let text = "{\"text\":\"a\"}\n{\"text\":7}\nnot json\n{\"text\":\"b\"}\n";
        let found: Vec<_> = open(text, FormatChoice::Auto, OnBadRow::Error)
            .unwrap()
            .collect();
        assert_eq!(found.len(), 2);
        let fault = found[1].as_ref().unwrap_err();
        assert!(
            fault
                .to_string()
                .starts_with("a.jsonl:2: text: expected a text, found the number 7"),
            "{fault}"
        );

        let mut found = open(text, FormatChoice::Auto, OnBadRow::Skip).unwrap();
        assert_eq!(found.by_ref().filter(Result::is_ok).count(), 2);
        assert_eq!(found.skipped().count, 2);
        assert_eq!(found.skipped().first[1].place.row, 3);
    }

    /// Whoever mends one row should know of the others: it took as many starts as there were bad rows.
    #[test]
    fn any_fault_says_how_many_rows_have_one() {
        let chat = |role: &str| {
            format!(
                "{{\"messages\":[{{\"role\":\"user\",\"content\":\"a\"}},{{\"role\":\"{role}\",\"content\":\"b\"}}]}}\n"
            )
        };
        let fix = |rows: String| {
            let mut found = open(&rows, FormatChoice::Auto, OnBadRow::Error).unwrap();
            found.find_map(Result::err).unwrap().fix
        };
        let (good, bad) = (chat("assistant").repeat(5), chat("asistant"));
        assert_eq!(
            fix([&*good, &bad, &good, &bad, "{\"messages\": 3}\n"].concat()),
            "did you mean assistant? Of 13 rows 3 cannot be read: data.on_bad_row: skip leaves such rows out, `llmtui data clean FILE \
             --out COPY.jsonl` writes a copy without them"
        );
        // Of a file in which most rows have it the rows are not what is wrong.
        assert_eq!(
            fix([chat("assistant"), bad.repeat(3)].concat()),
            "did you mean assistant?"
        );
        let pair =
            |no: &str| format!("{{\"prompt\":\"a\",\"chosen\":\"yes\",\"rejected\":\"{no}\"}}\n");
        let fix = fix([pair("no").repeat(9), pair("yes")].concat());
        assert!(
            fix.ends_with("no preference; of 10 rows 1 cannot be read"),
            "{fix}"
        );
    }

    #[test]
    fn the_first_rows_alone_may_be_asked_for() {
        let rows = "{\"text\": \"a\"}\n{\"text\": 3}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n";
        let read = |rows_at_most| {
            let found = open(rows, FormatChoice::Auto, OnBadRow::Skip).unwrap();
            found.at_most(rows_at_most).map(Result::unwrap).count()
        };
        assert_eq!([Some(2), Some(9), None].map(read), [2, 3, 3]);
    }

    #[test]
    fn nothing_at_all_and_nothing_good_are_errors() {
        assert!(matches!(
            open("\n\n", FormatChoice::Auto, OnBadRow::Error),
            Err(DataError::Empty { .. })
        ));
        let error = open("{\n{\n", FormatChoice::Auto, OnBadRow::Skip)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("a.jsonl:1: incomplete JSON"),
            "{error}"
        );
    }

    #[test]
    fn made_up_rows_are_examples_of_the_format_that_they_were_asked_for() {
        let open = |said: serde_json::Value, on_bad_row| {
            let source: SourceConfig = serde_json::from_value(said).unwrap();
            examples(
                &source,
                FormatChoice::Auto,
                on_bad_row,
                &ReadContext::default(),
            )
        };
        for (shape, format) in [
            ("completion", "prompt_completion"),
            ("text", "text"),
            ("prompt", "prompt_only"),
            ("chat", "messages"),
        ] {
            let said = serde_json::json!({"synthetic": "recall", "rows": 70, "as": shape});
            let found = open(said, OnBadRow::Error).unwrap();
            assert!(
                found.detection().to_string().starts_with(format),
                "{}",
                found.detection()
            );
            assert_eq!(found.filter(Result::is_ok).count(), 70, "{shape}");
        }
        let dry = serde_json::json!({"synthetic": {"arithmetic": {"digits": 1}}, "rows": 5000});
        let last = open(dry, OnBadRow::Skip).unwrap().last().unwrap();
        assert!(last.unwrap_err().what.contains("no new problem"));
    }

    #[test]
    fn a_broken_file_is_never_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[{\"text\":\"a\"},\n{\"text\":\"b\"";
        std::fs::write(dir.path().join("a.json"), text).unwrap();
        let context = ReadContext {
            base: dir.path().to_path_buf(),
            ..ReadContext::default()
        };
        let source = SourceConfig::path("a.json");
        let found: Vec<_> = examples(&source, FormatChoice::Auto, OnBadRow::Skip, &context)
            .unwrap()
            .collect();
        assert!(found[0].is_ok() && found[1].is_err() && found.len() == 2);
    }

    #[test]
    fn a_table_with_a_header_alone_has_no_rows() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.csv"), "text,label\n").unwrap();
        let context = ReadContext {
            base: dir.path().to_path_buf(),
            ..ReadContext::default()
        };
        let source = SourceConfig::path("a.csv");
        let error = examples(&source, FormatChoice::Auto, OnBadRow::Error, &context);
        let error = error.err().unwrap();
        assert!(error.to_string().ends_with("has no rows"), "{error}");
        assert!(error.hint().contains("header"), "{}", error.hint());
    }

    /// A mapping that suits the broken row alone was the advice.
    #[test]
    fn one_broken_row_among_good_ones_is_not_met_with_another_mapping() {
        let good = "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}\n";
        let no_output = "{\"instruction\": \"a\", \"input\": \"\"}\n";
        let number = "{\"instruction\": \"a\", \"input\": 3, \"output\": \"b\"}\n";
        for (bad, before) in [(no_output, 0), (no_output, 100), (number, 3)] {
            let rows = format!("{}{bad}{}", good.repeat(before), good.repeat(20));
            let found = open(&rows, FormatChoice::Auto, OnBadRow::Error).unwrap();
            let fault = found.filter_map(Result::err).next().unwrap();
            let (fix, all) = (&fault.fix, before + 21);
            assert!(fix.contains(&format!("of {all} rows 1 cannot")), "{fix}");
            assert!(!fix.contains("data.columns"), "{fix}");
        }
        // Where the others are like it, the columns are named wrongly.
        let rows = no_output.repeat(3);
        let said = FormatChoice::Alpaca;
        let found = open(&rows, said, OnBadRow::Error).unwrap();
        let fault = found.filter_map(Result::err).next().unwrap();
        assert!(fault.fix.contains("data.columns"), "{fault:?}");
    }
}
