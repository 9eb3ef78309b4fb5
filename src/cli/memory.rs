//! The gate before a start, in the shell's words.

use super::Context;
use super::exit::Failure;
use crate::base::paths::Env;
use crate::plan::start::{self, Refusal};
use crate::spec::{Loaded, RunSpec};

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::user_error(refusal.what, refusal.hint)
    }
}

/// Asks the plan before anything is made: a model that cannot fit would end the process.
///
/// # Errors
/// What is needed, what is there, the cheapest changes.
pub fn check(spec: &RunSpec, env: &Env) -> Result<(), Failure> {
    Ok(start::check(spec, env)?)
}

/// Whether there is a PyTorch for ranks on this machine; other machines have one of their own.
///
/// # Errors
/// There is none.
pub fn torch(spec: &RunSpec, env: &Env) -> Result<(), Failure> {
    spec.finds_torch(env)
        .map_err(|(what, hint)| Failure::machine(what, hint))
}

/// The spec with an engine for `engine: auto`, which is reported.
pub fn decided(mut loaded: Loaded, cx: &Context) -> Loaded {
    if let Some(why) = start::resolve_auto_engine(&mut loaded, &cx.env) {
        errln!("note: {why}");
    }
    loaded
}
