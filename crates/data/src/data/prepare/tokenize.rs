//! Tokenizes one source after the other into a store, or takes it from the cache.

use super::emptied::counted;
use super::fitted::{fitted, warning};
use super::unanswered;
use crate::base::human::{self, grouped, percent};
use crate::data::chat::{THOUGHTS_FIX, TOOLS_FIX, Template};
use crate::data::cleaning::{clean_command, rendering_options};
use crate::data::corpus::sha256;
use crate::data::examples::{Examples, LOOKED_BEHIND, examples, of_several};
use crate::data::formats::{FormatId, weight};
use crate::data::limit;
use crate::data::render::{RenderCounts, Renderer, TrainOn, Unwritten};
use crate::data::source::{CONTINUES, Origin, ReadContext, SourceConfig};
use crate::data::store::{self, Entry, Feed, Key, Piece, Progress, Store, Tally};
use crate::data::vocabulary::{has_turns, plain_prompt};
use crate::data::{DataConfig, DataError, Example, OnBadRow, Place, RowFault, Tokenizer, Unit};
use std::path::PathBuf;
use std::sync::Arc;

/// Skipped rows that are listed one by one.
const LISTED: usize = 5;
/// Rows at the beginning that are looked at for weights of turns.
const LOOKED_AT: usize = 64;

/// A source whose tokens are there.
pub(super) struct Ready {
    pub name: String,
    pub weight: f64,
    pub store: Arc<Store>,
    /// Hash of everything that its tokens depend on.
    pub key: String,
    /// Its rows are turns or prompts with completions, of which a part is supervised.
    pub conversations: bool,
    /// A template writes its rows.
    pub templated: bool,
    /// Its format, if there is a template and the prompts are texts without its marks.
    pub plain_prompts: Option<FormatId>,
}

/// What the first rows of a source say of all of them.
struct Beginning {
    /// Turns have weights.
    weighted: bool,
    /// How many examples a row makes, at least 1: that of the first row, as all rows of a format are of one kind.
    examples_of_row: usize,
    /// Prompts and answers are turns, not texts.
    templated: bool,
    /// Prompts are texts that pass the template by.
    plain: bool,
    /// A warning about how such rows are read.
    reading: Option<&'static str>,
}

/// What all sources have in common.
pub(super) struct Tokenizing<'a> {
    pub config: &'a DataConfig,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<Template>,
    pub train_on: TrainOn,
    pub unit: Unit,
    pub read: ReadContext,
    pub cache: Option<PathBuf>,
    pub progress: &'a mut dyn FnMut(&Progress),
    pub notes: Vec<String>,
}

impl Tokenizing<'_> {
    /// Opens a source, detects its format, and takes its tokens from the cache or tokenizes. A row that ends it says how many others
    /// would.
    pub fn source(&mut self, source: &SourceConfig) -> Result<Ready, DataError> {
        self.ready(source).map_err(|error| match error {
            DataError::Row(fault) => {
                DataError::Row(self.among_others(fault, source, LOOKED_BEHIND))
            }
            error => error,
        })
    }

    /// The fault with the number of rows that cannot be read or rendered. So many rows are rendered again, `limit`; behind them only
    /// the row of the fault is looked for, in front of which all are sound.
    fn among_others(&self, fault: RowFault, source: &SourceConfig, limit: u64) -> RowFault {
        let (config, read) = (self.config, &self.read);
        let opened = limit::rows_read(source, config.max_rows, read).and_then(|most| {
            let rows = examples(source, config.format, OnBadRow::Skip, read)?;
            Ok(rows.at_most(most))
        });
        let (OnBadRow::Error, Ok(mut rows)) = (config.on_bad_row, opened) else {
            return fault;
        };
        let renderer = self.renderer();
        let (mut good, mut bad) = (0, 0);
        let all = loop {
            let faulty = bad + rows.skipped().count;
            let seen = good + faulty;
            if seen >= limit && faulty > 0 {
                break false;
            }
            match rows.next() {
                None => break true,
                // The file is broken: nobody knows how many rows are missing.
                Some(Err(_)) => return fault,
                Some(Ok((place, example))) => {
                    let how = (self.unit, self.train_on);
                    let is_sound = match seen < limit {
                        true => tokenize(&renderer, how, &place, &example).is_ok(),
                        false => place != fault.place,
                    };
                    match is_sound {
                        true => good += 1,
                        false => bad += 1,
                    }
                }
            }
        };
        match bad + rows.skipped().count {
            // The file has changed meanwhile.
            0 => fault,
            faulty => {
                let mut options = rows.reading_options();
                if bad > 0 {
                    options += &rendering_options(config);
                }
                let clean = clean_command("FILE", &options);
                of_several(fault, (good, faulty), all, &clean)
            }
        }
    }

    fn renderer(&self) -> Renderer {
        Renderer::new(self.tokenizer.clone(), self.template.clone(), self.train_on)
    }

    fn ready(&mut self, source: &SourceConfig) -> Result<Ready, DataError> {
        let name = source.to_string();
        let most = limit::rows_read(source, self.config.max_rows, &self.read)?;
        let rows = self.open(source, most)?;
        let plain = rows.rows().kind() == "text";
        if most.is_some() && plain {
            let fix = "remove data.max_rows and its fraction, or name a file with rows: JSONL, JSON, CSV, TSV or parquet";
            return Err(DataError::source(
                name,
                "is plain text, which has no rows",
                fix,
            ));
        }
        let format = rows.detection().format;
        let beginning = self.beginning(source, most, format)?;
        let key = self.key(source, &rows, most)?;
        // Such rows were once refused, or skipped.
        let key = match beginning.reading {
            Some(words) => key.with("reading", words),
            None => key,
        };
        // Weights of turns were once passed over.
        let key = match beginning.weighted {
            true => key.with("weights", "honoured"),
            false => key,
        };
        let by_time = store::by_time(rows.rows().files());
        let mut entry = self.entry(&name, (source, most), &key, rows)?;
        // A copy of a large file has another modification time: the training data are identified by their tokens.
        let hash = match by_time {
            true => key.with("content", entry.store.identity()).hash(),
            false => key.hash(),
        };
        entry.store.unit = self.unit;
        entry.store.examples_of_row = beginning.examples_of_row;
        self.notes.extend(entry.notes);
        self.notes
            .extend(beginning.reading.map(|words| format!("{name}: {words}")));
        if self.unit == Unit::Text && plain {
            self.notes.extend(unanswered(&name, self.train_on));
        }
        let size = self.size_words(&name, &entry.store);
        self.notes.push(size);
        Ok(Ready {
            weight: source.weight,
            store: Arc::new(entry.store),
            key: hash,
            conversations: format != FormatId::Text,
            templated: beginning.templated,
            plain_prompts: beginning.plain.then_some(format),
            name,
        })
    }

    /// Looks at the first rows of a source, which are opened for it alone.
    fn beginning(
        &self,
        source: &SourceConfig,
        most: Option<u64>,
        format: FormatId,
    ) -> Result<Beginning, DataError> {
        let mut rows = match format {
            FormatId::Text => None,
            _ => Some(self.open(source, most)?),
        };
        let first = rows.as_mut().and_then(Iterator::next).transpose()?;
        let others = rows.into_iter().flatten().take(LOOKED_AT).flatten();
        let mut all = first.iter().cloned().chain(others);
        let weighted = all.any(|(_, example)| weight::occur_in(&example.content));
        let first = first.as_ref().map(|(_, example)| example);
        Ok(Beginning {
            weighted,
            examples_of_row: first.map_or(1, |example| {
                fitted(self.unit, self.train_on, example).len().max(1)
            }),
            templated: first.is_some_and(|example| has_turns(&example.content)),
            plain: first.is_some_and(|example| self.is_plain(example)),
            reading: first.and_then(|example| warning(self.unit, self.train_on, &example.content)),
        })
    }

    /// Whether a prompt is a text beside the template. One that was written by the template before has its marks.
    fn is_plain(&self, example: &Example) -> bool {
        let (Some(template), Some(prompt)) = (&self.template, plain_prompt(&example.content))
        else {
            return false;
        };
        !template.has_written(prompt)
    }

    /// How many examples and tokens a source has.
    fn size_words(&self, name: &str, store: &Store) -> String {
        let tokens = store.tokens();
        let supervised = store.supervised(0, tokens as usize);
        let documents = self.unit.documents();
        let examples = counted(self.unit, store.documents() / documents as u64);
        match self.unit {
            // Nothing of them is supervised: a reference is compared with completions, and follows its prompt again.
            Unit::Prompt => {
                let prompts = store.spans().step_by(documents);
                let asked: u64 = prompts.map(|(_, length)| length).sum();
                let known = match supervised {
                    0 => String::new(),
                    n => format!(", their references {}", grouped(n as u64)),
                };
                format!("{name}: {examples}, {} tokens{known}", grouped(asked))
            }
            _ => format!(
                "{name}: {examples}, {} tokens, {} of them supervised",
                grouped(tokens),
                percent(supervised as f64 / tokens.max(1) as f64, 1)
            ),
        }
    }

    fn open(&self, source: &SourceConfig, most: Option<u64>) -> Result<Examples, DataError> {
        examples(
            source,
            self.config.format,
            self.config.on_bad_row,
            &self.read,
        )
        .map(|rows| rows.uncounted().at_most(most))
    }

    fn key(
        &self,
        source: &SourceConfig,
        rows: &Examples,
        most: Option<u64>,
    ) -> Result<Key, DataError> {
        let detection = rows.detection();
        let template = self.template.as_ref().map(Template::fingerprint);
        // Synthetic rows have no files: their settings identify them.
        let made = match &source.origin {
            Origin::Synthetic(_) => serde_json::to_string(source).unwrap_or_default(),
            _ => String::new(),
        };
        let key = match self.unit {
            Unit::Text => Key::new(&source.to_string()),
            unit => Key::new(&source.to_string()).with("unit", format!("{unit:?}")),
        };
        let key = match most {
            Some(rows) => key.with("max_rows", rows.to_string()),
            None => key,
        };
        // Later pieces of a long text once had the token in front that begins a text.
        let key = match rows.rows().kind() {
            "text" if !self.tokenizer.lead().is_empty() => key.with("lead", "once"),
            _ => key,
        };
        // Documents end with a token that may be named only in the metadata.
        let key = match self.tokenizer.sidecar_note() {
            Some(marks) => key.with("marks", marks),
            None => key,
        };
        Ok(key
            .with("settings", made)
            .with("content", store::digest(rows.rows().files())?)
            .with("format", format!("{detection} {:?}", source.columns))
            .with("tokenizer", sha256(self.tokenizer.to_json().as_bytes()))
            .with("template", template.unwrap_or_default())
            .with("train_on", format!("{:?}", self.train_on))
            .with("on_bad_row", format!("{:?}", self.config.on_bad_row)))
    }

    fn entry(
        &mut self,
        name: &str,
        (source, most): (&SourceConfig, Option<u64>),
        key: &Key,
        rows: Examples,
    ) -> Result<Entry, DataError> {
        let renderer = self.renderer();
        let (config, read) = (self.config, &self.read);
        let (unit, train_on) = (self.unit, self.train_on);
        let progress = &mut *self.progress;
        let format = rows.detection().format;
        let mut opened = Some(rows);
        let mut feed = |build: &mut dyn FnMut(Feed<'_>) -> Result<(), DataError>| {
            let mut rows = match opened.take() {
                Some(rows) => rows,
                None => examples(source, config.format, config.on_bad_row, read)?
                    .uncounted()
                    .at_most(most),
            };
            build(Feed {
                name,
                rows: &mut rows,
                tokenize: &|place, example| tokenize(&renderer, (unit, train_on), place, example),
                eos: renderer.tokenizer().eos(),
                on_bad_row: config.on_bad_row,
                progress: &mut *progress,
            })?;
            Ok(noticed(name, &rows))
        };
        let width = if self.tokenizer.vocab_size() <= 1 << 16 {
            2
        } else {
            4
        };
        match &self.cache {
            Some(folder) => store::open_or_build(folder, key, width, &mut feed),
            None => store::in_memory(width, &mut feed),
        }
        .map(|mut entry| {
            let tally = entry.store.tally();
            if tally.skipped > 0 {
                let first = tally
                    .faults
                    .iter()
                    .take(LISTED)
                    .cloned()
                    .collect::<Vec<_>>();
                entry.notes.push(format!(
                    "{name}: {} skipped that could not be tokenized: {}",
                    human::counted(tally.skipped, "row"),
                    first.join("; ")
                ));
            }
            if tally.empty > 0 {
                let empty = human::counted(tally.empty, "empty row");
                entry.notes.push(format!("{name}: {empty}"));
            }
            (entry.notes).extend(rendered(name, &tally.rendered, format));
            entry.notes.extend(without_tools(name, &tally));
            entry.notes.extend(without_thoughts(name, &tally));
            entry
        })
    }
}

fn tokenize(
    renderer: &Renderer,
    (unit, train_on): (Unit, TrainOn),
    place: &Place,
    example: &Example,
) -> Result<Piece, RowFault> {
    let renderer = &renderer.counting_anew();
    let fitted = fitted(unit, train_on, example);
    let mut documents = Vec::new();
    for example in &fitted {
        match unit {
            Unit::Text => documents.push(renderer.document(example, place)?),
            Unit::Pair => documents.extend(renderer.pair(example, place)?),
            Unit::Ranked => documents.extend(renderer.ranked(example, place)?),
            Unit::Prompt => documents.extend(renderer.prompt_and_reference(example, place)?),
            Unit::Judged => documents.extend(renderer.judged(example, place)?),
        }
    }
    let bytes = fitted.iter().map(|e| store::text_bytes(&e.content) as u64);
    let mut unwritten = Unwritten::default();
    for example in &fitted {
        unwritten.add(renderer.unwritten(example));
    }
    Ok(Piece {
        documents,
        unwritten,
        rendered: renderer.counts(),
        continues: example.extra.contains_key(CONTINUES),
        text_bytes: bytes.sum(),
    })
}

/// Rows with tools that the template does not write.
fn without_tools(name: &str, tally: &Tally) -> Option<String> {
    let calls = match tally.empty_calls {
        0 => String::new(),
        n => format!(
            "; {} of {} answers are only a tool call and come out empty",
            grouped(n),
            grouped(tally.answers)
        ),
    };
    (tally.without_tools > 0).then(|| {
        format!(
            "{name}: the template drops the tools of {} of {} rows{calls}; {TOOLS_FIX}",
            grouped(tally.without_tools),
            grouped(tally.rows)
        )
    })
}

/// Rows with thoughts that the template does not write.
fn without_thoughts(name: &str, tally: &Tally) -> Option<String> {
    (tally.without_thoughts > 0).then(|| {
        format!(
            "{name}: the template drops the thoughts of {} of {} rows, so they are not learned; {THOUGHTS_FIX}",
            grouped(tally.without_thoughts),
            grouped(tally.rows)
        )
    })
}

/// Messages for the user about a source that was just read.
fn noticed(name: &str, rows: &Examples) -> Vec<String> {
    let mut notes = vec![format!("{name}: read as {}", rows.detection())];
    notes.extend(rows.rows().notes());
    let skipped = rows.skipped();
    if skipped.count > 0 {
        let first: Vec<String> = skipped
            .first
            .iter()
            .take(LISTED)
            .map(ToString::to_string)
            .collect();
        notes.push(format!(
            "{name}: {} skipped: {}",
            human::counted(skipped.count, "bad row"),
            first.join("; ")
        ));
    }
    notes
}

/// What was noticed in the rows, those that an earlier process has tokenized included.
fn rendered(name: &str, counts: &RenderCounts, format: FormatId) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: u64, lead: &str, what: &str| {
        if count > 0 {
            let rows = human::counted(count, "row");
            notes.push(format!("{name}: {lead}{rows} {what}"));
        }
    };
    let what = "with special tokens as text; the model sees them as special tokens";
    note(counts.special_tokens_in_data, "", what);
    let what = "with an empty answer: the model learns to answer nothing; llmtui data clean FILE --out COPY.jsonl drops them";
    note(counts.empty_answers, "", what);
    let what = "with a weight on user or system turns: only the assistant's are trained on; data.train_on: all trains on every turn";
    note(counts.weights_of_others, "", what);
    if matches!(format, FormatId::Alpaca | FormatId::InstructionResponse) {
        let what = "with a history: only the last answer is trained on; llmtui data convert FILE --to messages --out COPY.jsonl makes conversations, which train on every answer";
        note(counts.earlier_answers, "", what);
    }
    let what = "the completion merges into the prompt's last token: end prompts at a token boundary, e.g. with a newline";
    note(counts.merged_boundaries, "in ", what);
    let what = "the template writes the answer otherwise than its generation prompt begins one (a `<think>`, say): after that prompt the model was not trained to answer";
    note(counts.other_openings, "in ", what);
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_row_far_behind_is_told_how_to_be_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let config = serde_json::json!({"path": path});
        let config: DataConfig = serde_json::from_value(config).unwrap();
        let source = config.all_sources().remove(0);
        let vocabulary = include_str!("../../../../../tests/fixtures/chat/tokenizer.json");
        let mut silent = |_: &Progress| {};
        let work = Tokenizing {
            config: &config,
            tokenizer: Arc::new(Tokenizer::from_json(vocabulary).unwrap()),
            template: None,
            train_on: TrainOn::All,
            unit: Unit::Text,
            read: ReadContext::default(),
            cache: None,
            progress: &mut silent,
            notes: Vec::new(),
        };
        let good = "{\"text\": \"a row\"}\n";
        let told = |rows: String| {
            std::fs::write(&path, rows).unwrap();
            let mut all = examples(&source, config.format, OnBadRow::Skip, &work.read).unwrap();
            let place = Place {
                row: 5,
                ..all.next().unwrap().unwrap().0
            };
            let fault = RowFault::new(&place, "it is bad", "");
            work.among_others(fault, &source, 2).fix
        };
        // One that cannot be read, and one that cannot be rendered.
        let unreadable = [&*good.repeat(4), "{\"text\": 7}\n", good].concat();
        for (rows, n) in [(unreadable, 6), (good.repeat(9), 5)] {
            let fix = told(rows);
            let expected = format!(
                "fix the row; of the first {n} rows 1 cannot be read: data.on_bad_row: skip"
            );
            assert!(fix.starts_with(&expected), "{fix}");
        }
    }

    #[test]
    fn notes_on_rows_name_the_unit() {
        let told = |other_openings| {
            let counts = RenderCounts {
                other_openings,
                ..RenderCounts::default()
            };
            rendered("a.jsonl", &counts, FormatId::Text).concat()
        };
        assert!(told(1).starts_with("a.jsonl: in 1 row the template"));
        assert!(told(2_000).starts_with("a.jsonl: in 2,000 rows the template"));
    }
}
