//! The folder `checkpoints/` of one run: a checkpoint is complete or absent.
//!
//! Commit: `.tmp-…` → write and fsync each file → `manifest.json` → fsync the folder → rename to `step-…` → fsync the
//! parent. Only then is it announced. One that replaces another of its step is exchanged with it in one operation; if the
//! file system cannot do that, the older one is kept as `.old-…` and restored at the next start if the newer one never got
//! its name. Checkpoints beyond retention are renamed to `.del-…` before they are deleted, so that a half-deleted one is
//! never mistaken for a checkpoint.

use super::disk::{Disk, FileRecord, Fill};
use super::manifest::{self, Fault, Manifest};
use crate::base::files::{DELETED, open_plain};
use crate::hf::CONFIG;
use crate::run::checkpoints::{name_of, step_in};
use crate::run::{GIVEN_UP, is_abandoned};
use crate::spec::FROZEN_COPIES;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

const TEMPORARY: &str = ".tmp-";
const REPLACED: &str = ".old-";

/// One file of a checkpoint to be written.
pub struct Part<'a> {
    pub name: &'static str,
    pub fill: Box<Fill<'a>>,
    /// No step changes what is in it, as the weights under adapters: checkpoints share [`FROZEN_COPIES`] of it by hard links.
    pub frozen: bool,
}

/// A checkpoint on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub step: u64,
    pub path: PathBuf,
}

/// The checkpoints of one run. Only the holder of the run's lock may own one.
pub struct Store {
    folder: PathBuf,
    disk: Box<dyn Disk>,
    /// Steps whose files matched their manifest since this process began.
    verified: BTreeSet<u64>,
}

/// Checkpoints in `folder`, newest first, but for those that were given up. Names alone: nothing is verified.
pub fn list(folder: &Path) -> Vec<Found> {
    let mut found = every(folder);
    found.retain(|found| !is_abandoned(&found.path));
    found
}

/// The same with those that were given up, which stand because other runs begin from them.
pub fn every(folder: &Path) -> Vec<Found> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<Found> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            Some(Found {
                step: step_in(name.to_str()?)?,
                path: entry.path(),
            })
        })
        .collect();
    found.sort_by_key(|f| std::cmp::Reverse(f.step));
    found
}

/// Removes debris: a folder, or whatever else got such a name.
fn clear(entry: &std::fs::DirEntry) -> io::Result<()> {
    if entry.file_type()?.is_dir() {
        std::fs::remove_dir_all(entry.path())
    } else {
        std::fs::remove_file(entry.path())
    }
}

impl Store {
    /// Opens the folder (created when absent) and removes leftovers of killed saves and deletions.
    ///
    /// # Errors
    /// The folder cannot be created, read or cleaned.
    pub fn open(folder: &Path, disk: Box<dyn Disk>) -> io::Result<Store> {
        if !folder.is_dir() {
            std::fs::create_dir(folder)?;
        }
        for entry in std::fs::read_dir(folder)?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if let Some(target) = name.strip_prefix(REPLACED).map(|name| folder.join(name))
                && !target.exists()
            {
                disk.rename(&entry.path(), &target)?;
                disk.sync_dir(folder)?;
            } else if [TEMPORARY, DELETED, REPLACED]
                .iter()
                .any(|mark| name.starts_with(mark))
            {
                clear(&entry)?;
            }
        }
        Ok(Store {
            folder: folder.into(),
            disk,
            verified: BTreeSet::new(),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn list(&self) -> Vec<Found> {
        list(&self.folder)
    }

    /// Writes a checkpoint of `step`, replacing one of the same step. On an error nothing of it is left, and an older
    /// checkpoint of the step is still there.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn commit(&mut self, step: u64, parts: &[Part<'_>]) -> io::Result<(PathBuf, Manifest)> {
        let temporary = self.folder.join(format!("{TEMPORARY}{}", name_of(step)));
        let target = self.folder.join(name_of(step));
        let result = self.write(&temporary, step, parts).and_then(|manifest| {
            self.rename_into_place(&temporary, &target)?;
            Ok(manifest)
        });
        match result {
            Ok(manifest) => {
                self.verified.remove(&step);
                Ok((target, manifest))
            }
            Err(e) => {
                let _ = self.disk.remove_dir(&temporary);
                Err(e)
            }
        }
    }

    /// Copies a whole checkpoint from elsewhere, replacing one of the same step.
    ///
    /// # Errors
    /// The other one has no manifest, or the disk does not take it.
    pub fn copy_in(&mut self, step: u64, from: &Path) -> io::Result<()> {
        let temporary = self.folder.join(format!("{TEMPORARY}{}", name_of(step)));
        let manifest = Manifest::read(from).map_err(|fault| io::Error::other(fault.to_string()))?;
        let names = manifest.files.keys().map(String::as_str);
        let copied = self.clean(&temporary).and_then(|()| {
            for name in names.chain([manifest::FILE]) {
                self.disk.write(&temporary.join(name), &|out| {
                    io::copy(&mut open_plain(from.join(name))?, out).map(drop)
                })?;
            }
            self.disk.sync_dir(&temporary)?;
            self.rename_into_place(&temporary, &self.folder.join(name_of(step)))
        });
        if copied.is_err() {
            let _ = self.disk.remove_dir(&temporary);
        }
        self.verified.remove(&step);
        copied
    }

    /// An empty folder to write a checkpoint into.
    fn clean(&self, temporary: &Path) -> io::Result<()> {
        // Somebody deleted it while the run trained. What trains is more than what is gone; a run's whole folder is not made anew.
        if !self.folder.exists() {
            self.disk.create_dir(&self.folder)?;
        }
        if temporary.exists() {
            self.disk.remove_dir(temporary)?;
        }
        self.disk.create_dir(temporary)
    }

    /// Gives the finished folder its name. An older one of the same name changes places with it, or steps aside first and
    /// returns on an error.
    fn rename_into_place(&self, temporary: &Path, target: &Path) -> io::Result<()> {
        if !target.exists() {
            self.disk.rename(temporary, target)?;
            return self.disk.sync_dir(&self.folder);
        }
        match self.disk.exchange(temporary, target) {
            Ok(()) => {
                self.disk.sync_dir(&self.folder)?;
                return self.disk.remove_dir(temporary);
            }
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(e) => return Err(e),
        }
        let aside = self.deletion_path(REPLACED, target)?;
        self.disk.rename(target, &aside)?;
        if let Err(e) = self.disk.rename(temporary, target) {
            let _ = std::fs::rename(&aside, target);
            return Err(e);
        }
        self.disk.sync_dir(&self.folder)?;
        self.disk.remove_dir(&aside)
    }

    /// The name under which a checkpoint waits for its deletion; free when this returns.
    fn deletion_path(&self, mark: &str, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.folder.join(format!("{mark}{name}"));
        if aside.exists() {
            self.disk.remove_dir(&aside)?;
        }
        Ok(aside)
    }

    /// True if a checkpoint of this step is there, to judge by its manifest's presence.
    pub fn has_checkpoint(&self, step: u64) -> bool {
        let folder = self.folder.join(name_of(step));
        folder.join(manifest::FILE).is_file() && !is_abandoned(&folder)
    }

    /// Steps of abandoned checkpoints that are kept because other runs started from them.
    pub fn abandoned(&self) -> Vec<u64> {
        let all = every(&self.folder).into_iter();
        let given_up = all.filter(|found| is_abandoned(&found.path));
        given_up.map(|found| found.step).collect()
    }

    fn write(&mut self, temporary: &Path, step: u64, parts: &[Part<'_>]) -> io::Result<Manifest> {
        self.clean(temporary)?;
        if parts.iter().any(|part| part.frozen) {
            self.know_neighbours(step);
        }
        let mut manifest = Manifest {
            format: manifest::FORMAT,
            step,
            files: Default::default(),
        };
        for part in parts {
            let place = temporary.join(part.name);
            let shared = match part.frozen {
                true => self.share(&manifest, part.name, &place)?,
                false => None,
            };
            let record = match shared {
                Some(record) => record,
                None => self.disk.write(&place, &part.fill)?,
            };
            manifest.files.insert(part.name.into(), record);
        }
        let text = serde_json::to_vec_pretty(&manifest)?;
        self.disk
            .write(&temporary.join(manifest::FILE), &|out| out.write_all(&text))?;
        self.disk.sync_dir(temporary)?;
        Ok(manifest)
    }

    /// Reads back the checkpoints in front of `step` whose frozen files are to be shared, where this process has not yet: after
    /// a resume it knows one of them alone.
    fn know_neighbours(&mut self, step: u64) {
        let before = self.list().into_iter().map(|found| found.step);
        for near in before.filter(|s| *s < step).take(FROZEN_COPIES as usize) {
            if !self.verified.contains(&near) && self.verify(near).is_err() {
                // Nothing is linked then; whoever reads it reports the fault.
                return;
            }
        }
    }

    /// Links a frozen file of the newest checkpoint but one before the step of `written`, of those that were found whole; `None`
    /// where there is none, or where links are not to be had.
    fn share(
        &self,
        written: &Manifest,
        name: &str,
        place: &Path,
    ) -> io::Result<Option<FileRecord>> {
        let before = self.verified.range(..written.step);
        let Some(last) = before.rev().nth(FROZEN_COPIES as usize - 1) else {
            return Ok(None);
        };
        let folder = self.folder.join(name_of(*last));
        // Weights lie as the config beside them says: another version of llmtui may have said and written otherwise.
        let as_here = |found: &Manifest| found.files.get(CONFIG) == written.files.get(CONFIG);
        let manifest = Manifest::read(&folder).ok().filter(as_here);
        let record = manifest.and_then(|mut manifest| manifest.files.remove(name));
        if record.is_none() || self.disk.link(&folder.join(name), place).is_ok() {
            return Ok(record);
        }
        // A file server may have made the link in spite of its answer. Writing there would write into both.
        match std::fs::remove_file(place) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(None),
        }
    }

    /// Holds one checkpoint against its manifest.
    ///
    /// # Errors
    /// As [`Manifest::verify`].
    pub fn verify(&mut self, step: u64) -> Result<Manifest, Fault> {
        match Manifest::verify(&self.folder.join(name_of(step))) {
            Ok(manifest) => {
                self.verified.insert(step);
                Ok(manifest)
            }
            Err(fault) => {
                // What is damaged may be a file that others share: nothing is linked again before it was read again.
                self.verified.clear();
                Err(fault)
            }
        }
    }

    /// The newest whole checkpoint at or before `at_most`, and the faults of the newer ones that were passed over.
    pub fn newest_whole(&mut self, at_most: u64) -> (Option<Found>, Vec<Fault>) {
        let mut faults = Vec::new();
        for found in self.list().into_iter().filter(|f| f.step <= at_most) {
            match self.verify(found.step) {
                Ok(_) => return (Some(found), faults),
                Err(fault) => faults.push(fault),
            }
        }
        (None, faults)
    }

    /// Keeps the newest `keep_last` whole checkpoints and those of the steps `also` (the best, the stable one), and deletes
    /// what is older. While fewer are whole, nothing is deleted; a broken one never counts.
    ///
    /// # Errors
    /// A checkpoint cannot be deleted.
    pub fn prune(&mut self, keep_last: usize, also: &[u64]) -> io::Result<()> {
        let mut whole = 0;
        for found in self.list() {
            if whole < keep_last {
                let known = self.verified.contains(&found.step);
                whole += usize::from(known || self.verify(found.step).is_ok());
            } else if !also.contains(&found.step) {
                self.discard(found.step)?;
            }
        }
        for step in self.abandoned() {
            if !also.contains(&step) {
                self.discard(step)?;
            }
        }
        Ok(())
    }

    /// Gives up the checkpoints of `step` and after it: those that other runs need, `needed`, are marked and passed over from now
    /// on, the others are deleted. Returns the marked ones.
    ///
    /// # Errors
    /// The disk.
    pub fn retire_from(&mut self, step: u64, needed: &BTreeSet<u64>) -> io::Result<Vec<u64>> {
        let mut marked = Vec::new();
        for found in self.list().into_iter().filter(|found| found.step >= step) {
            if !needed.contains(&found.step) {
                self.discard(found.step)?;
                continue;
            }
            self.verified.remove(&found.step);
            (self.disk).write(&found.path.join(GIVEN_UP), &|_| Ok(()))?;
            self.disk.sync_dir(&found.path)?;
            marked.push(found.step);
        }
        Ok(marked)
    }

    /// Takes all checkpoints away.
    ///
    /// # Errors
    /// A checkpoint cannot be deleted.
    pub fn clear(&mut self) -> io::Result<Vec<u64>> {
        self.discard_from(0)
    }

    /// Takes the checkpoints of `step` and after it away.
    ///
    /// # Errors
    /// A checkpoint cannot be deleted.
    pub fn discard_from(&mut self, step: u64) -> io::Result<Vec<u64>> {
        let newer: Vec<u64> = self
            .list()
            .iter()
            .map(|f| f.step)
            .filter(|s| *s >= step)
            .collect();
        for step in &newer {
            self.discard(*step)?;
        }
        Ok(newer)
    }

    fn discard(&mut self, step: u64) -> io::Result<()> {
        self.verified.remove(&step);
        let path = self.folder.join(name_of(step));
        let aside = self.deletion_path(DELETED, &path)?;
        self.disk.rename(&path, &aside)?;
        self.disk.remove_dir(&aside)
    }
}

#[cfg(test)]
mod power_loss;
#[cfg(test)]
mod tests;
