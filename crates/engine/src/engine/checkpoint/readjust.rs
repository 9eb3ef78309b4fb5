//! A branch's own copy of a checkpoint, without what was changed by hand while its parent ran.

use super::disk::record_of;
use super::manifest::{self, Manifest};
use super::{CheckpointError, STATE, read_state};
use crate::base::files::write_atomic;
use std::path::Path;

/// Drops live changes of the settings in `keys` (`lr`, `clip_norm`) from a checkpoint's state. The folder is a copy that nothing
/// reads yet; its files may be links to another checkpoint's and are replaced, never written to.
///
/// # Errors
/// The state or the manifest cannot be read or written.
pub fn forget_adjustments(folder: &Path, keys: &[&str]) -> Result<(), CheckpointError> {
    let mut saved = read_state(folder)?;
    let adjustments = &mut saved.progress.adjustments;
    for key in keys {
        match *key {
            "lr" => adjustments.lr = None,
            "clip_norm" => adjustments.clip_norm = None,
            _ => {}
        }
    }
    let path = folder.join(STATE);
    let wrong = |what: String| CheckpointError::State {
        path: path.clone(),
        what,
    };
    let text = serde_json::to_vec(&saved).map_err(|e| wrong(e.to_string()))?;
    write_atomic(&path, &text).map_err(|e| wrong(e.to_string()))?;
    let mut manifest = Manifest::read(folder)?;
    let record = record_of(&path).map_err(|e| wrong(e.to_string()))?;
    manifest.files.insert(STATE.into(), record);
    let text = serde_json::to_vec(&manifest).map_err(|e| wrong(e.to_string()))?;
    write_atomic(&folder.join(manifest::FILE), &text).map_err(|e| wrong(e.to_string()))
}
