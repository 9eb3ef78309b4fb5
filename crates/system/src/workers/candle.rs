//! The engine of this program: its own kernels on this machine's processor, in the engine's process.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "candle",
    title: "This program (CPU)",
    summary: "llmtui's own CPU kernels; nothing to install.",
    source: "candle, huggingface/candle",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Compute for Config {}
