//! Limits of this process, and names of others.

use super::Root;
use crate::base::text::one_line;
use crate::hardware::machine::Limits;

/// Characters of a command line that are kept.
const COMMAND_LENGTH: usize = 200;

pub fn limits(root: &Root) -> Limits {
    let text = root.read("proc/self/limits").unwrap_or_default();
    let soft = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        match rest.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    };
    Limits {
        open_files: soft("Max open files"),
        locked_memory: soft("Max locked memory"),
        processes: soft("Max processes"),
    }
}

/// The command line of a process; its short name if the line is hidden, empty if it has ended.
pub fn command_of(root: &Root, pid: u32) -> String {
    let line = root
        .read(&format!("proc/{pid}/cmdline"))
        .unwrap_or_default();
    let words = line.replace('\0', " ");
    let words = match words.trim() {
        "" => root.read(&format!("proc/{pid}/comm")).unwrap_or_default(),
        words => words.to_string(),
    };
    one_line(words.trim())
        .chars()
        .take(COMMAND_LENGTH)
        .collect()
}

/// Limit on the processes visited: a deeper or wider tree changes while it is read.
const MOST_PROCESSES: usize = 4_096;

/// KiB of main memory of all descendants of this process. File-backed pages are left out: every rank of PyTorch maps
/// the same libraries.
pub fn started_kib(root: &Root) -> u64 {
    let mut found = started_by(root, "self");
    let mut sum = 0;
    let mut next = 0;
    while let Some(pid) = found.get(next).filter(|_| next < MOST_PROCESSES) {
        let status = root.read(&format!("proc/{pid}/status")).unwrap_or_default();
        let of = |key| super::kib(&status, key).unwrap_or(0);
        sum += of("VmRSS").saturating_sub(of("RssFile"));
        let more = started_by(root, pid);
        found.extend(more);
        next += 1;
    }
    sum
}

/// Most programs that are named.
const NAMED: usize = 3;

/// The programs besides this process whose threads are running now, each with their number, the busiest first.
pub(super) fn running(root: &Root, own: u32) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let pids = root.names("proc").into_iter();
    let pids = pids.filter_map(|name| name.parse::<u32>().ok());
    for pid in pids.filter(|pid| *pid != own).take(MOST_PROCESSES) {
        let tasks = format!("proc/{pid}/task");
        let runs = |task: &String| {
            let stat = root.read(&format!("{tasks}/{task}/stat"));
            // The name, in parentheses, may hold anything.
            stat.is_some_and(|stat| {
                stat.rsplit_once(')')
                    .is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
            })
        };
        let n = root.names(&tasks).iter().filter(|task| runs(task)).count();
        if n == 0 {
            continue;
        }
        let name = root.read(&format!("proc/{pid}/comm")).unwrap_or_default();
        let name = one_line(name.trim());
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, threads)) => *threads += n,
            None => found.push((name, n)),
        }
    }
    found.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    found.truncate(NAMED);
    found
}

/// The children of a process; each of its threads has its own list (proc(5)).
fn started_by(root: &Root, pid: &str) -> Vec<String> {
    let tasks = format!("proc/{pid}/task");
    let lists = root.names(&tasks).into_iter();
    let lists = lists.filter_map(|task| root.read(&format!("{tasks}/{task}/children")));
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The owner of a process: a name if `/etc/passwd` has one, else the number.
pub fn user_of(root: &Root, pid: u32) -> String {
    owner(root, &format!("proc/{pid}/status"))
}

/// The same, from a process's `status` file.
pub(super) fn owner(root: &Root, status: &str) -> String {
    let status = root.read(status).unwrap_or_default();
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_default()
        .to_string();
    let accounts = root.read("etc/passwd").unwrap_or_default();
    let name = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id == uid && !uid.is_empty()).then(|| name.to_string())
    });
    one_line(&name.unwrap_or(uid))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn limits_are_the_soft_ones() {
        let (_keep, root) = tree(&[(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max processes             96365                96365                processes\n\
             Max open files            1024                 524288               files\n\
             Max locked memory         unlimited            unlimited            bytes\n",
        )]);
        let limits = limits(&root);
        assert_eq!(limits.open_files, Some(1024));
        assert_eq!(limits.locked_memory, Some(u64::MAX));
        assert_eq!(limits.processes, Some(96_365));
    }

    #[test]
    fn processes_have_an_owner_and_a_command_without_control_sequences() {
        let (_keep, root) = tree(&[
            ("proc/7/cmdline", "python\0train.py\0--name\x1b[2J\0"),
            (
                "proc/7/status",
                "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n",
            ),
            ("proc/8/cmdline", ""),
            ("proc/8/comm", "kthread\n"),
            ("proc/8/status", "Uid:\t4242\t0\t0\t0\n"),
            (
                "etc/passwd",
                "root:x:0:0::/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n",
            ),
        ]);
        assert_eq!(user_of(&root, 7), "ana");
        assert!(command_of(&root, 7).starts_with("python train.py"));
        assert!(!command_of(&root, 7).contains('\x1b'));
        assert_eq!(
            (command_of(&root, 8), user_of(&root, 8)),
            ("kthread".into(), "4242".into())
        );
        assert_eq!(command_of(&root, 9), "");
    }
}
