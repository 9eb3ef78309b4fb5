//! `engine: auto`: decided for the machine when a run starts, and written into its spec (`plan::start`).

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "auto",
    title: "Chosen for the machine",
    summary: "PyTorch if GPUs, an installation and the spec allow it, else candle; decided at the start.",
    source: "llmtui plan",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Compute for Config {
    fn is_open(&self) -> bool {
        true
    }
}
