//! The Python of the ranks: one that a spec names, or the environment of `llmtui engine install torch`. Global interpreters are
//! not searched.

use super::package;
use super::torch::Config;
use crate::base::clock::{Clock, SystemClock};
use crate::base::finding::Finding;
use crate::base::paths::Env;
use crate::base::text::one_line;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// PyTorch from this version on: before 2.6 there is no FSDP2, before 2.10 its loader of checkpoints could run code.
const OLDEST: (u64, u64) = (2, 10);
/// Timeout of a query: importing PyTorch from a cold disk takes long.
const QUERY_TIMEOUT: Duration = Duration::from_secs(180);
/// The script that queries a Python; its answer is one line of JSON.
const QUESTION: &str = "
import json, sys
about = {'python': sys.version.split()[0]}
try:
    import torch
    about['torch'] = torch.__version__
    about['gpus'] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    about['distributed'] = torch.distributed.is_available()
    about['sum'] = float(torch.ones(3, 4).matmul(torch.ones(4)).sum())
    import numpy
    about['numpy'] = numpy.__version__
except Exception as error:
    about['error'] = f'{type(error).__name__}: {error}'
print(json.dumps(about))
";

/// A Python with everything a worker needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    pub python: PathBuf,
    pub about: PythonInfo,
}

/// The answer of a Python.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PythonInfo {
    pub python: String,
    pub torch: String,
    pub numpy: String,
    pub gpus: usize,
    pub distributed: bool,
    /// A 3 × 4 matrix of ones times 4 ones, summed: 12 if PyTorch works.
    pub sum: f64,
    pub error: String,
}

/// Why there is no usable Python.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("PyTorch for llmtui is not installed")]
    None,
    #[error("{0}: no Python found")]
    NoPython(PathBuf),
    #[error("{python}: {what}")]
    Broken { python: PathBuf, what: String },
}

impl EnvironmentError {
    /// What to do about it.
    pub const HINT: &'static str = "llmtui engine install torch; or name one: -s engine.torch.python=/path/to/venv; or -s engine=candle";
}

/// Folder of the virtual environment of `llmtui engine install torch`: one for each list of versions.
pub fn installed_at(env: &Env) -> Option<PathBuf> {
    let lock = package::digest(std::iter::once(package::requirements().as_bytes()));
    Some(
        env.data_dir
            .as_ref()?
            .join("torch")
            .join(format!("venv-{lock}")),
    )
}

/// The Python of a named folder or file, or of the installed environment.
///
/// # Errors
/// It does not exist.
pub fn python(config: &Config, env: &Env) -> Result<PathBuf, EnvironmentError> {
    let Some(named) = &config.python else {
        let python = installed_at(env).map(|venv| venv.join("bin/python"));
        return python
            .filter(|python| python.is_file())
            .ok_or(EnvironmentError::None);
    };
    let inside = named.join("bin/python");
    let found = [inside, named.clone()]
        .into_iter()
        .find(|path| path.is_file());
    found.ok_or_else(|| EnvironmentError::NoPython(named.clone()))
}

impl Environment {
    /// Queries a Python for what it has.
    ///
    /// # Errors
    /// It does not answer, or lacks what a worker needs.
    pub fn ask(python: &Path) -> Result<Environment, EnvironmentError> {
        let broken = |what: String| EnvironmentError::Broken {
            python: python.into(),
            what,
        };
        let about = question(python).map_err(broken)?;
        match fault(&about) {
            Some(what) => Err(broken(what)),
            None => Ok(Environment {
                python: python.into(),
                about,
            }),
        }
    }

    /// The result as a finding of the doctor.
    pub fn finding(found: &Result<Environment, EnvironmentError>) -> Finding {
        let finding = match found {
            Ok(environment) => {
                let PythonInfo {
                    python,
                    torch,
                    gpus,
                    ..
                } = &environment.about;
                let gpus = match gpus {
                    0 => "no GPU: it runs on the CPU".to_string(),
                    1 => "1 GPU".into(),
                    n => format!("{n} GPUs"),
                };
                let (python, torch) = (one_line(python), one_line(torch));
                Finding::pass(format!(
                    "PyTorch {torch}, Python {python}, {gpus} ({})",
                    environment.python.display()
                ))
            }
            Err(error) => Finding::fail(error.to_string(), "", EnvironmentError::HINT),
        };
        finding.named("torch", "PyTorch engine")
    }
}

fn question(python: &Path) -> Result<PythonInfo, String> {
    let mut child = Command::new(python)
        .args(["-I", "-c", QUESTION])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let clock = SystemClock::new();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if clock.elapsed() < QUERY_TIMEOUT => {
                crate::base::clock::pause(Duration::from_millis(20))
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "it did not answer within {} s",
                    QUERY_TIMEOUT.as_secs()
                ));
            }
        }
    }
    let mut text = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = out.take(64 * 1024).read_to_string(&mut text);
    }
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| "it is not a Python that responds".into())
}

/// What a worker would be missing.
fn fault(about: &PythonInfo) -> Option<String> {
    if !about.error.is_empty() {
        return Some(one_line(&about.error));
    }
    let mut numbers = about
        .torch
        .split(['.', '+'])
        .map_while(|part| part.parse::<u64>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < OLDEST {
        let (major, minor) = OLDEST;
        return Some(format!(
            "PyTorch {} is too old: {major}.{minor} or newer is needed",
            one_line(&about.torch)
        ));
    }
    if !about.distributed {
        return Some("this PyTorch was built without torch.distributed".into());
    }
    (about.sum != 12.0).then(|| format!("this PyTorch computes {} where 12 is right", about.sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(torch: &str) -> PythonInfo {
        PythonInfo {
            torch: torch.into(),
            distributed: true,
            sum: 12.0,
            ..PythonInfo::default()
        }
    }

    #[test]
    fn versions_and_parts_are_checked() {
        assert_eq!(fault(&about("2.15.0+cu130")), None);
        assert_eq!(fault(&about("3.0.0a0")), None);
        assert!(fault(&about("2.9.1")).unwrap().contains("2.10 or newer"));
        assert!(fault(&about("")).is_some());
        let wrong = PythonInfo {
            sum: 11.0,
            ..about("2.15.0")
        };
        assert!(fault(&wrong).unwrap().contains("where 12 is right"));
    }

    #[test]
    fn a_python_is_named_or_installed_and_its_answer_is_read() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            data_dir: Some(dir.path().into()),
            ..Env::default()
        };
        let mut config = Config::default();
        assert!(matches!(python(&config, &env), Err(EnvironmentError::None)));
        config.python = Some(dir.path().join("venv"));
        assert!(matches!(
            python(&config, &env),
            Err(EnvironmentError::NoPython(_))
        ));
        let bin = dir.path().join("venv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let fake = bin.join("python");
        let answer = r#"{"python": "3.12.1", "torch": "2.15.0", "distributed": true, "sum": 12.0, "gpus": 2}"#;
        std::fs::write(&fake, format!("#!/bin/sh\necho noise\necho '{answer}'\n")).unwrap();
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(python(&config, &env).unwrap(), fake);
        let found = Environment::ask(&fake);
        assert_eq!(found.as_ref().unwrap().about.gpus, 2);
        assert!(
            Environment::finding(&found)
                .evidence
                .to_string()
                .contains("2 GPUs")
        );
        std::fs::write(&fake, "#!/bin/sh\necho what\n").unwrap();
        assert!(
            Environment::ask(&fake)
                .unwrap_err()
                .to_string()
                .contains("not a Python that responds")
        );
    }
}
