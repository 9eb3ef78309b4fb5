//! A trained vector for each position, added to the token embedding.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "learned",
    title: "Learned positions",
    summary: "A trained vector for each position; the GPT-2 choice. Cannot go beyond seq_len.",
    source: "Radford et al. 2019 (GPT-2)",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Position for Config {
    fn has_table(&self) -> bool {
        true
    }
}
