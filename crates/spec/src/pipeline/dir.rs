//! A pipeline's folder: `<runs>/pipelines/<id>/` with `pipeline.yaml` as requested, `state.json` (its progress),
//! `pipeline.log`, and outputs of stages besides runs.

use super::{Pipeline, PipelineError, Places};
use crate::base::clock::{Clock, UnixMillis};
use crate::base::files::{
    DELETED, Lock, is_locked, read_small_text, remove_held_folder, try_lock_beside_viewers,
    write_atomic,
};
use crate::base::paths::check_utf8;
use crate::run::id::short_run;
use crate::run::new_id;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Layout of the folder; a program refuses a newer one than it knows.
const FORMAT: u32 = 1;
const MAX_BYTES: u64 = 4 << 20;
const FOLDER: &str = "pipelines";

/// How a stage stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Waiting,
    Running,
    Done,
    Failed,
    /// On request; it goes on at a resume.
    Stopped,
    /// On request, for good.
    Skipped,
}

impl Status {
    /// For tables.
    pub fn word(self) -> &'static str {
        match self {
            Status::Waiting => "waiting",
            Status::Running => "running",
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Stopped => "stopped",
            Status::Skipped => "skipped",
        }
    }

    /// Nothing is left to do of it.
    pub fn is_over(self) -> bool {
        matches!(self, Status::Done | Status::Skipped)
    }
}

/// One stage, so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageState {
    pub name: String,
    /// `train`, `eval`, …
    pub kind: String,
    pub status: Status,
    /// Of a training stage: its run's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Those of attempts before it, which failed or were done again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_runs: Vec<String>,
    /// What it made: a checkpoint, a folder or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<PathBuf>,
    /// Seconds it took, all attempts together.
    #[serde(default)]
    pub seconds: f64,
    /// Seconds of attempts before its current run, which the run's own time does not include.
    #[serde(default)]
    pub earlier_seconds: f64,
    /// Pending `-s` changes to its run; they are validated and applied at the resume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amended: Vec<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl StageState {
    /// Another run is its own from now on.
    pub fn begin(&mut self, run: &str) {
        self.archive_run();
        self.run = Some(run.into());
    }

    /// It is to be done again.
    pub fn redo(&mut self) {
        self.archive_run();
        (self.status, self.made, self.seconds) = (Status::Waiting, None, 0.0);
    }

    /// Its run is to go on with these values (`key=value`), in the place of others of their keys; where they are the run's
    /// own (`is_new` false), with none of those.
    pub fn amend(&mut self, words: &[String], is_new: bool) {
        let key = |word: &String| word.split('=').next().unwrap_or_default().to_string();
        let keys: Vec<String> = words.iter().map(key).collect();
        self.amended.retain(|word| !keys.contains(&key(word)));
        if is_new {
            self.amended.extend_from_slice(words);
        }
    }

    fn archive_run(&mut self) {
        self.amended.clear();
        self.earlier_runs.extend(self.run.take());
    }
}

/// The whole, so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub format: u32,
    pub id: String,
    pub name: String,
    pub about: String,
    pub created: UnixMillis,
    /// `--force` was said, when it began or at a resume: it holds for all stages, whoever goes on with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    pub stages: Vec<StageState>,
}

impl State {
    /// The ids of all runs that it made, those of attempts that were given up among them.
    pub fn runs(&self) -> impl Iterator<Item = &str> {
        let stages = self.stages.iter();
        let all = stages.flat_map(|stage| stage.earlier_runs.iter().chain(&stage.run));
        all.map(String::as_str)
    }

    /// Nothing is left to do.
    pub fn is_finished(&self) -> bool {
        let over = |stage: &StageState| matches!(stage.status, Status::Done | Status::Skipped);
        self.stages.iter().all(over)
    }

    /// One word for lists; `live` while a process drives it.
    pub fn word(&self, live: bool) -> &'static str {
        let any = |status| self.stages.iter().any(|stage| stage.status == status);
        match () {
            () if live => "live",
            () if self.is_finished() => "finished",
            () if any(Status::Failed) => "failed",
            () if any(Status::Running) => "crashed",
            () => "stopped",
        }
    }
}

/// The folder of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineDir {
    root: PathBuf,
}

impl PipelineDir {
    /// A new folder with every stage waiting. `text` is kept as `pipeline.yaml`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn create(
        runs_dir: &Path,
        pipeline: &Pipeline,
        text: &str,
        clock: &dyn Clock,
    ) -> Result<PipelineDir, PipelineError> {
        let folder = Self::folder_of(runs_dir);
        check_utf8(&folder).map_err(PipelineError::io(&folder))?;
        std::fs::create_dir_all(&folder).map_err(PipelineError::io(&folder))?;
        let now = clock.now();
        let id = new_id(&pipeline.name, now);
        let root = folder.join(&id);
        std::fs::create_dir(&root).map_err(PipelineError::io(&root))?;
        let root = std::path::absolute(&root).map_err(PipelineError::io(&root))?;
        let dir = PipelineDir { root };
        dir.write("pipeline.yaml", text.as_bytes())?;
        let stages = pipeline.stages.iter().map(|stage| StageState {
            name: stage.name.clone(),
            kind: stage.work.word().into(),
            status: Status::Waiting,
            run: None,
            earlier_runs: Vec::new(),
            made: None,
            seconds: 0.0,
            earlier_seconds: 0.0,
            amended: Vec::new(),
            message: String::new(),
        });
        dir.save(&State {
            format: FORMAT,
            id,
            name: pipeline.name.clone(),
            about: pipeline.about.clone(),
            created: now,
            force: false,
            stages: stages.collect(),
        })?;
        Ok(dir)
    }

    /// The folder that `word` names: a path, an id, the newest of that name, or an unambiguous end of an id.
    ///
    /// # Errors
    /// None does.
    pub fn resolve(runs_dir: &Path, word: &str) -> Result<PipelineDir, PipelineError> {
        let path = Path::new(word);
        let root = std::path::absolute(path).map_err(PipelineError::io(path))?;
        // Checkpoints have a state.json, too.
        let among = root.parent().is_some_and(|folder| folder.ends_with(FOLDER));
        if root.join("pipeline.yaml").is_file() || among && root.join("state.json").is_file() {
            return Ok(PipelineDir { root });
        }
        let all = Self::list(runs_dir);
        let newest = |test: &dyn Fn(&State) -> bool| {
            all.iter()
                .find(|(_, state)| test(state))
                .map(|(dir, _)| dir.clone())
        };
        let found = newest(&|state| state.id == word)
            .or_else(|| newest(&|state| state.name == word))
            .or_else(|| newest(&|state| !word.is_empty() && state.id.ends_with(word)));
        // A newer one of that name that cannot be read is meant, not an older one.
        let damaged = Self::damaged(runs_dir).into_iter().find(|(folder, _)| {
            let named = short_run(folder)
                .rsplit_once('-')
                .is_some_and(|(name, _)| name == word);
            let newer = (found.iter()).all(|found| found.folder() < *folder);
            folder == word || (named || (!word.is_empty() && folder.ends_with(word))) && newer
        });
        match (damaged, found) {
            (Some((_, error)), _) => Err(error),
            (None, Some(found)) => Ok(found),
            (None, None) => Err(PipelineError::Unknown {
                word: word.into(),
                folder: Self::folder_of(runs_dir),
            }),
        }
    }

    /// Where the folders of pipelines are.
    pub fn folder_of(runs_dir: &Path) -> PathBuf {
        runs_dir.join(FOLDER)
    }

    /// All folders there, whatever is in them, but for those that are being deleted.
    fn folders(runs_dir: &Path) -> impl Iterator<Item = PipelineDir> {
        let entries = std::fs::read_dir(Self::folder_of(runs_dir));
        let entries = entries.into_iter().flatten().flatten();
        let named = entries.filter(|entry| {
            let name = entry.file_name();
            !name.to_string_lossy().starts_with(DELETED)
        });
        named.filter_map(|entry| {
            let root = std::path::absolute(entry.path()).ok()?;
            Some(PipelineDir { root })
        })
    }

    /// Folders of pipelines that cannot be read, and why; the newest first.
    pub fn damaged(runs_dir: &Path) -> Vec<(String, PipelineError)> {
        let mut found: Vec<(String, PipelineError)> = Self::folders(runs_dir)
            .filter(|dir| dir.root.join("pipeline.yaml").exists())
            .filter_map(|dir| Some((dir.folder(), dir.state().err()?)))
            .collect();
        found.sort_by(|a, b| b.0.cmp(&a.0));
        found
    }

    fn folder(&self) -> String {
        let name = self.root.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Every readable pipeline below a runs directory, the newest first.
    pub fn list(runs_dir: &Path) -> Vec<(PipelineDir, State)> {
        let mut found: Vec<(PipelineDir, State)> = Self::folders(runs_dir)
            .filter_map(|dir| {
                let state = dir.state().ok()?;
                Some((dir, state))
            })
            .collect();
        found.sort_by(|a, b| (b.1.created, &b.1.id).cmp(&(a.1.created, &a.1.id)));
        found
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Deletes the folder with all that stages made in it, but no run. Whoever deletes it has claimed it; the claim ends with its name.
    ///
    /// # Errors
    /// The disk.
    pub fn remove(&self, claim: Lock) -> std::io::Result<()> {
        remove_held_folder(&self.root, claim)
    }

    /// What a detached pipeline prints.
    pub fn log_path(&self) -> PathBuf {
        self.root.join("pipeline.log")
    }

    /// Reads how far it is.
    ///
    /// # Errors
    /// The file is absent, damaged or of a newer program.
    pub fn state(&self) -> Result<State, PipelineError> {
        let path = self.root.join("state.json");
        let text = read_small_text(&path, MAX_BYTES).map_err(PipelineError::io(&path))?;
        let damaged = |why: String| PipelineError::Damaged {
            path: path.clone(),
            why,
        };
        let state: State = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        match state.format {
            FORMAT => Ok(state),
            other => Err(damaged(format!(
                "format {other} is of another llmtui version; this one supports {FORMAT}"
            ))),
        }
    }

    /// Writes how far it is.
    ///
    /// # Errors
    /// The disk.
    pub fn save(&self, state: &State) -> Result<(), PipelineError> {
        let text = serde_json::to_string_pretty(state).unwrap_or_default();
        self.write("state.json", text.as_bytes()).map(drop)
    }

    /// The pipeline as it was asked for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn pipeline(&self) -> Result<Pipeline, PipelineError> {
        let (label, text) = self.text()?;
        Pipeline::parse(&label, "pipeline", &text)
    }

    /// Where its stages are written.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn places(&self) -> Result<Places, PipelineError> {
        let (label, text) = self.text()?;
        Ok(Places::of(&label, &text))
    }

    fn text(&self) -> Result<(String, String), PipelineError> {
        let path = self.root.join("pipeline.yaml");
        let text = read_small_text(&path, MAX_BYTES).map_err(PipelineError::io(&path))?;
        Ok((path.display().to_string(), text))
    }

    /// The pipeline and how far it is, stage by stage.
    ///
    /// # Errors
    /// A file cannot be read, or they have different stages.
    pub fn load(&self) -> Result<(Pipeline, State), PipelineError> {
        let (pipeline, state) = (self.pipeline()?, self.state()?);
        let asked: Vec<&str> = pipeline.stages.iter().map(|s| s.name.as_str()).collect();
        let begun: Vec<&str> = state.stages.iter().map(|s| s.name.as_str()).collect();
        if asked != begun {
            return Err(PipelineError::invalid(
                self.root.join("pipeline.yaml").display().to_string(),
                format!("its stages are {}", asked.join(", ")),
                format!(
                    "the pipeline was begun with the stages: {}; write those, or train the changed file as a new pipeline",
                    begun.join(", ")
                ),
            ));
        }
        Ok((pipeline, state))
    }

    /// The run that trains now, or would be resumed: that of the last stage that was begun and is not over.
    pub fn running(&self) -> Option<String> {
        let state = self.state().ok()?;
        let stage = state
            .stages
            .into_iter()
            .rfind(|stage| stage.status == Status::Running);
        stage?.run
    }

    /// Writes a file of a stage.
    ///
    /// # Errors
    /// The disk.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, PipelineError> {
        let path = self.root.join(name);
        write_atomic(&path, bytes).map_err(PipelineError::io(&path))?;
        Ok(path)
    }

    /// Only one process drives it at a time.
    ///
    /// # Errors
    /// Another one does.
    pub fn claim(&self) -> Result<Lock, PipelineError> {
        let path = self.lock_path();
        match try_lock_beside_viewers(&path) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => Err(PipelineError::Busy(self.root.clone())),
            Err(error) => Err(PipelineError::Io { path, error }),
        }
    }

    /// Held by the process that drives it.
    pub fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Whether a process drives it.
    pub fn is_live(&self) -> bool {
        is_locked(&self.lock_path())
    }
}

/// The newest pipeline of that name that has stages left and is not live.
pub fn newest_unfinished(runs_dir: &Path, name: Option<&str>) -> Option<PipelineDir> {
    PipelineDir::list(runs_dir)
        .into_iter()
        .find(|(dir, state)| {
            name.is_none_or(|n| state.name == n) && !state.is_finished() && !dir.is_live()
        })
        .map(|(dir, _)| dir)
}
