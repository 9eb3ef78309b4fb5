//! Advice before a run: which method suits a goal, and the questions that lead from a goal to a spec. Decisions are data
//! and pure functions; what must be read from a disk is read by [`look`]. No terminal, no training.

pub mod choose;
pub mod look;
pub mod remember;
mod rows;
pub mod wizard;
