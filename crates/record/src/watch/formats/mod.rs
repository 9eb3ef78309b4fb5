//! The kinds of logs that are read. A kind is one file and one word here; what is asked first is what is known best.

mod csv;
mod jsonl;
mod text;
mod tfevents;
mod trainer_state;
mod wandb;

use super::Format;

/// Every format, in the order in which a file is tried.
pub const FORMATS: &[&Format] = &[
    &trainer_state::FORMAT,
    &tfevents::FORMAT,
    &wandb::FORMAT,
    &jsonl::FORMAT,
    &csv::FORMAT,
    &text::FORMAT,
];
