//! What an upload would send, and the upload.

use super::super::exit::{Exit, Failure};
use super::super::{Context, model_ref};
use super::Args;
use crate::base::clock::{Clock, SystemClock};
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::hub::upload::{ATTRIBUTES, Outgoing, Progress, Upload, upload};
use crate::hub::{HubConfig, HubError, Pace, Repo, RepoKind};
use crate::models;
use crate::release::{Entry, LocalEnv, SUMS, Subject, belonging, sha256_of};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// What goes up.
pub struct Package {
    folder: PathBuf,
    files: Vec<Outgoing>,
}

impl Package {
    pub fn to_json(&self) -> Value {
        let file = |file: &Outgoing| json!({"name": file.name, "bytes": file.bytes, "sha256": file.sha256, "lfs": file.is_large()});
        self.files.iter().map(file).collect()
    }

    fn bytes(&self, large: bool) -> u64 {
        let of_kind = self.files.iter().filter(|file| file.is_large() == large);
        of_kind.map(|file| file.bytes).sum()
    }
}

/// The files of a folder with their checksums: all of one that was laid out, and of another those that belong to a model.
pub fn parcel(folder: &Path, laid_out: bool, here: &LocalEnv) -> anyhow::Result<Package> {
    let subject = super::open(folder, here)?;
    let mut files = Vec::new();
    for entry in chosen(&subject, laid_out) {
        let path = folder.join(&entry.name);
        let (sha256, bytes) = sha256_of(&path).map_err(|e| {
            let what = format!("{}: {e}", shown(&path));
            Failure::machine(one_line(&what), "check the file and its permissions")
        })?;
        files.push(Outgoing {
            name: entry.name.clone(),
            path,
            bytes,
            sha256,
        });
    }
    Ok(Package {
        folder: folder.into(),
        files,
    })
}

fn chosen(subject: &Subject, laid_out: bool) -> Vec<&Entry> {
    if laid_out {
        return subject.files.iter().collect();
    }
    let mut files = belonging(subject);
    files.extend(
        [ATTRIBUTES, SUMS]
            .iter()
            .filter_map(|name| subject.entry(name)),
    );
    files
}

pub fn tell(parcel: &Package, args: &Args) -> anyhow::Result<()> {
    let place = match &args.repo {
        Some(repo) => format!("to {repo}"),
        None => "to the hub".into(),
    };
    let verb = if args.upload {
        "is sent"
    } else {
        "an upload would send"
    };
    outln!("\n{verb} {place}:")?;
    for file in &parcel.files {
        let kind = if file.is_large() { "LFS" } else { "" };
        outln!(
            "  {:>10}  {kind:<3}  {}  {}",
            human::bytes(file.bytes),
            &file.sha256[..12],
            one_line(&file.name)
        )?;
    }
    outln!(
        "  {:>10}  in LFS, {} in the commit",
        human::bytes(parcel.bytes(true)),
        human::bytes(parcel.bytes(false))
    )?;
    if !args.upload {
        let target = shown(&parcel.folder);
        let repo = args.repo.as_deref().unwrap_or("OWNER/NAME");
        outln!(
            "nothing was uploaded; HF_TOKEN=… llmtui release {target} --repo {repo} --upload uploads it"
        )?;
    }
    Ok(())
}

/// Whether there is a token to send it with: reported before anything is said to be sent.
///
/// # Errors
/// There is none.
pub fn authorized(cx: &Context) -> Result<(), Failure> {
    match HubConfig::from_env(&cx.env).token {
        Some(_) => Ok(()),
        None => {
            let error = HubError::NoToken;
            Err(Failure::user_error(error.to_string(), error.hint()))
        }
    }
}

/// Sends it, with words on standard error.
pub fn send(parcel: &Package, args: &Args, cx: &Context) -> anyhow::Result<Value> {
    let config = HubConfig::from_env(&cx.env);
    let id = args.repo.as_deref().unwrap_or_default();
    let repo = Repo::new(RepoKind::Model, id, None)
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
    let order = Upload {
        repo,
        files: parcel.files.clone(),
        message: format!("Upload {}", one_line(&models::name_of(&parcel.folder))),
        private: args.private,
    };
    let display = model_ref::DownloadProgress::of_upload();
    let (clock, pace) = (SystemClock::new(), RefCell::new(Pace::default()));
    let hear = |progress: Progress<'_>| match progress {
        Progress::There(name) => {
            display.end();
            errln!("{}  is unchanged", one_line(name));
        }
        Progress::Sent(name, bytes, total) => {
            let rate = pace.borrow_mut().note(name, bytes, clock.elapsed());
            display.update(&model_ref::Download {
                file: one_line(name),
                bytes,
                total,
                bytes_per_sec: rate,
                at: clock.elapsed(),
            });
        }
    };
    let done = upload(&config, &order, &hear);
    display.end();
    let done = done.map_err(|error| Failure {
        exit: match error.is_environment_error() {
            true => Exit::Machine,
            false => Exit::UserError,
        },
        what: one_line(&error.to_string()),
        hint: error.hint(),
    })?;
    if !args.json {
        let url = match done.url.is_empty() {
            true => format!("{}/{id}", config.endpoint),
            false => done.url.clone(),
        };
        outln!(
            "{}  {} large files uploaded, {} already there",
            one_line(&url),
            done.sent,
            done.there
        )?;
    }
    Ok(json!({"url": done.url, "commit": done.commit, "sent": done.sent, "there": done.there}))
}
