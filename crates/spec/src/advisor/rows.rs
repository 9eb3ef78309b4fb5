//! The rows of a file, as the data room reads them: format, count, and a preview.

use super::choose::DataKind;
use super::faulty::FaultyRows;
use super::inspection::{DataFacts, ReferenceKind, preview};
use super::reading::Sample;
use super::sequences::SampledRow;
use super::template::is_plain;
use crate::base::human;
use crate::base::text::one_line;
use crate::data::formats::{
    Columns, Detection, FormatId, Suggestion, detect, in_options, read as read_row, suggest,
    suggest_answers, unread,
};
use crate::data::render::answers_nothing;
use crate::data::source::{ReadContext, Rows, SourceConfig, announced_rows, rows as read};
use crate::data::{Content, DataError, Message, Record, RowFault, Turns};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Rows inspected to detect the format.
const SAMPLE: usize = 50;
/// Most rows to read; of a larger file rows and characters are estimated from these.
const COUNTED: u64 = 200_000;
/// Columns with what a text is classified as.
const LABELS: [&str; 8] = [
    "label",
    "labels",
    "class",
    "category",
    "sentiment",
    "intent",
    "topic",
    "target",
];
/// Columns with verifiable answers.
const CHECKABLE: [&str; 4] = ["answer", "solution", "ground_truth", "tests"];

/// Inspects the rows of a file or folder.
///
/// # Errors
/// A sentence with the location and what to do.
pub fn rows(path: &Path, bytes: u64) -> Result<DataFacts, String> {
    first_rows(path, bytes, COUNTED)
}

/// The error for rows whose columns have other names, with the `data convert` command that renames them, where there is one: the
/// wizard does not ask for column names.
fn by_hand(path: &Path, error: &DataError) -> String {
    let hint = error.hint();
    let pairs = ["preference", "kto", "prompt_only", "hh_rlhf"];
    let mapped = hint.contains("data.columns: {") && !hint.contains("COLUMN");
    let Some(rest) = hint.strip_prefix("data.format: ").filter(|_| mapped) else {
        return format!("{error}; {hint}");
    };
    let format = rest.split(' ').next().unwrap_or_default();
    if pairs.iter().any(|pair| format.starts_with(pair)) {
        return format!("{error}; rename the columns, or `llmtui train PRESET` with {hint}");
    }
    let options = in_options(&hint).replace(" with ", " ");
    let path = one_line(&path.to_string_lossy());
    format!(
        "{error}; convert them: llmtui data convert {path} {options} --to {format} --out NEW.jsonl"
    )
}

/// [`rows`], from the first `most` rows.
fn first_rows(path: &Path, bytes: u64, most: u64) -> Result<DataFacts, String> {
    let source = SourceConfig::path(path.display().to_string());
    let mut all = read(&source, &ReadContext::default()).map_err(words)?;
    let FirstRows {
        mut sample,
        n_rows: inspected,
        mut chars,
        mut faulty,
    } = FirstRows::read(path, &mut all, most)?;
    let mut n_rows = inspected;
    // A file that ends with the last row read was counted.
    let read = all.bytes_read();
    let estimated = inspected >= most && all.next().is_some();
    if estimated {
        n_rows = estimated_rows(&all, inspected, (read, bytes));
        chars = (chars as f64 * n_rows as f64 / inspected as f64) as u64;
    }
    if sample.is_empty() {
        return Err(no_rows(path, faulty));
    }
    let detected = format_of(&sample).map_err(|e| by_hand(path, &e))?;
    let unreadable = |row: &Record| detected.readable(row).err();
    for fault in sample.iter().filter_map(unreadable) {
        faulty.add(fault);
    }
    let faulty = faulty.among(inspected)?;
    sample.retain(|row| detected.readable(row).is_ok());
    let (of_sample, share) = sample_facts(&sample, &detected);
    let facts = DataFacts {
        format: format!("{} rows, {}", all.kind(), detected.found),
        bytes,
        rows: Some(n_rows - faulty.as_ref().map_or(0, |f| f.share_of(n_rows))),
        faulty,
        estimated,
        chars: Some((chars as f64 * share) as u64),
        ..of_sample
    };
    Ok(DataFacts {
        labelled: labelled(&facts, &sample).map(Box::new),
        ..facts
    })
}

fn words(error: DataError) -> String {
    format!("{error}; {}", error.hint())
}

/// The error for a file without a row that can be read.
fn no_rows(path: &Path, mut faulty: FaultyRows) -> String {
    match faulty.first.take() {
        Some(first) => words(DataError::Row(first)),
        None => format!(
            "{} has no rows; name a file with text or rows",
            path.display()
        ),
    }
}

/// What is read before the format is known.
#[derive(Default)]
struct FirstRows {
    /// The first [`SAMPLE`] of those that could be read.
    sample: Vec<Record>,
    n_rows: u64,
    chars: u64,
    faulty: FaultyRows,
}

impl FirstRows {
    /// Reads at most `most` rows.
    fn read(path: &Path, all: &mut Rows, most: u64) -> Result<FirstRows, String> {
        let mut first = FirstRows::default();
        // The rows' format, once enough were read; later rows are checked against it.
        let mut later: Option<DetectedFormat> = None;
        while let Some(row) = all.next() {
            first.chars += row
                .as_ref()
                .map_or(0, |r| r.fields.values().map(letters).sum());
            match row {
                Ok(record) if first.sample.len() < SAMPLE => first.sample.push(record),
                Ok(record) => {
                    let detected = match later.take() {
                        Some(detected) => detected,
                        None => format_of(&first.sample).map_err(|e| by_hand(path, &e))?,
                    };
                    if let Err(fault) = detected.readable(&record) {
                        first.faulty.add(fault);
                    }
                    later = Some(detected);
                }
                // What follows of this file cannot be read: no setting skips that.
                Err(fault) if all.is_broken() => return Err(words(DataError::Row(fault))),
                Err(fault) => first.faulty.add(fault),
            }
            first.n_rows += 1;
            if first.n_rows >= most {
                break;
            }
        }
        Ok(first)
    }
}

/// The rows of a file of so many `bytes`, of which the first `n_rows` take up those that were `read`.
fn estimated_rows(all: &Rows, n_rows: u64, (read, bytes): (u64, u64)) -> u64 {
    match all.kind() {
        "parquet" => {
            let counts = all.files().iter().map(|file| announced_rows(file));
            counts.sum::<Option<u64>>().unwrap_or(n_rows)
        }
        _ => (n_rows as f64 * bytes as f64 / read.clamp(1, bytes.max(1)) as f64) as u64,
    }
}

/// What the sample says of its rows, and the share of their characters that a model would learn from. Sizes are left open.
fn sample_facts(sample: &[Record], detected: &DetectedFormat) -> (DataFacts, f64) {
    let (format, columns) = (detected.format, &detected.columns);
    let (text, share) = learned(sample, format, columns);
    let distinct: BTreeSet<char> = text.chars().collect();
    let kind = kind(format);
    let first = sample.first().map(|row| &row.fields);
    let checkable = first.is_some_and(|row| CHECKABLE.iter().any(|key| row.contains_key(*key)));
    let lines: Vec<String> = sample
        .iter()
        .take(4)
        .map(|row| Value::Object(row.fields.clone()).to_string())
        .collect();
    let facts = DataFacts {
        kind,
        format: String::new(),
        bytes: 0,
        rows: None,
        faulty: None,
        estimated: false,
        chars: None,
        messages: messages(sample, format, columns),
        plain: is_plain(sample, format, columns).then_some(format),
        template: None,
        sampled: sampled(sample, format, columns),
        sample: Arc::new(Sample::of(&text, &distinct)),
        chars_per_token: None,
        distinct: None,
        checkable,
        reference: reference(sample, format, columns),
        format_word: (!detected.sure).then_some(format.word()),
        columns: detected.names.clone(),
        guessed: (!detected.names.is_empty()).then(|| detected.found.clone()),
        labelled: None,
        note: [detected.caveat.clone(), silent(sample, format, columns)]
            .into_iter()
            .filter(|words| !words.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
        preview: preview(lines.iter().map(String::as_str)),
    };
    (facts, share)
}

/// How many rows of the sample have an empty answer; empty where none has.
fn silent(sample: &[Record], format: FormatId, columns: &Columns) -> String {
    let read = sample
        .iter()
        .filter_map(|row| read_row(format, row, columns).ok());
    let n = read.filter(|row| answers_nothing(&row.content)).count();
    match n {
        0 => String::new(),
        n => format!(
            "{n} of the first {} have an empty answer: the model learns to answer nothing; `llmtui data clean FILE --drop empty --out COPY.jsonl` drops them",
            human::counted(sample.len() as u64, "row")
        ),
    }
}

/// What every row of the sample has for a reward.
fn reference(sample: &[Record], format: FormatId, columns: &Columns) -> Option<ReferenceKind> {
    /// Characters of an answer that may be given word for word.
    const SHORT: usize = 60;
    let all = |name: &str| sample.iter().all(|row| row.fields.contains_key(name));
    if all("tests") {
        return Some(ReferenceKind::Tests);
    }
    if all("nums") && all("target") {
        return Some(ReferenceKind::Countdown);
    }
    let of_side = |side: Turns| match side {
        Turns::Text(text) => Some(text),
        Turns::Messages(messages) => messages.into_iter().next_back().map(|m| m.content),
    };
    let answer = |row: &Record| match read_row(format, row, columns).ok()?.content {
        Content::Prompt { answer, .. } => answer,
        Content::Completion { completion, .. } => of_side(completion),
        Content::Chat(messages) => of_side(Turns::Messages(messages)),
        _ => None,
    };
    let answers: Vec<String> = sample.iter().map(answer).collect::<Option<_>>()?;
    let mean = answers
        .iter()
        .map(|text| text.chars().count())
        .sum::<usize>()
        / answers.len().max(1);
    Some(match () {
        () if answers.iter().all(|text| is_number(text)) => ReferenceKind::Number,
        () if mean <= SHORT => ReferenceKind::Words,
        () => ReferenceKind::Prose,
    })
}

/// An answer that is a number, or marks one as the reward `number` reads it.
fn is_number(text: &str) -> bool {
    let plain: String = text
        .chars()
        .filter(|c| !matches!(c, ',' | '$' | '%'))
        .collect();
    text.contains("####") || text.contains(r"\boxed{") || plain.trim().parse::<f64>().is_ok()
}

/// Rows of texts with labels, as questions and answers.
fn labelled(facts: &DataFacts, sample: &[Record]) -> Option<DataFacts> {
    let has = |name: &&&str| {
        sample
            .iter()
            .all(|row| row.fields.get(**name).is_some_and(Value::is_string))
    };
    let label = LABELS.iter().find(has)?;
    let texts = FormatId::Text.format().parts.first()?.columns;
    let text = texts
        .iter()
        .find(has)
        .filter(|_| facts.kind == DataKind::Text)?;
    let names = vec![
        ("instruction", (*text).to_string()),
        ("output", (*label).to_string()),
    ];
    let columns: Columns = names.iter().cloned().collect();
    let (read, share) = learned(sample, FormatId::Alpaca, &columns);
    let (_, of_text) = learned(sample, FormatId::Text, &Columns::default());
    let distinct: BTreeSet<char> = read.chars().collect();
    let chars = facts
        .chars
        .map(|chars| chars as f64 / of_text.max(f64::EPSILON) * share);
    Some(DataFacts {
        kind: DataKind::Demos,
        format: format!("{}; {label} is the answer to {text}", facts.format),
        chars: chars.map(|chars| chars as u64),
        messages: messages(sample, FormatId::Alpaca, &columns),
        sampled: sampled(sample, FormatId::Alpaca, &columns),
        sample: Arc::new(Sample::of(&read, &distinct)),
        format_word: Some(FormatId::Alpaca.word()),
        reference: reference(sample, FormatId::Alpaca, &columns),
        columns: names,
        labelled: None,
        ..facts.clone()
    })
}

/// Characters of all texts in a value, at any depth.
fn letters(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.chars().count() as u64,
        Value::Array(items) => items.iter().map(letters).sum(),
        Value::Object(map) => map.values().map(letters).sum(),
        _ => 0,
    }
}

/// The texts of the sample that become sequences, and their length as a share of all texts in its rows: some columns are
/// no part of them, and the prompt of a pair stands before both answers.
fn learned(sample: &[Record], format: FormatId, columns: &Columns) -> (String, f64) {
    let read = sample
        .iter()
        .filter_map(|row| Some((row, read_row(format, row, columns).ok()?)));
    let (mut text, mut whole) = (String::new(), 0);
    for (row, example) in read {
        whole += row.fields.values().map(letters).sum::<u64>();
        let of_side = |side: &Turns| match side {
            Turns::Messages(messages) => contents(messages),
            Turns::Text(text) => text.clone(),
        };
        match &example.content {
            Content::Text(own) => text.push_str(own),
            Content::Chat(messages) => text.push_str(&contents(messages)),
            Content::Completion { prompt, completion }
            | Content::Labelled {
                prompt, completion, ..
            } => text.extend([of_side(prompt), of_side(completion)]),
            Content::Preference {
                prompt,
                chosen,
                rejected,
            } => {
                let prompt = of_side(prompt);
                text.extend(
                    [&prompt, &of_side(chosen), &prompt, &of_side(rejected)].map(String::as_str),
                );
            }
            Content::Prompt { prompt, .. } => text.push_str(&of_side(prompt)),
        }
    }
    let share = match whole {
        0 => 1.0,
        whole => text.chars().count() as f64 / whole as f64,
    };
    (text, share)
}

fn contents(messages: &[Message]) -> String {
    messages.iter().map(|m| m.content.as_str()).collect()
}

/// The rows of the sample by the sequences that they become.
fn sampled(sample: &[Record], format: FormatId, columns: &Columns) -> Arc<[SampledRow]> {
    let read = sample
        .iter()
        .filter_map(|row| read_row(format, row, columns).ok());
    read.map(|example| SampledRow::of(&example.content))
        .collect()
}

/// Messages of a row, the mean of the sample; what its columns hold as plain text is no message.
fn messages(sample: &[Record], format: FormatId, columns: &Columns) -> f64 {
    let of_side = |side: &Turns| match side {
        Turns::Messages(messages) => messages.len(),
        Turns::Text(_) => 0,
    };
    let examples = sample
        .iter()
        .filter_map(|row| read_row(format, row, columns).ok());
    let counts: Vec<usize> = examples
        .map(|example| match &example.content {
            Content::Text(_) => 0,
            Content::Chat(messages) => messages.len(),
            Content::Completion { prompt, completion }
            | Content::Labelled {
                prompt, completion, ..
            } => of_side(prompt) + of_side(completion),
            Content::Preference {
                prompt,
                chosen,
                rejected,
            } => 2 * of_side(prompt) + of_side(chosen) + of_side(rejected),
            Content::Prompt { prompt, .. } => of_side(prompt),
        })
        .collect();
    counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64
}

/// The format of the rows.
struct DetectedFormat {
    format: FormatId,
    /// The evidence for it.
    found: String,
    /// No other format fits as well.
    sure: bool,
    /// Columns that were guessed: parts and their names.
    names: Vec<(&'static str, String)>,
    columns: Columns,
    /// What is not read.
    caveat: String,
}

impl DetectedFormat {
    fn of(format: FormatId, found: String, sure: bool) -> DetectedFormat {
        DetectedFormat {
            format,
            found,
            sure,
            names: Vec::new(),
            columns: Columns::default(),
            caveat: String::new(),
        }
    }

    fn guessed(guess: Suggestion) -> DetectedFormat {
        DetectedFormat {
            found: format!("{} ({}), by their names", guess.format, guess.words()),
            columns: guess.parts.iter().cloned().collect(),
            names: guess.parts,
            ..DetectedFormat::of(guess.format, String::new(), false)
        }
    }

    /// What `detect` found. Where that is a prompt alone, other columns may be its answers.
    fn detected(told: &Detection, sample: &[Record]) -> DetectedFormat {
        let mut parts = told.parts.iter();
        let prompt = match (told.format, parts.find(|(name, _)| *name == "prompt")) {
            (FormatId::PromptOnly, Some((_, column))) => Some(column),
            _ => None,
        };
        let prompt = prompt.filter(|_| told.parts.iter().all(|(name, _)| *name != "answer"));
        let others = prompt.map(|prompt| unread(sample, prompt));
        let others = others.filter(|others| !others.is_empty());
        let plain = DetectedFormat::of(told.format, told.to_string(), true);
        let Some(others) = others else { return plain };
        if let Some(guess) = suggest_answers(sample) {
            return DetectedFormat::guessed(guess);
        }
        let caveat = format!(
            "not read: {}; an answer is named completion, those of a pair chosen and rejected (data.columns)",
            others.join(", ")
        );
        DetectedFormat { caveat, ..plain }
    }

    /// Whether a run reads a row: it ends at the first that it cannot, or skips such rows.
    fn readable(&self, row: &Record) -> Result<(), RowFault> {
        read_row(self.format, row, &self.columns).map(drop)
    }
}

/// If several formats fit equally well, the first that reads every row is used, else one that reads most of them, and the
/// others are listed.
fn format_of(sample: &[Record]) -> Result<DetectedFormat, DataError> {
    let columns = Columns::default();
    let doubt = match detect(sample, &columns, None) {
        Ok(told) => return Ok(DetectedFormat::detected(&told, sample)),
        Err(doubt) => doubt,
    };
    let read = |format: &FormatId| {
        let rows = sample.iter();
        rows.filter(|row| read_row(*format, row, &columns).is_ok())
            .count()
    };
    let formats = FormatId::ALL.iter().filter(|f| **f != FormatId::Text);
    let counts: Vec<(&FormatId, usize)> = formats.map(|format| (format, read(format))).collect();
    let most = counts.iter().map(|(_, n)| *n).max().unwrap_or(0);
    let enough = most * 2 > sample.len();
    let best = counts.iter().filter(|(_, n)| enough && *n == most);
    let fitting: Vec<&FormatId> = best.map(|(format, _)| *format).collect();
    let Some((format, others)) = fitting.split_first() else {
        let guess = suggest(sample).filter(|guess| {
            let guess = DetectedFormat::guessed(guess.clone());
            sample.iter().all(|row| guess.readable(row).is_ok())
        });
        return guess.map(DetectedFormat::guessed).ok_or(doubt);
    };
    let others: Vec<&str> = others.iter().map(|other| other.word()).collect();
    let found = match others.as_slice() {
        [] => format.word().to_string(),
        others => format!("{format}; could also be {}", others.join(", ")),
    };
    Ok(DetectedFormat::of(**format, found, false))
}

/// What rows of a format can be used for.
fn kind(format: FormatId) -> DataKind {
    use FormatId::{
        Alpaca, HhRlhf, InstructionResponse, Kto, Messages, Preference, PreferenceImplicit,
        PromptCompletion, PromptOnly, Sharegpt, Text,
    };
    match format {
        Text => DataKind::Text,
        Messages | Sharegpt | Alpaca | PromptCompletion | InstructionResponse => DataKind::Demos,
        Preference | PreferenceImplicit | HhRlhf => DataKind::Pairs,
        Kto => DataKind::Thumbs,
        PromptOnly => DataKind::Prompts,
    }
}

#[cfg(test)]
mod tests {
    use super::first_rows;
    use crate::advisor::choose::DataKind;
    use crate::advisor::inspection::{DataFacts, data};

    fn look(name: &str, text: &str) -> Result<DataFacts, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        data(&path)
    }

    #[test]
    fn other_names_of_columns_are_met_with_the_command_that_writes_them_anew() {
        let turns = r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]"#;
        let told = look("d.jsonl", &format!("{{\"dialog\": {turns}}}")).unwrap_err();
        assert!(
            told.contains("d.jsonl --format messages --column messages=dialog --to messages"),
            "{told}"
        );
        let told = look("p.jsonl", r#"{"id": 1}"#).unwrap_err();
        assert!(!told.contains("data convert"), "{told}");
    }

    #[test]
    fn rows_are_told_by_their_columns() {
        for (row, kind, checkable) in [
            (
                r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}"#,
                DataKind::Demos,
                false,
            ),
            (
                r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#,
                DataKind::Pairs,
                false,
            ),
            (
                r#"{"prompt": "a", "completion": "b", "label": true}"#,
                DataKind::Thumbs,
                false,
            ),
            (
                r#"{"question": "2+2", "answer": "4"}"#,
                DataKind::Demos,
                true,
            ),
            (
                r#"{"instruction": "a", "input": "", "output": "b"}"#,
                DataKind::Demos,
                false,
            ),
            (r#"{"text": "a"}"#, DataKind::Text, false),
        ] {
            let facts = look("a.jsonl", &format!("{row}\n\n{row}\n")).unwrap();
            assert_eq!(
                (facts.kind, facts.rows, facts.checkable),
                (kind, Some(2), checkable),
                "{row}"
            );
            assert_eq!(facts.note, "");
            assert_eq!(
                facts.format_word.is_some(),
                row.contains("question"),
                "{row}"
            );
            assert!(facts.chars > Some(0));
            assert!(
                !facts.preview.is_empty() && facts.format.starts_with("jsonl rows"),
                "{facts:?}"
            );
            let list = look("a.json", &format!("[{row},{row}]")).unwrap();
            assert_eq!((list.kind, list.rows), (kind, Some(2)));
        }
    }

    #[test]
    fn a_long_file_is_estimated_from_its_first_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        // Far longer than what is read ahead.
        let row = format!("{{\"text\": \"{}\"}}\n", "x".repeat(989));
        std::fs::write(&path, row.repeat(2_000)).unwrap();
        let bytes = 2_000_000;
        let facts = first_rows(&path, bytes, 500).unwrap();
        let rows = facts.rows.unwrap();
        assert!(facts.estimated && (1_700..=2_000).contains(&rows), "{rows}");
        assert_eq!(facts.chars, Some(989 * rows));
        assert!(facts.summary().contains("about "), "{}", facts.summary());
        for most in [2_000, 3_000] {
            let facts = first_rows(&path, bytes, most).unwrap();
            assert_eq!((facts.rows, facts.estimated), (Some(2_000), false));
            assert_eq!(facts.chars, Some(989 * 2_000));
        }
    }

    #[test]
    fn messages_are_counted_and_plain_columns_are_none() {
        let chat = r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}"#;
        assert_eq!(look("a.jsonl", chat).unwrap().messages, 2.0);
        let plain = r#"{"prompt": "a", "completion": "b"}"#;
        assert_eq!(look("a.jsonl", plain).unwrap().messages, 0.0);
    }

    /// The wizard was silent about data with nothing to answer, of which a run learns to say nothing.
    #[test]
    fn empty_answers_are_a_caveat() {
        let row = |answer: &str| {
            format!(
                "{{\"messages\": [{{\"role\": \"user\", \"content\": \"hi\"}}, {{\"role\": \"assistant\", \"content\": \"{answer}\"}}]}}\n"
            )
        };
        let note = |text: String| look("a.jsonl", &text).unwrap().note;
        assert_eq!(note(row("ho")), "");
        let told = note(row("ho") + &row("") + &row(" "));
        assert!(
            told.starts_with("2 of the first 3 rows have an empty answer"),
            "{told}"
        );
    }

    /// A prompt stands before both answers of its pair; what is no part of the sequences does not count.
    #[test]
    fn characters_are_those_of_the_sequences() {
        let pair =
            r#"{"prompt": "abcd", "chosen": "ef", "rejected": "ghi", "source": "a long name"}"#;
        let facts = look("a.jsonl", &format!("{pair}\n").repeat(3)).unwrap();
        assert_eq!((facts.kind, facts.chars), (DataKind::Pairs, Some(3 * 13)));
        let told = r#"{"instruction": "abcd", "input": "", "output": "ef", "id": "0123456789"}"#;
        let facts = look("a.jsonl", told).unwrap();
        assert_eq!(facts.chars, Some(6));
    }

    #[test]
    fn tables_are_rows_too() {
        let facts = look("a.csv", "instruction,output\nsay hi,hi\nsay ho,ho\n").unwrap();
        assert_eq!((facts.kind, facts.rows), (DataKind::Demos, Some(2)));
        assert!(facts.format.starts_with("csv rows"), "{}", facts.format);
    }

    #[test]
    fn what_cannot_be_used_is_said_with_the_place() {
        let error = |name: &str, text: &str| look(name, text).unwrap_err();
        let broken = error("a.jsonl", "{\"text\": \"a\"}\n{oops\n");
        assert!(
            broken.contains("a.jsonl") && broken.contains('2'),
            "{broken}"
        );
        let unknown = error("a.jsonl", "{\"a\": 1}\n");
        assert!(unknown.contains('a') && unknown.len() > 20, "{unknown}");
        assert!(look("a.parquet", "PAR1").is_err());
        let empty = error("a.jsonl", "");
        assert!(empty.contains("a.jsonl has no rows"), "{empty}");
        let chat = r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}"#;
        let some = look("a.jsonl", &format!("{chat}\n\"oops\"\n{chat}\n")).unwrap();
        let wrong = some.faulty.unwrap().summary();
        assert!(
            wrong.starts_with("1 of 3 rows") && wrong.contains("a.jsonl:2"),
            "{wrong}"
        );
    }
}
