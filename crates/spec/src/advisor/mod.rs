//! Advice before a run: which method suits a goal, and the wizard's questions from a goal to a spec. Decisions are data
//! and pure functions; disk access is in [`inspection`]. No terminal, no training.

pub mod choose;
mod faulty;
pub mod inspection;
pub mod reading;
mod rows;
pub mod saved_answers;
pub mod sequences;
pub mod template;
pub mod wizard;
