//! The meaning of a row's columns: one file per format, one word in the list. A format declares its parts, their usual
//! columns, and how they become an [`Example`]. Which file a row came from is up to `source`.

mod columns;
mod detect;
mod not_whole;
mod pairs;
mod row;
mod suggest;
mod turns;
pub(in crate::data) mod weight;

pub use columns::{Columns, in_options};
pub use detect::{Detection, DetectionBasis, detect};
pub use suggest::{Suggestion, suggest, suggest_answers, unread};
pub(in crate::data) use suggest::{is_answer, texts};

use super::{Content, DataError, Example, Record, RowFault};
use crate::base::registry::Entry;
use row::Row;
use serde_json::{Map, Value};

/// A way to read rows.
pub struct Format {
    pub entry: Entry,
    /// Its parts, in the usual order.
    pub parts: &'static [Part],
    /// Whether a row that has the required parts is of this format after all.
    fits: fn(&Row<'_>) -> bool,
    read: fn(&Row<'_>) -> Result<Content, RowFault>,
}

/// A part of a row that a format reads.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The word for it in `columns: {part: column}`.
    pub name: &'static str,
    /// Columns that usually hold it, the most usual first.
    pub columns: &'static [&'static str],
    pub need: Need,
    shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Required,
    Optional,
}

/// The values that a column must have to be detected as a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    /// A list of turns with `role`.
    Roles,
    /// A list of turns with `from`.
    Senders,
    /// A text or turns of either kind, in a list or alone.
    Prose,
    /// true, false, 0, 1 or one of these words.
    Label,
    List,
    /// `[[asked, answered], …]`, be it empty. A usual column with anything else is not the part.
    Rounds,
    Any,
}

impl Shape {
    fn fits(self, value: &Value) -> bool {
        let turns = |key: &str| {
            let items = value.as_array();
            items.is_some_and(|i| i.first().is_some_and(|turn| turn.get(key).is_some()))
        };
        match self {
            Shape::Text => value.is_string(),
            Shape::Roles => turns("role"),
            Shape::Senders => turns("from"),
            Shape::Prose => {
                value.is_string()
                    || turns("role")
                    || turns("from")
                    || value.get("role").is_some()
                    || value.get("from").is_some()
            }
            Shape::Label => row::label(value).is_some(),
            Shape::List => value.is_array(),
            Shape::Rounds => value
                .as_array()
                .is_some_and(|r| r.iter().all(row::is_round)),
            Shape::Any => true,
        }
    }
}

const fn required(name: &'static str, columns: &'static [&'static str], shape: Shape) -> Part {
    Part {
        name,
        columns,
        need: Need::Required,
        shape,
    }
}

const fn optional(name: &'static str, columns: &'static [&'static str], shape: Shape) -> Part {
    Part {
        name,
        columns,
        need: Need::Optional,
        shape,
    }
}

/// Parts that several formats share.
const TOOLS: Part = optional("tools", &["tools"], Shape::Any);
/// Rounds before the prompt. Columns of this name hold other things too, which are not part of a row.
const HISTORY: Part = optional("history", &["history"], Shape::Rounds);
const SYSTEM: Part = optional("system", &["system", "system_prompt"], Shape::Text);
/// The prompt as a question: a text there is a user turn. A column is it by `data.columns.question` alone, which is how a column
/// named `prompt`, whose texts are continued as they are, gets the chat template.
const QUESTION: Part = optional("question", &[], Shape::Prose);

macro_rules! formats {
    ($($id:ident : $variant:ident),+ $(,)?) => {
        $(mod $id;)+

        /// How rows are read.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum FormatId { $($variant),+ }

        impl FormatId {
            /// Every format, in the order of the list.
            pub const ALL: &'static [FormatId] = &[$(FormatId::$variant),+];

            /// The word for it in a spec.
            pub fn word(self) -> &'static str {
                match self { $(FormatId::$variant => stringify!($id)),+ }
            }

            pub fn format(self) -> &'static Format {
                match self { $(FormatId::$variant => &$id::FORMAT),+ }
            }
        }

        /// A format, or whatever the rows show.
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum FormatChoice {
            #[default]
            Auto,
            $($variant),+
        }

        impl FormatChoice {
            /// The format, unless the rows are to decide.
            pub fn id(self) -> Option<FormatId> {
                match self {
                    FormatChoice::Auto => None,
                    $(FormatChoice::$variant => Some(FormatId::$variant)),+
                }
            }
        }
    };
}

formats! {
    text: Text,
    messages: Messages,
    sharegpt: Sharegpt,
    alpaca: Alpaca,
    prompt_completion: PromptCompletion,
    instruction_response: InstructionResponse,
    preference: Preference,
    preference_implicit: PreferenceImplicit,
    kto: Kto,
    prompt_only: PromptOnly,
    hh_rlhf: HhRlhf,
}

impl FormatId {
    /// The format of a word on a command line, `-` for `_`.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn by_word(word: &str) -> Result<FormatId, DataError> {
        let mut all = FormatId::ALL.iter();
        let found = all.find(|id| id.word() == word.replace('-', "_"));
        found.copied().ok_or_else(|| {
            let words: Vec<&str> = FormatId::ALL.iter().map(|id| id.word()).collect();
            let what = format!("{word} is not a format");
            DataError::source("--format", what, words.join(", "))
        })
    }
}

impl std::fmt::Display for FormatId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Columns with pictures and sounds: a row that has them is not whole without them.
const MEDIA: [&str; 6] = ["images", "image", "audios", "audio", "videos", "video"];

/// Reads a row.
///
/// # Errors
/// The fault, and the mapping or change that would fix it.
pub fn read(format: FormatId, record: &Record, columns: &Columns) -> Result<Example, RowFault> {
    let format = format.format();
    let row = Row::new(record, format, columns);
    row.has_required_parts()?;
    let has_media = |name: &&str| match record.fields.get(*name) {
        None | Some(Value::Null) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    };
    if let Some(name) = MEDIA.iter().find(|name| has_media(name)) {
        let what = format!("the row has {name}, but only text is supported");
        return Err(row.fault(what, "drop such rows (data.on_bad_row: skip) or the column"));
    }
    let content = (format.read)(&row)?;
    let tools = match format.parts.iter().any(|p| p.name == TOOLS.name) {
        true => turns::tools(&row)?,
        false => None,
    };
    let claimed = row.claimed();
    let extra: Map<String, Value> = record
        .fields
        .iter()
        .filter(|(name, _)| !claimed.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Ok(Example {
        content,
        tools,
        extra,
    })
}

#[cfg(test)]
mod tests;
