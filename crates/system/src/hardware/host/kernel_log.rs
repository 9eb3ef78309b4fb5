//! The kernel log: NVIDIA's Xid messages and OOM kills. From `/dev/kmsg` if readable, else
//! from the files that syslog writes.

use super::Root;
use crate::base::text::one_line;
use crate::hardware::machine::{KernelLog, Xid};
use rustix::fs::{Mode, OFlags, open};
use std::io::{Read, Seek, SeekFrom};

/// Most bytes of a log to read, from its end.
const MAX_BYTES: u64 = 4 << 20;
/// Most messages of each kind to keep, the newest.
const MAX_KEPT: usize = 20;

pub fn read(root: &Root) -> KernelLog {
    let sources = ["dev/kmsg", "var/log/kern.log", "var/log/messages"];
    let found = sources.into_iter().find_map(|path| {
        let text = match path {
            "dev/kmsg" => ring(root, path),
            file => tail(root, file),
        };
        text.map(|text| (path, text))
    });
    let Some((path, text)) = found else {
        return KernelLog::default();
    };
    let mut log = KernelLog {
        read_from: Some(format!("/{path}")),
        xids: text.lines().filter_map(xid).collect(),
        oom_kills: text.lines().filter_map(oom_kill).collect(),
    };
    log.xids.drain(..log.xids.len().saturating_sub(MAX_KEPT));
    log.oom_kills
        .drain(..log.oom_kills.len().saturating_sub(MAX_KEPT));
    log
}

/// All records of the kernel's ring buffer, one per line; each read returns one, and the end is EAGAIN.
fn ring(root: &Root, path: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(open(root.at(path), flags, Mode::empty()).ok()?);
    let mut text = String::new();
    let mut record = [0_u8; 8192];
    while (text.len() as u64) < MAX_BYTES {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => {
                text.push_str(&String::from_utf8_lossy(&record[..n]));
                if !text.ends_with('\n') {
                    text.push('\n');
                }
            }
            // A record was overwritten during the read: continue with the next one.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(_) => break,
        }
    }
    Some(text)
}

fn tail(root: &Root, path: &str) -> Option<String> {
    let mut file = std::fs::File::open(root.at(path)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES)))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.`
fn xid(line: &str) -> Option<Xid> {
    let (_, rest) = line.split_once("NVRM: Xid (PCI:")?;
    let (pci, rest) = rest.split_once("): ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(Xid {
        code: digits.parse().ok()?,
        pci: one_line(pci),
        text: one_line(rest[digits.len()..].trim_start_matches([',', ' '])),
    })
}

/// `Out of memory: Killed process 1234 (python) total-vm:…` → `python (process 1234)`
fn oom_kill(line: &str) -> Option<String> {
    let lower = line.to_ascii_lowercase();
    let at = lower.find("out of memory: kill")?;
    let (_, rest) = line[at..].split_once("process ")?;
    let (pid, rest) = rest.split_once(' ')?;
    let name = rest.strip_prefix('(')?.split(')').next()?;
    Some(one_line(&format!("{name} (process {pid})")))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    const LOG: &str = "\
Nov 21 10:00:01 box kernel: [1.0] usb 1-1: new device
Nov 21 10:00:02 box kernel: [2.0] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
Nov 21 10:00:03 box kernel: [3.0] Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB
Nov 21 10:00:04 box kernel: [4.0] NVRM: Xid (PCI:0000:af:00): 13, Graphics SM Warp Exception
Nov 21 10:00:05 box kernel: NVRM: Xid (PCI:broken
";

    #[test]
    fn xids_and_killed_processes_are_found() {
        let (_keep, root) = tree(&[("var/log/kern.log", LOG)]);
        let log = read(&root);
        assert_eq!(log.read_from.as_deref(), Some("/var/log/kern.log"));
        let codes: Vec<_> = log.xids.iter().map(|x| (x.code, x.pci.as_str())).collect();
        assert_eq!(codes, [(79, "0000:3b:00"), (13, "0000:af:00")]);
        assert!(log.xids[0].text.ends_with("fallen off the bus."));
        assert_eq!(log.oom_kills, ["python (process 4711)"]);
    }

    #[test]
    fn the_newest_are_kept() {
        let many: String = (0..50)
            .map(|i| format!("NVRM: Xid (PCI:0000:3b:00): {i}, x\n"))
            .collect();
        let (_keep, root) = tree(&[("dev/kmsg", &many)]);
        let log = read(&root);
        assert_eq!(log.xids.len(), MAX_KEPT);
        assert_eq!(log.xids.last().map(|x| x.code), Some(49));
    }
}
