//! A model folder as a stranger would find it: does it load, generate and describe itself, is it safe to open, is its card
//! complete? One file per check in `checks`, one word in its list; [`layout`] copies the model's files for publication. The
//! network is handled by `hub`.

pub mod card;
mod checks;
mod error;
mod files;
mod layout;
mod subject;
#[cfg(test)]
mod tests;

pub use checks::{CHECKS, Check, license_is_listed, run as check};
pub use error::SubjectError;
pub use files::{Entry, Link, sha256_of};
pub use layout::{LayoutError, SUMS, belonging, copy_to, write_checksums};
pub use subject::{Form, LocalEnv, Subject};
