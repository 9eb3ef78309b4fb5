//! Identifies what is at a path, before training on it: the kind of data with a preview, a model folder, another tool's
//! config, this machine. Reads files, within bounds; decides nothing.

mod config;
mod machine;

use super::choose::DataKind;
use super::faulty::Faulty;
use super::reading::{Reading, Sample};
use super::sequences::SampledRow;
use super::template::{self, TemplateTokens};
use crate::base::child::Child;
use crate::base::files::open_plain;
use crate::base::human;
use crate::base::paths::not_found_hint;
use crate::base::text::one_line;
use crate::data::chat::AUTO;
use crate::data::formats::FormatId;
use crate::data::source::{self, ReadContext, SourceConfig, bad_text};
use crate::data::tokenizer;
use crate::models::{self, SourceError, tokenizer_place};
use crate::spec::BaseModel;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use config::{ConfigFacts, config};
pub use machine::Machine;

/// Of longer text the characters are estimated from its beginning.
const READ_WHOLE: u64 = 64 << 20;
/// Lines of the preview, and columns of each.
const PREVIEW: usize = 4;
const PREVIEW_COLUMNS: usize = 160;

/// What every row has for a reward to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    /// Unit tests.
    Tests,
    /// Numbers, and a target to reach with them.
    Countdown,
    /// An answer that is or marks a number.
    Number,
    /// A short answer.
    Words,
    /// An answer that nobody gives word for word.
    Prose,
}

/// What was found at the data path.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFacts {
    pub kind: DataKind,
    /// `plain text`, `rows of conversations (messages)`
    pub format: String,
    pub bytes: u64,
    /// Rows of a file of rows.
    pub rows: Option<u64>,
    /// Rows that a run skips or ends at; not among `rows`.
    pub faulty: Option<Faulty>,
    /// Rows and characters are estimated from the file's beginning.
    pub estimated: bool,
    /// Characters of text, for rows those of all values.
    pub chars: Option<u64>,
    /// Messages of a row that a chat template writes, the mean of the first rows; 0 where they are plain text.
    pub messages: f64,
    /// The format of rows whose prompts are texts, which no template writes.
    pub plain: Option<FormatId>,
    /// What the template of the model to start from writes around them, once it was seen.
    pub template: Option<TemplateTokens>,
    /// The first rows, by the sequences that they become.
    pub sampled: Arc<[SampledRow]>,
    /// For the tokenizer of a model.
    pub sample: Arc<Sample>,
    /// What a token of the model to start from stands for, once it was seen.
    pub chars_per_token: Option<f64>,
    /// Distinct characters of plain text.
    pub distinct: Option<usize>,
    /// The rows have a column with verifiable answers.
    pub checkable: bool,
    /// What completions to the rows' prompts could be compared with.
    pub reference: Option<ReferenceKind>,
    /// The value for `data.format`, if the rows alone are ambiguous.
    pub format_word: Option<&'static str>,
    /// Where columns must be named: the source's `columns`, ours and theirs.
    pub columns: Vec<(&'static str, String)>,
    /// The columns were guessed by their names: what they are taken for, to be accepted first.
    pub guessed: Option<String>,
    /// The same rows with a column of labels as the answer to their text, for those who classify.
    pub labelled: Option<Box<DataFacts>>,
    /// A caveat before training on it; may be empty.
    pub note: String,
    pub preview: Vec<String>,
}

impl DataFacts {
    /// `12,000 rows`, `about 5.00M rows`
    pub fn rows_words(&self) -> Option<String> {
        Some(format!("{} rows", self.counted(self.rows?)))
    }

    /// What the model to start from makes of these data.
    pub fn apply_model(&mut self, model: &ModelFacts) {
        self.template = model.template;
        let reading = model.reading.as_ref().filter(|r| r.sample == self.sample);
        self.chars_per_token = reading.and_then(|reading| reading.chars_per_token);
    }

    fn counted(&self, n: u64) -> String {
        match self.estimated {
            true => format!("about {}", human::short(n as f64)),
            false => human::grouped(n),
        }
    }

    /// `plain text · 1.1 MiB · 1,115,394 characters, 65 different`
    pub fn summary(&self) -> String {
        let mut words = vec![self.format.clone(), human::bytes(self.bytes)];
        words.extend(self.rows_words());
        if let (Some(chars), Some(distinct)) = (self.chars, self.distinct) {
            words.push(format!(
                "{} characters, {distinct} different",
                self.counted(chars)
            ));
        }
        words.join(" · ")
    }
}

/// The embedded corpus, known without reading.
pub fn corpus(name: &str) -> Option<DataFacts> {
    let text = crate::embed::text(&format!("assets/corpora/{name}.txt"))?;
    Some(text_facts(text, text.len() as u64, 1))
}

/// Inspects a file, or the files of a folder or a glob.
///
/// # Errors
/// Why it cannot be trained on, and what to do.
pub fn data(path: &Path) -> Result<DataFacts, String> {
    let shown = path.display();
    if !path.exists() && path.to_string_lossy().contains(['*', '?', '[']) {
        return several(path, READ_WHOLE);
    }
    let meta = fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            format!("{shown} does not exist; {}", not_found_hint(path, path))
        }
        _ => format!("{shown} cannot be read: {e}"),
    })?;
    let extension = path
        .extension()
        .map(|e| e.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let weights = ["safetensors", "gguf"].contains(&extension.as_str());
    if weights || (meta.is_dir() && path.join("config.json").is_file()) {
        return Err(format!(
            "{shown} is a model, not data; the next question asks for the model to start from"
        ));
    }
    if meta.is_dir() {
        let mut facts = several(path, READ_WHOLE)?;
        if facts.note.is_empty() {
            facts.note = source::other_texts(path).unwrap_or_default();
        }
        return Ok(facts);
    }
    match extension.as_str() {
        "txt" | "text" => text(path, meta.len()),
        _ if source::is_data_file(path) || is_packed(path) || begins_with_rows(path) => {
            super::rows::rows(path, meta.len())
        }
        "arrow" | "zip" | "xz" | "bz2" => Err(format!(
            "{shown}: .{extension} files are not supported; save text as .txt, or rows as .jsonl, .csv or .parquet"
        )),
        _ => text(path, meta.len()),
    }
}

fn is_packed(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    ["gz", "zst", "zstd"].contains(&ending.to_lowercase().as_str())
}

/// Whether a run takes a file for rows, whatever its name.
fn begins_with_rows(path: &Path) -> bool {
    let source = SourceConfig::path(path.display().to_string());
    source::rows(&source, &ReadContext::default()).is_ok_and(|rows| rows.kind() != "text")
}

fn text(path: &Path, bytes: u64) -> Result<DataFacts, String> {
    let text = beginning(path, bytes, READ_WHOLE)?;
    if text.trim().is_empty() {
        return Err(format!("{} contains no text", path.display()));
    }
    Ok(text_facts(&text, bytes, 1))
}

/// The first `most` bytes of a text of `bytes`.
fn beginning(path: &Path, bytes: u64, most: u64) -> Result<String, String> {
    let mut buffer = Vec::new();
    let shown = path.display();
    open_plain(path)
        .and_then(|f| f.take(most).read_to_end(&mut buffer))
        .map_err(|e| format!("{shown} cannot be read: {e}"))?;
    // A bounded read may end inside a character.
    if let Err(e) = std::str::from_utf8(&buffer)
        && e.error_len().is_none()
        && bytes > most
    {
        buffer.truncate(e.valid_up_to());
    }
    match bad_text(&buffer) {
        Some(bad) => Err(format!("{shown} {} (byte {}): {}", bad.is, bad.at, bad.fix)),
        None => Ok(String::from_utf8(buffer).unwrap_or_default()),
    }
}

/// The files of a folder or a glob, as a run reads them: rows, or texts, from the first `most` bytes of them.
fn several(path: &Path, most: u64) -> Result<DataFacts, String> {
    let shown = path.display();
    let source = SourceConfig::path(path.display().to_string());
    let rows =
        source::rows(&source, &ReadContext::default()).map_err(|e| format!("{e}; {}", e.hint()))?;
    let (files, kind) = (rows.files().to_vec(), rows.kind());
    let size = |file: &PathBuf| fs::metadata(file).map_or(0, |m| m.len());
    let bytes = files.iter().map(size).sum();
    if kind != "text" || files.iter().any(|file| is_packed(file)) {
        return super::rows::rows(path, bytes);
    }
    let mut whole = String::new();
    for file in &files {
        let size = size(file);
        let room = most.saturating_sub(whole.len() as u64);
        if room > 0 {
            whole.push_str(&beginning(file, size, room)?);
        }
    }
    if whole.trim().is_empty() {
        return Err(format!("the files of {shown} contain no text"));
    }
    Ok(text_facts(&whole, bytes, files.len()))
}

fn text_facts(text: &str, bytes: u64, n_files: usize) -> DataFacts {
    let mut distinct: BTreeSet<char> = BTreeSet::new();
    let mut chars = 0u64;
    for c in text.chars() {
        chars += 1;
        distinct.insert(c);
    }
    let read = text.len() as u64;
    if read < bytes {
        chars = (chars as f64 * bytes as f64 / read.max(1) as f64) as u64;
    }
    DataFacts {
        kind: DataKind::Text,
        format: match n_files {
            1 => "plain text".into(),
            n => format!("plain text in {n} files"),
        },
        bytes,
        rows: None,
        faulty: None,
        estimated: read < bytes,
        chars: Some(chars),
        messages: 0.0,
        plain: None,
        template: None,
        sampled: Arc::default(),
        sample: Arc::new(Sample::of(text, &distinct)),
        chars_per_token: None,
        distinct: Some(distinct.len()),
        checkable: false,
        reference: None,
        format_word: None,
        columns: Vec::new(),
        guessed: None,
        labelled: None,
        note: String::new(),
        preview: preview(text.lines()),
    }
}

pub(super) fn preview<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines
        .filter(|line| !line.trim().is_empty())
        .take(PREVIEW)
        .map(|line| one_line(line).chars().take(PREVIEW_COLUMNS).collect())
        .collect()
}

/// What was found at the model path.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFacts {
    /// `model_type` of its config.
    pub family: String,
    pub n_params: Option<u64>,
    /// Bytes of its weights in a quantized GGUF file.
    pub packed_bytes: Option<u64>,
    /// Spec keys and values for the same model; empty if `unfit` gives a reason.
    pub settings: Vec<(String, String)>,
    /// Why this build cannot train it; empty if it can.
    pub unfit: String,
    pub chat_template: bool,
    /// The built-in template that suits its tokenizer, for a model that brings none.
    pub suits: &'static str,
    /// What the template of its conversations adds, where it could be counted.
    pub template: Option<TemplateTokens>,
    /// How its tokenizer reads the data, where both could be read.
    pub reading: Option<Reading>,
}

impl ModelFacts {
    /// `llama · 135M parameters`
    pub fn summary(&self) -> String {
        let size = self.n_params.map_or("unknown size".into(), |n| {
            format!("{} parameters", human::short(n as f64))
        });
        format!("{} · {size}", self.family)
    }

    /// Its context in tokens; where it is not known, as long as anyone wants.
    pub fn seq_len(&self) -> usize {
        let said = self
            .settings
            .iter()
            .find(|(path, _)| path == "model.seq_len");
        said.and_then(|(_, text)| text.parse().ok())
            .unwrap_or(usize::MAX)
    }
}

/// Inspects a checkpoint or model folder, or a GGUF file.
///
/// # Errors
/// Why it is not a model that can be trained from, and what is.
pub fn model(path: &Path, sample: &Arc<Sample>) -> Result<ModelFacts, String> {
    facts_of(path, crate::spec::base_model(path), sample)
}

/// A model of the hub in its cache, of which only the description may be there.
fn model_of_hub(path: &Path, sample: &Arc<Sample>) -> Result<ModelFacts, String> {
    facts_of(path, crate::spec::base_of_hub(path), sample)
}

fn facts_of(
    path: &Path,
    base: Result<BaseModel, SourceError>,
    sample: &Arc<Sample>,
) -> Result<ModelFacts, String> {
    let base = match base {
        Ok(base) => base,
        Err(error) => {
            let told = format!("{error}; {}", error.hint());
            if matches!(error, SourceError::NoModel { .. }) {
                return Err(told);
            }
            let outline = models::outline(path).ok_or(told)?;
            return Ok(ModelFacts {
                family: outline.family,
                n_params: outline.n_params,
                packed_bytes: None,
                settings: Vec::new(),
                unfit: error.to_string(),
                chat_template: outline.has_chat_template,
                suits: template::CHATML,
                template: None,
                reading: None,
            });
        }
    };
    let mut settings = Vec::new();
    flatten("model", &base.words, &mut settings);
    if base.has_tokenizer {
        let place = tokenizer_place(path);
        let file = place.join("tokenizer.json");
        let tokenizer = match file.is_file() {
            true => file,
            false => place,
        };
        settings.extend(tokenizer_of(tokenizer));
    }
    let child = Child::of_this_program();
    let tokenizer = base
        .has_tokenizer
        .then(|| tokenizer::load(&tokenizer_place(path), &child).ok())
        .flatten();
    let suits = tokenizer
        .as_ref()
        .map_or(template::CHATML, template::default_template);
    let said = if base.has_chat_template { AUTO } else { suits };
    let adds = |tokenizer| TemplateTokens::of(said, tokenizer, &child);
    Ok(ModelFacts {
        family: base.family,
        n_params: Some(base.n_params),
        packed_bytes: base.packed_bytes,
        settings,
        unfit: String::new(),
        chat_template: base.has_chat_template,
        suits,
        template: tokenizer.as_ref().and_then(adds),
        reading: tokenizer.map(|tokenizer| Reading::of(&tokenizer, sample)),
    })
}

/// Plain text, where the user has named none.
pub const PLAIN: &str = "To be, or not to be: that is the question.";

/// What a model's tokenizer can write: that of a toy of digits no letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letters {
    Any,
    /// These, of the characters up to [`LAST_LETTER`].
    Only(BTreeSet<char>),
}

/// The end of the Latin alphabets: a vocabulary that lacks any character at all is one of characters, of a text that was small.
const LAST_LETTER: char = '\u{24f}';

impl Letters {
    /// Those of a model; `None` where its tokenizer cannot be read.
    pub fn of(model: &Path) -> Option<Letters> {
        let tokenizer = tokenizer::load(&tokenizer_place(model), &Child::of_this_program()).ok()?;
        let writes = |text: &str| tokenizer.encode(text).is_ok();
        if writes("\u{416}\u{4e2d}\u{1f980}") {
            return Some(Letters::Any);
        }
        let known = |c: &char| writes(c.encode_utf8(&mut [0; 4]));
        Some(Letters::Only(('\0'..=LAST_LETTER).filter(known).collect()))
    }

    /// Whether a text is written with them.
    pub fn write(&self, text: &str) -> bool {
        match self {
            Letters::Any => true,
            Letters::Only(known) => text.chars().all(|c| known.contains(&c)),
        }
    }
}

/// The settings for its tokenizer.
fn tokenizer_of(path: PathBuf) -> [(String, String); 2] {
    let path = std::path::absolute(&path).unwrap_or(path);
    [
        ("data.tokenizer".into(), "file".into()),
        (
            "data.tokenizer.file.path".into(),
            path.display().to_string(),
        ),
    ]
}

/// Leaves of a section as `path`, `text`; a choice comes before its settings.
fn flatten(path: &str, value: &Value, into: &mut Vec<(String, String)>) {
    use crate::spec::schema::{Kind, root};
    let registry = root()
        .at(path)
        .is_some_and(|node| matches!(node.kind, Kind::Registry(_)));
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if registry {
                    into.push((path.to_string(), key.clone()));
                }
                flatten(&format!("{path}.{key}"), inner, into);
            }
        }
        Value::String(text) => into.push((path.to_string(), text.clone())),
        other => into.push((path.to_string(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: &str, text: &str) -> Result<DataFacts, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        data(&path)
    }

    #[test]
    fn text_is_counted_and_previewed() {
        let facts = look("a.txt", "Grüße\n\n\x1b[2Jzwei\n").unwrap();
        assert_eq!((facts.kind, facts.chars), (DataKind::Text, Some(16)));
        assert_eq!(facts.preview, ["Grüße", "·[2Jzwei"]);
        assert!(
            corpus("tinyshakespeare")
                .unwrap()
                .summary()
                .contains("1,115,394 characters, 65 different")
        );
    }

    #[test]
    fn a_folder_of_long_texts_is_told_from_their_beginning() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.txt"), "Grüße\n".repeat(100)).unwrap();
        fs::write(dir.path().join("b.txt"), "ab").unwrap();
        let bytes = 802;
        // Ends inside of a character.
        let facts = several(dir.path(), 8 * 10 + 3).unwrap();
        assert_eq!((facts.bytes, facts.distinct), (bytes, Some(7)));
        assert!(facts.estimated && facts.summary().contains("about "));
        assert!((590..615).contains(&facts.chars.unwrap()), "{facts:?}");
        let facts = several(dir.path(), bytes).unwrap();
        assert_eq!((facts.estimated, facts.chars), (false, Some(602)));
        fs::write(dir.path().join("b.txt"), [b'a', 0xff]).unwrap();
        let error = several(dir.path(), bytes).unwrap_err();
        assert!(error.contains("b.txt is not UTF-8 (byte"), "{error}");
    }

    #[test]
    fn a_folder_and_a_glob_are_read_as_a_run_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let row = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
        file("a.jsonl", row);
        file("b.jsonl", &row.repeat(2));
        let facts = data(dir.path()).unwrap();
        assert_eq!((facts.kind, facts.rows), (DataKind::Demos, Some(3)));
        assert_eq!(facts.bytes, 3 * row.len() as u64);
        // A name that says nothing, and one that is not usual.
        file("rows", row);
        file("rows.jsonlines", row);
        for name in ["rows", "rows.jsonlines"] {
            assert_eq!(data(&dir.path().join(name)).unwrap().rows, Some(1));
        }
        fs::remove_file(dir.path().join("rows.jsonlines")).unwrap();
        assert_eq!(data(dir.path()).unwrap().note, "");
        file("notes.md", "# To be");
        let note = data(dir.path()).unwrap().note;
        assert!(note.contains("1 .md file is not read"), "{note}");
        // What a run refuses is refused here.
        file("c.txt", "To be, or not to be.");
        let error = data(dir.path()).unwrap_err();
        assert!(
            error.contains("several kinds") && error.contains("say which"),
            "{error}"
        );
        let facts = data(&dir.path().join("*.jsonl")).unwrap();
        assert_eq!((facts.kind, facts.rows), (DataKind::Demos, Some(3)));
        let facts = data(&dir.path().join("*.txt")).unwrap();
        assert_eq!((facts.kind, facts.chars), (DataKind::Text, Some(20)));
    }

    #[test]
    fn what_cannot_be_used_is_said_with_the_place() {
        for (name, text, words) in [
            ("a.zip", "PK", "are not supported"),
            ("a.txt", " \n", "no text"),
        ] {
            let error = look(name, text).unwrap_err();
            assert!(error.contains(words), "{name}: {error}");
        }
        assert!(
            data(Path::new("absent.txt"))
                .unwrap_err()
                .contains("does not exist")
        );
        let dir = tempfile::tempdir().unwrap();
        assert!(
            data(dir.path())
                .unwrap_err()
                .contains("holds no data files")
        );
        // The path is whole: nothing is relative about it.
        let gone = data(&dir.path().join("gone.txt")).unwrap_err();
        assert!(
            gone.contains("does not exist") && !gone.contains("relative"),
            "{gone}"
        );
        fs::write(dir.path().join("a.bin"), [0xff, 0xfe, 0x00]).unwrap();
        assert!(
            data(&dir.path().join("a.bin"))
                .unwrap_err()
                .contains("UTF-16")
        );
    }

    #[test]
    fn a_checkpoint_gives_its_model_as_settings() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            model(dir.path(), &Default::default())
                .unwrap_err()
                .contains("config.json")
        );
        let config = serde_json::json!({"model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 32,
            "max_position_embeddings": 4096, "rope_theta": 500.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": true});
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        fs::write(dir.path().join("model.safetensors"), [0; 400]).unwrap();
        let tokenizer = dir.path().join("tokenizer.json");
        assert!(
            model(dir.path(), &Default::default())
                .unwrap()
                .settings
                .iter()
                .all(|(key, _)| key != "data.tokenizer")
        );
        fs::write(&tokenizer, "{}").unwrap();
        let facts = model(dir.path(), &Default::default()).unwrap();
        assert_eq!(
            (facts.family.as_str(), facts.n_params),
            // By the config, whatever lies beside it: embeddings, two blocks of 592 and the last norm.
            ("llama", Some(32 * 8 + 2 * 592 + 8))
        );
        let said = |key: &str| {
            facts
                .settings
                .iter()
                .find(|(k, _)| k == key)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(said("model.position"), Some("rope"));
        assert_eq!(said("model.position.rope.theta"), Some("500.0"));
        assert_eq!(said("model.n_kv_head"), Some("1"));
        assert!(facts.unfit.is_empty());
        assert_eq!(said("data.tokenizer"), Some("file"));
        fs::write(dir.path().join("config.json"), r#"{"model_type": "t5"}"#).unwrap();
        let facts = model(dir.path(), &Default::default()).unwrap();
        assert!(
            facts.settings.is_empty() && facts.unfit.contains("t5"),
            "{facts:?}"
        );
    }

    #[test]
    fn another_tools_spec_is_read_and_what_is_none_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run one.yaml");
        assert!(
            config(&path, None, None, None)
                .unwrap_err()
                .contains("does not exist")
        );
        fs::write(&path, "colour: red\n").unwrap();
        assert!(
            config(&path, None, None, None)
                .unwrap_err()
                .contains("not a config of LLaMA-Factory")
        );
        let text = "stage: pt\nlearning_rate: 2.0e-4\nmax_steps: 70\nflash_attn: fa2\n";
        fs::write(&path, text).unwrap();
        let facts = config(&path, None, None, None).unwrap();
        assert_eq!(facts.tool, "llama-factory");
        assert!(facts.summary().contains("mapped"), "{}", facts.summary());
        let draft = facts.draft().unwrap();
        assert_eq!(draft.value("train.max_steps"), 70);
        assert_eq!(draft.value("name"), "run-one");
    }
}
