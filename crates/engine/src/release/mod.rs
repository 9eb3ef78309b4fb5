//! A model folder as a stranger meets it: does it load, generate and say what it is, is it safe to open, is its card complete?
//! One file a check in `checks`, one word in its list; [`layout`] copies what belongs to a model for others. What goes over
//! the network is `hub`'s matter.

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
pub use layout::{LayoutError, SUMS, belonging, lay_out, seal};
pub use subject::{Form, Here, Subject};
