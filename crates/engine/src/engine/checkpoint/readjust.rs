//! A branch's own copy of a checkpoint: without live changes of its parent, and with the position counted in the branch's
//! micro-batches.

use super::disk::record_of;
use super::manifest::{self, Manifest};
use super::{CheckpointError, STATE, read_state};
use crate::base::files::write_atomic;
use crate::engine::state::Progress;
use std::path::Path;

/// Drops live changes of the settings in `keys` (`lr`, `clip_norm`, and the `beta` that `kl_target` moves) from a checkpoint's
/// state. The folder is a copy that nothing reads yet; its files may be links to another checkpoint's and are replaced, never written to.
///
/// # Errors
/// The state or the manifest cannot be read or written.
pub fn forget_adjustments(folder: &Path, keys: &[&str]) -> Result<(), CheckpointError> {
    rewrite(folder, |progress| {
        keys.iter().for_each(|key| forget(progress, key));
    })
}

fn forget(progress: &mut Progress, key: &str) {
    match key {
        "lr" => progress.adjustments.lr = None,
        "clip_norm" => progress.adjustments.clip_norm = None,
        "beta" => progress.kl_coef = None,
        _ => {}
    }
}

/// Counts the place in the data in micro-batches of another number of rows, `(before, now)`, of a copy as above: the next one begins
/// with the same row, or with the first of a micro-batch that some of its rows were left of.
///
/// # Errors
/// As there.
pub fn recount(folder: &Path, (before, now): (usize, usize)) -> Result<(), CheckpointError> {
    let (before, now) = (before as u64, now.max(1) as u64);
    rewrite(folder, |progress| {
        progress.micro_step = progress.micro_step * before / now;
        for (first, end) in &mut progress.skips {
            // All of the rows that were passed over.
            (*first, *end) = (*first * before / now, (*end * before).div_ceil(now));
        }
    })
}

fn rewrite(folder: &Path, change: impl FnOnce(&mut Progress)) -> Result<(), CheckpointError> {
    let mut saved = read_state(folder)?;
    change(&mut saved.progress);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_live_change_is_dropped_by_its_key() {
        let mut progress = Progress {
            kl_coef: Some(0.07),
            ..Progress::default()
        };
        progress.adjustments.lr = Some(1e-3);
        forget(&mut progress, "beta");
        assert_eq!(
            (progress.kl_coef, progress.adjustments.lr),
            (None, Some(1e-3))
        );
        forget(&mut progress, "lr");
        assert_eq!(progress, Progress::default());
    }
}
