//! Pipelines: several trainings, and what follows them, as one. A pipeline is a YAML file with `stages:`; each stage starts from what
//! an earlier one made. Its folder below the runs directory says how far it is; the runs of its stages are runs like others.
//!
//! [`config`] (the file) → [`dir`] (the folder and its state) → the stages' own subcommands, which `cli` calls.

mod config;
mod dir;
mod error;
mod find;
mod judges;
mod parsed;
mod places;
mod runs;

pub use config::{
    Evaluate, Export, Pipeline, Report, Stage, StageModel, Train, TrainTokenizer, Work,
};
pub use dir::{PipelineDir, StageState, State, Status, newest_unfinished};
pub use error::{Fault, PipelineError};
pub use find::{files, find, names, read, text_of};
pub use parsed::Parsed;
pub use places::Places;
pub use runs::{Membership, membership};

#[cfg(test)]
mod tests;
