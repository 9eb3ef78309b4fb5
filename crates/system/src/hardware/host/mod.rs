//! The machine according to the kernel's files. Everything is read below a root folder, so that recorded trees work like
//! a live machine. NVML's readings are not here.

mod cgroup;
mod clock;
mod cpu;
mod devices;
mod disks;
mod kernel_log;
mod logind;
mod memory;
mod network;
mod process;

pub use process::{command_of, started_kib, user_of};

use super::machine::{Machine, Space};
use crate::base::clock::{Clock, SystemClock};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A tree of `/proc`, `/sys`, `/dev` and `/etc`.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    /// Queries the space of a path's file system; a recorded tree has none.
    space: fn(&Path) -> Option<Space>,
}

impl Root {
    /// The live machine.
    pub fn live() -> Root {
        Root {
            path: PathBuf::from("/"),
            space: disks::space_of,
        }
    }

    #[cfg(test)]
    pub fn recorded(path: &Path) -> Root {
        Root {
            path: path.to_path_buf(),
            space: |_| None,
        }
    }

    /// `proc/meminfo` below this root.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// A file's text, with invalid bytes replaced; `None` if it cannot be read.
    pub fn read(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.at(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file that holds one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// A number of a file of `KEY: N kB` lines.
    pub fn kib(&self, path: &str, key: &str) -> Option<u64> {
        kib(&self.read(path)?, key)
    }

    /// The names in a folder, sorted; empty when it cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(path)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }
}

/// A number of such a file's text, if several are needed from one reading.
pub fn kib(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| *name == key)?;
    value.split_whitespace().next()?.parse().ok()
}

/// Main memory only.
pub fn memory_of(root: &Root) -> super::machine::Memory {
    memory::read(root)
}

/// Fills in everything the kernel reports. `runs_dir` selects the file system of the runs.
pub fn read(root: &Root, runs_dir: &Path, machine: &mut Machine) {
    machine.host = root
        .read("proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .unwrap_or_default();
    machine.os = root.read("proc/sys/kernel/osrelease").map_or_else(
        || std::env::consts::OS.to_string(),
        |release| format!("Linux {}", release.trim()),
    );
    machine.cpu = cpu::read(root);
    machine.memory = memory::read(root);
    machine.disks = disks::read(root, runs_dir);
    machine.shm = disks::shm(root);
    machine.networks = network::read(root);
    devices::read(root, machine);
    machine.limits = process::limits(root);
    machine.kernel_log = kernel_log::read(root);
    machine.logout = logind::read(root);
    machine.clock = clock::read(root, runs_dir, now());
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(SystemClock::new().now().0)
}

#[cfg(test)]
pub mod tests {
    //! A recorded tree: files by path.

    use super::Root;

    /// Writes `files` (path, text) into a fresh folder.
    pub fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::recorded(folder.path());
        (folder, root)
    }

    #[test]
    fn a_key_matches_its_whole_line_in_kibibytes() {
        let text = "VmPeak:\t     900 kB\nVmSize:\t     100 kB\nVmLck: many\n";
        let (_keep, root) = tree(&[("proc/self/status", text)]);
        let kib = |key| root.kib("proc/self/status", key);
        assert_eq!(
            [kib("VmSize"), kib("Vm"), kib("VmLck")],
            [Some(100), None, None]
        );
        assert_eq!(root.kib("proc/meminfo", "MemTotal"), None);
    }

    #[test]
    fn an_empty_tree_is_an_unknown_machine() {
        let (_keep, root) = tree(&[]);
        let mut machine = crate::hardware::Machine::default();
        super::read(&root, std::path::Path::new("/nowhere"), &mut machine);
        assert_eq!(machine.cpu.usable(), 1);
        assert_eq!(machine.memory.usable(), 0);
        assert!(machine.disks.is_empty() && machine.kernel_log.read_from.is_none());
    }
}
