//! What is to be written, and where to.

use crate::base::near::{nearest, unknown};
use crate::base::text::shown;
use crate::cli::exit::Failure;
use crate::history::{FORMATS, Format};
use std::path::{Path, PathBuf};

/// Print or export a run's metrics: a table, CSV, JSON lines, trainer_state.json, TensorBoard
///
/// Reads the log of a run, live or finished, or of another program (llmtui watch --list). Readings that a rollback invalidated
/// are left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui metrics shakespeare
  llmtui metrics shakespeare --metric 'val/*' --json
  llmtui metrics shakespeare --to curves.csv
  llmtui metrics shakespeare --to trainer_state.json
  llmtui metrics shakespeare --tensorboard tb --follow    # then: tensorboard --logdir tb
  llmtui metrics shakespeare --to - --format jsonl -f | my-dashboard")]
pub struct Args {
    /// A run: its directory, its id, a part of it, or its name (the newest of that name); or another program's log
    #[arg(value_name = "RUN|LOG")]
    pub run: String,
    /// Only metrics whose ids fit: `val/*`, `*loss`; may be repeated (docs/metrics.md lists the ids)
    #[arg(long, value_name = "GLOB")]
    pub metric: Vec<String>,
    /// Print the table as JSON
    #[arg(long, conflicts_with_all = ["to", "tensorboard"])]
    pub json: bool,
    /// Write a file: NAME.csv, NAME.jsonl, trainer_state.json; a folder for TensorBoard: DIR/; or - for standard output
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "tensorboard")]
    pub to: Option<PathBuf>,
    /// Write a TensorBoard event file to DIR/RUN/
    #[arg(long, value_name = "DIR", conflicts_with = "format")]
    pub tensorboard: Option<PathBuf>,
    /// Format of the file, if its name does not say: csv, jsonl, trainer_state, tfevents
    #[arg(long, value_name = "FORMAT", requires = "to")]
    pub format: Option<String>,
    /// Keep writing until the run ends
    #[arg(short, long)]
    pub follow: bool,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
}

/// Where the metrics go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Stdout,
    File(PathBuf),
    /// A folder with one for each run.
    Folder(PathBuf),
}

pub type Target = (&'static Format, Place);

impl Args {
    /// What is written; `None` for the table.
    ///
    /// # Errors
    /// The format is not known, or is none for this place.
    pub fn target(&self) -> Result<Option<Target>, Failure> {
        let target = match (&self.tensorboard, &self.to) {
            (Some(dir), _) => Some((events()?, Place::Folder(dir.clone()))),
            (None, Some(to)) => Some(self.to(to)?),
            (None, None) => None,
        };
        match &target {
            None if self.follow => Err(Failure::user_error(
                "--follow writes, and nothing says where to",
                "--to curves.jsonl or --tensorboard DIR",
            )),
            Some((format, Place::Stdout)) if self.follow && !format.grows() => {
                let what = format!("{} cannot be followed on standard output", format.entry.id);
                let hint =
                    "its columns or its head are known at the end: --format jsonl, or --to a file";
                Err(Failure::user_error(what, hint))
            }
            Some((format, Place::Stdout)) if format.is_folder() => Err(Failure::user_error(
                "an event file is binary: it is not written to standard output",
                "--tensorboard DIR, or --format csv or jsonl",
            )),
            _ => Ok(target),
        }
    }

    fn to(&self, to: &Path) -> Result<Target, Failure> {
        let named = self.format.as_deref().map(format_named).transpose()?;
        if to == Path::new("-") {
            let format = named.ok_or_else(|| {
                Failure::user_error("--to - does not name a format", "--format csv or jsonl")
            })?;
            return Ok((format, Place::Stdout));
        }
        let text = to.as_os_str().as_encoded_bytes();
        let is_folder = text.ends_with(b"/") || to.is_dir();
        match (named.or_else(|| Format::of(to)), is_folder) {
            (None, true) => Ok((events()?, Place::Folder(to.into()))),
            (Some(format), _) if format.is_folder() => Ok((format, Place::Folder(to.into()))),
            (_, true) => Err(Failure::user_error(
                format!("{} is a folder", shown(to)),
                "name a file in it; a folder without --format is TensorBoard's",
            )),
            (Some(format), false) => Ok((format, Place::File(to.into()))),
            (None, false) => Err(Failure::user_error(
                format!("the name of {} does not say its format", shown(to)),
                "end it in .csv, .jsonl or .json, name a folder with DIR/, or add --format",
            )),
        }
    }
}

fn events() -> Result<&'static Format, Failure> {
    format_named("tfevents")
}

fn format_named(id: &str) -> Result<&'static Format, Failure> {
    Format::named(id).ok_or_else(|| {
        let all: Vec<&str> = FORMATS.iter().map(|format| format.entry.id).collect();
        let near = nearest(id, all.iter().copied());
        let (what, hint) = unknown("--format", id, near, &all);
        Failure::user_error(what, hint)
    })
}
