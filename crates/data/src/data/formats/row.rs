//! A row as a format reads it: parts by name, and errors that name the column.

use super::columns::nearest;
use super::{Columns, Format, HISTORY, Need, Part, QUESTION, SYSTEM, Shape};
use crate::base::text::one_line;
use crate::data::{Record, RowFault};
use serde_json::Value;

pub(super) struct Row<'a> {
    pub record: &'a Record,
    pub format: &'static Format,
    pub columns: &'a Columns,
}

/// A part that was found: the column's name and value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    pub column: &'a str,
    pub value: &'a Value,
}

impl<'a> Row<'a> {
    pub fn new(record: &'a Record, format: &'static Format, columns: &'a Columns) -> Row<'a> {
        Row {
            record,
            format,
            columns,
        }
    }

    /// The column of a part: the one that was said, else the most usual one that is there. null counts as absent.
    pub fn find(&self, part: &Part) -> Option<Found<'a>> {
        let held = |found: &Found<'_>| !found.value.is_null();
        match self.said(part.name) {
            Some(said) => self.column(said).filter(held),
            None => {
                let fits = |found: &Found<'_>| part.shape.fits(found.value);
                let mut known = self.usual(part).filter(held);
                // Among several the one that holds the right thing; else the first, so that a fault can name it.
                known.clone().find(fits).or_else(|| known.next())
            }
        }
    }

    /// The column that was named for a part; for the prompt also that of its question.
    fn said(&self, part: &str) -> Option<&'a str> {
        match (self.columns.get(part), part) {
            (None, "prompt") => self.columns.get(QUESTION.name),
            (own, _) => own,
        }
    }

    /// Whether the prompt is mapped as a question.
    pub fn asks(&self) -> bool {
        self.columns.get(QUESTION.name).is_some()
    }

    fn column(&self, name: &str) -> Option<Found<'a>> {
        let (column, value) = self.record.fields.get_key_value(name)?;
        Some(Found { column, value })
    }

    /// The usual columns of a part that the row has, null or not, but for those that are mapped to another part: a column plays
    /// one part. `history` is one only if it may hold rounds.
    fn usual(&self, part: &Part) -> impl Iterator<Item = Found<'a>> + Clone {
        let (shape, mapped) = (part.shape, self.columns);
        let is_part = move |found: &Found<'_>| {
            (shape != Shape::Rounds || found.value.is_null() || shape.fits(found.value))
                && mapped.iter().all(|(_, column)| column != found.column)
        };
        let known = part.columns.iter().filter_map(|name| self.column(name));
        known.filter(is_part)
    }

    /// A part by its name.
    pub fn part(&self, name: &str) -> Option<Found<'a>> {
        let part = self.format.parts.iter().find(|p| p.name == name)?;
        self.find(part)
    }

    /// Whether the row has a column for a part, even if it is empty or null there.
    pub fn has_column(&self, part: &str) -> bool {
        match self.said(part) {
            Some(said) => self.column(said).is_some(),
            None => {
                let known = self.format.parts.iter().find(|p| p.name == part);
                known.is_some_and(|part| self.usual(part).next().is_some())
            }
        }
    }

    /// Whether a text under the name `prompt` is a turn: it is mapped as a question, or a system prompt and earlier rounds, which
    /// have a place among turns alone, are there. Decided by the columns, so that every row of a source is read one way.
    pub fn prompts_are_turns(&self) -> bool {
        self.asks() || self.has_column(SYSTEM.name) || self.has_column(HISTORY.name)
    }

    /// The columns that this format reads in this row.
    pub fn claimed(&self) -> Vec<&'a str> {
        let found = self.format.parts.iter().filter_map(|part| self.find(part));
        found.map(|f| f.column).collect()
    }

    pub fn has_required_parts(&self) -> Result<(), RowFault> {
        for part in self.format.parts {
            if part.need == Need::Required && self.find(part).is_none() {
                return Err(self.missing(part.name));
            }
        }
        Ok(())
    }

    pub fn fault(&self, what: impl AsRef<str>, fix: impl Into<String>) -> RowFault {
        RowFault::new(&self.record.place, what, fix)
    }

    /// A part that the row must have and does not.
    pub fn missing(&self, part: &str) -> RowFault {
        let columns = &self.record.fields;
        let names = column_names(columns.keys());
        if let Some(said) = self.said(part) {
            let what = match columns.get(said) {
                Some(_) => format!("the column {said}, mapped to `{part}`, is null"),
                None => format!("no column {said}, which is mapped to `{part}`; found: {names}"),
            };
            let near = nearest(said, columns.keys().map(String::as_str)).filter(|n| *n != said);
            return self.fault(
                what,
                match near {
                    Some(near) => format!("data.columns: {{{part}: {}}}", one_line(near)),
                    None => "name a column that every row has, or set data.on_bad_row: skip".into(),
                },
            );
        }
        let usual = self.format.parts.iter().find(|p| p.name == part);
        let usual = usual.map_or(&[][..], |p| p.columns);
        // A column that is mapped to another part is none of this one's.
        let free = |name: &&str| self.columns.iter().all(|(_, column)| column != *name);
        let others = || columns.keys().map(String::as_str).filter(free);
        let null = usual
            .iter()
            .find(|name| others().any(|other| other == **name));
        let what = match null {
            Some(name) => format!("the column {name} is null"),
            None => format!(
                "{}: no column for `{part}`; found: {names}",
                self.format.entry.id
            ),
        };
        let near = usual.iter().find_map(|name| nearest(name, others()));
        let fix = match (null, near) {
            (Some(_), _) => "fill it, drop such rows, or data.on_bad_row: skip".to_string(),
            (None, Some(near)) => format!("data.columns: {{{part}: {}}}", one_line(near)),
            (None, None) => format!("data.columns: {{{part}: NAME}}, or another data.format"),
        };
        self.fault(what, fix)
    }

    /// A part that is a text.
    pub fn text(&self, part: &str) -> Result<String, RowFault> {
        let found = self.part(part).ok_or_else(|| self.missing(part))?;
        match found.value {
            Value::String(text) => Ok(text.clone()),
            other => Err(self.wrong(found, "a text", other)),
        }
    }

    /// An optional part that is a text; an empty one counts as absent.
    pub fn optional_text(&self, part: &str) -> Result<Option<String>, RowFault> {
        match self.part(part) {
            None => Ok(None),
            Some(_) => Ok(Some(self.text(part)?).filter(|text| !text.is_empty())),
        }
    }

    /// A part that is true or false.
    pub fn label(&self, part: &str) -> Result<bool, RowFault> {
        let found = self.part(part).ok_or_else(|| self.missing(part))?;
        label(found.value).ok_or_else(|| self.wrong(found, "true or false", found.value))
    }

    pub fn wrong(&self, found: Found<'_>, expected: &str, got: &Value) -> RowFault {
        let what = format!("{}: expected {expected}, found {}", found.column, kind(got));
        let part = self
            .format
            .parts
            .iter()
            .find(|p| self.find(p).is_some_and(|f| f.column == found.column));
        // Another column that holds the right thing is probably the one that was meant.
        let other = part.and_then(|part| {
            let others = self.record.fields.iter();
            others
                .filter(|(name, value)| {
                    *name != found.column && !value.is_null() && part.shape.fits(value)
                })
                .map(|(name, _)| (part.name, name))
                .next()
        });
        self.fault(
            what,
            match other {
                Some((part, name)) => format!(
                    "if it is another column: data.columns: {{{part}: {}}}",
                    one_line(name)
                ),
                None => "fix the row, or use another data.format".into(),
            },
        )
    }
}

/// true, false, 0, 1, and the words for them that tables of text hold.
pub(super) fn label(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(label) => Some(*label),
        Value::Number(n) if n.as_f64() == Some(1.0) => Some(true),
        Value::Number(n) if n.as_f64() == Some(0.0) => Some(false),
        Value::String(word) => match word.trim().to_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// `[asked, answered]`, two texts.
pub(super) fn is_round(value: &Value) -> bool {
    let pair = value.as_array().map(Vec::as_slice);
    matches!(pair, Some([Value::String(_), Value::String(_)]))
}

/// The type of a value, in words.
pub(super) fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "true or false".into(),
        Value::Number(n) => format!("the number {n}"),
        Value::String(text) => {
            let start: String = text.chars().take(24).collect();
            format!("the text `{start}`")
        }
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(fields) => format!("an object with {}", column_names(fields.keys())),
    }
}

/// Names for display, not too many.
pub(super) fn column_names<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    const SHOWN: usize = 12;
    let more = names.len().saturating_sub(SHOWN);
    let shown: Vec<String> = names
        .take(SHOWN)
        .map(|n| one_line(&n.chars().take(40).collect::<String>()))
        .collect();
    match (shown.is_empty(), more) {
        (true, _) => "nothing".into(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {more} more", shown.join(", ")),
    }
}
