//! The `llmtui` binary: see `cli`.
fn main() {}
