//! Advice before a run: which method suits a goal, and the wizard's questions from a goal to a spec. Decisions are data
//! and pure functions; disk access is in [`look`]. No terminal, no training.

pub mod choose;
mod faulty;
pub mod look;
pub mod reading;
pub mod remember;
mod rows;
pub mod sequences;
pub mod template;
pub mod wizard;
