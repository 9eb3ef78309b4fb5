//! The peak learning rate from the first step to the last.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "none",
    title: "None",
    summary: "The peak learning rate from the first step to the last, without warm-up.",
    source: "Robbins and Monro 1951, doi 10.1214/aoms/1177729586",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Schedule for Config {
    fn warmup_steps(&self) -> u64 {
        0
    }

    fn set_warmup_steps(&mut self, _steps: u64) {}

    fn lr_at(&self, _step: u64, _max_steps: u64, lr: f64) -> f64 {
        lr
    }
}
