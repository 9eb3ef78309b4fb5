//! Rows for an inspection: read from sources, the format detected once for each source, plain text split into paragraphs.

use super::paragraphs::{Cut, Paragraphs};
use crate::data::formats::{self, Columns, Detection, FormatId, detect};
use crate::data::source::{CONTINUES, ReadContext, Rows, SourceConfig, rows};
use crate::data::{Content, DataConfig, DataError, Example, Place, Record, RowFault, Unit};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that are asked for their format.
const SAMPLE: usize = 64;
/// Bytes of plain text that decide how it is cut.
const BEGINNING: usize = 1 << 16;

/// A row, read.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub place: Place,
    pub source: Arc<str>,
    /// As the file has it; empty where not even that could be read.
    pub fields: Map<String, Value>,
    pub example: Result<Example, RowFault>,
}

/// How far reading is, seen from outside.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    read: Arc<AtomicU64>,
    total: u64,
}

impl Meter {
    /// 0 to 1; `None` where the end is not known.
    pub fn share(&self) -> Option<f64> {
        let read = self.read.load(Ordering::Relaxed) as f64;
        (self.total > 0).then(|| (read / self.total as f64).min(1.0))
    }
}

/// One source after the other.
pub(super) struct Feed {
    sources: VecDeque<Waiting>,
    current: Option<Open>,
    /// Rows of the corpus inside the binary.
    corpus: VecDeque<Item>,
    pub meter: Meter,
    /// Bytes of sources already read.
    behind: u64,
    /// What the rows were found to be, for display, source by source.
    pub formats: Vec<String>,
    /// The method's unit, if a method is known.
    unit: Option<Unit>,
    /// Notices that are not faults of a row.
    pub notes: Vec<String>,
    failure: Option<DataError>,
    /// The newest row that could not be read; of a broken file its last.
    fault: Option<RowFault>,
    /// Files of all sources.
    pub files: usize,
    /// Where broken files of sources already read ended.
    lost: Vec<RowFault>,
}

/// A source that is open and not yet read.
struct Waiting {
    name: Option<Arc<str>>,
    rows: Rows,
    /// Its own settings, overridden by the caller's.
    format: Option<FormatId>,
    columns: Columns,
}

/// A source whose format is known.
struct Open {
    name: Option<Arc<str>>,
    rows: Rows,
    /// Rows that were read to find the format.
    waiting: VecDeque<Result<Record, RowFault>>,
    how: How,
}

enum How {
    Format(FormatId, Columns),
    Text {
        cut: Cut,
        paragraphs: Paragraphs,
        file: Option<Arc<str>>,
        ready: VecDeque<(u64, String)>,
    },
}

impl Feed {
    /// Opens every source: one that cannot be opened is reported before the first row is read.
    pub fn open(
        sources: &[(Option<Arc<str>>, SourceConfig)],
        format: Option<FormatId>,
        columns: &Columns,
        context: &ReadContext,
    ) -> Result<Feed, DataError> {
        let mut opened = VecDeque::new();
        let (mut total, mut files) = (0, 0);
        for (name, source) in sources {
            let rows = rows(source, context)?;
            files += rows.files().len();
            let sizes = rows.files().iter().map(std::fs::metadata);
            total += sizes.flatten().map(|info| info.len()).sum::<u64>();
            let own = !source.columns.is_empty();
            opened.push_back(Waiting {
                name: name.clone(),
                rows,
                format: source.format.or(format),
                columns: if own { &source.columns } else { columns }.clone(),
            });
        }
        let mut feed = Feed {
            sources: opened,
            current: None,
            corpus: VecDeque::new(),
            meter: Meter {
                total,
                ..Meter::default()
            },
            behind: 0,
            formats: Vec::new(),
            unit: context.unit,
            notes: Vec::new(),
            failure: None,
            fault: None,
            files,
            lost: Vec::new(),
        };
        feed.begin()?;
        Ok(feed)
    }

    /// The data of a spec: its sources, its path, or the corpus inside the binary.
    pub fn of_spec(config: &DataConfig, context: &ReadContext) -> Result<Feed, DataError> {
        let columns = Columns::default();
        let sources = config.all_sources();
        if sources.is_empty() {
            let mut feed = Feed::open(&[], None, &columns, context)?;
            feed.corpus(&config.corpus)?;
            return Ok(feed);
        }
        // Several go by their names in the spec, one by its files.
        let several = sources.len() > 1;
        let named: Vec<_> = sources
            .into_iter()
            .map(|source| (several.then(|| source.to_string().into()), source))
            .collect();
        Feed::open(&named, config.format.id(), &columns, context)
    }

    fn corpus(&mut self, name: &str) -> Result<(), DataError> {
        let text = crate::embed::text(&format!("assets/corpora/{name}.txt"));
        let text = text.ok_or_else(|| DataError::NoCorpus(name.to_string()))?;
        let cut = Cut::of(&text[..text.len().min(BEGINNING)]);
        self.formats.push(cut.word().to_string());
        let mut rows = Vec::new();
        let mut paragraphs = Paragraphs::new(cut, 1);
        paragraphs.push(text, &mut rows);
        paragraphs.end(&mut rows);
        let file: Arc<str> = name.into();
        self.corpus = rows
            .into_iter()
            .map(|(row, text)| {
                paragraph(
                    file.clone(),
                    Place {
                        file: file.clone(),
                        row,
                    },
                    text,
                )
            })
            .collect();
        Ok(())
    }

    /// A fault that no row is to blame for, once the rows have ended.
    pub fn end(&mut self) -> Result<(), DataError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// The kind of rows, in words.
    pub fn format(&self) -> String {
        let mut words: Vec<&str> = self.formats.iter().map(String::as_str).collect();
        words.dedup();
        words.join("; ")
    }

    fn begin(&mut self) -> Result<(), DataError> {
        let Some(mut next) = self.sources.pop_front() else {
            return Ok(());
        };
        // A plain text has no columns that could show anything else.
        let text = next.rows.kind() == "text";
        let limit = if text { 1 } else { SAMPLE };
        let mut waiting: VecDeque<Result<Record, RowFault>> = VecDeque::new();
        // A file that cannot be read shows nothing of the others.
        let mut good = 0;
        while good < limit && waiting.len() < SAMPLE {
            let Some(row) = next.rows.next() else { break };
            good += usize::from(row.is_ok());
            waiting.push_back(row);
        }
        let how = match text {
            true => self.cut(&waiting),
            false => self.detect(&waiting, &next)?,
        };
        self.current = Some(Open {
            name: next.name,
            rows: next.rows,
            waiting,
            how,
        });
        Ok(())
    }

    fn cut(&mut self, waiting: &VecDeque<Result<Record, RowFault>>) -> How {
        let first = waiting.iter().flatten().next();
        let text = first
            .and_then(|r| r.fields.get("text"))
            .and_then(Value::as_str);
        let text = text.unwrap_or_default();
        let mut end = text.len().min(BEGINNING);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = Cut::of(&text[..end]);
        self.formats.push(cut.word().to_string());
        How::Text {
            cut,
            paragraphs: Paragraphs::new(cut, 1),
            file: None,
            ready: VecDeque::new(),
        }
    }

    fn detect(
        &mut self,
        waiting: &VecDeque<Result<Record, RowFault>>,
        said: &Waiting,
    ) -> Result<How, DataError> {
        let sample: Vec<Record> = waiting.iter().flatten().cloned().collect();
        let (format, words) = match said.format {
            Some(format) => {
                said.columns.check(format)?;
                (format, format!("{format}, as asked for"))
            }
            // Not one row could be read: the first fault says more than a guess.
            None if sample.is_empty() => match waiting.iter().find_map(|row| row.as_ref().err()) {
                Some(fault) => return Err(DataError::Row(fault.clone())),
                None => (FormatId::Text, "no rows".to_string()),
            },
            None => {
                let found: Detection = detect(&sample, &said.columns, self.unit)?;
                (found.format, found.to_string())
            }
        };
        self.formats.push(words);
        Ok(How::Format(format, said.columns.clone()))
    }
}

impl Iterator for Feed {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if let Some(item) = self.corpus.pop_front() {
            return Some(item);
        }
        loop {
            let open = self.current.as_mut()?;
            let item = open.next();
            let read = self.behind + open.rows.bytes_read();
            self.meter.read.store(read, Ordering::Relaxed);
            if let Some(item) = item {
                if let Err(fault) = &item.example {
                    self.fault = Some(fault.clone());
                }
                return Some(item);
            }
            for note in open.rows.notes() {
                // The end of a broken file may be asked for again.
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            if open.rows.is_broken() {
                // It is unknown what is missing: later rows would look as if nothing were.
                return None;
            }
            self.behind += open.rows.bytes_read();
            self.lost.extend_from_slice(open.rows.lost());
            self.current = None;
            if let Err(e) = self.begin() {
                self.failure = Some(e);
            }
        }
    }
}

impl Feed {
    /// Where broken files ended that others were read behind.
    pub fn lost(&self) -> impl Iterator<Item = &RowFault> {
        let current = self.current.as_ref().map(|open| open.rows.lost());
        self.lost.iter().chain(current.into_iter().flatten())
    }

    /// Where and why reading a file stopped, if it did.
    pub fn broken(&self) -> Option<&RowFault> {
        let open = self.current.as_ref()?;
        self.fault.as_ref().filter(|_| open.rows.is_broken())
    }
}

impl Open {
    fn record(&mut self) -> Option<Result<Record, RowFault>> {
        self.waiting.pop_front().or_else(|| self.rows.next())
    }

    fn next(&mut self) -> Option<Item> {
        match &self.how {
            How::Format(format, columns) => {
                let (format, columns) = (*format, columns.clone());
                let record = self.record()?;
                Some(self.item(record, |record| formats::read(format, record, &columns)))
            }
            How::Text { .. } => self.paragraph(),
        }
    }

    fn item(
        &self,
        record: Result<Record, RowFault>,
        read: impl FnOnce(&Record) -> Result<Example, RowFault>,
    ) -> Item {
        match record {
            Ok(record) => Item {
                source: self.source(&record.place),
                example: read(&record),
                place: record.place,
                fields: record.fields,
            },
            Err(fault) => Item {
                source: self.source(&fault.place),
                place: fault.place.clone(),
                fields: Map::new(),
                example: Err(fault),
            },
        }
    }

    /// A source's own name where there are several, else the file's.
    fn source(&self, place: &Place) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| place.file.clone())
    }

    fn paragraph(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready_paragraph() {
                return Some(item);
            }
            let record = match self.record() {
                Some(Ok(record)) => record,
                Some(Err(fault)) => return Some(self.item(Err(fault), |_| unreachable_text())),
                None => {
                    let How::Text {
                        paragraphs, ready, ..
                    } = &mut self.how
                    else {
                        return None;
                    };
                    let mut rows = Vec::new();
                    paragraphs.end(&mut rows);
                    if rows.is_empty() {
                        return None;
                    }
                    ready.extend(rows);
                    continue;
                }
            };
            self.take_piece(&record);
        }
    }

    fn ready_paragraph(&mut self) -> Option<Item> {
        let How::Text { ready, file, .. } = &mut self.how else {
            return None;
        };
        let (row, text) = ready.pop_front()?;
        let place = Place {
            file: file.clone().unwrap_or_else(|| "".into()),
            row,
        };
        Some(paragraph(self.source(&place), place, text))
    }

    /// A piece of a text file; the first one of another file ends the paragraph before it.
    fn take_piece(&mut self, record: &Record) {
        let How::Text {
            cut,
            paragraphs,
            file,
            ready,
        } = &mut self.how
        else {
            return;
        };
        let mut rows = Vec::new();
        let goes_on = record.fields.contains_key(CONTINUES);
        if !goes_on || file.as_ref() != Some(&record.place.file) {
            // The rest of the previous file is reported under its own name.
            if file.is_some() {
                paragraphs.end(&mut rows);
            }
            if !rows.is_empty() {
                ready.extend(rows);
                // Comes again once those are handed out.
                self.waiting.push_front(Ok(record.clone()));
                let cut = *cut;
                *paragraphs = Paragraphs::new(cut, record.place.row);
                return;
            }
            *paragraphs = Paragraphs::new(*cut, record.place.row);
            *file = Some(record.place.file.clone());
        }
        let text = record.fields.get("text").and_then(Value::as_str);
        paragraphs.push(text.unwrap_or_default(), &mut rows);
        ready.extend(rows);
    }
}

fn paragraph(source: Arc<str>, place: Place, text: String) -> Item {
    Item {
        source,
        place,
        fields: Map::from_iter([("text".to_string(), Value::from(text.clone()))]),
        example: Ok(Example::new(Content::Text(text))),
    }
}

/// A record that could not be read is never asked for its text.
fn unreachable_text() -> Result<Example, RowFault> {
    Ok(Example::new(Content::Text(String::new())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn feed(dir: &Path, said: &str) -> Result<Feed, DataError> {
        let source = SourceConfig::path(said);
        let context = ReadContext {
            base: dir.to_path_buf(),
            ..ReadContext::default()
        };
        Feed::open(&[(None, source)], None, &Columns::default(), &context)
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn items(dir: &Path, said: &str) -> Vec<(String, u64, String)> {
        let tell = |item: Item| {
            let file = item
                .place
                .file
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_string();
            let text = match item.example {
                Ok(Example {
                    content: Content::Text(text),
                    ..
                }) => text,
                Ok(_) => "turns".into(),
                Err(fault) => fault.what,
            };
            (file, item.place.row, text)
        };
        feed(dir, said).unwrap().map(tell).collect()
    }

    #[test]
    fn texts_are_cut_into_paragraphs_that_keep_their_file_and_line() {
        let dir = folder(&[("a.txt", "one\none\n\ntwo"), ("b.txt", "three\n\n\nfour\n")]);
        let row = |file: &str, line, text: &str| (file.to_string(), line, text.to_string());
        assert_eq!(
            items(dir.path(), "."),
            [
                row("a.txt", 1, "one\none"),
                row("a.txt", 4, "two"),
                row("b.txt", 1, "three"),
                row("b.txt", 4, "four"),
            ]
        );
    }

    #[test]
    fn rows_have_their_format_and_bad_ones_their_fault() {
        let lines = "{\"text\": \"one\"}\n{\"text\": 2}\n{\"text\": \"three\"}\n";
        let dir = folder(&[("a.jsonl", lines)]);
        let mut feed = feed(dir.path(), "a.jsonl").unwrap();
        assert!(feed.format().starts_with("text"), "{}", feed.format());
        let items: Vec<Item> = feed.by_ref().collect();
        assert_eq!(items.len(), 3);
        assert!(items[1].example.is_err() && items[1].fields.contains_key("text"));
        assert_eq!(feed.meter.share(), Some(1.0));
        assert!(feed.end().is_ok());
    }

    #[test]
    fn every_source_may_say_its_own_format_and_columns() {
        let dir = folder(&[
            ("a.jsonl", "{\"q\": \"x\", \"a\": \"y\"}\n"),
            ("b.txt", "z\n"),
        ]);
        let mut odd = SourceConfig::path("a.jsonl");
        odd.format = Some(FormatId::PromptCompletion);
        odd.columns = [("prompt", "q"), ("completion", "a")].into_iter().collect();
        let context = ReadContext {
            base: dir.path().to_path_buf(),
            ..ReadContext::default()
        };
        let sources = [
            (Some("odd".into()), odd),
            (Some("plain".into()), SourceConfig::path("b.txt")),
        ];
        let mut feed = Feed::open(&sources, None, &Columns::default(), &context).unwrap();
        let items: Vec<Item> = feed.by_ref().collect();
        let names: Vec<&str> = items.iter().map(|item| &*item.source).collect();
        assert_eq!(names, ["odd", "plain"]);
        assert!(items.iter().all(|item| item.example.is_ok()));
        assert_eq!(feed.formats.len(), 2);
    }

    #[test]
    fn a_source_that_is_not_there_is_told_at_once() {
        let dir = folder(&[]);
        assert!(feed(dir.path(), "gone.jsonl").is_err());
    }
}
