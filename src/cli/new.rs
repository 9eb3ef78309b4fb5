//! `llmtui new`: the wizard in plain text, questions on standard output, answers on standard input.
//! Same questions as in the workbench; works in a pipe.

mod answer;
mod ask;

use super::Context;
use super::exit::{Exit, Failure};
use crate::advisor::inspection::Machine;
use crate::advisor::saved_answers;
use crate::advisor::wizard::{self, Answers, Outcome, Step, Wizard};
use crate::base::paths::expand_home;
use crate::base::text::shown;
use crate::hardware::{Live, Provider, Recorded};
use crate::plan::calibration;
use answer::{converse, typed};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Create a spec by answering questions: goal, data, start, method, size, settings
///
/// Each question takes a number (followed by text where asked for), an empty line for the default,
/// `?3` to explain row 3, `b` for the previous question, `q` to quit. Answers are remembered for next time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui new
  llmtui new poems.yaml
  printf '1\\n2 poems.txt\\n\\n\\n\\n3 1e-3\\n\\n\\n\\n' | llmtui new poems.yaml
  llmtui new --defaults first.yaml")]
pub struct Args {
    /// Where to write the spec; never overwrites. Default: the run's name, with a number where that file exists
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Ask nothing; accept every default
    #[arg(long)]
    pub defaults: bool,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    // Said before the questions, not after them.
    if let Some(file) = &args.file {
        let path = expand_home(file, Path::new(""), cx.env.home.as_deref())
            .unwrap_or_else(|_| file.clone());
        if path.symlink_metadata().is_ok() {
            let what = format!("{} already exists: choose another name", shown(&path));
            return Err(Failure::user_error(what, "llmtui new FILE").into());
        }
    }
    let best = crate::run::index::best_checkpoints(&cx.runs_dir);
    let best = best.map(|folder| folder.display().to_string());
    let machine = machine(cx)?;
    let sample = saved_answers::sample(&cx.env);
    let mut context = wizard::Context::gather_for(&sample, &cx.spec_sources(), best, machine);
    context.runs_dir = Some(cx.runs_dir.clone());
    let mut out = std::io::stdout().lock();
    if args.defaults {
        let mut wizard = Wizard::new(context, Answers::default());
        straight(&mut wizard)?;
        return write_out(&wizard, args.file, &mut out, cx);
    }
    let mut wizard = Wizard::new(context, saved_answers::answers(&cx.env));
    let mut input = std::io::stdin().lock();
    let columns = cx.columns().unwrap_or(usize::MAX);
    let done = converse(&mut wizard, &mut input, &mut out, columns)?;
    // Answers are remembered even if the user quits midway; without a state folder none are.
    if let Err(error) = saved_answers::keep(&cx.env, &wizard.to_remember()) {
        writeln!(out, "the answers could not be saved for next time: {error}")?;
    }
    match done {
        true => write_out(&wizard, args.file, &mut out, cx),
        false => Ok(Exit::Done),
    }
}

/// This machine, or the recorded one of `--hardware`, whose speed is unknown.
fn machine(cx: &Context) -> anyhow::Result<Machine> {
    Ok(match cx.recording()? {
        Some(recording) => {
            let summary = Recorded::new(recording).machine().summary();
            Machine::of(summary, calibration::Machine::default())
        }
        None => {
            let known = calibration::Machine::load_or_measure(&cx.env, super::probe::measure);
            Machine::of(Live::new(&cx.env).machine().summary(), known)
        }
    })
}

/// Accepts the default for every question.
fn straight(wizard: &mut Wizard) -> anyhow::Result<()> {
    while wizard.step() != Step::Finish {
        let before = wizard.step();
        if wizard.enter() != Outcome::Moved || wizard.step() == before {
            let why = wizard.error().unwrap_or("it has no default");
            let what = format!("the question `{}` cannot be answered: {why}", before.word());
            return Err(Failure::user_error(what, "llmtui new, without --defaults").into());
        }
    }
    Ok(())
}

/// Writes the spec and shows how to train it. Writes nothing for answers that cannot be trained.
fn write_out(
    wizard: &Wizard,
    file: Option<PathBuf>,
    out: &mut impl Write,
    cx: &Context,
) -> anyhow::Result<Exit> {
    let mut finish = wizard.clone();
    finish.select(1);
    if let Some(file) = &file {
        finish.type_in(&file.display().to_string());
    }
    match finish.enter() {
        Outcome::Save { path, yaml } => {
            let path = typed(wizard, &path.to_string_lossy());
            let mut path = PathBuf::from(path);
            // Nobody chose this name, and the answers are worth more than it.
            if file.is_none() && path.symlink_metadata().is_ok() {
                let taken = shown(&path);
                path = crate::spec::free_path(&path);
                writeln!(out, "\n{taken} already exists: {} instead", shown(&path))?;
            }
            crate::spec::save_new(&path, &yaml)
                .map_err(|error| Failure::unsaved(&error, "llmtui new FILE"))?;
            crate::ui::remember_spec(&cx.env, &path);
            writeln!(out, "\n{yaml}")?;
            writeln!(out, "saved as {}", shown(&path))?;
            writeln!(out, "llmtui train {}", shown(&path))?;
            Ok(Exit::Done)
        }
        _ => {
            let why = finish
                .error()
                .unwrap_or("these answers do not give a valid spec");
            let hint = "run llmtui new again: your answers were saved";
            Err(Failure::user_error(why, hint).into())
        }
    }
}

#[cfg(test)]
mod tests;
