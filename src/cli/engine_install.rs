//! `llmtui engine install` and `llmtui engine check`: the PyTorch behind `engine: torch`.

use super::exit::{Exit, Failure};
use super::{Context, finding};
use crate::workers::install::{self, InstallError};
use crate::workers::{Environment, EnvironmentError, environment, torch};
use std::io::Write;
use std::path::PathBuf;

/// Install PyTorch for llmtui only, in a virtual environment under your data folder
///
/// Uses uv if it is in PATH, else python3's venv and pip. About 3 GB with CUDA. An interrupted installation continues when you run
/// it again. Nothing global is changed: delete the folder to undo it.
#[derive(Debug, clap::Args)]
pub struct InstallArgs {
    /// What to install
    #[arg(value_parser = ["torch"])]
    what: String,
    /// Only print the commands
    #[arg(long)]
    dry_run: bool,
}

/// Show which PyTorch is used, which GPUs it sees, and any problems
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Use this Python or virtual environment instead of the installed one
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Check the PyTorch of each of these machines over ssh
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',', value_parser = super::args::destination)]
    nodes: Vec<String>,
    /// With --nodes: path of the program there; default: llmtui in its PATH
    #[arg(long, value_name = "PATH", requires = "nodes")]
    program: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn install(args: &InstallArgs, cx: &Context) -> anyhow::Result<Exit> {
    let failed = |error: InstallError| match error {
        InstallError::NoPython => Failure::machine(
            error.to_string(),
            "install uv (docs.astral.sh/uv) or python3 with venv",
        ),
        InstallError::Step(..) => Failure::machine(
            error.to_string(),
            "see its output above; the same command continues where it stopped",
        ),
        error => Failure::machine(error.to_string(), ""),
    };
    if args.dry_run {
        let venv =
            environment::installed_at(&cx.env).ok_or_else(|| failed(InstallError::NoFolder))?;
        let list = venv.join("requirements.txt");
        for step in install::steps(&cx.env.path, &venv, &list).map_err(failed)? {
            outln!("{}", step.words())?;
        }
        return Ok(Exit::Done);
    }
    let mut tell_step = |step: &install::Step| errln!("{}", step.words());
    let found = install::install(&cx.env, &mut tell_step).map_err(failed)?;
    print(&Ok(found), false)?;
    outln!("train with it: llmtui train SPEC -s engine=torch")?;
    Ok(Exit::Done)
}

pub fn check(args: &CheckArgs, cx: &Context) -> anyhow::Result<Exit> {
    let config = torch::Config {
        python: args.python.clone(),
        nodes: args.nodes.clone(),
        program: args.program.clone(),
        ..torch::Config::default()
    };
    if !config.nodes.is_empty() {
        return super::engine_node::check(&config, args.json, cx);
    }
    let found = environment::python(&config, &cx.env).and_then(|python| Environment::ask(&python));
    print(&found, args.json)?;
    Ok(match found {
        Ok(_) => Exit::Done,
        Err(_) => Exit::Machine,
    })
}

fn print(found: &Result<Environment, EnvironmentError>, json: bool) -> anyhow::Result<()> {
    const TITLE: usize = 14;
    let finding = Environment::finding(found);
    let mut out = std::io::stdout().lock();
    match json {
        true => writeln!(out, "{}", super::out::json(&finding)?)?,
        false => out.write_all(finding::rows(&finding, TITLE, "").as_bytes())?,
    }
    Ok(())
}
