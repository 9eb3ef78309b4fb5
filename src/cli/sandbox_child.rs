//! `llmtui sandbox-child`: isolates an untrusted program and then becomes it. Internal: the program starts itself this way.

use super::Context;
use super::exit::Exit;
#[cfg(target_os = "linux")]
use crate::sandbox;

/// Run a program in a sandbox, for the parent process (internal)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Limits as JSON, then the program that this process becomes; nothing to be its guard
    #[arg(
        value_name = "LIMITS PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<String>,
}

#[cfg(target_os = "linux")]
pub fn run(args: &Args, _cx: &Context) -> anyhow::Result<Exit> {
    use super::exit::Failure;
    use std::os::fd::AsFd;
    let internal =
        |e: &dyn std::fmt::Display| Failure::machine(e.to_string(), "this command is internal");
    let Some((limits, command)) = args.words.split_first() else {
        let program = std::env::current_exe().map_err(|e| internal(&e))?;
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|e| internal(&e))?;
        let status = sandbox::serve(&program, input.into()).map_err(|e| internal(&e))?;
        return Ok(Exit::Program(status));
    };
    let error = sandbox::exec(limits, command);
    Err(internal(&error).into())
}

#[cfg(not(target_os = "linux"))]
pub fn run(_args: &Args, _cx: &Context) -> anyhow::Result<Exit> {
    anyhow::bail!("this command needs Linux")
}
