//! Files around the chat: which models lie near by, and saved conversations.

use crate::base::clock::UnixMillis;
use crate::base::files::write_new;
use crate::gguf::first_name;
use crate::run::id::new_id;
use crate::ui::effect::SavedChat;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders below the working directory that are looked into.
const DEPTH: usize = 3;
/// Most entries that are read, and most models that are listed.
const MAX_ENTRIES: usize = 5_000;
const MAX_MODELS: usize = 100;

/// Folders with a config.json and GGUF files, by name; of a model in several parts the first that is there. Runs are left out: their
/// checkpoints have a list of their own.
pub fn model_files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut entries) = (Models::default(), 0);
    let mut folders = vec![(root.to_path_buf(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let Ok(listing) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in listing.flatten() {
            entries += 1;
            if entries > MAX_ENTRIES || found.0.len() >= MAX_MODELS {
                return found.listed();
            }
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                if hidden || path.join("run.json").is_file() {
                    continue;
                }
                if is_model(&path) {
                    found.add(plain(&path));
                } else if depth < DEPTH {
                    folders.push((path, depth + 1));
                }
            } else if path
                .extension()
                .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
            {
                found.add(plain(&path));
            }
        }
    }
    found.listed()
}

/// What was found, by the names of first parts.
#[derive(Default)]
struct Models(BTreeMap<PathBuf, PathBuf>);

impl Models {
    fn add(&mut self, path: PathBuf) {
        let kept = self
            .0
            .entry(first_name(&path))
            .or_insert_with(|| path.clone());
        if path < *kept {
            *kept = path;
        }
    }

    fn listed(self) -> Vec<PathBuf> {
        self.0.into_values().collect()
    }
}

fn is_model(folder: &Path) -> bool {
    folder.join("config.json").is_file()
        && ["model.safetensors", "model.safetensors.index.json"]
            .iter()
            .any(|name| folder.join(name).is_file())
}

/// Without the `./` in front.
fn plain(path: &Path) -> PathBuf {
    path.strip_prefix(".").unwrap_or(path).to_path_buf()
}

/// Writes both files under a name that no other conversation has.
///
/// # Errors
/// The disk does not take it; names the path.
pub fn save(folder: &Path, saved: &SavedChat, now: UnixMillis) -> Result<Vec<PathBuf>, String> {
    let told = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(folder).map_err(|e| told(folder, e))?;
    let stem = folder.join(new_id(&saved.name, now));
    let files = [("md", &saved.markdown), ("jsonl", &saved.jsonl)];
    files
        .into_iter()
        .map(|(extension, text)| {
            // `with_extension` would cut a name at its last dot.
            let mut path = stem.clone().into_os_string();
            path.push(format!(".{extension}"));
            let path = PathBuf::from(path);
            write_new(&path, text.as_bytes(), 0o666).map_err(|e| told(&path, e))?;
            Ok(path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_near_by_are_found_and_runs_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        file("models/a/config.json");
        file("models/a/model.safetensors");
        file("models/b/config.json");
        file("small.gguf");
        file("runs/one/run.json");
        file("runs/one/checkpoints/step-1/config.json");
        file("runs/one/checkpoints/step-1/model.safetensors");
        file(".cache/hidden.gguf");
        // A model in several parts is listed once, also while its first part is not there yet.
        for part in 1..=3 {
            file(&format!("models/big-{part:05}-of-00003.gguf"));
        }
        file("models/late-00002-of-00003.gguf");
        file("models/late-00003-of-00003.gguf");
        let expected = [
            "models/a",
            "models/big-00001-of-00003.gguf",
            "models/late-00002-of-00003.gguf",
            "small.gguf",
        ]
        .map(|p| dir.path().join(p));
        assert_eq!(model_files(dir.path()), expected);
    }

    #[test]
    fn a_conversation_is_written_beside_others() {
        let dir = tempfile::tempdir().unwrap();
        let saved = SavedChat {
            name: "chat-x".into(),
            markdown: "# Chat".into(),
            jsonl: "{}\n".into(),
        };
        let folder = dir.path().join("chats");
        let paths = save(&folder, &saved, UnixMillis(0)).unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "# Chat");
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "{}\n");
        let more = save(&folder, &saved, UnixMillis(0)).unwrap();
        assert_ne!(paths, more);
    }
}
