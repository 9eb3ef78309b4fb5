//! Limits of cgroups, versions 1 and 2 (kernel documentation, admin-guide/cgroup-v1 and cgroup-v2). An
//! ancestor's limit applies too, so every group up to the root is checked. Inside a container the path in `/proc/self/cgroup`
//! may not exist; then the root of the mount is the group.

use super::Root;

/// Version 1 encodes "no limit" as a number near the maximum.
const NO_LIMIT: u64 = 1 << 60;

/// The limits of this process.
#[derive(Debug, Default, PartialEq)]
pub struct Limits {
    pub memory: Option<u64>,
    /// Usage of the limiting group, without reclaimable pages.
    pub memory_used: Option<u64>,
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

/// The path of this process in the hierarchy of a controller; the unified one has no name.
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

/// The folder of a group and those of its ancestors, innermost first.
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

/// The smallest limit among the folders, and its folder.
fn smallest(folders: &[String], limit: impl Fn(&str) -> Option<u64>) -> Option<(u64, &str)> {
    let found = folders
        .iter()
        .filter_map(|folder| Some((limit(folder).filter(|l| *l < NO_LIMIT)?, folder.as_str())));
    found.min_by_key(|(limit, _)| *limit)
}

fn unified(root: &Root, folders: &[String]) -> Limits {
    let found = smallest(folders, |folder| {
        root.number(&format!("{folder}/memory.max"))
    });
    let cpus = folders.iter().filter_map(|folder| {
        let text = root.read(&format!("{folder}/cpu.max"))?;
        let (quota, period) = text.trim().split_once(' ')?;
        ratio(quota.parse().ok()?, period.parse().ok()?)
    });
    Limits {
        memory: found.map(|(limit, _)| limit),
        memory_used: found.and_then(|(_, folder)| {
            let used = root.number(&format!("{folder}/memory.current"))?;
            let cache = keyed(root, &format!("{folder}/memory.stat"), "inactive_file");
            Some(used.saturating_sub(cache.unwrap_or(0)))
        }),
        oom_kills: folders
            .iter()
            .find_map(|folder| keyed(root, &format!("{folder}/memory.events"), "oom_kill")),
        cpus: cpus.reduce(f64::min),
    }
}

fn legacy(root: &Root, memory: &[String], cpu: &[String]) -> Limits {
    let found = smallest(memory, |folder| {
        root.number(&format!("{folder}/memory.limit_in_bytes"))
    });
    let cpus = cpu.iter().filter_map(|folder| {
        let quota = root.read(&format!("{folder}/cpu.cfs_quota_us"))?;
        let period = root.number(&format!("{folder}/cpu.cfs_period_us"))?;
        ratio(quota.trim().parse().ok()?, period as f64)
    });
    Limits {
        memory: found.map(|(limit, _)| limit),
        memory_used: found.and_then(|(_, folder)| {
            let used = root.number(&format!("{folder}/memory.usage_in_bytes"))?;
            let cache = keyed(
                root,
                &format!("{folder}/memory.stat"),
                "total_inactive_file",
            );
            Some(used.saturating_sub(cache.unwrap_or(0)))
        }),
        oom_kills: memory
            .iter()
            .find_map(|folder| keyed(root, &format!("{folder}/memory.oom_control"), "oom_kill")),
        cpus: cpus.reduce(f64::min),
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
    fn version_2_takes_the_smallest_limit_of_all_ancestors() {
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
            oom_kills: Some(1),
            cpus: Some(4.0),
        };
        assert_eq!(read(&root), wanted);
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
