//! From words to a run: presets, overrides and their origins become a validated [`RunSpec`].

mod config;
pub mod yaml;

pub use config::{
    CheckpointConfig, EvalConfig, PreflightConfig, RunConfig, SampleConfig, TrainConfig,
};
