//! What to read, and what to do with it: inspect, clean, or return row by row.

mod typed;
mod viewed;

use super::drive::{Fed, Progress, drive};
use super::feed::{Feed, Item};
use super::ngrams::Reference;
use super::view::View;
use super::words::push_words;
use super::{Inspector, Kept, Options, Report, parts};
use crate::base::paths::{Env, expand_home};
use crate::data::formats::{Columns, FormatId, suggest_answers};
use crate::data::source::{ReadContext, SourceConfig};
use crate::data::{DataConfig, DataError, Example, Place, Record, RowFault, Unit};
use crate::hub::HubConfig;
use serde_json::{Map, Value};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Bytes of rows that are kept for browsing.
const KEEP: usize = 48 << 20;
/// Rows by which columns are guessed.
const SAMPLE: usize = 64;
/// Text on which a tokenizer is trained where none is named.
const LEARN_FROM: usize = 1 << 20;

/// Where the rows are.
#[derive(Debug, Clone, PartialEq)]
enum What {
    Path(String),
    Spec(Box<DataConfig>),
}

/// What to read, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// For display.
    pub name: String,
    what: What,
    format: Option<FormatId>,
    columns: Columns,
    /// A tokenizer's file or a model's folder; one trained on the data otherwise.
    pub tokenizer: Option<String>,
    /// A built-in template or a .jinja file; the tokenizer's own otherwise, else ChatML.
    pub template: Option<String>,
    pub seq_len: Option<u64>,
    /// The unit of the run's method, if the data are a run's.
    pub unit: Option<Unit>,
    /// A validation file, evaluation sets.
    pub val: Option<String>,
    pub against: Vec<String>,
    pub max_rows: Option<u64>,
    /// Kinds of findings to look for; all of them when empty.
    pub only: Vec<&'static str>,
}

/// An inspection, done.
pub struct Inspected {
    pub report: Report,
    pub kept: Kept,
    pub view: Option<Arc<dyn View>>,
}

impl fmt::Debug for Inspected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspected")
            .field("report", &self.report)
            .field("rows", &self.kept.rows.len())
            .finish_non_exhaustive()
    }
}

/// A row as it is read.
pub struct Read<'a> {
    pub place: &'a Place,
    /// As the file has it.
    pub fields: &'a Map<String, Value>,
    pub example: Result<&'a Example, &'a RowFault>,
}

/// A row that was judged.
pub struct Cleaned<'a> {
    pub place: &'a Place,
    pub fields: &'a Map<String, Value>,
    /// The finding for which it is dropped, and the fault.
    pub fault: Option<(&'static str, &'a str)>,
}

/// Where rows are read from: this machine, and the hub as the environment names it.
pub fn reading(env: &Env) -> ReadContext {
    ReadContext {
        hub: HubConfig::from_env(env),
        ..ReadContext::default()
    }
}

type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

impl Subject {
    fn new(name: &str, what: What) -> Subject {
        Subject {
            name: name.to_string(),
            what,
            format: None,
            columns: Columns::default(),
            tokenizer: None,
            template: None,
            seq_len: None,
            unit: None,
            val: None,
            against: Vec::new(),
            max_rows: None,
            only: Vec::new(),
        }
    }

    /// A file, a folder, a glob or a data set of the hub.
    pub fn of_path(path: &str) -> Subject {
        Subject::new(path, What::Path(path.to_string()))
    }

    /// The data of a spec.
    pub fn of_spec(name: &str, config: DataConfig, seq_len: Option<u64>) -> Subject {
        let val = config.val_path.as_ref();
        Subject {
            seq_len,
            val: val.map(|path| path.display().to_string()),
            template: Some(config.template.clone()),
            ..Subject::new(name, What::Spec(Box::new(config)))
        }
    }

    /// With the paths as they are looked up, where they were typed with `~`; its name stays.
    ///
    /// # Errors
    /// There is no home folder, or another user's is meant.
    pub fn expanded(mut self, home: Option<&Path>) -> Result<Subject, DataError> {
        let typed = match &mut self.what {
            What::Path(path) => Some(path),
            What::Spec(_) => None,
        };
        let others = [&mut self.tokenizer, &mut self.template, &mut self.val];
        let all = typed.into_iter().chain(others.into_iter().flatten());
        for said in all.chain(&mut self.against) {
            let full = expand_home(Path::new(said), Path::new(""), home);
            let full = full.map_err(|(what, fix)| DataError::source("path:", what, fix))?;
            *said = full.to_string_lossy().into_owned();
        }
        Ok(self)
    }

    /// The path, where one was named.
    pub fn path(&self) -> Option<&str> {
        match &self.what {
            What::Path(path) => Some(path),
            What::Spec(_) => None,
        }
    }

    /// # Errors
    /// No format has this name.
    pub fn set_format(&mut self, word: &str) -> Result<(), DataError> {
        self.format = Some(FormatId::by_word(word)?);
        Ok(())
    }

    /// Columns that play parts under other names: (part, column).
    pub fn set_columns(&mut self, pairs: &[(String, String)]) {
        self.columns = pairs.iter().cloned().collect();
    }

    fn feed(&self, context: &ReadContext) -> Result<Feed, DataError> {
        let context = &self.reading(context);
        match &self.what {
            What::Path(path) => self.feed_of(path, context),
            What::Spec(config) => Feed::of_spec(config, context),
        }
    }

    /// Formats are settled as the run settled them.
    fn reading(&self, context: &ReadContext) -> ReadContext {
        ReadContext {
            unit: self.unit,
            ..context.clone()
        }
    }

    fn feed_of(&self, path: &str, context: &ReadContext) -> Result<Feed, DataError> {
        let source = SourceConfig::parse(path)
            .map_err(|what| DataError::source(path, what, "name a file, a folder or a glob"))?;
        Feed::open(&[(None, source)], self.format, &self.columns, context)
    }

    /// Reads, measures and judges every row.
    ///
    /// # Errors
    /// No data there, rows of no known format, a tokenizer or template that cannot be read.
    pub fn inspect(
        &self,
        context: &ReadContext,
        on_progress: OnProgress<'_>,
    ) -> Result<Inspected, DataError> {
        // Every file is judged; only a copy of them has to be whole.
        let mut feed = self.feed(&ReadContext {
            past_broken: true,
            ..context.clone()
        })?;
        let beginning = beginning(&mut feed);
        let of_answers = of_answers(&beginning);
        let view: Arc<dyn View> = Arc::new(self.view(&beginning, context)?);
        let options = Options {
            name: self.name.clone(),
            seq_len: self.seq_len,
            keep_bytes: KEEP,
            only: self.only.clone(),
            ..self.references(context)?
        };
        let mut inspector = Inspector::new(options, Some(view.clone()));
        let meter = feed.meter.clone();
        let mut rows = beginning.into_iter().chain(feed.by_ref());
        let most = self.max_rows.unwrap_or(u64::MAX);
        let mut taken = 0;
        let mut limited = std::iter::from_fn(|| {
            taken += 1;
            (taken <= most).then(|| rows.next()).flatten()
        })
        .map(fed);
        let mut progress = |rows| {
            on_progress(Progress {
                rows,
                share: meter.share(),
            })
        };
        let mut judged = |(), _: &super::Faults| ControlFlow::Continue(());
        let given_up = drive(&mut inspector, &mut limited, &mut progress, &mut judged).is_break();
        drop(limited);
        let cut_off = rows.next().is_some();
        drop(rows);
        feed.end()?;
        inspector.set_format(&feed.format());
        if let Some(fix) = of_answers {
            inspector.set_fix("unread_columns", fix);
        }
        if let Some(fault) = feed.lost().next() {
            inspector.set_fix(
                "unreadable",
                format!(
                    "{}: {}; data.on_bad_row: skip cannot skip the rest of a file",
                    fault.place.file, fault.fix
                ),
            );
        }
        for words in self.left_out(&feed, (given_up, cut_off), inspector.rows()) {
            inspector.limit(words);
        }
        let (report, kept) = inspector.finish();
        Ok(Inspected {
            report,
            kept,
            view: Some(view),
        })
    }

    fn left_out(&self, feed: &Feed, (given_up, cut_off): (bool, bool), rows: u64) -> Vec<String> {
        let rows = crate::base::human::grouped(rows);
        let mut words = feed.notes.clone();
        let of_file = if feed.files > 1 { " in that file" } else { "" };
        let lost = feed.lost().map(|fault| {
            format!(
                "nothing after {}{of_file} was inspected: {}",
                fault.place, fault.what
            )
        });
        words.extend(lost);
        if given_up || cut_off {
            words.push(format!("only the first {rows} rows were inspected"));
        }
        words
    }

    /// What rows are compared with.
    fn references(&self, context: &ReadContext) -> Result<Options, DataError> {
        let against = self.against.iter();
        Ok(Options {
            val: self.validation(context)?,
            against: against
                .map(|path| Subject::of_path(path).compared(path, context))
                .collect::<Result<_, _>>()?,
            ..Options::default()
        })
    }

    /// The validation file, in the format and the columns of the training rows; if it has others, as it shows them.
    fn validation(&self, context: &ReadContext) -> Result<Option<Reference>, DataError> {
        let Some(path) = &self.val else {
            return Ok(None);
        };
        let (format, columns) = match &self.what {
            What::Spec(config) => (config.format.id(), &config.columns),
            What::Path(_) => (self.format, &self.columns),
        };
        let alike = Subject {
            format,
            columns: columns.clone(),
            unit: self.unit,
            ..Subject::of_path(path)
        };
        alike
            .compared(path, context)
            .or_else(|error| {
                Subject::of_path(path)
                    .compared(path, context)
                    .map_err(|_| error)
            })
            .map(Some)
    }

    /// Rows to compare with. A question and its answer have the same words in every format that fits them, so which one is
    /// taken makes no difference; where none has an answer, the questions alone are compared.
    fn compared(&self, path: &str, context: &ReadContext) -> Result<Reference, DataError> {
        let with = |unit| Subject {
            unit,
            ..self.clone()
        };
        let read = |unit| reference(path, with(unit).feed(context)?);
        match self.unit {
            Some(_) => read(self.unit),
            None => read(Some(Unit::Text)).or_else(|error| read(None).map_err(|_| error)),
        }
    }

    /// Every row, in order, until `take` has had enough; returns what was noted about the files once all are read.
    ///
    /// # Errors
    /// No data there; a file that breaks off.
    pub fn each(
        &self,
        context: &ReadContext,
        on_progress: OnProgress<'_>,
        take: &mut dyn FnMut(Read<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<String>, DataError> {
        let mut feed = self.feed(context)?;
        let meter = feed.meter.clone();
        for (rows, item) in (1..).zip(feed.by_ref()) {
            let read = Read {
                place: &item.place,
                fields: &item.fields,
                example: item.example.as_ref(),
            };
            let share = meter.share();
            if take(read).is_break() || on_progress(Progress { rows, share }).is_break() {
                return Ok(Vec::new());
            }
        }
        whole(&mut feed)?;
        Ok(feed.notes)
    }

    /// Judges every row by the kinds in `only` and hands it to `take`; returns what was not checked, and what was noted about
    /// the files. With a tokenizer or a template rows are rendered too, as in training.
    ///
    /// # Errors
    /// No data there; a file that breaks off; a tokenizer or template that cannot be read.
    pub fn clean(
        &self,
        context: &ReadContext,
        on_progress: OnProgress<'_>,
        take: &mut dyn FnMut(Cleaned<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<String>, DataError> {
        let mut feed = self.feed(context)?;
        let options = Options {
            only: self.only.clone(),
            first_fault_only: true,
            ..self.references(context)?
        };
        let (mut begun, mut view) = (Vec::new(), None);
        if self.tokenizer.is_some() || self.template.is_some() {
            begun = beginning(&mut feed);
            view = Some(Arc::new(self.view(&begun, context)?) as Arc<dyn View>);
        }
        let mut inspector = Inspector::new(options, view);
        let meter = feed.meter.clone();
        let mut rows = begun.into_iter().chain(feed.by_ref()).map(|item| {
            let with = (item.place.clone(), item.fields.clone());
            (fed(item).0, with)
        });
        let mut progress = |rows| {
            on_progress(Progress {
                rows,
                share: meter.share(),
            })
        };
        let mut judged = |(place, fields): (Place, Map<String, Value>), faults: &super::Faults| {
            take(Cleaned {
                place: &place,
                fields: &fields,
                fault: faults.list.first().map(|(id, what)| (*id, what.as_str())),
            })
        };
        let flow = drive(&mut inspector, &mut rows, &mut progress, &mut judged);
        drop(rows);
        if flow.is_continue() {
            whole(&mut feed)?;
        }
        Ok([feed.notes, inspector.finish().0.limits].concat())
    }
}

/// The words of every row. Less than the whole file would make rows pass that occur in the rest of it.
fn reference(name: &str, mut feed: Feed) -> Result<Reference, DataError> {
    let (mut rows, mut unreadable, mut fault) = (Vec::new(), 0, None);
    for item in feed.by_ref() {
        match &item.example {
            Ok(example) => {
                let mut words = Vec::new();
                for part in parts(example) {
                    push_words(&part.text, &mut words);
                }
                rows.push((item.place, words));
            }
            Err(why) => {
                unreadable += 1;
                fault.get_or_insert_with(|| why.clone());
            }
        }
    }
    whole(&mut feed)?;
    match fault {
        Some(fault) if rows.is_empty() => Err(DataError::Row(fault)),
        _ => Ok(Reference::new(name, &rows).with_unreadable(unreadable)),
    }
}

/// A copy of half a file would pass for a whole one.
fn whole(feed: &mut Feed) -> Result<(), DataError> {
    if let Some(fault) = feed.broken() {
        return Err(DataError::Row(fault.clone()));
    }
    feed.end()
}

fn fed(item: Item) -> (Fed, ()) {
    let Item {
        place,
        source,
        example,
        ..
    } = item;
    (example.map(|example| (place, source, example)), ())
}

/// Rows up to a mebibyte of text.
fn beginning(feed: &mut Feed) -> Vec<Item> {
    let mut bytes = 0;
    let mut items = Vec::new();
    while bytes < LEARN_FROM {
        let Some(item) = feed.next() else { break };
        let example = item.example.as_ref();
        bytes += example.map_or(0, |e| parts(e).iter().map(|p| p.text.len()).sum::<usize>());
        items.push(item);
    }
    items
}

/// Which columns are probably the answers of rows of which only the prompt is read, in the words of a spec.
fn of_answers(beginning: &[Item]) -> Option<String> {
    let record = |item: &Item| Record {
        place: item.place.clone(),
        fields: item.fields.clone(),
    };
    let sample: Vec<Record> = beginning.iter().take(SAMPLE).map(record).collect();
    suggest_answers(&sample).map(|found| found.fix())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::inspect::RowsFinding;
    use crate::data::tokenizer::TokenizerConfig;
    use serde_json::json;

    fn inspected(config: Value) -> Inspected {
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let subject = Subject::of_spec("data of a run", config, Some(64));
        let mut on_progress = |_| ControlFlow::Continue(());
        subject
            .inspect(&ReadContext::default(), &mut on_progress)
            .unwrap()
    }

    /// The method of the run has settled what rows of a question and its answer are.
    #[test]
    fn the_data_of_a_run_are_read_in_the_format_that_its_method_chose() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let rows: String = (0..30)
            .map(|i| {
                let row = json!({"question": format!("1+{i}"), "answer": (i + 1).to_string()});
                format!("{row}\n")
            })
            .collect();
        std::fs::write(&path, rows).unwrap();
        let config: DataConfig = serde_json::from_value(json!({"path": path})).unwrap();
        let format = |unit| {
            let subject = Subject {
                unit,
                ..Subject::of_spec("data of a run", config.clone(), Some(64))
            };
            let found =
                subject.inspect(&ReadContext::default(), &mut |_| ControlFlow::Continue(()));
            found.map(|inspected| inspected.report.format)
        };
        let prompts = format(Some(Unit::Prompt)).unwrap();
        assert!(prompts.starts_with("prompt_only"), "{prompts}");
        assert!(format(None).is_err());
    }

    /// Every answer ends with a supervised token, as in the run.
    #[test]
    fn a_trained_tokenizer_knows_the_marks_of_the_chat() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let rows: String = (0..40)
            .map(|i| {
                let messages = json!([
                    {"role": "user", "content": format!("What is {i}?")},
                    {"role": "assistant", "content": format!("It is {i}.")},
                ]);
                format!("{}\n", json!({"messages": messages}))
            })
            .collect();
        std::fs::write(&path, rows).unwrap();
        let found = inspected(json!({"path": path, "tokenizer": {"bpe": {"vocab_size": 300}}}));
        let ends = |f: &&RowsFinding| f.id == "eos_not_supervised";
        assert_eq!(found.report.findings.iter().find(ends), None);
    }

    #[test]
    fn the_data_of_a_spec_are_all_its_sources_as_it_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let row = |i: usize| json!({"prompt": format!("question {i}"), "completion": "yes"});
        let rows: String = (0..30).map(|i| format!("{}\n", row(i))).collect();
        let (a, b) = (
            file("a.jsonl", &rows),
            file("b.txt", "one line\nanother line\n"),
        );
        let config = json!({
            "sources": [{"path": a, "weight": 2.0}, {"path": b}],
            "tokenizer": {"bpe": {"vocab_size": 300}},
            "train_on": "all",
        });
        let report = inspected(config).report;
        let sources: Vec<u64> = report.sources.iter().map(|source| source.rows).collect();
        assert_eq!((report.rows, sources), (32, vec![30, 2]));
        let tokens = report.tokens.unwrap();
        // Every token but the first of each document.
        assert_eq!(tokens.supervised, tokens.total - 32);
        assert!(
            report.format.contains("prompt_completion") && report.format.contains("plain text")
        );
    }

    #[test]
    fn a_made_up_source_has_its_own_alphabet() {
        let report = inspected(json!({
            "sources": [{"synthetic": {"arithmetic": {"digits": 2, "operations": ["add"]}}, "rows": 50}],
            "tokenizer": {"char": {}},
        }))
        .report;
        let tokens = report.tokens.unwrap();
        assert!(tokens.total > 0 && tokens.vocab_size < 30, "{tokens:?}");
        let refused = report
            .findings
            .iter()
            .any(|finding| finding.id == "unrendered");
        assert!(!refused, "{:?}", report.findings);
    }

    /// Training refused a row that stayed in the copy, and advised the same copy again.
    #[test]
    fn rows_are_cleaned_by_the_template_that_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let turn = |role: &str| json!({"role": role, "content": "a"});
        let row = |roles: [&str; 2]| format!("{}\n", json!({"messages": roles.map(turn)}));
        let rows = row(["user", "assistant"]).repeat(3) + &row(["assistant", "user"]);
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, rows).unwrap();
        let dropped = |template: Option<&str>| {
            let subject = Subject {
                template: template.map(String::from),
                only: vec!["unreadable", "unrendered"],
                ..Subject::of_path(&path.display().to_string())
            };
            let mut dropped = Vec::new();
            let mut take = |row: Cleaned<'_>| {
                dropped.extend(row.fault.map(|(kind, _)| (row.place.row, kind)));
                ControlFlow::Continue(())
            };
            let mut on_progress = |_| ControlFlow::Continue(());
            let context = ReadContext::default();
            subject
                .clean(&context, &mut on_progress, &mut take)
                .unwrap();
            dropped
        };
        assert_eq!(dropped(None), []);
        // Gemma's begins with the user.
        assert_eq!(dropped(Some("gemma")), [(4, "unrendered")]);
    }

    /// The first of seven texts hid the others, and nothing said that they were sound.
    #[test]
    fn a_broken_file_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), b"caf\xe9\n").unwrap();
        let text = |words: &str| format!("{words} one\n\n{words} two\n");
        for name in ["b", "c"] {
            std::fs::write(dir.path().join(format!("{name}.txt")), text(name)).unwrap();
        }
        let inspected = |path: &Path| {
            let subject = Subject::of_path(&path.display().to_string());
            let mut on_progress = |_| ControlFlow::Continue(());
            let found = subject.inspect(&ReadContext::default(), &mut on_progress);
            found.unwrap().report
        };
        let report = inspected(dir.path());
        assert_eq!((report.rows, report.sources.len()), (5, 2));
        assert_eq!(report.format, "plain text, by paragraph");
        let unreadable = report.findings.iter().find(|f| f.id == "unreadable");
        assert_eq!(unreadable.unwrap().rows, 1);
        assert!(report.limits[0].contains("a.txt:1 in that file"));
        assert!(report.passed.contains(&"Exact duplicates"));
        // Of a text that was not read nothing is said.
        let report = inspected(&dir.path().join("a.txt"));
        assert_eq!((report.rows, report.passed.len()), (1, 0));
        assert!(report.limits[0].starts_with("nothing after "));
    }

    /// It was called a row that the template rejects, with advice on turns and templates.
    #[test]
    fn a_character_that_a_tokenizer_lacks_is_the_tokenizers_fault() {
        let dir = tempfile::tempdir().unwrap();
        let tokenizer = dir.path().join("tokenizer.json");
        let letters: TokenizerConfig = serde_json::from_value(json!({"char": {}})).unwrap();
        let letters = letters.build("abc ", "abc ").unwrap();
        std::fs::write(&tokenizer, letters.to_json()).unwrap();
        let path = dir.path().join("rows.jsonl");
        std::fs::write(&path, "{\"text\": \"a b c\"}\n{\"text\": \"aß\"}\n").unwrap();
        let report = inspected(json!({
            "path": path.display().to_string(),
            "tokenizer": {"file": {"path": tokenizer.display().to_string()}},
        }))
        .report;
        let of = |id: &str| report.findings.iter().find(|finding| finding.id == id);
        let finding = of("unencodable").unwrap();
        assert_eq!(finding.rows, 1);
        assert!(finding.fix.contains("covers every byte"), "{}", finding.fix);
        assert!(finding.examples[0].what.contains("'ß'"));
        assert!(of("unrendered").is_none());
    }

    #[test]
    fn without_a_source_it_is_the_corpus_inside_the_binary() {
        let report = inspected(json!({})).report;
        assert_eq!(report.sources[0].name, "tinyshakespeare");
        let tokens = report.tokens.unwrap();
        assert_eq!((tokens.vocab_size, tokens.seq_len), (65, Some(64)));
        assert!(
            report
                .findings
                .iter()
                .all(|finding| finding.id != "unrendered")
        );
    }
}
