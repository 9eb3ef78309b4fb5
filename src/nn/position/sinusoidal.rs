//! Fixed waves added to the token embedding: feature 2i of position p is sin(p / 10000^(2i / d_model)), feature 2i + 1 its
//! cosine.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "sinusoidal",
    title: "Sinusoidal positions",
    summary: "Fixed sines and cosines added to the embeddings: nothing learned, no end; the first transformer's.",
    source: "Vaswani et al. 2017, arXiv 1706.03762",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Position for Config {
    fn has_waves(&self) -> bool {
        true
    }
}
