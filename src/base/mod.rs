//! The ground floor: what every room may use and what knows no room. Nothing here knows of runs, models or screens.

pub mod child;
pub mod clock;
pub mod files;
pub mod finding;
pub mod human;
pub mod mapped;
pub mod num;
pub mod paths;
pub mod registry;
pub mod rng;
pub mod sampling;
pub mod stats;
pub mod text;
