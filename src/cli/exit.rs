//! Exit codes: 0 success, 2 user error, 3 environment, 4 training failed, 101 a bug. A reader that closes the pipe has
//! seen enough: that is success.

use crate::base::files::is_path_error;
use crate::base::near::did_you_mean;
use crate::base::paths::not_found_hint;
use crate::base::text::{sanitize, shown, without_error_numbers};
use crate::cli::out::{error_columns, wrapped};
use crate::data::DataError;
use crate::data::source::neighbour;
use crate::engine::EngineError;
use crate::kernels::errors::text_of;
use crate::link::message::written;
use crate::run::{FileOperation, RunError};
use crate::spec::SaveError;
use crate::wire::Outcome;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shown under `--help`.
pub const HELP: &str = "Exit codes: 0 done · 2 a spec, an argument or data to correct · 3 the machine (disk, files, \
device) · 4 the training failed · 101 a bug in llmtui";

/// The program's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// A spec, argument or data error that the user can correct.
    UserError,
    /// Disk, files, devices, other processes.
    Machine,
    /// NaN, out of memory, a failed check.
    Training,
    /// A bug.
    Ours,
    /// That of a program in a sandbox.
    Program(u8),
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::UserError => 2,
            Exit::Machine => 3,
            Exit::Training => 4,
            Exit::Ours => 101,
            Exit::Program(status) => status,
        }
    }
}

/// A run's outcome.
impl From<Outcome> for Exit {
    fn from(outcome: Outcome) -> Exit {
        match outcome {
            Outcome::Completed | Outcome::Stopped => Exit::Done,
            Outcome::Failed | Outcome::Refused => Exit::Training,
            Outcome::Starved => Exit::Machine,
            Outcome::Invalid => Exit::UserError,
            Outcome::Crashed => Exit::Ours,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error with its exit class and a hint.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    pub exit: Exit,
    /// One sentence, without a trailing period.
    pub what: String,
    /// How to fix it; may be empty.
    pub hint: String,
}

impl Failure {
    /// A user error.
    pub fn user_error(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure {
            exit: Exit::UserError,
            what: what.into(),
            hint: hint.into(),
        }
    }

    /// An environment error.
    pub fn machine(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure {
            exit: Exit::Machine,
            what: what.into(),
            hint: hint.into(),
        }
    }

    /// A file that was not written: of class 2 where its name is to blame, otherwise of class 3.
    pub fn unwritten(
        what: impl Into<String>,
        error: &io::Error,
        hint: impl Into<String>,
    ) -> Failure {
        // Values that the asked dtype does not hold.
        let of_values = error.kind() == ErrorKind::InvalidData;
        match is_path_error(error) || of_values {
            true => Failure::user_error(what, hint),
            false => Failure::machine(what, hint),
        }
    }

    /// The same, in words for what is wrong with its place.
    pub fn not_written(path: &Path, error: &io::Error) -> Failure {
        let (what, hint) = crate::base::files::not_written(path, error);
        Failure::unwritten(what, error, hint)
    }

    /// A folder that was not made: the same.
    pub fn not_made(path: &Path, error: &io::Error) -> Failure {
        let (what, hint) = crate::base::files::not_made(path, error);
        Failure::unwritten(what, error, hint)
    }

    /// A file that was not read: of class 2 where its name or what it holds is to blame, otherwise of class 3.
    pub fn not_read(path: &Path, error: &io::Error) -> Failure {
        if error.kind() == ErrorKind::NotFound {
            return absent(path);
        }
        let (what, hint) = crate::base::files::not_read(path, error);
        match error.kind() {
            ErrorKind::InvalidData => Failure::user_error(what, hint),
            _ => Failure::unwritten(what, error, hint),
        }
    }

    /// A run or a folder that was not deleted.
    pub fn not_deleted(path: &Path, error: &io::Error) -> Failure {
        let (what, hint) = crate::base::files::not_deleted(path, error);
        Failure::machine(what, hint)
    }

    /// Data that cannot be used, or not be kept.
    pub fn data(error: &DataError) -> Failure {
        match error.is_environment_error() {
            true => Failure::machine(error.to_string(), error.hint()),
            false => Failure::user_error(error.to_string(), error.hint()),
        }
    }

    /// What an engine refuses that is the user's to correct; the rest has no class of its own.
    fn engine(error: &EngineError) -> Option<Failure> {
        match error {
            EngineError::Data(error) => Some(Failure::data(error)),
            EngineError::Setup(what) => Some(Failure::user_error(what.clone(), "")),
            EngineError::Training(_) | EngineError::Refused(_) => {
                Some(Failure::training(error.to_string(), ""))
            }
            _ => None,
        }
    }

    /// A run that cannot be opened, kept or deleted, or is in use.
    pub fn run(error: &RunError) -> Failure {
        let (what, hint) = (error.to_string(), error.hint());
        match error {
            RunError::Io { doing, error, .. }
                if *doing == FileOperation::Delete || !is_path_error(error) =>
            {
                Failure::machine(what, hint)
            }
            _ => Failure::user_error(what, hint),
        }
    }

    /// A run that cannot be made.
    pub fn not_a_new_run(error: &RunError) -> Failure {
        let hint = format!(
            "{}, or choose another location with --runs-dir DIR",
            error.hint()
        );
        Failure::machine(
            format!("the run's directory cannot be created: {error}"),
            hint,
        )
    }

    /// A spec that was not saved.
    pub fn unsaved(error: &SaveError, hint: &str) -> Failure {
        let what = error.to_string();
        match error {
            SaveError::Exists(_) => Failure::user_error(what, hint),
            SaveError::Io { source, path } => Failure::not_written(path, source),
        }
    }

    /// A failed training run.
    pub fn training(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure {
            exit: Exit::Training,
            what: what.into(),
            hint: hint.into(),
        }
    }
}

/// A path that leads nowhere, with what in its folder is called almost so.
pub fn absent(path: &Path) -> Failure {
    let hint = match neighbour(path) {
        Some(near) => did_you_mean(shown(&path.with_file_name(near))),
        None => not_found_hint(path, path),
    };
    Failure::user_error(format!("{} does not exist", shown(path)), hint)
}

/// Prints the error to standard error and picks the exit code. Errors without a class count as environment errors: all
/// user errors have one.
pub fn report_and_exit_code(result: anyhow::Result<Exit>) -> Exit {
    let error = match result {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        return Exit::Done;
    }
    let (exit, text) = explain(&error);
    let text = wrapped(&sanitize(&without_error_numbers(&text)), error_columns());
    let _ = std::io::stderr().write_all(text.as_bytes());
    exit
}

fn explain(error: &anyhow::Error) -> (Exit, String) {
    let known = error
        .downcast_ref::<EngineError>()
        .and_then(Failure::engine);
    if let Some(failure) = error.downcast_ref::<Failure>().or(known.as_ref()) {
        return (failure.exit, written(&failure.what, &failure.hint));
    }
    if let Some(errors) = error.downcast_ref::<crate::spec::SpecErrors>() {
        return (Exit::UserError, written(&errors.to_string(), ""));
    }
    (Exit::Machine, written(&chain(error), ""))
}

/// What an error says, with those of its causes that it does not repeat.
pub fn chain(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for text in error.chain().map(text_of) {
        if said.last().is_none_or(|last| !last.contains(&text)) {
            said.push(text);
        }
    }
    said.join(": ")
}

pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    })
}

/// Bytes of a thread's signal stack, about.
const SIGNAL_STACK: usize = 16 << 10;
/// Set when no thread could be started.
static STARVED: AtomicBool = AtomicBool::new(false);

/// The exit code after a caught panic.
pub fn after_panic() -> Exit {
    match STARVED.load(Ordering::Relaxed) {
        true => Exit::Machine,
        false => Exit::Ours,
    }
}

/// Installs the panic hook: a crash file with a backtrace, and one line with its path. Never changes the
/// terminal's mode; the workbench installs its own hook in front of this one.
pub fn report_panics(crash_dir: &Path) {
    let crash_dir = crash_dir.to_path_buf();
    std::panic::set_hook(Box::new(move |info| {
        if crate::kernels::allocations::budget::is_active() {
            // A library on untrusted input: its caller reports it.
            return;
        }
        let message = panic_message(info);
        if message.starts_with(crate::engine::NO_STACK) {
            // The thread aborts next: about memory, of which a signal stack takes some pages.
            crate::kernels::allocations::failure::note(SIGNAL_STACK);
            return;
        }
        if crate::engine::no_thread(&message) {
            STARVED.store(true, Ordering::Relaxed);
            // Other threads may abort over the same lack.
            crate::kernels::allocations::failure::note_short();
            errln!(
                "llmtui: {}\n  try: raise the limit on processes or address space (ulimit -u, ulimit -v)",
                crate::engine::no_thread_words(&message)
            );
            return;
        }
        let place = info
            .location()
            .map_or_else(String::new, |l| format!(" at {}:{}", l.file(), l.line()));
        let mut text = format!("llmtui: a bug in the program: {message}{place}\n");
        if let Some(path) = write_crash_file(&crash_dir, &text) {
            text.push_str(&format!(
                "  please report it with the file {}\n",
                shown(&path)
            ));
        }
        let _ = std::io::stderr().write_all(sanitize(&text).as_bytes());
    }));
}

fn panic_message(info: &PanicHookInfo) -> String {
    info.payload_as_str()
        .unwrap_or("a panic without a message")
        .to_string()
}

/// Most crash files of one process number.
const MAX_CRASH_FILES: u32 = 100;

/// Writes into a folder that is ours alone, as a new file: the folder may be below `/tmp`, where others leave links.
fn write_crash_file(folder: &Path, text: &str) -> Option<PathBuf> {
    crate::base::files::private_dir(folder).ok()?;
    let pid = std::process::id();
    let (path, mut file) = (1..=MAX_CRASH_FILES).find_map(|n| {
        let name = match n {
            1 => format!("crash-{pid}.txt"),
            n => format!("crash-{pid}-{n}.txt"),
        };
        let path = folder.join(name);
        let file = File::create_new(&path).ok()?;
        Some((path, file))
    })?;
    let backtrace = std::backtrace::Backtrace::force_capture();
    let version = env!("CARGO_PKG_VERSION");
    write!(file, "llmtui {version}\n{text}\n{backtrace}\n").ok()?;
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_cannot_be_had_is_told_in_words_with_a_fix() {
        let denied = |doing| RunError::Io {
            doing,
            path: "/runs/a/lock".into(),
            error: io::Error::from_raw_os_error(13),
        };
        for (doing, verb) in [
            (FileOperation::Read, "read"),
            (FileOperation::Write, "written"),
            (FileOperation::Make, "written"),
            (FileOperation::Delete, "deleted"),
        ] {
            let failure = Failure::run(&denied(doing));
            let what = format!("/runs/a/lock cannot be {verb}: permission denied");
            assert_eq!((failure.exit, &failure.what), (Exit::Machine, &what));
            assert!(failure.hint.starts_with("check the permissions of /"));
        }
        let failure = Failure::not_a_new_run(&denied(FileOperation::Make));
        assert!(failure.hint.ends_with("with --runs-dir DIR"), "{failure:?}");
    }

    #[test]
    fn every_class_has_its_code() {
        let codes = [
            Exit::Done,
            Exit::UserError,
            Exit::Machine,
            Exit::Training,
            Exit::Ours,
        ]
        .map(Exit::code);
        assert_eq!(codes, [0, 2, 3, 4, 101]);
    }

    #[test]
    fn failures_keep_their_class_through_context_and_show_the_hint() {
        let error = anyhow::Error::new(Failure::training("the loss is NaN", "lower the lr"));
        assert_eq!(
            explain(&error),
            (
                Exit::Training,
                "llmtui: the loss is NaN\n  try: lower the lr\n".to_string()
            )
        );
        assert_eq!(explain(&anyhow::anyhow!("disk")).0, Exit::Machine);
        // Whoever started this program as a verb finds the same in its last words.
        let said = |error| crate::link::message::found(&explain(&error).1);
        let fixed = "the loss is NaN; try: lower the lr";
        assert_eq!(said(error).as_deref(), Some(fixed));
        assert_eq!(said(anyhow::anyhow!("disk")).as_deref(), Some("disk"));
    }

    #[test]
    fn what_an_engine_refuses_of_the_users_is_theirs_and_said_once() {
        let fault = || DataError::source("a.jsonl:2", "has no answer", "complete it");
        let (exit, text) = explain(&EngineError::from(fault()).into());
        assert_eq!(
            (exit, text.as_str()),
            (
                Exit::UserError,
                "llmtui: a.jsonl:2 has no answer\n  try: complete it\n"
            )
        );
        let (exit, text) = explain(&EngineError::Setup("no tokenizer".into()).into());
        assert_eq!(
            (exit, text.as_str()),
            (Exit::UserError, "llmtui: no tokenizer\n")
        );
        // A cause that stands in what it caused is not repeated.
        let error = anyhow::Error::new(fault()).context("reading: a.jsonl:2 has no answer");
        assert_eq!(chain(&error), "reading: a.jsonl:2 has no answer");
    }

    #[test]
    fn the_last_line_holds_no_backtrace_of_candle() {
        let inner = Box::new(candle_core::Error::Msg("two ranks are missing".into()));
        let backtrace = Box::new(std::backtrace::Backtrace::force_capture());
        let error = candle_core::Error::WithBacktrace { inner, backtrace };
        let (_, text) = explain(&anyhow::Error::new(error).context("scoring"));
        assert_eq!(text, "llmtui: scoring: two ranks are missing\n");
    }

    #[test]
    fn a_crash_file_goes_into_a_private_folder_and_never_through_a_link() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("runtime");
        let first = write_crash_file(&folder, "boom").unwrap();
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "engines bind their sockets here");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "mine").unwrap();
        std::fs::remove_file(&first).unwrap();
        std::os::unix::fs::symlink(&precious, &first).unwrap();
        let second = write_crash_file(&folder, "boom").unwrap();
        assert_ne!(first, second);
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(write_crash_file(&folder, "boom"), None);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_told_with_its_neighbour() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("corpus.txt"), "x").unwrap();
        let failure = absent(&dir.path().join("corpsu.txt"));
        let near = dir.path().join("corpus.txt");
        assert!(failure.what.ends_with("corpsu.txt does not exist"));
        assert_eq!(failure.hint, format!("did you mean {}?", shown(&near)));
    }

    #[test]
    fn a_closed_pipe_is_success() {
        let error = anyhow::Error::new(std::io::Error::from(ErrorKind::BrokenPipe))
            .context("printing the list");
        assert_eq!(report_and_exit_code(Err(error)), Exit::Done);
    }
}
