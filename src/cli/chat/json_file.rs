//! Small JSON files that options name: a schema.

use crate::base::files::read_plain_text;
use crate::base::text::{one_line, shown};
use crate::cli::exit::Failure;
use serde_json::Value;
use std::path::Path;

/// Larger files are none.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file; `hint` says what it should be.
///
/// # Errors
/// It cannot be read, is too large, or not JSON.
pub fn read(path: &Path, hint: &str) -> Result<Value, Failure> {
    let fault = |what: String| fault(path, &what, hint);
    let length = std::fs::metadata(path)
        .map_err(|e| fault(e.to_string()))?
        .len();
    if length > MAX_BYTES {
        return Err(fault(format!(
            "{length} bytes are too many: at most {MAX_BYTES}"
        )));
    }
    let text = read_plain_text(path).map_err(|e| fault(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| fault(format!("not JSON: {e}")))
}

pub fn fault(path: &Path, what: &str, hint: &str) -> Failure {
    Failure::user_error(one_line(&format!("{}: {what}", shown(path))), hint)
}
