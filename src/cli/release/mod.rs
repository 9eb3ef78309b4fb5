//! `llmtui release`: a model folder checked as a stranger would, laid out for upload, and uploaded where that is asked for.

mod make;
mod push;

use super::exit::{Exit, Failure, is_broken_pipe};
use super::{Context, card, finding, model_ref, out};
use crate::base::finding::{Finding, Status};
use crate::base::json;
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use crate::models::{self, Parts};
use crate::release::{self, LocalEnv, Subject};
use crate::run::{RunDir, index};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Validate a model folder, stage it for the hub and upload it (a dry run unless --upload)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui release out/model
  llmtui release shakespeare --license mit --language en --to out/shakespeare
  llmtui release my-lora-run --format peft --license mit --to out/adapter    # the adapter alone; else merged into its base
  llmtui release out/model --repo me/model                    # what an upload would send
  llmtui release out/model --repo me/model --upload           # with HF_TOKEN

Takes model folders, adapters and folders of GGUF files; a run or a checkpoint is exported \
first. Nothing is uploaded without --upload. Checks: docs/release.md.")]
pub struct Args {
    /// A model folder; or a run (its best checkpoint) or checkpoint, which is first exported to --to
    #[arg(value_name = "FOLDER|RUN")]
    pub target: String,
    /// Stage the files in this folder, with a list of checksums; must be absent or empty
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Repository on the hub
    #[arg(long, value_name = "OWNER/NAME", value_parser = repo)]
    pub repo: Option<String>,
    /// Upload: needs --repo, and a token with write access in HF_TOKEN
    #[arg(long, requires = "repo")]
    pub upload: bool,
    /// If the repository does not exist, create it as private
    #[arg(long)]
    pub private: bool,
    /// For a run: `hf` the whole model, adapters merged; `peft` only the adapter of a LoRA, DoRA or QLoRA run
    #[arg(long, value_name = "FORMAT", value_parser = ["hf", "peft"])]
    pub format: Option<String>,
    /// For a run: hub id of the base model; default: what the run started from
    #[arg(long, value_name = "ORG/NAME", value_parser = model_ref::base_model)]
    pub base_model: Option<String>,
    /// For a run: license of its card, as a hub identifier (apache-2.0, mit, other …)
    #[arg(long, value_name = "ID", value_parser = card::license)]
    pub license: Option<String>,
    /// For a run: language of its card (en, de …); may be repeated
    #[arg(long = "language", value_name = "CODE", value_parser = card::language)]
    pub languages: Vec<String>,
    /// For a run: dtype of the weights; default: f32
    #[arg(long, value_name = "TYPE", value_parser = ["f32", "f16", "bf16"])]
    pub dtype: Option<String>,
    /// For a run: folder of evaluations (see llmtui eval --out); default: evals
    #[arg(long, value_name = "DIR")]
    pub evals: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Columns of a title.
const TITLE: usize = 24;

fn repo(text: &str) -> Result<String, String> {
    match text.contains('/') && crate::hub::is_repo_id(text) {
        true => Ok(text.into()),
        false => Err("use OWNER/NAME, as in the repository's URL".into()),
    }
}

/// What the argument names.
enum Target {
    /// Checked as it is.
    Folder(PathBuf),
    /// Exported first; with the run that knows where it comes from.
    Checkpoint(PathBuf, Option<RunDir>),
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let release = Release::prepare(args, cx)?;
    release.hand_over(cx)?;
    if !release.is_refused() {
        return Ok(Exit::Done);
    }
    if args.upload {
        errln!("nothing was uploaded: fix what is marked FAIL first");
    }
    Ok(Exit::UserError)
}

/// A folder is taken as it is: what only an export knows cannot be asked for.
fn refuse_options_of_runs(args: &Args, folder: &Path) -> Result<(), Failure> {
    let of_run = [
        ("--format", args.format.is_some()),
        ("--base-model", args.base_model.is_some()),
        ("--license", args.license.is_some()),
        ("--language", !args.languages.is_empty()),
        ("--dtype", args.dtype.is_some()),
        ("--evals", args.evals.is_some()),
    ];
    let Some((option, _)) = of_run.into_iter().find(|(_, said)| *said) else {
        return Ok(());
    };
    let what = format!(
        "{option}: {} is a folder, which is used as it is",
        shown(folder)
    );
    let hint = match option {
        "--license" | "--language" => {
            "write it into the metadata of its README.md, or name a run or a checkpoint"
        }
        _ => {
            "drop it, or name a run or a checkpoint; llmtui export FOLDER rewrites a model or an adapter (--format peft)"
        }
    };
    Err(Failure::user_error(what, hint))
}

/// A model folder that was checked.
struct Release<'a> {
    args: &'a Args,
    folder: PathBuf,
    findings: Vec<Finding>,
    /// Where its files were laid out.
    made: Option<PathBuf>,
    /// What goes up; nothing of one that failed a check.
    parcel: Option<push::Package>,
}

impl<'a> Release<'a> {
    /// Exports a run or a checkpoint, checks the folder, lays it out and looks for what would go up.
    fn prepare(args: &'a Args, cx: &Context) -> anyhow::Result<Release<'a>> {
        let target = target(args, cx)?;
        if let Target::Folder(folder) = &target {
            refuse_options_of_runs(args, folder)?;
        }
        let here = LocalEnv {
            room: crate::hardware::memory().left().0,
            cache: crate::hub::HubConfig::from_env(&cx.env).cache,
        };
        let (folder, exported) = match &target {
            Target::Folder(folder) => (folder.clone(), None),
            Target::Checkpoint(checkpoint, run) => {
                let to = make::export(checkpoint, run.as_ref(), args, cx)?;
                (to.clone(), Some(to))
            }
        };
        let mut release = Release {
            args,
            findings: check(&folder, &here)?,
            folder,
            made: exported,
            parcel: None,
        };
        if release.is_refused() {
            return Ok(release);
        }
        if args.upload {
            push::authorized(cx)?;
        }
        if let (None, Some(to)) = (&release.made, &args.to) {
            let subject = open(&release.folder, &here)?;
            release::copy_to(&subject, to).map_err(|e| make::layout_failed(&e))?;
            release.made = Some(to.clone());
        }
        let (made, folder) = (&release.made, &release.folder);
        let parcel = push::parcel(made.as_ref().unwrap_or(folder), made.is_some(), &here)?;
        release.parcel = Some(parcel);
        Ok(release)
    }

    fn is_refused(&self) -> bool {
        self.findings.iter().any(|f| f.status == Status::Fail)
    }

    /// Shows what was found, and sends it where that is asked for.
    fn hand_over(&self, cx: &Context) -> anyhow::Result<()> {
        let args = self.args;
        if !args.json {
            match self.report() {
                // Who has read enough (`| head`) still wants it sent.
                Err(error) if args.upload && is_broken_pipe(&error) => {}
                told => told?,
            }
        }
        let mut sent = None;
        if let Some(parcel) = self.parcel.as_ref().filter(|_| args.upload) {
            sent = Some(push::send(parcel, args, cx)?);
        }
        if args.json {
            outln!("{}", out::json(&self.value(sent))?)?;
        }
        Ok(())
    }

    /// What was found, and what goes up.
    fn report(&self) -> anyhow::Result<()> {
        outln!("{}", shown(&self.folder))?;
        let findings = self.findings.iter();
        let rows: String = findings.map(|f| finding::rows(f, TITLE, "")).collect();
        let tally = finding::tally(&self.findings);
        outln!("{}\n{tally}", rows.trim_end())?;
        if let Some(made) = &self.made {
            match self.is_refused() {
                false => outln!("\nstaged in {}", shown(made))?,
                // Only an export is there then.
                true => outln!(
                    "\nnot staged: the export in {} stays, to be corrected; `llmtui release {}` checks it again",
                    shown(made),
                    shell_quote(&one_line(&made.to_string_lossy()))
                )?,
            }
        }
        match &self.parcel {
            Some(parcel) => push::tell(parcel, self.args),
            None => Ok(()),
        }
    }

    fn value(&self, sent: Option<Value>) -> Value {
        json!({
            "folder": json::path(&self.folder),
            "findings": self.findings,
            "laid_out": self.made.as_deref().map(json::path),
            "repo": self.args.repo,
            "files": self.parcel.as_ref().map(push::Package::to_json),
            "uploaded": sent,
        })
    }
}

fn target(args: &Args, cx: &Context) -> anyhow::Result<Target> {
    let path = Path::new(&args.target);
    if path.is_dir() && !path.join("run.json").is_file() {
        return Ok(match make::is_checkpoint(path) {
            true => Target::Checkpoint(path.into(), make::run_of(path)),
            false => Target::Folder(path.into()),
        });
    }
    if path.is_file() {
        let what = format!("{} is a file", one_line(&args.target));
        let hint = "name its folder: a release is a folder with a card next to the model";
        return Err(Failure::user_error(what, hint).into());
    }
    // A run first, then the hub; an error names both.
    let found = model_ref::find(&args.target, Parts::Everything, cx)?;
    match index::resolve(&cx.runs_dir, &args.target) {
        Ok(run) => Ok(Target::Checkpoint(found, Some(run))),
        Err(_) => Ok(Target::Folder(found)),
    }
}

fn open(folder: &Path, here: &LocalEnv) -> anyhow::Result<Subject> {
    let opened = Subject::open(folder, here);
    Ok(opened.map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?)
}

fn check(folder: &Path, here: &LocalEnv) -> anyhow::Result<Vec<Finding>> {
    let subject = open(folder, here)?;
    errln!(
        "{} called {}: checking",
        subject.form.words(),
        one_line(&models::name_of(folder))
    );
    Ok(release::check(&subject, &|_| ()))
}
