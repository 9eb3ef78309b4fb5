//! The list that a preset is shown in, on Home and in `llmtui presets`.

use serde::{Deserialize, Serialize};

/// What a preset is for.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PresetGroup {
    /// A preset of the user's own.
    #[default]
    Own,
    /// Complete as it is: embedded or made-up data, small enough for any machine.
    Demo,
    /// Settings for a model and data of the user's own (`train.from`, `data.path`).
    Template,
    /// A model size to inspect and to plan with.
    Size,
}

impl PresetGroup {
    /// The heading of its list.
    pub fn title(self) -> &'static str {
        match self {
            PresetGroup::Own => "your presets",
            PresetGroup::Demo => "demos: run anywhere, as they are",
            PresetGroup::Template => "templates: for your own model and data",
            PresetGroup::Size => "sizes: to inspect and to plan with",
        }
    }
}
