//! A virtual environment with PyTorch for this program alone, under the user's data folder: created by uv if it is installed,
//! else by Python's own venv and pip. An interrupted installation continues where it stopped: finished downloads are in their
//! caches.

use super::environment::{Environment, EnvironmentError, installed_at};
use super::package;
use crate::base::files::write_atomic;
use crate::base::paths::Env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why it could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("no data folder: neither HOME nor XDG_DATA_HOME is set")]
    NoFolder,
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("neither uv nor python3 is in PATH")]
    NoPython,
    #[error("{0} failed: {1}")]
    Step(String, std::process::ExitStatus),
    #[error("the self-test of what was installed: {0}")]
    Test(#[from] EnvironmentError),
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl Step {
    fn new(program: &Path, arguments: &[&str]) -> Step {
        Step {
            program: program.into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        }
    }

    /// As typed in a shell.
    pub fn words(&self) -> String {
        let words = self.arguments.iter().map(|word| match word.contains(' ') {
            true => format!("'{word}'"),
            false => word.clone(),
        });
        std::iter::once(self.program.display().to_string())
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// The steps that create an environment at `venv` with the tools found in `path`.
///
/// # Errors
/// There is neither uv nor Python.
pub fn steps(
    path: &[PathBuf],
    venv: &Path,
    requirements: &Path,
) -> Result<Vec<Step>, InstallError> {
    let find = |name: &str| {
        path.iter()
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    };
    let python = venv.join("bin/python");
    let word = |path: &Path| path.to_string_lossy().into_owned();
    let (at, list, python_word) = (word(venv), word(requirements), word(&python));
    if let Some(uv) = find("uv") {
        return Ok(vec![
            Step::new(
                &uv,
                &["venv", "--allow-existing", "--python", ">=3.10", &at],
            ),
            Step::new(
                &uv,
                &[
                    "pip",
                    "install",
                    "--python",
                    &python_word,
                    "--requirement",
                    &list,
                ],
            ),
        ]);
    }
    let base = find("python3").ok_or(InstallError::NoPython)?;
    Ok(vec![
        Step::new(&base, &["-m", "venv", &at]),
        Step::new(
            &python,
            &[
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--requirement",
                &list,
            ],
        ),
    ])
}

/// Creates or completes the environment and tests it. `on_step` is called before each step; pip's and uv's progress goes to
/// stderr.
///
/// # Errors
/// A step fails, or the installed PyTorch does not work.
pub fn install(env: &Env, on_step: &mut dyn FnMut(&Step)) -> Result<Environment, InstallError> {
    let venv = installed_at(env).ok_or(InstallError::NoFolder)?;
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |error| InstallError::Io { path, error }
    };
    std::fs::create_dir_all(&venv).map_err(io(&venv))?;
    let list = venv.join("requirements.txt");
    write_atomic(&list, package::requirements().as_bytes()).map_err(io(&list))?;
    for step in steps(&env.path, &venv, &list)? {
        on_step(&step);
        let status = Command::new(&step.program)
            .args(&step.arguments)
            .stdin(Stdio::null())
            .status()
            .map_err(io(&step.program))?;
        if !status.success() {
            return Err(InstallError::Step(step.words(), status));
        }
    }
    Ok(Environment::ask(&venv.join("bin/python"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uv_is_preferred_to_pip_and_one_of_them_is_required() {
        let dir = tempfile::tempdir().unwrap();
        let (venv, list) = (Path::new("/data/my venv"), Path::new("/data/list.txt"));
        let path = [dir.path().to_path_buf()];
        assert!(matches!(
            steps(&path, venv, list),
            Err(InstallError::NoPython)
        ));
        std::fs::write(dir.path().join("python3"), "").unwrap();
        let words: Vec<String> = steps(&path, venv, list)
            .unwrap()
            .iter()
            .map(Step::words)
            .collect();
        assert!(
            words[0].ends_with("python3 -m venv '/data/my venv'"),
            "{words:?}"
        );
        assert!(words[1].contains("-m pip install"), "{words:?}");
        std::fs::write(dir.path().join("uv"), "").unwrap();
        let words: Vec<String> = steps(&path, venv, list)
            .unwrap()
            .iter()
            .map(Step::words)
            .collect();
        assert!(
            words[1].contains("uv pip install --python '/data/my venv/bin/python'"),
            "{words:?}"
        );
    }
}
