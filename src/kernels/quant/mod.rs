//! Weights in few bits: the formats, and products with matrices that stay in them. Forward only: nothing here has a
//! gradient.
#![allow(unsafe_code)]

mod activations;
mod doors;
mod floats;
mod formats;
pub mod half;
mod layout;
mod packed;
mod repack;
mod tile;

pub use formats::{Format, Kind};
pub use packed::{PackError, Packed};
