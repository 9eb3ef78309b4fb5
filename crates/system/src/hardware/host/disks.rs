//! Mounted file systems that can hold runs: their storage type and free space. Network file systems other than
//! that of the runs are listed without querying their space: a dead server would never respond.

use super::Root;
use crate::hardware::machine::{Disk, DiskKind, Space};
use std::path::Path;

const LOCAL: &[&str] = &[
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay", "ntfs", "ntfs3",
    "exfat", "jfs", "reiserfs",
];
const NETWORK: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "lustre",
    "beegfs",
    "ceph",
    "glusterfs",
    "gpfs",
    "wekafs",
    "9p",
    "virtiofs",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "fuse.juicefs",
    "fuse.rclone",
];
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];
/// Never a location for runs.
const SYSTEM: &[&str] = &[
    "/boot",
    "/snap",
    "/run",
    "/etc",
    "/proc",
    "/sys",
    "/var/lib/docker",
];

/// Space of a path's file system.
pub fn space_of(path: &Path) -> Option<Space> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(Space {
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bavail.saturating_mul(found.f_frsize),
        inodes_total: found.f_files,
        inodes_free: found.f_favail,
    })
}

/// `/dev/shm`, if it exists.
pub fn shm(root: &Root) -> Option<Space> {
    (root.space)(&root.at("dev/shm")).filter(|space| space.total > 0)
}

pub fn read(root: &Root, runs_dir: &Path) -> Vec<Disk> {
    let mounts = root.read("proc/self/mountinfo").unwrap_or_default();
    let mut disks: Vec<Disk> = Vec::new();
    let home = holding(&mounts, runs_dir);
    for (at, mount) in mounts.lines().filter_map(Mount::of).enumerate() {
        let holds_runs = home == Some(at);
        let local = LOCAL.contains(&mount.filesystem);
        let network = NETWORK.contains(&mount.filesystem);
        let system = SYSTEM
            .iter()
            .any(|s| mount.point == *s || mount.point.starts_with(&format!("{s}/")));
        let again = disks
            .iter()
            .any(|d| d.device == mount.device && mount.filesystem != "overlay");
        if !holds_runs && (system || again || !(local || network)) {
            continue;
        }
        // A device mounted at several points counts once, at that of the runs if possible.
        if holds_runs {
            disks.retain(|d| d.device != mount.device || d.filesystem == "overlay");
        }
        let asked = !network || holds_runs;
        let space = asked
            .then(|| (root.space)(&root.at(&mount.point)))
            .flatten();
        disks.push(Disk {
            kind: kind(root, &mount),
            mount: mount.point,
            device: mount.device.into(),
            filesystem: mount.filesystem.into(),
            space: space.unwrap_or_default(),
            read_only: mount.read_only,
            holds_runs,
            write_speed: None,
        });
    }
    disks
}

/// One line of `/proc/self/mountinfo` (proc(5)).
struct Mount<'a> {
    /// `254:0`
    number: &'a str,
    point: String,
    filesystem: &'a str,
    device: &'a str,
    read_only: bool,
}

impl<'a> Mount<'a> {
    fn of(line: &'a str) -> Option<Mount<'a>> {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let mut right = right.split(' ');
        Some(Mount {
            number: left.get(2)?,
            // Spaces in paths are octal escapes.
            point: left.get(4)?.replace("\\040", " "),
            read_only: left.get(5)?.split(',').any(|option| option == "ro"),
            filesystem: right.next()?,
            device: right.next()?,
        })
    }
}

/// The mount that contains a path: the longest prefix; of several at one point, the last.
fn holding(mounts: &str, path: &Path) -> Option<usize> {
    let absolute = std::path::absolute(path).ok()?;
    // A runs directory that does not exist yet is where its nearest ancestor is; symlinks are resolved that far.
    let real = absolute.ancestors().find_map(|ancestor| {
        let found = ancestor.canonicalize().ok()?;
        Some(found.join(absolute.strip_prefix(ancestor).ok()?))
    });
    let real = real.unwrap_or(absolute);
    let points = mounts.lines().filter_map(Mount::of).enumerate();
    points
        .filter(|(_, mount)| real.starts_with(&mount.point))
        .max_by_key(|(at, mount)| (Path::new(&mount.point).components().count(), *at))
        .map(|(at, _)| at)
}

fn kind(root: &Root, mount: &Mount) -> DiskKind {
    if NETWORK.contains(&mount.filesystem) {
        return DiskKind::Network;
    }
    if IN_MEMORY.contains(&mount.filesystem) {
        return DiskKind::Memory;
    }
    let block = format!("sys/dev/block/{}", mount.number);
    // A partition's queue is that of its disk.
    let rotational = root
        .number(&format!("{block}/queue/rotational"))
        .or_else(|| root.number(&format!("{block}/../queue/rotational")));
    match rotational {
        Some(0) => DiskKind::Ssd,
        // Virtual disks report themselves as rotational whatever the storage beneath.
        Some(_) if is_virtual(mount.device) => DiskKind::Unknown,
        Some(_) => DiskKind::Hdd,
        None => DiskKind::Unknown,
    }
}

fn is_virtual(device: &str) -> bool {
    device.starts_with("/dev/vd") || device.starts_with("/dev/xvd")
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    const MOUNTS: &str = "\
22 1 0:21 / /proc rw - proc proc rw
27 1 8:2 / / rw,relatime - ext4 /dev/sda2 rw
30 1 8:1 / /boot rw - ext4 /dev/sda1 rw
31 1 0:40 / /data\\040set ro - nfs4 server:/x rw
32 1 259:1 / /scratch rw - xfs /dev/nvme0n1p1 rw
33 1 259:1 / /again rw - xfs /dev/nvme0n1p1 rw
34 1 0:50 / /run/user rw - tmpfs tmpfs rw
";

    fn disks(runs: &str) -> Vec<Disk> {
        let (_keep, root) = tree(&[
            ("proc/self/mountinfo", MOUNTS),
            ("sys/dev/block/8:2/queue/rotational", "1\n"),
            ("sys/dev/block/259:1/queue/rotational", "0\n"),
        ]);
        read(&root, Path::new(runs))
    }

    #[test]
    fn disks_have_their_kind_and_each_is_listed_once() {
        let kinds: Vec<_> = disks("/nowhere/runs")
            .into_iter()
            .map(|d| (d.mount, d.kind, d.holds_runs, d.read_only))
            .collect();
        let wanted = [
            ("/".to_string(), DiskKind::Hdd, true, false),
            ("/data set".to_string(), DiskKind::Network, false, true),
            ("/scratch".to_string(), DiskKind::Ssd, false, false),
        ];
        assert_eq!(kinds, wanted);
    }

    #[test]
    fn a_second_mount_of_the_disk_that_holds_the_runs_is_not_listed() {
        for (runs, mount) in [("/scratch/me/runs", "/scratch"), ("/again/runs", "/again")] {
            let disks = disks(runs);
            let names: Vec<&str> = disks.iter().map(|d| d.mount.as_str()).collect();
            assert_eq!(names, ["/", "/data set", mount]);
            let holds: Vec<bool> = disks.iter().map(|d| d.holds_runs).collect();
            assert_eq!(holds, [false, false, true]);
        }
    }

    #[test]
    fn the_longest_mount_above_the_runs_holds_them() {
        assert_eq!(holding(MOUNTS, Path::new("/scratch/me/runs")), Some(4));
        assert_eq!(holding(MOUNTS, Path::new("/scratchy/runs")), Some(1));
        assert_eq!(holding("", Path::new("/x")), None);
    }

    #[test]
    fn the_free_space_of_a_real_folder_is_known() {
        let space = space_of(Path::new("/")).unwrap();
        assert!(space.total > 0 && space.free <= space.total);
    }
}
