//! The supported log formats. A format is one file and one word here; the most specific ones are tried first.

mod csv;
mod jsonl;
mod lines;
mod printed;
mod text;
mod tfevents;
mod trainer_state;
mod wandb;

pub use text::{is_candidate as may_be_printed, readings as printed_readings};
pub use tfevents::is_curve;

use super::Format;

/// What is known by any part of it, not by its beginning alone.
pub const PRINTED: &Format = &text::FORMAT;

/// Every format, in the order in which a file is tried.
pub const FORMATS: &[&Format] = &[
    &trainer_state::FORMAT,
    &tfevents::FORMAT,
    &wandb::FORMAT,
    &jsonl::FORMAT,
    &csv::FORMAT,
    &text::FORMAT,
];
