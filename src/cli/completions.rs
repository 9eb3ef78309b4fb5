//! `llmtui completions`: shell completion scripts.

use super::{Cli, exit::Exit};
use clap::CommandFactory;
use std::io::Write;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  llmtui completions bash > ~/.local/share/bash-completion/completions/llmtui")]
pub struct Args {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    std::io::stdout().write_all(&script(args.shell))?;
    Ok(Exit::Done)
}

fn script(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "llmtui", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_verbs() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            let text = String::from_utf8(script(*shell)).unwrap();
            for verb in ["train", "presets", "completions"] {
                assert!(text.contains(verb), "{shell}: no {verb}");
            }
        }
    }

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }
}
