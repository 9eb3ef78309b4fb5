//! Evaluation tasks: what a model is asked, how its answers count, and how sure the numbers are. A task is one YAML file
//! under `assets/tasks`, or one of the user's. Prompts and tokens follow lm-evaluation-harness 0.4, so that numbers can be
//! compared. Where models come from and how results are shown is decided elsewhere.

mod answers;
mod compare;
mod config;
mod encode;
mod error;
mod ifeval;
mod items;
mod kept;
mod list;
mod model;
mod programs;
mod questions;
mod record;
mod rewarded;
mod run;
mod score;
mod subject;
mod summary;
mod table;
mod task;

pub use answers::{judge, thinking};
pub use compare::{Comparison, Flip, compare};
pub use config::{AnswerConfig, Kind, TaskConfig};
pub use error::TaskError;
pub use items::Item;
pub use kept::{Kept, kept};
pub use list::{Listed, list, load};
pub use model::AskedModel;
pub use questions::{ModelAnswer, Question, questions};
pub use record::Record;
pub use run::{Outcome, Progress, Request, Run};
pub use subject::{Loaded, Subject, fingerprint};
pub use summary::{Reading, Summary, headline, is_share, summarize};
pub use table::{
    MAX_MODELS, TaskCell, TaskRow, TaskTable, WHILE_TRAINING, compared_by, models_in, table,
};
pub use task::{Prepared, Task, TaskOrigin};

#[cfg(test)]
mod tests;
