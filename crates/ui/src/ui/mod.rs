//! The workbench: a fold over events plus a few cursors. Keys become actions, actions become effects.

pub mod action;
pub mod app;
pub mod effect;
pub mod field;
pub mod freshness;
pub mod glyphs;
pub mod hit;
mod jobs;
pub mod keymap;
pub mod layout;
pub mod machine_view;
pub mod msg;
pub mod overlays;
pub mod panes;
pub mod request;
pub mod rows;
mod runtime;
pub mod signs;
pub mod store;
mod term;
pub mod theme;
mod toasts;
pub mod widgets;

pub use app::ExitReport;
pub use jobs::{begin_pipeline, remember_spec};
pub use runtime::{StartView, UiOptions, check_theme, run};
pub use term::give_back_terminal;

#[cfg(test)]
#[path = "../../../../tests/support/tape.rs"]
mod tape;
