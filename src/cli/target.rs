//! What `llmtui train` means by its words: a new run, a resumed one, or a branch of one.

use super::branch::Branch;
use super::extend::Extension;
use super::run_ref::spec_of;
use crate::run::RunDir;
use crate::spec::{Loaded, RunSpec};

/// What to train: a new run or a resumed one.
pub enum Target {
    New(Box<Loaded>),
    Resumed(RunDir, Option<Box<Extension>>),
    Branch(Box<Branch>),
}

impl Target {
    pub fn spec(&self) -> anyhow::Result<RunSpec> {
        match self {
            Target::New(loaded) => Ok(loaded.spec.clone()),
            Target::Branch(branch) => Ok(branch.loaded.spec.clone()),
            Target::Resumed(_, Some(extension)) => Ok(extension.spec().clone()),
            Target::Resumed(run, None) => spec_of(run),
        }
    }
}

/// What a changed value changed besides itself.
pub fn print_notes(loaded: &Loaded) {
    for note in loaded.notes() {
        errln!("note: {note}");
    }
}
