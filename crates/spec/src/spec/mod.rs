//! From text to a run: presets, files and `-s` overrides are layered, every value remembers its origin, and what
//! passes validation becomes a [`RunSpec`]. Reading data and building models happens elsewhere.
//!
//! `presets` (which files) → `layer` (names resolved) → `merge` (values validated) → `load` (typed).

pub mod alias;
mod aside;
mod base;
mod config;
mod config_paths;
mod differences;
mod draft;
mod engines;
mod files;
mod group;
mod home;
mod implied;
pub mod import;
mod issue;
mod json_schema;
mod layer;
mod length;
mod llm_lab;
mod load;
mod merge;
mod presets;
mod recorded;
mod relative_paths;
mod replaced;
mod review;
mod reward_summary;
mod rollout;
mod run_spec;
mod saved;
pub mod schema;
mod validate;
mod vocabulary;
pub mod yaml;

pub use crate::nn::PrecisionError;
pub use base::{BaseModel, PendingModel, base_folder, base_model, base_of_hub, starts_from};
pub use config::{
    CheckpointConfig, EvalConfig, ExtraSet, HealthConfig, PreflightConfig, RescueConfig,
    RescuePolicy, RunConfig, SampleConfig, TrainConfig,
};
pub use differences::{choices, follows};
pub use draft::{Change, Draft, Place, SaveError, file_name, free_path, save_new, shown};
pub use engines::torch_is_installed;
pub use files::{SpecFile, spec_file, spec_files};
pub use group::PresetGroup;
pub use issue::{Issue, Origin, Origins, SpecErrors};
pub use json_schema::json_schema;
pub(crate) use layer::describe;
pub use layer::{is_default, key_is_known, setting_named};
pub use length::{BatchStage, Saves};
pub use load::{
    Loaded, hub_models, load, load_on, load_over, load_text, load_text_on, load_text_with, start_of,
};
pub use presets::{Preset, SpecSources, preset_text, presets};
pub use replaced::{says, set_over};
pub use review::{
    FEWEST_STEPS, FEWEST_TUNING_STEPS, FEWEST_UPDATES, GOOD_PASSES, LARGE_MODEL, Sizes, less_often,
    named_template, uneven_rows, usual_rate,
};
pub use reward_summary::reward_summary;
pub use rollout::{RolloutConfig, RolloutLength};
pub use run_spec::{RunSpec, line_origins};
pub use saved::{CheckpointSize, FROZEN_COPIES, Kept};
pub use vocabulary::Growth;

/// The embedded corpora.
fn embed_corpora() -> Vec<String> {
    crate::embed::list("assets/corpora")
        .filter_map(|path| path.rsplit('/').next()?.strip_suffix(".txt"))
        .map(String::from)
        .collect()
}
