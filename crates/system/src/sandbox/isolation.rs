//! The isolation of the guard: namespaces first, then a read-only file system.

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount,
};
use rustix::thread::{
    CapabilitySet, UnshareFlags, remove_capability_from_bounding_set, set_no_new_privs,
};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// User and group inside the namespace, until privileges are dropped. Outside they are those of this process.
const ROOT: u32 = 0;
/// Devices that programs need.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Directories with sockets of services: hidden.
const HIDDEN: [&str; 2] = ["/run", "/var/run"];

/// Enters new namespaces. The next child is the first process of the PID namespace.
///
/// # Errors
/// The kernel does not permit it.
pub fn leave() -> io::Result<()> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let apart = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    // The safe form is deprecated only because of UnshareFlags::FILES, which unshares file descriptors; it is not used here.
    #[allow(deprecated)]
    rustix::thread::unshare(apart)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{ROOT} {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{ROOT} {} 1", group.as_raw()))
}

/// Socket paths of this machine's services. A read-only file system does not prevent connections to them, and
/// the network namespace covers only abstract addresses. To be read before [`leave`]: the list is per network namespace.
/// Sockets bound to a relative path are not found, nor are named pipes.
///
/// # Errors
/// The list cannot be read.
pub fn sockets() -> io::Result<BTreeSet<PathBuf>> {
    let table = fs::read("/proc/net/unix")?;
    Ok(addresses(&String::from_utf8_lossy(&table)))
}

fn addresses(table: &str) -> BTreeSet<PathBuf> {
    let place = |line: &str| Some(PathBuf::from(format!("/{}", line.split_once(" /")?.1)));
    table.lines().filter_map(place).collect()
}

/// Mounts a tmpfs of `bytes` bytes at `scratch` and makes everything else read-only; hides sockets and devices.
///
/// # Errors
/// The kernel rejects a mount: then the isolation is incomplete.
pub fn build(scratch: &Path, bytes: u64, sockets: &BTreeSet<PathBuf>) -> io::Result<()> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(mount_error("/", "to keep changes here"))?;
    // Read now: afterwards /proc shows only the processes inside, and this one is not among them.
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let ram = |place: &Path, flags: MountFlags, options: &str| {
        let options = CString::new(options).map_err(io::Error::other)?;
        let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", place, "tmpfs", flags, Some(options.as_c_str()))
            .map_err(mount_error(&place.display().to_string(), "as memory"))
    };
    ram(
        scratch,
        MountFlags::empty(),
        &format!("size={bytes},nr_inodes=4096,mode=700"),
    )?;
    devices(scratch)?;
    for place in HIDDEN.map(Path::new) {
        // One may be a symlink to the other.
        if place.is_dir() && !place.is_symlink() {
            ram(place, MountFlags::RDONLY, "size=4k,mode=755")?;
        }
    }
    for place in sockets {
        // Many no longer exist, or are already hidden.
        if fs::symlink_metadata(place).is_ok_and(|found| found.file_type().is_socket()) {
            mount_bind("/dev/null", place)
                .map_err(mount_error(&place.display().to_string(), "hidden"))?;
        }
    }
    let kept = [scratch.to_path_buf(), PathBuf::from("/proc")];
    for (place, flags) in mounts(&table) {
        if kept.contains(&place) || place.starts_with("/dev") || !place.exists() {
            continue;
        }
        let flags =
            flags | MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount(&place, flags, c"")
            .map_err(mount_error(&place.display().to_string(), "read-only"))?;
    }
    Ok(())
}

/// A /dev with harmless devices only.
fn devices(scratch: &Path) -> io::Result<()> {
    let draft = scratch.join(".dev");
    fs::create_dir(&draft)?;
    let flags = MountFlags::NOSUID;
    mount("tmpfs", &draft, "tmpfs", flags, Some(c"size=64k,mode=755"))
        .map_err(mount_error("/dev", "as memory"))?;
    for name in DEVICES {
        let (from, to) = (Path::new("/dev").join(name), draft.join(name));
        if from.exists() {
            fs::write(&to, "")?;
            mount_bind(&from, &to).map_err(mount_error(name, "as a device"))?;
        }
    }
    mount_bind_recursive(&draft, "/dev").map_err(mount_error("/dev", "in its place"))?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    mount_remount("/dev", flags, c"").map_err(mount_error("/dev", "read-only"))
}

/// Mounts a /proc that shows only the processes inside; an empty one if the kernel rejects that, as in some containers. Only the
/// first process inside can mount it.
///
/// # Errors
/// Neither is possible.
pub fn hide_processes() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let own = mount("proc", "/proc", "proc", flags | MountFlags::RDONLY, None);
    match own {
        Ok(()) => Ok(()),
        Err(_) => mount(
            "tmpfs",
            "/proc",
            "tmpfs",
            flags | MountFlags::RDONLY,
            Some(c"size=4k"),
        )
        .map_err(mount_error("/proc", "hidden")),
    }
}

/// Drops all privileges of the program that this process becomes, irrevocably: it cannot undo the isolation.
///
/// # Errors
/// The kernel refuses.
pub fn drop_privileges() -> io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Beyond the last capability that this kernel knows.
            Err(Errno::INVAL) if bit > 30 => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(set_no_new_privs(true)?)
}

/// Adds the place and the purpose to the error of a mount.
fn mount_error(place: &str, what: &str) -> impl FnOnce(Errno) -> io::Error {
    let about = format!("mounting {place} {what}");
    move |errno| io::Error::other(format!("{about}: {errno}"))
}

/// Mount points of a mount table with the flags that a remount must keep: those of an outer namespace are locked.
fn mounts(table: &str) -> Vec<(PathBuf, MountFlags)> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (place, options) = (words.nth(4)?, words.next()?);
        let flag = |option: &str| match option {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        };
        let flags = options
            .split(',')
            .map(flag)
            .fold(MountFlags::empty(), |a, b| a | b);
        Some((PathBuf::from(unescaped(place)), flags))
    };
    table.lines().filter_map(line).collect()
}

/// `\040` is a space, and so on.
fn unescaped(place: &str) -> String {
    let mut parts = place.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                whole.push(char::from(code));
                whole.push_str(&part[3..]);
            }
            None => {
                whole.push('\\');
                whole.push_str(part);
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_table_gives_mount_points_and_locked_flags() {
        let table = "43 42 254:0 / / rw,relatime - ext4 /dev/vda rw\n45 43 0:21 / /a\\040b rw,nosuid,noexec shared:1 - tmpfs x rw\nrubbish\n";
        let found = mounts(table);
        assert_eq!(found[0], (PathBuf::from("/"), MountFlags::RELATIME));
        assert_eq!(found[1].0, PathBuf::from("/a b"));
        assert_eq!(found[1].1, MountFlags::NOSUID | MountFlags::NOEXEC);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn socket_paths_are_listed() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n0: 00000002 00000000 00010000 0001 01  1234 /tmp/a b/s\n0: 00000003 00000000 00000000 0001 03 5 @/abstract\n0: 00000003 00000000 00000000 0001 03 6\n0: 00000003 00000000 00000000 0001 03 7 /tmp/a b/s\n";
        let found: Vec<PathBuf> = addresses(table).into_iter().collect();
        assert_eq!(found, [PathBuf::from("/tmp/a b/s")]);
    }
}
