//! Subcommands whose complete output is needed here. They run in their own processes, so their memory, CPU and crashes stay there.

use super::launch::{LaunchError, Launcher};
use super::message;
use crate::base::human;
use crate::base::stderr_tail::StderrTail;
use crate::base::text::one_line;
use crate::run::revisit::Row;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Bytes read of an answer: some hundred rows of some thousand tokens.
const ANSWER: u64 = 64 << 20;

impl Launcher {
    /// The rows of `steps` steps of a run from `step` on, with the loss of each token where tokens have one.
    ///
    /// # Errors
    /// What the verb says: no data any more, a damaged checkpoint, no memory.
    pub fn rows(&self, run: &Path, step: u64, steps: u64) -> Result<Vec<Row>, LaunchError> {
        let mut command = Command::new(&self.program);
        command.args(["data", "batches", "--loss", "--json", "--run"]);
        command.arg(run);
        command.args(["--step", &step.to_string(), "--steps", &steps.to_string()]);
        let answer = self.answer(command)?;
        let lines = answer.lines().filter(|line| !line.is_empty());
        let rows: Result<Vec<Row>, serde_json::Error> = lines.map(serde_json::from_str).collect();
        rows.map_err(|e| LaunchError::Verb(format!("unreadable answer: {e}")))
    }

    /// A branch of a run from its checkpoint of `step`, with settings as after `-s`: a line for each thing that would differ.
    ///
    /// # Errors
    /// What the verb says: settings that cannot be, or that the checkpoint does not fit.
    pub fn plan_branch(
        &self,
        (run, step): (&Path, u64),
        settings: &[String],
        runs_dir: &Path,
    ) -> Result<Vec<String>, LaunchError> {
        let mut command = self.branch((run, step), settings, runs_dir);
        command.arg("--dry-run");
        let answer = self.answer(command)?;
        Ok(answer.lines().map(one_line).collect())
    }

    /// Makes that branch, and gives its directory; its engine is not started.
    ///
    /// # Errors
    /// As [`Launcher::plan_branch`], and those of the disk.
    pub fn make_branch(
        &self,
        (run, step): (&Path, u64),
        settings: &[String],
        runs_dir: &Path,
    ) -> Result<PathBuf, LaunchError> {
        let mut command = self.branch((run, step), settings, runs_dir);
        command.arg("--no-start");
        let answer = self.answer(command)?;
        match answer.lines().last() {
            Some(path) => Ok(path.into()),
            None => Err(LaunchError::Verb("no directory was named".into())),
        }
    }

    /// What would go with a run, a line for each thing, its size among them.
    ///
    /// # Errors
    /// What the verb says: the run is live, or gone.
    pub fn plan_removal(&self, run: &Path, runs_dir: &Path) -> Result<Vec<String>, LaunchError> {
        let answer = self.answer(self.removal(run, runs_dir, "--dry-run"))?;
        Ok(answer.lines().map(one_line).collect())
    }

    /// Deletes a run with its checkpoints.
    ///
    /// # Errors
    /// As [`Launcher::plan_removal`], and those of the disk.
    pub fn remove_run(&self, run: &Path, runs_dir: &Path) -> Result<(), LaunchError> {
        self.answer(self.removal(run, runs_dir, "--yes")).map(drop)
    }

    /// Writes a run's best checkpoint into a folder, with the options of `llmtui export`.
    ///
    /// # Errors
    /// What the verb says: no checkpoint, a format that it has not, a folder that is not empty.
    pub fn export_run(
        &self,
        run: &Path,
        options: &[String],
        to: &Path,
        runs_dir: &Path,
    ) -> Result<(), LaunchError> {
        let mut command = Command::new(&self.program);
        command.arg("--runs-dir").arg(runs_dir);
        command
            .arg("export")
            .arg(run)
            .args(options)
            .arg("--to")
            .arg(to);
        self.answer(command).map(drop)
    }

    fn removal(&self, run: &Path, runs_dir: &Path, how: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--runs-dir").arg(runs_dir);
        command.args(["rm", how]).arg(run);
        command
    }

    fn branch(&self, (run, step): (&Path, u64), settings: &[String], runs_dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--runs-dir").arg(runs_dir).arg("train");
        let mut place = run.as_os_str().to_os_string();
        place.push(format!("@{step}"));
        command.arg("--branch").arg(place);
        settings.iter().for_each(|set| {
            command.args(["-s", set]);
        });
        command
    }

    /// Standard output of a verb that ends well; else its own words.
    fn answer(&self, mut command: Command) -> Result<String, LaunchError> {
        command.stdin(Stdio::null());
        let (mut child, words) = self.spawn_verb(command)?;
        let mut answer = Vec::new();
        let read = match child.stdout.take() {
            Some(output) => output.take(ANSWER).read_to_end(&mut answer),
            None => Ok(0),
        };
        let whole = read.is_ok() && (answer.len() as u64) < ANSWER;
        if !whole {
            let _ = child.kill();
        }
        let fault = match child.wait() {
            Ok(status) if status.success() && whole => return Ok(text_of(answer)),
            Ok(_) if !whole => format!("the answer is longer than {}", human::bytes(ANSWER)),
            Ok(status) => message::or_all(&words.end()).unwrap_or_else(|| status.to_string()),
            Err(error) => error.to_string(),
        };
        Err(LaunchError::Verb(fault))
    }

    /// Starts a process of this program whose standard output somebody here reads. An interrupt at the terminal is not for it.
    pub(super) fn spawn_verb(
        &self,
        mut command: Command,
    ) -> Result<(Child, StderrTail), LaunchError> {
        command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| LaunchError::Spawn {
            program: self.program.clone(),
            error,
        })?;
        let words = StderrTail::capture(child.stderr.take(), std::io::sink(), message::KEPT);
        Ok((child, words))
    }
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::paths::Env;
    use std::os::unix::fs::PermissionsExt;

    /// A program that answers every verb with this script.
    fn program(script: &str) -> (tempfile::TempDir, Launcher) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("llmtui");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let launcher = Launcher {
            program: path,
            env: Env::default(),
        };
        (folder, launcher)
    }

    #[test]
    fn rows_are_read_line_by_line() {
        let line = r#"{"step":3,"row":1,"ids":[1],"targets":[2],"mask":[true],"supervised":1,"text":"a","scored":{"weights_of":2,"losses":[0.5],"loss":0.5,"pieces":["b"]}}"#;
        let (_keep, launcher) = program(&format!("echo \"$@\" >&2\nprintf '%s\\n' '{line}'"));
        let rows = launcher.rows(Path::new("runs/x"), 3, 1).unwrap();
        assert_eq!(
            (rows.len(), rows[0].step, rows[0].loss()),
            (1, Some(3), Some(0.5))
        );
        let (_keep, launcher) = program("echo nonsense");
        let words = launcher.rows(Path::new("x"), 1, 1).unwrap_err().to_string();
        assert!(words.contains("unreadable answer"), "{words}");
    }

    #[test]
    fn a_verb_that_fails_is_told_in_its_own_words() {
        let said = |script: &str| {
            let (_keep, launcher) = program(script);
            let settings = ["lr=1e-4".to_string()];
            let planned = launcher.plan_branch((Path::new("x"), 7), &settings, Path::new("runs"));
            planned.unwrap_err().to_string()
        };
        let error = message::written("x has no checkpoint of step 7", "it keeps 5");
        let words = "x has no checkpoint of step 7; try: it keeps 5";
        // What it says on the way is longer than what is kept.
        let progress = "head -c 100000 /dev/zero | tr '\\0' '#' >&2; echo >&2";
        for before in ["true", progress] {
            let script = format!("{before}; printf %s '{error}' >&2; exit 2");
            assert_eq!(said(&script), words);
        }
        assert_eq!(said("echo killed >&2; exit 1"), "killed");
        assert!(said("exit 7").contains('7'));
    }

    #[test]
    fn an_export_is_asked_for_as_in_the_shell() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("said");
        let (_keep, launcher) = program(&format!("echo \"$@\" > {}", out.display()));
        let options = ["--format".to_string(), "gguf".into()];
        let export = |launcher: &Launcher| {
            launcher.export_run(
                Path::new("runs/x"),
                &options,
                Path::new("out/x"),
                Path::new("runs"),
            )
        };
        export(&launcher).unwrap();
        let said = std::fs::read_to_string(&out).unwrap();
        assert_eq!(
            said,
            "--runs-dir runs export runs/x --format gguf --to out/x\n"
        );
        let error = message::written("out/x is not empty", "choose another");
        let (_keep, launcher) = program(&format!("printf %s '{error}' >&2; exit 2"));
        let why = export(&launcher).unwrap_err().to_string();
        assert_eq!(why, "out/x is not empty; try: choose another");
    }

    #[test]
    fn a_branch_is_asked_for_as_in_the_shell() {
        let (_keep, launcher) = program("echo \"$@\"");
        let settings = ["lr=1e-4".to_string(), "clip_norm=0.5".to_string()];
        let place = (Path::new("runs/x"), 50);
        let asked = launcher
            .plan_branch(place, &settings, Path::new("runs"))
            .unwrap();
        let verb = "--runs-dir runs train --branch runs/x@50 -s lr=1e-4 -s clip_norm=0.5";
        assert_eq!(asked, [format!("{verb} --dry-run")]);
        let made = launcher
            .make_branch(place, &settings, Path::new("runs"))
            .unwrap();
        assert_eq!(made, PathBuf::from(format!("{verb} --no-start")));
    }
}
