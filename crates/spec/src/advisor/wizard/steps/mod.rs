//! The questions, one file each.

mod check;
mod data;
mod finish;
mod goal;
mod method;
mod model;
mod plan;
mod reward;
mod settings;
mod start;

pub(super) use check::Check;
pub(super) use data::Data;
pub(super) use finish::Finish;
pub(super) use goal::Goal;
pub(super) use method::Method;
pub(super) use model::Model;
pub(super) use plan::Plan;
pub(super) use reward::Reward;
pub(super) use settings::Settings;
pub(super) use start::Start;
