//! Where rows come from: which files a source means, how they are opened within bounds, and the rows that they hold. What
//! a row means is `formats`' matter; downloading is the hub's.
//!
//! ```text
//! SourceConfig ─► files, paths ─► open: bytes, decompressed within bounds ─► container: rows ─► Record
//! ```

mod config;
mod container;
mod context;
mod fault;
mod files;
mod input;
mod json;
mod lines;
mod open;
mod paths;
mod rows;
mod utf8;
mod whole;
mod wide;

pub use config::{Origin, SourceConfig};
pub(super) use container::PARQUET;
pub use container::announced_rows;
pub use context::{Progress, ReadContext};
pub use paths::{
    files_of, has_pattern, is_data_file, is_description, left_out, neighbour, other_texts,
    saved_as_arrow,
};
pub use rows::{Rows, is_no_plain_text, rows};
pub use utf8::{BadText, bad_text};
pub(super) use whole::read;

/// The largest row: a line, a JSON value, a CSV record. Memory while reading is a small multiple of it.
pub const MAX_ROW_BYTES: usize = 16 << 20;
/// Most brackets inside each other in a row of JSON.
pub const MAX_DEPTH: usize = 64;
/// A compressed file that grows more than this many times is refused, once it has grown past [`FREE_BYTES`].
pub const MAX_RATIO: u64 = 200;
/// The size to which a compressed file may always expand.
pub const FREE_BYTES: u64 = 64 << 20;
/// A plain text is handed on in pieces of about this size, cut at line ends.
pub const PIECE_BYTES: usize = 1 << 20;
/// The column that marks a piece of plain text that continues the row before it.
pub const CONTINUES: &str = "__continues";
