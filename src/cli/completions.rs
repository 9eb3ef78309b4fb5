//! `llmtui completions`: what a shell offers at TAB. The script that it prints asks this program each time, so that presets, runs
//! and settings are those of now. What they are stands in `candidates`; who may offer what is read off the names of the values in
//! the usage (`RUN`, `SPEC`), so that a new verb has it without a word more.

mod bash;
mod candidates;

use super::{Cli, RUNS_DIR, exit::Exit, spec_sources};
use crate::base::paths::Env;
use candidates::{Kind, Places};
use clap::{Command, CommandFactory};
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::{CompleteEnv, Elvish, Fish, Powershell, Shells, Zsh};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Print a completion script for your shell: presets, runs and settings
///
/// The script calls llmtui at each TAB, so completions are always current.
#[derive(Debug, clap::Args)]
#[command(after_help = "Add one line to your shell's startup file:
  source <(llmtui completions bash)          in ~/.bashrc
  source <(llmtui completions zsh)           in ~/.zshrc, below compinit
  llmtui completions fish | source           in ~/.config/fish/config.fish")]
pub struct Args {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// The variable in which a shell's script says who asks.
const ASKED: &str = "LLMTUI_COMPLETE";

const SHELLS: Shells<'static> = Shells(&[&bash::Bash, &Elvish, &Fish, &Powershell, &Zsh]);

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let program = std::env::args_os().next().unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    let script = script(args.shell, &program_at(&program, &here))?;
    std::io::stdout().write_all(&script)?;
    Ok(Exit::Done)
}

/// How a script calls this program from any folder: as it was called here, where that is by name.
fn program_at(program: &OsStr, here: &Path) -> String {
    let path = Path::new(program);
    let path = match path.components().count() {
        0 => PathBuf::from("llmtui"),
        1 => path.into(),
        _ => here.join(path).components().collect(),
    };
    path.to_string_lossy().into_owned()
}

fn script(shell: clap_complete::Shell, program: &str) -> anyhow::Result<Vec<u8>> {
    let name = shell.to_string();
    let shells = SHELLS;
    let completer = shells.completer(&name);
    let completer = completer.ok_or_else(|| anyhow::anyhow!("no script for {name}"))?;
    let mut text = Vec::new();
    completer.write_registration(ASKED, "llmtui", "llmtui", program, &mut text)?;
    Ok(text)
}

/// Answers a shell that asks what may stand at its cursor; `None` where the program was started for anything else.
pub fn answer(env: &Env) -> Option<Exit> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let places = Places {
        sources: spec_sources(env),
        runs_dir: runs_dir(&words),
    };
    let asked = CompleteEnv::with_factory(|| tree(places.clone()))
        .var(ASKED)
        .shells(SHELLS)
        .try_complete(words, std::env::current_dir().ok().as_deref());
    match asked {
        Ok(false) => None,
        Ok(true) => Some(Exit::Done),
        Err(error) => {
            let _ = error.print();
            Some(Exit::UserError)
        }
    }
}

/// `--runs-dir` of the line that is being typed.
fn runs_dir(words: &[OsString]) -> PathBuf {
    let next = |i: usize| words.get(i + 1).filter(|word| !word.is_empty());
    let said = words.iter().enumerate().find_map(|(i, word)| {
        let word = word.to_str()?;
        match word.strip_prefix("--runs-dir=") {
            Some(dir) => Some(PathBuf::from(dir)),
            None if word == "--runs-dir" => next(i).map(PathBuf::from),
            None => None,
        }
    });
    said.unwrap_or_else(|| RUNS_DIR.into())
}

/// The command line, with what may stand where.
fn tree(places: Places) -> Command {
    completed(Cli::command(), &Arc::new(places))
}

fn completed(command: Command, places: &Arc<Places>) -> Command {
    let verb = command.get_name().to_string();
    command
        .mut_args(|arg| {
            let kinds = Kind::of(&arg, &verb);
            match kinds.is_empty() {
                true => arg,
                false => arg.add(completer(kinds, places.clone())),
            }
        })
        .mut_subcommands(|verb| completed(verb, places))
}

fn completer(kinds: Vec<Kind>, places: Arc<Places>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let of = kinds.iter().map(|kind| kind.candidates(typed, &places));
        of.flatten().collect()
    })
}

#[cfg(test)]
mod tests;
