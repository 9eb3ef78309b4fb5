//! Rows that fit a format by one column and mean something else by the others: read so, the method would learn what nobody meant.

use super::row::column_names;
use super::{Columns, FormatId};
use crate::data::{DataError, Record, Unit};
use serde_json::Value;

/// Why rows are not read in the format that fits them; a format that the spec names is taken at its word.
pub(super) fn refused(
    best: FormatId,
    sample: &[Record],
    columns: &Columns,
    unit: Option<Unit>,
) -> Option<DataError> {
    let first = sample.first()?;
    let most = |is: fn(&Record) -> bool| 2 * sample.iter().filter(|r| is(r)).count() > sample.len();
    let names = || column_names(first.fields.keys());
    match best {
        FormatId::Text if columns.get("text").is_none() && most(is_of_a_tree) => {
            Some(DataError::source(
                &first.place.file,
                format!(
                    "has the messages of conversation trees, one a row (columns: {}): as plain text the users' messages would be learned like the answers, each without its conversation",
                    names()
                ),
                "`llmtui data convert FILE --to messages --trees` joins them by parent_id into conversations; data.format: text reads every message as a text",
            ))
        }
        FormatId::PromptOnly
            if unit != Some(Unit::Prompt)
                && columns.get("prompt").is_none()
                && most(has_completions) =>
        {
            let what = match most(has_labels) {
                true => {
                    "the steps of answers with a label each (stepwise supervision), which no method here learns"
                }
                false => "several completions of each prompt, which no format reads",
            };
            Some(DataError::source(
                &first.place.file,
                format!("has {what} (columns: {})", names()),
                "write what is to be learned as rows of its own: {prompt, completion, label} for KTO, {prompt, chosen, rejected} for DPO and reward models; data.format: prompt_only reads the prompts alone",
            ))
        }
        _ => None,
    }
}

/// OpenAssistant's: a message that names its parent.
fn is_of_a_tree(record: &Record) -> bool {
    let has = |name: &str| record.fields.contains_key(name);
    let role = record.fields.get("role").is_some_and(Value::is_string);
    has("message_id") && has("parent_id") && role
}

fn has_completions(record: &Record) -> bool {
    let value = record.fields.get("completions");
    value.is_some_and(|value| value.is_array())
}

fn has_labels(record: &Record) -> bool {
    let value = record.fields.get("labels");
    has_completions(record) && value.is_some_and(Value::is_array)
}
