//! `manifest.json`: the files of a checkpoint with their sizes and checksums. A folder that does not match is damaged, and
//! the error names the file.

use super::disk::{FileRecord, record_of};
use crate::base::files::read_small;
use crate::base::text::one_line;
use crate::hf;
use crate::models::{ModelSource, SourceError};
use crate::rewards::WeightedReward;
use crate::run::checkpoints::step_in;
use crate::tasks::Prepared;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The manifest's own file name; it is written last.
pub const FILE: &str = "manifest.json";
/// Version of the checkpoint format.
pub const FORMAT: u32 = 1;
/// Largest manifest that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Files of a checkpoint that must be vouched for where they are.
const OWN: &[&str] = &[
    super::STATE,
    super::OPTIMIZER,
    hf::CONFIG,
    hf::WEIGHTS,
    hf::ADAPTER_WEIGHTS,
    hf::TOKENIZER,
];

/// What a checkpoint consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub step: u64,
    pub files: BTreeMap<String, FileRecord>,
}

/// Why a checkpoint is not whole.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    #[error("{0} is not a manifest: {1}")]
    Malformed(PathBuf, String),
    #[error(
        "{path} was written by a newer llmtui (checkpoint format {format}, this program reads up to {FORMAT})"
    )]
    Newer { path: PathBuf, format: u32 },
    #[error(
        "{path} has {found} bytes, the manifest says {expected}: the file was truncated or changed after it was saved"
    )]
    Size {
        path: PathBuf,
        found: u64,
        expected: u64,
    },
    #[error(
        "{0} does not match its SHA-256: the file changed after it was saved (disk fault, or edited)"
    )]
    Checksum(PathBuf),
}

impl Fault {
    /// What to do where a damaged folder was to be used as a model.
    pub const HINT: &str = "use another checkpoint of the run; if you made the change, delete its manifest.json, and the \
                            folder is treated as any other model";
}

impl Manifest {
    pub fn total_bytes(&self) -> u64 {
        self.files.values().map(|f| f.bytes).sum()
    }

    /// Reads the manifest of a checkpoint folder without looking at the other files.
    ///
    /// # Errors
    /// It is absent, malformed, or of a newer program.
    pub fn read(folder: &Path) -> Result<Manifest, Fault> {
        let path = folder.join(FILE);
        let unreadable = |e| Fault::Unreadable(path.clone(), e);
        let malformed = |what: String| Fault::Malformed(path.clone(), what);
        let text = read_small(&path, MAX_BYTES).map_err(unreadable)?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        if manifest.format > FORMAT {
            return Err(Fault::Newer {
                path,
                format: manifest.format,
            });
        }
        let plain = |name: &String| Path::new(name).file_name() == Some(name.as_ref());
        if let Some(name) = manifest.files.keys().find(|name| !plain(name)) {
            return Err(malformed(format!("`{name}` is not a plain file name")));
        }
        Ok(manifest)
    }

    /// Verifies a folder that has a manifest; foreign model folders have none.
    ///
    /// # Errors
    /// As [`Manifest::verify`], where there is one.
    pub fn verify_if_any(folder: &Path) -> Result<(), Fault> {
        match folder.join(FILE).exists() {
            true => Manifest::verify(folder).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Verifies the reward models that are to judge answers, where they are checkpoints.
    ///
    /// # Errors
    /// The first that is damaged.
    pub fn verify_judges(rewards: &[WeightedReward]) -> Result<(), Fault> {
        let mut models = rewards.iter().filter_map(|one| one.reward.model());
        models.try_for_each(Manifest::verify_if_any)
    }

    /// The same of the rewards that evaluation tasks score answers with.
    ///
    /// # Errors
    /// The first that is damaged, with the task's name.
    pub fn verify_tasks(prepared: &[Prepared]) -> Result<(), (String, Fault)> {
        prepared.iter().try_for_each(|prepared| {
            let config = prepared.task.config();
            Manifest::verify_judges(&config.answer.rewards)
                .map_err(|fault| (one_line(&config.name), fault))
        })
    }

    /// Opens a model whose files have been verified, where they are a checkpoint's: those of its folder, and of all that an
    /// adapter stands on.
    ///
    /// # Errors
    /// A file is not what its manifest says, or the model cannot be read.
    pub fn open_verified<E: From<Fault> + From<SourceError>>(
        path: &Path,
    ) -> Result<ModelSource, E> {
        Manifest::verify_if_any(path)?;
        let source = ModelSource::open(path)?;
        let mut at = &source;
        while let ModelSource::Folder(folder) = at
            && let Some(base) = folder.base()
        {
            Manifest::verify_if_any(base.path())?;
            at = base;
        }
        Ok(source)
    }

    /// Reads the manifest and holds every file against it.
    ///
    /// # Errors
    /// The manifest cannot be read, or a file is absent, not listed, or not what it says.
    pub fn verify(folder: &Path) -> Result<Manifest, Fault> {
        let manifest = Manifest::read(folder)?;
        let name = folder.file_name().and_then(|name| name.to_str());
        let said = name.and_then(step_in);
        if said.is_some_and(|step| step != manifest.step) {
            let what = format!(
                "it is of step {}, but the folder is named after another",
                manifest.step
            );
            return Err(Fault::Malformed(folder.join(FILE), what));
        }
        let unlisted =
            |name: &&&str| !manifest.files.contains_key(**name) && folder.join(name).exists();
        if let Some(name) = OWN.iter().find(unlisted) {
            let what = format!("it does not list the existing {name}");
            return Err(Fault::Malformed(folder.join(FILE), what));
        }
        for (name, expected) in &manifest.files {
            let path = folder.join(name);
            let unreadable = |e| Fault::Unreadable(path.clone(), e);
            let found = std::fs::metadata(&path).map_err(unreadable)?.len();
            if found != expected.bytes {
                return Err(Fault::Size {
                    path,
                    found,
                    expected: expected.bytes,
                });
            }
            if record_of(&path).map_err(unreadable)? != *expected {
                return Err(Fault::Checksum(path));
            }
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest_of(json: serde_json::Value) -> Result<Manifest, Fault> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), json.to_string()).unwrap();
        Manifest::verify(dir.path())
    }

    #[test]
    fn names_stay_inside_the_folder_and_newer_formats_are_refused() {
        let record = serde_json::json!({"bytes": 0, "sha256": ""});
        for name in ["../state.json", "/etc/passwd", "a/b", "..", ""] {
            let found =
                manifest_of(serde_json::json!({"format": 1, "step": 1, "files": {name: record}}));
            assert!(matches!(found, Err(Fault::Malformed(..))), "{name}");
        }
        assert!(matches!(
            manifest_of(serde_json::json!({"format": 2, "step": 1, "files": {}})),
            Err(Fault::Newer { format: 2, .. })
        ));
        assert!(matches!(
            manifest_of(serde_json::json!([1])),
            Err(Fault::Malformed(..))
        ));
    }

    #[test]
    fn a_manifest_vouches_for_every_file_and_for_its_own_step() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("step-000003");
        std::fs::create_dir(&folder).unwrap();
        let write = |step: u64, files: serde_json::Value| {
            let json = serde_json::json!({"format": 1, "step": step, "files": files});
            std::fs::write(folder.join(FILE), json.to_string()).unwrap();
            Manifest::verify(&folder).map_err(|e| e.to_string())
        };
        assert!(write(3, serde_json::json!({})).is_ok());
        assert!(
            write(4, serde_json::json!({}))
                .unwrap_err()
                .contains("step 4")
        );
        std::fs::write(folder.join(hf::WEIGHTS), "x").unwrap();
        std::fs::write(folder.join("chat_template.jinja"), "one's own").unwrap();
        let unlisted = write(3, serde_json::json!({})).unwrap_err();
        assert!(unlisted.contains(hf::WEIGHTS), "{unlisted}");
        std::fs::remove_file(folder.join(hf::WEIGHTS)).unwrap();
        assert!(Manifest::verify_if_any(&folder).is_ok());
        std::fs::remove_file(folder.join(FILE)).unwrap();
        assert!(
            Manifest::verify_if_any(&folder).is_ok(),
            "no manifest, no promise"
        );
    }
}
