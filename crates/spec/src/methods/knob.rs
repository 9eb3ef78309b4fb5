//! A setting that a form asks for, with typical values and its effect. Meaning and legal values are in the schema.

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Full path; `*` stands for the selected member.
    pub path: &'static str,
    /// Typical values.
    pub typical: &'static str,
    /// The effect of changing it.
    pub why: &'static str,
    /// The model's architecture: not asked if the model is given.
    pub shape: bool,
}

impl Knob {
    /// Its name in a form: the key, with its section if the key alone is ambiguous.
    pub fn word(&self) -> &'static str {
        match self.path {
            "eval.every" | "sample.prompt" => self.path,
            "adapter.*.rank" => "lora.rank",
            "adapter.*.alpha" => "lora.alpha",
            path => path.rsplit('.').next().unwrap_or(path),
        }
    }
}

pub const fn knob(path: &'static str, typical: &'static str, why: &'static str) -> Knob {
    Knob {
        path,
        typical,
        why,
        shape: false,
    }
}
