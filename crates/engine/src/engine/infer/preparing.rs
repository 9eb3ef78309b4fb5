//! The form of an answer while a thread of its own makes it: others are written meanwhile.

use super::{FormWork, NoAnswer};
use crate::nn::generate::Constraint;
use std::thread::{Builder, JoinHandle};

/// Bytes for the parser, which calls itself from schema to schema: several times what the most of them take (`form/references`). Only
/// what is used is real memory.
const STACK: usize = 256 << 20;

/// A form on its way.
#[derive(Debug)]
pub(super) struct Pending(JoinHandle<Result<Box<dyn Constraint>, String>>);

impl Pending {
    /// Begins to make it. The work cannot be stopped: dropping this leaves it to its end, of which nobody hears.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(work: FormWork) -> Result<Pending, NoAnswer> {
        let thread = Builder::new().name("form".into()).stack_size(STACK);
        let started = thread.spawn(work);
        let why = |e| NoAnswer::Broken(format!("no thread can be started: {e}"));
        started.map(Pending).map_err(why)
    }

    pub fn is_made(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for it.
    ///
    /// # Errors
    /// It cannot be followed.
    pub fn made(self) -> Result<Box<dyn Constraint>, NoAnswer> {
        match self.0.join() {
            Ok(form) => form.map_err(NoAnswer::Refused),
            Err(_) => {
                let why = "the form of the answer could not be made: a fault of the parser".into();
                Err(NoAnswer::Broken(why))
            }
        }
    }
}
