//! Limits of cgroups, versions 1 and 2 (kernel documentation, admin-guide/cgroup-v1 and cgroup-v2). An
//! ancestor's limit applies too, so every group up to the root is checked. Inside a container the path in `/proc/self/cgroup`
//! may not exist; then the root of the mount is the group.

use super::Root;

/// Version 1 encodes "no limit" as a number near the maximum.
const NO_LIMIT: u64 = 1 << 60;

/// The limits of this process.
#[derive(Debug, Default, PartialEq)]
pub struct Limits {
    /// The smallest limit of all groups.
    pub memory: Option<u64>,
    /// The usage of that group, without reclaimable pages.
    pub memory_used: Option<u64>,
    /// What the fullest group has left: not necessarily the smallest one, if an ancestor's other members fill it.
    pub memory_left: Option<u64>,
    pub oom_kills: Option<u64>,
    /// In CPUs.
    pub cpus: Option<f64>,
}

pub fn read(root: &Root) -> Limits {
    let groups = root.read("proc/self/cgroup").unwrap_or_default();
    if root.exists("sys/fs/cgroup/cgroup.controllers") {
        return unified(root, &folders("sys/fs/cgroup", path_of(&groups, "")));
    }
    let of = |controller: &str| {
        let mounts = [controller.to_string(), "cpu,cpuacct".to_string()];
        let mount = mounts
            .iter()
            .find(|name| root.exists(&format!("sys/fs/cgroup/{name}")));
        let base = format!("sys/fs/cgroup/{}", mount.map_or(controller, |m| m));
        folders(&base, path_of(&groups, controller))
    };
    legacy(root, &of("memory"), &of("cpu"))
}

/// This process's path in the hierarchy of a controller; the unified one has no name.
fn path_of<'a>(groups: &'a str, controller: &str) -> &'a str {
    let mut lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers
            .split(',')
            .any(|c| c == controller)
            .then_some(path)
    });
    lines.next().unwrap_or("/")
}

/// The folders of a group and its ancestors, innermost first.
fn folders(base: &str, path: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut rest = path.trim_matches('/');
    while !rest.is_empty() {
        if !rest.split('/').any(|part| part == "..") {
            folders.push(format!("{base}/{rest}"));
        }
        rest = rest.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    folders.push(base.to_string());
    folders
}

/// File names of a group's memory limits in one version.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: pages that are reclaimed on demand.
    reclaimable: &'static str,
}

const UNIFIED: Names = Names {
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: "inactive_file",
};
const LEGACY: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

/// A group with a limit.
struct Group {
    limit: u64,
    used: Option<u64>,
}

impl Group {
    fn of(root: &Root, folder: &str, names: &Names) -> Option<Group> {
        let number = |name: &str| root.number(&format!("{folder}/{name}"));
        let limit = number(names.limit).filter(|limit| *limit < NO_LIMIT)?;
        let used = number(names.usage).map(|used| {
            let cache = keyed(root, &format!("{folder}/memory.stat"), names.reclaimable);
            used.saturating_sub(cache.unwrap_or(0))
        });
        Some(Group { limit, used })
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.unwrap_or(0))
    }
}

impl Limits {
    /// The memory limits only.
    fn of_memory(root: &Root, folders: &[String], names: &Names) -> Limits {
        let groups = folders.iter();
        let groups: Vec<Group> = groups
            .filter_map(|folder| Group::of(root, folder, names))
            .collect();
        let smallest = groups.iter().min_by_key(|group| group.limit);
        Limits {
            memory: smallest.map(|group| group.limit),
            memory_used: smallest.and_then(|group| group.used),
            memory_left: groups.iter().map(Group::left).min(),
            ..Limits::default()
        }
    }
}

fn unified(root: &Root, folders: &[String]) -> Limits {
    let cpus = folders.iter().filter_map(|folder| {
        let text = root.read(&format!("{folder}/cpu.max"))?;
        let (quota, period) = text.trim().split_once(' ')?;
        ratio(quota.parse().ok()?, period.parse().ok()?)
    });
    Limits {
        oom_kills: folders
            .iter()
            .find_map(|folder| keyed(root, &format!("{folder}/memory.events"), "oom_kill")),
        cpus: cpus.reduce(f64::min),
        ..Limits::of_memory(root, folders, &UNIFIED)
    }
}

fn legacy(root: &Root, memory: &[String], cpu: &[String]) -> Limits {
    let cpus = cpu.iter().filter_map(|folder| {
        let quota = root.read(&format!("{folder}/cpu.cfs_quota_us"))?;
        let period = root.number(&format!("{folder}/cpu.cfs_period_us"))?;
        ratio(quota.trim().parse().ok()?, period as f64)
    });
    Limits {
        oom_kills: memory
            .iter()
            .find_map(|folder| keyed(root, &format!("{folder}/memory.oom_control"), "oom_kill")),
        cpus: cpus.reduce(f64::min),
        ..Limits::of_memory(root, memory, &LEGACY)
    }
}

/// −1 is "no quota" in version 1, `max` does not parse in version 2.
fn ratio(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// `key value` lines.
fn keyed(root: &Root, path: &str, key: &str) -> Option<u64> {
    let text = root.read(path)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(name, _)| *name == key)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn version_2_uses_the_smallest_limit_of_all_ancestors() {
        let (_keep, root) = tree(&[
            ("proc/self/cgroup", "0::/user.slice/job\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/user.slice/job/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "4000\n"),
            ("sys/fs/cgroup/user.slice/memory.current", "1500\n"),
            (
                "sys/fs/cgroup/user.slice/memory.stat",
                "anon 9\ninactive_file 500\n",
            ),
            (
                "sys/fs/cgroup/user.slice/job/memory.events",
                "oom 3\noom_kill 2\n",
            ),
            ("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
        ]);
        let wanted = Limits {
            memory: Some(4000),
            memory_used: Some(1000),
            memory_left: Some(3000),
            oom_kills: Some(2),
            cpus: Some(1.5),
        };
        assert_eq!(read(&root), wanted);
    }

    #[test]
    fn version_1_reads_each_controller_in_its_own_hierarchy() {
        let (_keep, root) = tree(&[
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "total_inactive_file 1000\n",
            ),
            (
                "sys/fs/cgroup/memory/memory.oom_control",
                "under_oom 0\noom_kill 1\n",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let wanted = Limits {
            memory: Some(8000),
            memory_used: Some(2000),
            memory_left: Some(6000),
            oom_kills: Some(1),
            cpus: Some(4.0),
        };
        assert_eq!(read(&root), wanted);
    }

    #[test]
    fn the_fullest_ancestor_determines_what_is_left() {
        let wanted = Limits {
            memory: Some(8000),
            memory_used: Some(1000),
            memory_left: Some(100),
            ..Limits::default()
        };
        let (_keep, two) = tree(&[
            ("proc/self/cgroup", "0::/slice/job\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/slice/job/memory.max", "8000\n"),
            ("sys/fs/cgroup/slice/job/memory.current", "1000\n"),
            ("sys/fs/cgroup/slice/memory.max", "10000\n"),
            ("sys/fs/cgroup/slice/memory.current", "10900\n"),
            ("sys/fs/cgroup/slice/memory.stat", "inactive_file 1000\n"),
        ]);
        assert_eq!(read(&two), wanted);
        let at = |path: &str| format!("sys/fs/cgroup/memory/slice/{path}");
        let (limit, usage) = ("memory.limit_in_bytes", "memory.usage_in_bytes");
        let files = [
            ("proc/self/cgroup".to_string(), "4:memory:/slice/job\n"),
            (at(&format!("job/{limit}")), "8000\n"),
            (at(&format!("job/{usage}")), "1000\n"),
            (at(limit), "10000\n"),
            (at(usage), "10900\n"),
            (at("memory.stat"), "total_inactive_file 1000\n"),
        ];
        let files = files.each_ref().map(|(path, text)| (path.as_str(), *text));
        let (_keep, one) = tree(&files);
        assert_eq!(read(&one), wanted);
    }

    #[test]
    fn no_limit_is_none() {
        let (_keep, root) = tree(&[
            ("proc/self/cgroup", "4:memory:/\n1:cpu:/\n"),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(read(&root), Limits::default());
    }

    #[test]
    fn paths_outside_of_the_container_are_not_followed() {
        assert_eq!(folders("b", "/../../x"), ["b"]);
        assert_eq!(folders("b", "/a/c"), ["b/a/c", "b/a", "b"]);
    }
}
