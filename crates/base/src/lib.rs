//! The lowest layer: shared by every room, depending on none. Nothing here is about runs, models or UI.

pub mod base64;
pub mod checksum;
pub mod child;
pub mod clock;
pub mod digest;
pub mod every;
pub mod files;
pub mod finding;
pub mod human;
pub mod json;
pub mod mapped;
pub mod near;
pub mod num;
pub mod paths;
pub mod place;
pub mod png;
pub mod process;
pub mod protobuf;
pub mod registry;
pub mod rng;
pub mod sampling;
pub mod ssh;
pub mod stats;
pub mod stderr_tail;
pub mod text;
pub mod turns;
