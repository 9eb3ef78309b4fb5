//! Preflight of a spec that is not in a file, in its own process: its memory is freed when the checks are done.

use super::launch::{LaunchError, Launcher};
use super::message;
use crate::wire::Event;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Longest accepted line: a check's evidence is a sentence.
const LINE: u64 = 1 << 16;

impl Launcher {
    /// Runs the checks of a spec and reports each as it completes. Stops when `take` wants no more.
    ///
    /// # Errors
    /// The process could not start, or ran no check; with its error output.
    pub fn preflight(
        &self,
        yaml: &str,
        runs_dir: &Path,
        take: &mut dyn FnMut(Event) -> bool,
    ) -> Result<(), LaunchError> {
        let mut command = Command::new(&self.program);
        command
            .arg("--runs-dir")
            .arg(runs_dir)
            .args(["preflight", "-", "--json"])
            .stdin(Stdio::piped());
        let (mut child, words) = self.spawn_verb(command)?;
        if let Some(mut input) = child.stdin.take() {
            // A process that does not read its input reports why below.
            let _ = input.write_all(yaml.as_bytes());
        }
        let told = listen(&mut child, take);
        if told == Received::Enough {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(());
        }
        let ended = child.wait();
        match (told, ended) {
            // A failed check gives the process its own exit code, and has been reported.
            (Received::Checks, Ok(status)) if status.code().is_some() => Ok(()),
            (_, Ok(status)) => Err(LaunchError::Checks {
                status,
                words: message::or_all(&words.end()).unwrap_or_default(),
            }),
            (_, Err(error)) => Err(LaunchError::Spawn {
                program: self.program.clone(),
                error,
            }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    Nothing,
    /// One check at least.
    Checks,
    /// The caller wants no more.
    Enough,
}

/// Reads events until the process closes its output.
fn listen(child: &mut Child, take: &mut dyn FnMut(Event) -> bool) -> Received {
    let mut told = Received::Nothing;
    let Some(output) = child.stdout.take() else {
        return told;
    };
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match output.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return told,
            Ok(_) => {}
        }
        if let Ok(event @ Event::Checked { .. }) = serde_json::from_slice(&line) {
            told = Received::Checks;
            if !take(event) {
                return Received::Enough;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Finding;
    use crate::base::paths::Env;
    use std::os::unix::fs::PermissionsExt;

    /// A program that prints `says`, complains `complains` and exits with `code`, whatever it is asked.
    fn program(says: &str, complains: &str, code: i32) -> (tempfile::TempDir, Launcher) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("llmtui");
        let script = format!(
            "#!/bin/sh\ncat > /dev/null\nprintf '%s\\n' '{says}'\necho '{complains}' >&2\nexit {code}\n"
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let launcher = Launcher {
            program: path,
            env: Env::default(),
        };
        (folder, launcher)
    }

    fn checked() -> String {
        crate::wire::encode(&Event::Checked {
            finding: Finding::fail("they share a line", "", "split anew")
                .named("overlap", "Splits are apart")
                .into(),
            seconds: 0.1,
            next: None,
        })
        .trim()
        .to_string()
    }

    #[test]
    fn checks_are_told_also_when_one_fails() {
        let (_keep, launcher) = program(&checked(), "", 4);
        let mut heard = Vec::new();
        let made = launcher.preflight("name: x\n", Path::new("runs"), &mut |event| {
            heard.push(event);
            true
        });
        assert!(made.is_ok(), "{made:?}");
        assert!(matches!(&heard[..], [Event::Checked { finding, .. }] if finding.id == "overlap"));
    }

    #[test]
    fn a_process_without_checks_says_why_in_its_own_words() {
        let error = message::written("no such preset", "llmtui presets");
        let (_keep, launcher) = program("nonsense", &error, 2);
        let made = launcher.preflight("", Path::new("runs"), &mut |_| true);
        let words = made.unwrap_err().to_string();
        assert!(
            words.ends_with(": no such preset; try: llmtui presets"),
            "{words}"
        );
    }

    /// More on standard error than a pipe holds, before anything on standard output.
    #[test]
    fn a_process_that_complains_at_length_is_not_held_up() {
        let (folder, launcher) = program(&checked(), "", 0);
        let script = std::fs::read_to_string(&launcher.program).unwrap();
        let noisy = script.replace(
            "cat > /dev/null\n",
            "cat > /dev/null\nhead -c 200000 /dev/zero | tr '\\0' '#' >&2\n",
        );
        assert_ne!(noisy, script);
        std::fs::write(folder.path().join("llmtui"), noisy).unwrap();
        let mut heard = 0;
        let made = launcher.preflight("", Path::new("runs"), &mut |_| {
            heard += 1;
            true
        });
        assert!(made.is_ok() && heard == 1, "{made:?}");
    }
}
