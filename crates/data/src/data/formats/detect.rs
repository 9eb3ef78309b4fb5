//! Detects the format of rows by their columns and values. Nothing is guessed silently: the match and its alternatives are
//! reported, and when two fit equally well the user decides.

use super::columns::nearest;
use super::not_whole::refused;
use super::row::{Row, column_names};
use super::{Columns, FormatId, HISTORY, Need, suggest, suggest_answers};
use crate::base::near::within;
use crate::base::text::one_line;
use crate::data::{DataError, Record, Unit};
use serde_json::Value;
use std::fmt;

/// Why a format is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetectionBasis {
    /// The rows show it.
    Rows,
    /// The spec says it; the rows were not asked.
    Spec,
    /// The rows show several, of which one serves the method.
    Method,
    /// The file is plain text and has no columns.
    PlainText,
}

/// The detected format, and the grounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    pub format: FormatId,
    pub grounds: DetectionBasis,
    /// Parts and the columns that hold them.
    pub parts: Vec<(&'static str, String)>,
    /// Other formats that fit, less closely.
    pub others: Vec<FormatId>,
    /// Rows that fit, of those looked at.
    pub fitting: usize,
    pub looked_at: usize,
}

impl Detection {
    /// The rows that were looked at are the first of the source, which may have many more.
    fn share(&self) -> String {
        match (self.fitting, self.looked_at) {
            (1, 1) => "by the first row".into(),
            (fitting, all) if fitting == all => format!("by the first {all} rows"),
            (fitting, all) => format!("{fitting} of the first {all} rows"),
        }
    }
}

impl fmt::Display for Detection {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.format)?;
        let part = |(part, column): &(&str, String)| match *part == column {
            true => column.clone(),
            false => format!("{part} from {column}"),
        };
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        if !parts.is_empty() {
            write!(f, " ({})", parts.join(", "))?;
        }
        match self.grounds {
            DetectionBasis::Rows => write!(f, ", {}", self.share())?,
            DetectionBasis::Method => write!(f, ", {}, as the method needs", self.share())?,
            DetectionBasis::Spec => write!(f, ", from the spec")?,
            DetectionBasis::PlainText => write!(f, ", a document a file")?,
        }
        if !self.others.is_empty() {
            let others: Vec<&str> = self.others.iter().map(|o| o.word()).collect();
            write!(f, "; could also be {}", others.join(", "))?;
        }
        Ok(())
    }
}

impl Detection {
    /// A format that is known; the sample only shows which columns it reads.
    pub(in crate::data) fn chosen(
        format: FormatId,
        grounds: DetectionBasis,
        sample: &[Record],
        columns: &Columns,
    ) -> Detection {
        let candidate = Candidate::of(format, sample, columns);
        Detection {
            format,
            grounds,
            parts: candidate.parts,
            others: Vec::new(),
            fitting: candidate.fitting,
            looked_at: sample.len(),
        }
    }
}

struct Candidate {
    format: FormatId,
    fitting: usize,
    parts: Vec<(&'static str, String)>,
}

impl Candidate {
    fn of(format: FormatId, sample: &[Record], columns: &Columns) -> Candidate {
        let mut candidate = Candidate {
            format,
            fitting: 0,
            parts: Vec::new(),
        };
        let known = format.format();
        for record in sample {
            let row = Row::new(record, known, columns);
            let mut parts = Vec::new();
            let mut fits = true;
            for part in known.parts {
                match row.find(part) {
                    Some(found) if part.shape.fits(found.value) => {
                        parts.push((part.name, one_line(found.column)));
                    }
                    _ if part.need == Need::Required => fits = false,
                    _ => {}
                }
            }
            if fits && (known.fits)(&row) {
                candidate.fitting += 1;
                for part in parts {
                    if !candidate.parts.iter().any(|(name, _)| *name == part.0) {
                        candidate.parts.push(part);
                    }
                }
            }
        }
        candidate
    }

    /// A prompt, with or without earlier rounds, is part of many formats and identifies none.
    fn is_weak(&self) -> bool {
        let is_asked = |name: &str| matches!(name, "prompt" | "history");
        self.format == FormatId::PromptOnly && self.parts.iter().all(|(name, _)| is_asked(name))
    }

    /// Parts that tell formats apart. Earlier rounds stand beside answers of any kind.
    fn telling(&self) -> usize {
        let told = self.parts.iter();
        told.filter(|(name, _)| *name != HISTORY.name).count()
    }
}

/// Finds the format of some rows of a source. If several fit, one that the method's unit can learn from goes before others.
///
/// # Errors
/// None fits (with the mapping that would make the nearest one fit), or several fit equally well.
pub fn detect(
    sample: &[Record],
    columns: &Columns,
    unit: Option<Unit>,
) -> Result<Detection, DataError> {
    let Some(first) = sample.first() else {
        return Err(DataError::Empty {
            place: "the source".into(),
        });
    };
    let (mut fitting, rare): (Vec<Candidate>, Vec<Candidate>) = FormatId::ALL
        .iter()
        .filter(|format| columns.check(**format).is_ok())
        .map(|format| Candidate::of(*format, sample, columns))
        .filter(|c| c.fitting > 0)
        .partition(|c| c.fitting * 2 > sample.len());
    let rare: Vec<Candidate> = rare.into_iter().filter(|c| !c.is_weak()).collect();
    if fitting.iter().any(|c| !c.is_weak()) {
        fitting.retain(|c| !c.is_weak());
    }
    fitting.sort_by_key(|c| std::cmp::Reverse(c.telling()));
    // Prompts alone are what is left of rows whose answers are missing: a method that wants prompts may have them.
    let bare = fitting.iter().all(Candidate::is_weak);
    if bare && !rare.is_empty() && unit != Some(Unit::Prompt) {
        return Err(several((sample, columns), &fitting, &rare));
    }
    let mut grounds = DetectionBasis::Rows;
    let unserved = set_apart(unit, &mut fitting);
    if let ([best, ..], Some(other)) = (fitting.as_slice(), unserved.first())
        && other.telling() >= best.telling()
    {
        grounds = DetectionBasis::Method;
    }
    let chosen = chosen_by(unit, &fitting);
    if let Some(chosen) = chosen {
        fitting[..=chosen].rotate_right(1);
        grounds = DetectionBasis::Method;
    }
    if let (Some(unit), Some(best)) = (unit, fitting.first())
        && !serves(best.format, unit)
        && let Some(error) = misspelt(first, columns, (best.format, unit))
            .or_else(|| other_names(sample, (best.format, unit)))
    {
        return Err(error);
    }
    match fitting.as_slice() {
        // The nearest format of a row that fits one would be that one.
        [] if rare
            .iter()
            .any(|c| Candidate::of(c.format, &sample[..1], columns).fitting == 1) =>
        {
            Err(several((sample, columns), &[], &rare))
        }
        [] => Err(no_format(sample, first, columns)),
        [a, b, ..] if chosen.is_none() && a.telling() == b.telling() => {
            let most = a.telling();
            let equal = fitting.iter().take_while(|c| c.telling() == most);
            let equal: Vec<FormatId> = equal.map(|c| c.format).collect();
            Err(in_doubt(first, &equal, unit))
        }
        [best, ..] if let Some(error) = refused(best.format, sample, columns, unit) => Err(error),
        [best, others @ ..] => Ok(Detection {
            format: best.format,
            grounds,
            parts: best.parts.clone(),
            others: others.iter().chain(&unserved).map(|c| c.format).collect(),
            fitting: best.fitting,
            looked_at: sample.len(),
        }),
    }
}

/// Takes the formats that the method cannot learn from out of those that fit, if it can learn from another one: NuminaMath has
/// problems with solutions, for RL, beside the conversations.
fn set_apart(unit: Option<Unit>, fitting: &mut Vec<Candidate>) -> Vec<Candidate> {
    let Some(unit) = unit else { return Vec::new() };
    let all = std::mem::take(fitting);
    let (served, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|c| serves(c.format, unit));
    match served.is_empty() {
        true => {
            *fitting = others;
            Vec::new()
        }
        false => {
            *fitting = served;
            others
        }
    }
}

/// Rows of a question and its answer are a text, or a prompt with the reference for rewards. For an RL method
/// both make the same prompt, and `prompt_only` extracts the final answer; other methods cannot
/// train on prompts. `fitting` begins with those that fit best.
fn chosen_by(unit: Option<Unit>, fitting: &[Candidate]) -> Option<usize> {
    let most = fitting.first()?.telling();
    let best = fitting.iter().take_while(|c| c.telling() == most);
    let best: Vec<FormatId> = best.map(|c| c.format).collect();
    let [a, b] = best[..] else { return None };
    let both =
        [a, b].contains(&FormatId::PromptOnly) && [a, b].contains(&FormatId::InstructionResponse);
    let wanted = match unit.filter(|_| both)? {
        Unit::Prompt => FormatId::PromptOnly,
        Unit::Text => FormatId::InstructionResponse,
        Unit::Pair | Unit::Ranked | Unit::Judged => return None,
    };
    best.iter().position(|format| *format == wanted)
}

/// Formats that fit equally well: those that the method can learn from are offered, else the rows are not what it needs.
fn in_doubt(first: &Record, equal: &[FormatId], unit: Option<Unit>) -> DataError {
    let names = column_names(first.fields.keys());
    let words = |formats: &[FormatId]| formats.iter().map(|f| f.word()).collect::<Vec<_>>();
    let serve = |unit: Unit| equal.iter().copied().filter(move |f| serves(*f, unit));
    let useful: Vec<FormatId> = unit.map_or_else(|| equal.to_vec(), |unit| serve(unit).collect());
    if let (Some(unit), true) = (unit, useful.is_empty()) {
        let found = words(equal).join(" or ");
        return DataError::source(
            &first.place.file,
            format!(
                "has rows of {found} (columns: {names}), but the method needs {}",
                unit.needs()
            ),
            "use data with such rows, or another method: sft learns answers, grpo trains on prompts with references",
        );
    }
    DataError::source(
        &first.place.file,
        format!("could be {} (columns: {names})", words(equal).join(" or ")),
        format!(
            "choose one: data.format: {}",
            words(&useful).join(", or data.format: ")
        ),
    )
}

/// Whether a method of this unit may learn from rows of the format.
fn serves(format: FormatId, unit: Unit) -> bool {
    use FormatId::{HhRlhf, Kto, Preference, PreferenceImplicit, PromptOnly, Text};
    let pairs = matches!(format, Preference | PreferenceImplicit | HhRlhf);
    match unit {
        Unit::Text => format != PromptOnly,
        Unit::Prompt => format != Text,
        Unit::Pair | Unit::Ranked => pairs,
        Unit::Judged => pairs || format == Kto,
    }
}

/// Some rows fit one format and some another, or none.
fn several(
    (sample, columns): (&[Record], &Columns),
    most: &[Candidate],
    rare: &[Candidate],
) -> DataError {
    let rows = sample.len();
    let mut found: Vec<&Candidate> = most.iter().chain(rare).collect();
    // The first of a kind: rows that fit several formats are reported once.
    found.sort_by_key(|c| (std::cmp::Reverse(c.fitting), std::cmp::Reverse(c.telling())));
    let told = found
        .iter()
        .map(|c| format!("{} of {rows} {}", c.fitting, c.format));
    let told: Vec<String> = told.collect();
    let is_other = |record: &&Record| {
        let alone = std::slice::from_ref(*record);
        found
            .first()
            .is_some_and(|c| Candidate::of(c.format, alone, columns).fitting == 0)
    };
    let other = sample.iter().find(is_other);
    let at = other.map_or_else(String::new, |record| {
        format!("; the first that differs is {}", record.place)
    });
    let file = sample.first().map_or("", |record| &record.place.file);
    DataError::source(
        file,
        format!("has rows of different formats: {}{at}", told.join(", ")),
        format!(
            "use one source per format; or data.format: {} with data.on_bad_row: skip, which skips the others",
            rare.iter()
                .max_by_key(|c| c.fitting)
                .map_or("FORMAT", |c| c.format.word())
        ),
    )
}

/// A column of turns by its name whose value is the text of a list, as tables in text have it: JSON, or a list as Python prints it.
fn turns_as_text(first: &Record) -> Option<&str> {
    let parts = FormatId::ALL.iter().flat_map(|f| f.format().parts);
    let turns = parts.filter(|p| matches!(p.shape, super::Shape::Roles | super::Shape::Senders));
    let mut columns = turns.flat_map(|part| part.columns);
    columns.find_map(|column| {
        let (name, value) = first.fields.get_key_value(*column)?;
        value
            .as_str()?
            .trim_start()
            .starts_with("[{")
            .then_some(name.as_str())
    })
}

/// No format fits: what is wrong with the mapping or the row, else the format for which most columns look right, and the
/// mapping that it would take.
fn no_format(sample: &[Record], first: &Record, columns: &Columns) -> DataError {
    let fault = mapping_fault(columns)
        .or_else(|| missing_column(first, columns))
        .or_else(|| text_turns(first))
        .or_else(|| null_column(first));
    if let Some(fault) = fault {
        return fault;
    }
    let all: Vec<&str> = FormatId::ALL.iter().map(|f| f.word()).collect();
    let guess = labelled(first).or_else(|| asked_and_answered(first));
    let guess = guess.or_else(|| best_guess(first, columns));
    let whole = guess.as_ref().is_some_and(|guess| !guess.contains(UNKNOWN));
    let named = || suggest(sample).map(|found| found.fix());
    let guess = if whole { guess } else { named().or(guess) };
    let fix = guess.unwrap_or_else(|| {
        format!(
            "set data.format and data.columns: {{part: column}} (for text `-s data.format=text -s data.columns.text=COLUMN`); formats: {}",
            all.join(", ")
        )
    });
    let names = column_names(first.fields.keys());
    let what = format!("columns match no known format: {names}");
    DataError::source(&first.place, what, fix)
}

/// An unknown part in the mapping shuts every format out.
fn mapping_fault(columns: &Columns) -> Option<DataError> {
    let fault = FormatId::ALL.iter().map(|f| columns.check(*f));
    let faults: Vec<DataError> = fault.filter_map(Result::err).collect();
    let everywhere = faults.len() == FormatId::ALL.len();
    faults.into_iter().next().filter(|_| everywhere)
}

/// A column of the mapping that the row lacks.
fn missing_column(first: &Record, columns: &Columns) -> Option<DataError> {
    let (part, gone) = columns
        .iter()
        .find(|(_, c)| !first.fields.contains_key(*c))?;
    let names = column_names(first.fields.keys());
    let what = format!(
        "has no column {}, which is mapped to the part `{part}`; it has {names}",
        one_line(gone)
    );
    let fix = match nearest(gone, first.fields.keys().map(String::as_str)) {
        Some(near) => format!("data.columns: {{{part}: {}}}", one_line(near)),
        None => format!(
            "name a column that it has; for one of several sources in data.sources: {{path: FILE, columns: {{{part}: COLUMN}}}}"
        ),
    };
    Some(DataError::source(&first.place, what, fix))
}

/// Turns in a column of text.
fn text_turns(first: &Record) -> Option<DataError> {
    let column = turns_as_text(first)?;
    let what = format!(
        "has text in the column {}, but turns are a list of objects",
        one_line(column)
    );
    let fix = "a text table can only hold text: write the rows as .jsonl or .parquet, e.g. df.to_json('rows.jsonl', orient='records', lines=True)";
    Some(DataError::source(&first.place, what, fix))
}

/// A column of a known name that holds nothing.
fn null_column(first: &Record) -> Option<DataError> {
    let known = |name: &str| {
        let mut parts = FormatId::ALL.iter().flat_map(|f| f.format().parts);
        parts.any(|part| part.columns.contains(&name))
    };
    let empty = |(name, value): &(&String, &Value)| value.is_null() && known(name);
    let (name, _) = first.fields.iter().find(empty)?;
    let what = format!("has only null in the column {}", one_line(name));
    let fix = "drop such rows: llmtui data clean FILE --out COPY.jsonl";
    Some(DataError::source(&first.place, what, fix))
}

/// A column of text and one of its class, in the words of a spec: a row asks for its label. As a text alone it would be read
/// without what is to be learned.
fn labelled(first: &Record) -> Option<String> {
    const LABELS: [&str; 8] = [
        "label",
        "labels",
        "class",
        "category",
        "sentiment",
        "topic",
        "intent",
        "target",
    ];
    let is_label = |name: &str| LABELS.contains(&name.to_lowercase().as_str());
    let texts = first.fields.iter().filter(|(_, value)| value.is_string());
    let (labels, texts): (Vec<_>, Vec<_>) = texts.partition(|(name, _)| is_label(name));
    let ([(label, _)], [(text, _)]) = (labels.as_slice(), texts.as_slice()) else {
        return None;
    };
    Some(format!(
        "data.format: instruction_response with data.columns: {{instruction: {}, response: {}}}",
        one_line(text),
        one_line(label)
    ))
}

/// `input` and `output` without an instruction: a question and its answer. As Alpaca's, the input would be asked for twice.
fn asked_and_answered(first: &Record) -> Option<String> {
    let is_text = |name: &str| first.fields.get(name).is_some_and(Value::is_string);
    (is_text("input") && is_text("output")).then(|| {
        let columns = "{instruction: input, response: output}";
        format!("data.format: instruction_response with data.columns: {columns}")
    })
}

/// Rows of which the method could learn if a column had another name: what is found under its own names is then another format, a
/// prompt alone where `chosen` is misspelt.
fn misspelt(
    first: &Record,
    columns: &Columns,
    (found, unit): (FormatId, Unit),
) -> Option<DataError> {
    let mut best: Option<(usize, String)> = None;
    for format in FormatId::ALL.iter().filter(|f| serves(**f, unit)) {
        let row = Row::new(first, format.format(), columns);
        let parts = format.format().parts.iter();
        let (mut there, mut mapping) = (0, Vec::new());
        let whole = parts.filter(|p| p.need == Need::Required).all(|part| {
            if row.find(part).is_some_and(|f| part.shape.fits(f.value)) {
                there += 1;
                return true;
            }
            let fits = first
                .fields
                .iter()
                .filter(|(_, value)| part.shape.fits(value));
            let names: Vec<&str> = fits.map(|(name, _)| name.as_str()).collect();
            // A slip and no likeness: `answer_type` is no answer.
            let slip = |column: &&str| {
                let slips = (column.chars().count() / 3).clamp(1, 2);
                within(slips, column, names.iter().copied())
            };
            let near = part.columns.iter().find_map(slip);
            mapping.extend(near.map(|near| format!("{}: {}", part.name, one_line(near))));
            near.is_some()
        });
        let names_one = whole && there > 0 && !mapping.is_empty();
        if names_one && best.as_ref().is_none_or(|(most, _)| there > *most) {
            best = Some((there, format!("data.columns: {{{}}}", mapping.join(", "))));
        }
    }
    let (_, mapping) = best?;
    let names = column_names(first.fields.keys());
    let what = format!(
        "columns {names}: read as {found}, but the method needs {}",
        unit.needs()
    );
    Some(DataError::source(&first.place, what, mapping))
}

/// Rows whose answers have names that say so in other words, `good` and `bad`: the method needs them, and only the prompt was read.
fn other_names(sample: &[Record], (found, unit): (FormatId, Unit)) -> Option<DataError> {
    let first = sample.first()?;
    let suggestion = suggest_answers(sample).filter(|other| serves(other.format, unit))?;
    let names = column_names(first.fields.keys());
    let what = format!(
        "columns {names}: read as {found}, but the method needs {}",
        unit.needs()
    );
    Some(DataError::source(&first.place, what, suggestion.fix()))
}

/// In the place of a column in a mapping that nobody can guess.
const UNKNOWN: &str = "COLUMN";

/// The format for which most columns look right, in the words of a spec.
fn best_guess(first: &Record, columns: &Columns) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for format in FormatId::ALL {
        let row = Row::new(first, format.format(), columns);
        let mut mapping = Vec::new();
        let mut hits = 0;
        for part in format
            .format()
            .parts
            .iter()
            .filter(|p| p.need == Need::Required)
        {
            if row.find(part).is_some_and(|f| part.shape.fits(f.value)) {
                hits += 2;
                continue;
            }
            let right = first
                .fields
                .iter()
                .filter(|(_, value)| part.shape.fits(value));
            let candidates: Vec<&str> = right.map(|(name, _)| name.as_str()).collect();
            let near = part
                .columns
                .iter()
                .find_map(|c| nearest(c, candidates.iter().copied()));
            // A list of turns can hardly be anything else, whatever its name.
            let turns = matches!(part.shape, super::Shape::Roles | super::Shape::Senders);
            match near.or(candidates.first().copied().filter(|_| turns)) {
                Some(column) => {
                    hits += 1;
                    mapping.push(format!("{}: {}", part.name, one_line(column)));
                }
                None => mapping.push(format!("{}: {UNKNOWN}", part.name)),
            }
        }
        if hits > 0 && best.as_ref().is_none_or(|(most, _)| hits > *most) {
            let words = format!(
                "data.format: {format} with data.columns: {{{}}}",
                mapping.join(", ")
            );
            best = Some((hits, words));
        }
    }
    best.map(|(_, mapping)| mapping)
}
