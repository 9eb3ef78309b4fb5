//! Which run is meant by a word.

use crate::base::text::one_line;
use crate::run::dir::open_all;
use crate::run::id::short_run;
use crate::run::{Header, RunDir, RunError};
use std::io;
use std::path::{Path, PathBuf};

/// Why a name matches no run.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("no run named `{}` in {runs_dir}{}", one_line(.word), list_hint(.known))]
    Unknown {
        word: String,
        runs_dir: PathBuf,
        known: Vec<String>,
    },
    #[error("`{}` matches {} runs: {}; use more of the name", one_line(.word), .fits.len(), some(.fits))]
    Ambiguous { word: String, fits: Vec<String> },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// The first of them, the newest: nobody reads fifty names.
fn some(fits: &[String]) -> String {
    const SHOWN: usize = 5;
    match fits.len().saturating_sub(SHOWN) {
        0 => fits.join(", "),
        more => format!("{} and {more} more", fits[..SHOWN].join(", ")),
    }
}

fn list_hint(known: &[String]) -> String {
    match known {
        [] => "; there are no runs yet".into(),
        known => format!("; runs: {}", known.join(", ")),
    }
}

/// Resolves a run as typed: a path to its directory, the directory's name, its id, the newest run of that name, or a unique
/// prefix or suffix of a directory's name or an id.
///
/// # Errors
/// No run is meant by the word, or several are.
pub fn resolve(runs_dir: &Path, word: &str) -> Result<RunDir, ResolveError> {
    find(runs_dir, word, true)
}

/// [`resolve`], and an error where several runs have that name: for what cannot be undone.
///
/// # Errors
/// No run is meant by the word, or several are.
pub fn resolve_one(runs_dir: &Path, word: &str) -> Result<RunDir, ResolveError> {
    find(runs_dir, word, false)
}

/// The checkpoint that a run, its folder, or `RUN@STEP` means in a model's place: the best one, or that of the step. `None` for
/// words that mean no run.
pub fn checkpoint_named(runs_dir: &Path, word: &str) -> Option<Result<PathBuf, String>> {
    let step = |text: &str| text.replace([',', '_'], "").parse::<u64>().ok();
    let at_step = word
        .rsplit_once('@')
        .and_then(|(run, text)| Some((resolve(runs_dir, run).ok()?, step(text)?)));
    let (run, step) = match at_step {
        Some((run, step)) => (run, Some(step)),
        None => (resolve(runs_dir, word).ok()?, None),
    };
    let found = match step {
        Some(step) => run.checkpoints().into_iter().find(|kept| kept.step == step),
        None => run.best_checkpoint(),
    };
    Some(found.map(|kept| kept.path).ok_or_else(|| {
        let folder = one_line(&run.folder());
        let kept: Vec<String> = run
            .checkpoints()
            .iter()
            .map(|kept| kept.step.to_string())
            .collect();
        match (step, kept.is_empty()) {
            (Some(step), false) => format!(
                "{folder} has no checkpoint at step {step}; it keeps {}",
                kept.join(", ")
            ),
            _ => format!("the run {folder} has no checkpoint"),
        }
    }))
}

fn find(runs_dir: &Path, word: &str, newest: bool) -> Result<RunDir, ResolveError> {
    let path = Path::new(word);
    if path.join("run.json").exists() || (word.contains('/') && path.exists()) {
        return Ok(RunDir::open(path)?);
    }
    let io_error = |error| ResolveError::Io {
        path: runs_dir.into(),
        error,
    };
    let mut runs: Vec<(Header, RunDir)> = open_all(runs_dir)
        .map_err(io_error)?
        .into_iter()
        .flatten()
        .filter_map(|run| Some((run.header().ok()?, run)))
        .collect();
    // The newest first; of a run and its copies the one whose directory still has the run's name.
    runs.sort_by_cached_key(|(header, run)| {
        let folder = run.folder();
        std::cmp::Reverse((header.created, folder == header.id, folder))
    });
    let tests: [fn(&Header, &str, &str) -> bool; 5] = [
        |_, folder, w| folder == w,
        |header, _, w| header.id == w,
        |header, _, w| header.name == w,
        |header, folder, w| folder.starts_with(w) || header.id.starts_with(w),
        |header, folder, w| folder.ends_with(w) || header.id.ends_with(w),
    ];
    const NAME: usize = 2;
    for (i, test) in tests.into_iter().enumerate() {
        let fits: Vec<&RunDir> = runs
            .iter()
            .filter(|(header, run)| !word.is_empty() && test(header, &run.folder(), word))
            .map(|(_, run)| run)
            .collect();
        match fits.as_slice() {
            [] => {}
            [run] => return Ok((*run).clone()),
            // Many runs have one name, and the newest is meant.
            [run, ..] if i == NAME && newest => return Ok((*run).clone()),
            many => {
                return Err(ResolveError::Ambiguous {
                    word: word.into(),
                    fits: many.iter().map(|r| r.folder()).collect(),
                });
            }
        }
    }
    if let Some(error) = damaged(runs_dir, word).map_err(io_error)? {
        return Err(error.into());
    }
    Err(ResolveError::Unknown {
        word: word.into(),
        runs_dir: runs_dir.into(),
        known: runs.iter().take(5).map(|(_, run)| run.folder()).collect(),
    })
}

/// What is wrong with a directory that would be meant, if it could be read.
fn damaged(runs_dir: &Path, word: &str) -> io::Result<Option<RunError>> {
    if word.is_empty() || !runs_dir.is_dir() {
        return Ok(None);
    }
    for entry in std::fs::read_dir(runs_dir)? {
        let path = entry?.path();
        let folder = path.file_name().unwrap_or_default().to_string_lossy();
        let name = short_run(&folder).rsplit_once('-').map(|(name, _)| name);
        if name != Some(word) && !folder.starts_with(word) && !folder.ends_with(word) {
            continue;
        }
        match RunDir::open(&path) {
            Ok(_) | Err(RunError::NotARun(_)) => {}
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}
