//! Whole inspections of small sets.

use super::*;
use crate::data::{Content, Document, Message};

/// One token a character, every character of an assistant supervised, `0` as the end of a turn.
pub(crate) struct Letters;

impl View for Letters {
    fn name(&self) -> &str {
        "letters"
    }

    fn render(&self, example: &Example, _place: &Place) -> Result<Vec<RenderedDocument>, RowFault> {
        let mut document = Document::default();
        for part in parts(example) {
            for c in part.text.chars().chain(['\0']) {
                document.ids.push(u32::from(c).min(255));
                document
                    .supervised
                    .push(part.answer && document.ids.len() > 1);
            }
        }
        Ok(vec![RenderedDocument {
            label: "",
            document,
        }])
    }

    fn pieces(&self, ids: &[u32]) -> Vec<String> {
        let letter = |id: &u32| char::from_u32(*id).map(String::from).unwrap_or_default();
        ids.iter().map(letter).collect()
    }

    fn vocab_size(&self) -> usize {
        256
    }

    fn ends(&self) -> Vec<u32> {
        vec![0]
    }

    fn specials(&self) -> Vec<u32> {
        vec![0, 1]
    }
}

fn place(row: u64) -> Place {
    Place {
        file: "chat.jsonl".into(),
        row,
    }
}

fn chat(user: &str, assistant: &str) -> Example {
    Example::new(Content::Chat(vec![
        Message::new("user", user),
        Message::new("assistant", assistant),
    ]))
}

fn inspect(options: Options, rows: Vec<Result<Example, &str>>) -> (Report, Kept) {
    let mut inspector = Inspector::new(options, Some(Arc::new(Letters)));
    inspector.set_format("messages");
    let measure = inspector.measure();
    for (i, row) in rows.into_iter().enumerate() {
        let place = place(i as u64 + 1);
        let row = match row {
            Ok(example) => Ok(measure.row(place, "chat.jsonl".into(), example)),
            Err(what) => Err(RowFault::new(&place, what, "")),
        };
        inspector.observe(row);
    }
    inspector.finish()
}

fn budget() -> Options {
    Options {
        keep_bytes: 1 << 20,
        ..Options::default()
    }
}

#[test]
fn a_report_counts_rows_tokens_and_findings_worst_first() {
    let rows = vec![
        Ok(chat("hi", "hello")),
        Ok(chat("hi", "hello")),
        Ok(chat("how are you", "")),
        Err("no messages"),
        Ok(chat("it costs 5 \u{fffd}", "yes")),
    ];
    let options = Options {
        seq_len: Some(10),
        ..budget()
    };
    let (report, kept) = inspect(options, rows);
    assert_eq!((report.rows, report.characters.rows), (5, 4));
    let found: Vec<(&str, u64)> = report
        .findings
        .iter()
        .map(|f| (f.id.as_str(), f.rows))
        .collect();
    assert_eq!(
        found,
        [
            ("unreadable", 1),
            ("duplicates", 1),
            ("empty", 1),
            ("over_length", 2),
            ("broken_unicode", 1),
        ]
        .map(|x| x)
        .into_iter()
        .collect::<Vec<_>>()
    );
    assert_eq!(report.worst(), Some(Severity::Problem));
    assert_eq!(report.findings[0].examples[0].place, "chat.jsonl:4");
    let tokens = report.tokens.unwrap();
    // 2+5+2, twice; 11+0+2; 12+3+2.
    assert_eq!((tokens.total, tokens.lengths.max), (9 + 9 + 13 + 17, 17));
    // The assistants' turns with their ends.
    assert_eq!(tokens.supervised, 6 + 6 + 1 + 4);
    assert_eq!(tokens.specials[0].count, 8);
    assert!(report.passed.contains(&"Near duplicates"));
    assert_eq!(kept.rows.len(), 5);
    assert_eq!(kept.rows[3].faults[0].0, "unreadable");
    assert_eq!(kept.limit(), None);
}

#[test]
fn only_what_is_asked_for_is_looked_for() {
    let options = Options {
        only: vec!["empty"],
        ..budget()
    };
    let (report, _) = inspect(options, vec![Ok(chat("a", "b")), Ok(chat("a", "b"))]);
    assert!(report.findings.is_empty());
    assert_eq!(report.passed, ["Empty rows and answers"]);
}

#[test]
fn browsing_a_large_set_keeps_its_beginning_and_rows_with_findings() {
    let options = Options {
        keep_bytes: 8 * 1024,
        ..Options::default()
    };
    let mut rows: Vec<Result<Example, &str>> = (0..200)
        .map(|i| Ok(chat(&format!("question {i}"), "answer")))
        .collect();
    rows[190] = Ok(chat("late", ""));
    let (report, kept) = inspect(options, rows);
    assert_eq!(report.rows, 200);
    assert!(kept.rows.len() < 100, "{}", kept.rows.len());
    assert_eq!(kept.rows.last().map(|row| row.number), Some(191));
    assert!(kept.limit().unwrap().contains("of 200 rows"));
}

#[test]
fn without_a_view_there_are_no_tokens_and_no_checks_of_them() {
    let mut inspector = Inspector::new(budget(), None);
    let row = inspector
        .measure()
        .row(place(1), "a".into(), chat("a", "b"));
    assert_eq!(inspector.observe(Ok(row)), Faults::default());
    let (report, _) = inspector.finish();
    assert!(report.tokens.is_none());
    assert!(!report.passed.contains(&"Rows without supervised tokens"));
}

#[test]
fn sources_stand_by_their_size() {
    let mut inspector = Inspector::new(budget(), Some(Arc::new(Letters)));
    for (source, text) in [("small", "ab"), ("large", "abcdef"), ("small", "c")] {
        let example = Example::new(Content::Text(text.into()));
        let row = inspector.measure().row(place(1), source.into(), example);
        inspector.observe(Ok(row));
    }
    let (report, _) = inspector.finish();
    let shares: Vec<(&str, u64, u64)> = report
        .sources
        .iter()
        .map(|s| (s.name.as_str(), s.rows, s.tokens))
        .collect();
    assert_eq!(shares, [("large", 1, 7), ("small", 2, 5)]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["sources"][0]["characters"], 6);
    assert!(json["tokens"]["lengths"]["histogram"].is_array());
}
