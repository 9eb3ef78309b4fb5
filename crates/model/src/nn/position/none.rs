//! No positions at all: only the causal mask distinguishes earlier from later.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "none",
    title: "No positions (NoPE)",
    summary: "Only the causal mask carries order: weak alone, for comparison and for hybrids.",
    source: "Kazemnejad et al. 2023, arXiv 2305.19466",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Position for Config {}
