//! Weights in few bits: the formats, and products with matrices that stay in them. Forward only: nothing here has a
//! gradient.

mod formats;
pub mod half;
mod packed;

pub use formats::{Format, Kind};
pub use packed::{PackError, Packed};
