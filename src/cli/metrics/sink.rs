//! Where metrics are written: a file, replaced as a whole each time; a stream or an event file, which grow.

use super::args::{Args, Place, Target};
use crate::base::files::{open_plain_with, write_atomic};
use crate::base::text::shown;
use crate::cli::exit::Failure;
use crate::history::{Curves, Format, Stream, event_file_name};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One target, written again and again while its run is live.
pub struct Sink {
    format: &'static Format,
    place: Place,
    force: bool,
    follow: bool,
    /// What grows.
    stream: Stream,
    events: Option<File>,
    /// What was written, once it was.
    written: Option<PathBuf>,
    /// Newest event that was written.
    seq: u64,
}

impl Sink {
    pub fn new((format, place): Target, args: &Args) -> Sink {
        Sink {
            format,
            place,
            force: args.force,
            follow: args.follow,
            stream: Stream::new(format),
            events: None,
            written: None,
            seq: 0,
        }
    }

    /// The file that was written.
    pub fn path(&self) -> Option<&Path> {
        self.written.as_deref()
    }

    /// Writes what there is, or what is new.
    ///
    /// # Errors
    /// It cannot be written, or would replace a file.
    pub fn write(&mut self, curves: &mut Curves, ended: bool) -> anyhow::Result<()> {
        match self.place.clone() {
            Place::Stdout if self.follow => {
                let bytes = self.stream.bytes(curves, ended);
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
            Place::Stdout => io::stdout().write_all(&self.format.whole(curves))?,
            Place::File(path) => self.whole(&path, curves, ended)?,
            Place::Folder(dir) => self.append(&dir, curves, ended)?,
        }
        Ok(())
    }

    /// Readers see one state of it or the next.
    fn whole(&mut self, path: &Path, curves: &Curves, ended: bool) -> Result<(), Failure> {
        self.spare(path)?;
        let news = std::mem::replace(&mut self.seq, curves.state.last_seq) != self.seq;
        if news || ended {
            self.put(path, &self.format.whole(curves))?;
        }
        Ok(())
    }

    /// Readers of event files keep them open: they grow.
    fn append(&mut self, dir: &Path, curves: &mut Curves, ended: bool) -> Result<(), Failure> {
        let bytes = self.stream.bytes(curves, ended);
        if bytes.is_empty() {
            return Ok(());
        }
        if let (Some(file), Some(path)) = (&mut self.events, &self.written) {
            return file
                .write_all(&bytes)
                .map_err(|e| Failure::not_written(path, &e));
        }
        let folder = dir.join(folder_name(curves));
        let path = folder.join(event_file_name(curves));
        self.spare(&path)?;
        std::fs::create_dir_all(&folder).map_err(|e| Failure::not_made(&folder, &e))?;
        self.put(&path, &bytes)?;
        let opened = open_plain_with(OpenOptions::new().append(true), &path);
        self.events = Some(opened.map_err(|e| Failure::not_written(&path, &e))?);
        Ok(())
    }

    fn put(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        write_atomic(path, bytes).map_err(|e| Failure::not_written(path, &e))?;
        self.written = Some(path.into());
        Ok(())
    }

    /// A file that somebody else wrote, or an earlier export, stays.
    fn spare(&self, path: &Path) -> Result<(), Failure> {
        let own = self.force || self.written.is_some();
        match own || path.symlink_metadata().is_err() {
            true => Ok(()),
            false => Err(Failure::user_error(
                format!("{} already exists", shown(path)),
                "--force replaces it; or choose another name",
            )),
        }
    }
}

/// The run's folder within TensorBoard's: its name in the list of runs.
fn folder_name(curves: &Curves) -> String {
    let name = match &curves.root {
        Some(root) => root.file_name().unwrap_or_default().to_string_lossy(),
        None => curves.state.run.as_str().into(),
    };
    let plain = |c: char| if c == '/' || c.is_control() { '-' } else { c };
    match name.chars().map(plain).collect::<String>() {
        name if name.trim_matches('.').is_empty() => "run".into(),
        name => name,
    }
}
