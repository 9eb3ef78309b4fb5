//! One token per distinct character of the training text, in code-point order.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "char",
    title: "Characters",
    summary: "One token per distinct character: nothing to train, good for tiny models.",
    source: "nanoGPT, data/shakespeare_char",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        None
    }
}
