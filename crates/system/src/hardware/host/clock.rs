//! The wall clock against what can be read without a network: a time service's state, the hardware clock, and the files
//! among the runs (whose times a file server sets, if they are on one).

use super::Root;
use crate::hardware::machine::ClockState;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most files among the runs to check.
const FILES: usize = 256;

/// `now` is the wall clock's time.
pub fn read(root: &Root, runs_dir: &Path, now: SystemTime) -> ClockState {
    let seconds = now.duration_since(UNIX_EPOCH).ok().map(|d| d.as_secs());
    ClockState {
        unix_seconds: seconds,
        synchronised: synchronised(root),
        hardware_ahead: root
            .number("sys/class/rtc/rtc0/since_epoch")
            .zip(seconds)
            .map(|(hardware, now)| hardware as i64 - now as i64),
        files_ahead: files_ahead(runs_dir, now),
    }
}

/// State of systemd-timesyncd; `None` if unknown (others, such as chrony, report only over sockets).
fn synchronised(root: &Root) -> Option<bool> {
    if root.exists("run/systemd/timesync/synchronized") {
        return Some(true);
    }
    // Only the folder exists: the service is running but has not reached a server yet.
    root.exists("run/systemd/timesync").then_some(false)
}

/// How far the newest entry of a folder is in the future.
fn files_ahead(folder: &Path, now: SystemTime) -> Option<i64> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().take(FILES);
    let newest = entries
        .filter_map(|entry| entry.metadata().ok()?.modified().ok())
        .max()?;
    Some(newest.duration_since(now).map_or(0, |d| d.as_secs() as i64))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_time_service_is_judged_by_its_files() {
        let judge = |files: &[(&str, &str)]| {
            let (_keep, root) = tree(files);
            synchronised(&root)
        };
        assert_eq!(judge(&[]), None);
        assert_eq!(
            judge(&[("run/systemd/timesync/synchronized", "")]),
            Some(true)
        );
        assert_eq!(judge(&[("run/systemd/timesync/x", "")]), Some(false));
    }

    #[test]
    fn the_hardware_clock_and_the_newest_file_are_compared_with_the_clock() {
        let (keep, root) = tree(&[("sys/class/rtc/rtc0/since_epoch", "1795000007\n")]);
        let clock = read(&root, Path::new("/nowhere"), at(1_795_000_000));
        assert_eq!((clock.hardware_ahead, clock.files_ahead), (Some(7), None));
        let file = std::fs::File::create(keep.path().join("run")).unwrap();
        file.set_modified(at(1_795_000_090)).unwrap();
        std::fs::remove_dir_all(keep.path().join("sys")).unwrap();
        let clock = read(&root, keep.path(), at(1_795_000_000));
        assert_eq!((clock.hardware_ahead, clock.files_ahead), (None, Some(90)));
        let later = read(&root, keep.path(), at(1_795_000_500));
        assert_eq!(later.files_ahead, Some(0));
    }
}
