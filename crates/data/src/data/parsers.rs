//! The list of parsers of foreign bytes whose libraries crash on crafted files. They run in a limited child process
//! (`base::child`); one word in this list registers one there.

use crate::base::child::Parser;

/// Every parser that a child process knows.
pub const PARSERS: &[Parser] = &[
    super::source::PARQUET,
    super::tokenizer::PARSER,
    super::chat::PARSER,
];
