//! Main memory, swap, and the cgroup's share of them.

use super::{Root, cgroup, kib};
use crate::hardware::machine::Memory;

pub fn read(root: &Root) -> Memory {
    let info = root.read("proc/meminfo").unwrap_or_default();
    let bytes = |key: &str| kib(&info, key).map(|kib| kib * 1024);
    let of = |key: &str| bytes(key).unwrap_or(0);
    let total = of("MemTotal");
    let group = cgroup::read(root);
    // A limit above the machine's memory has no effect.
    let limit = group.memory.filter(|limit| *limit < total || total == 0);
    Memory {
        total,
        available: bytes("MemAvailable").unwrap_or_else(|| of("MemFree")),
        swap_total: of("SwapTotal"),
        swap_used: of("SwapTotal").saturating_sub(of("SwapFree")),
        cgroup_limit: limit,
        cgroup_used: group.memory_used.filter(|_| limit.is_some()),
        cgroup_left: group.memory_left,
        oom_kills: group.oom_kills,
        address_left: address_left(root),
    }
}

/// What `RLIMIT_AS` leaves in addition to what is mapped already.
fn address_left(root: &Root) -> Option<u64> {
    let limits = root.read("proc/self/limits")?;
    let rest = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = rest.split_whitespace().next()?.parse().ok()?;
    let mapped = root.kib("proc/self/status", "VmSize").unwrap_or(0);
    Some(limit.saturating_sub(mapped * 1024))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    const MEMINFO: &str = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nSwapTotal:       200 kB\nSwapFree:         50 kB\n";

    fn with_limit(limit: &str) -> Memory {
        let (_keep, root) = tree(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/memory.max", limit),
            ("sys/fs/cgroup/memory.current", "102400\n"),
        ]);
        read(&root)
    }

    #[test]
    fn kibibytes_become_bytes() {
        let memory = with_limit("max\n");
        assert_eq!((memory.total, memory.available), (1_024_000, 614_400));
        assert_eq!((memory.swap_total, memory.swap_used), (204_800, 153_600));
        assert_eq!((memory.cgroup_limit, memory.usable()), (None, 1_024_000));
    }

    #[test]
    fn a_limit_counts_only_below_the_machines_memory() {
        let memory = with_limit("512000\n");
        assert_eq!((memory.usable(), memory.free()), (512_000, 409_600));
        assert_eq!(with_limit("99999999\n").cgroup_limit, None);
    }

    #[test]
    fn a_fuller_ancestor_group_limits_what_is_free() {
        let (_keep, root) = tree(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/slice/job\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/slice/job/memory.max", "409600\n"),
            ("sys/fs/cgroup/slice/job/memory.current", "51200\n"),
            ("sys/fs/cgroup/slice/memory.max", "512000\n"),
            ("sys/fs/cgroup/slice/memory.current", "506880\n"),
        ]);
        let memory = read(&root);
        assert_eq!((memory.usable(), memory.free()), (409_600, 5_120));
        assert_eq!(memory.left(), (5_120, "left in this cgroup (memory.max)"));
    }

    #[test]
    fn the_tightest_of_machine_cgroup_and_address_space_counts() {
        let (_keep, root) = tree(&[
            ("proc/meminfo", MEMINFO),
            (
                "proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units\nMax address space         512000               unlimited            bytes\n",
            ),
            ("proc/self/status", "Name:\tx\nVmSize:\t     100 kB\n"),
        ]);
        let memory = read(&root);
        assert_eq!(memory.address_left, Some(512_000 - 102_400));
        assert!(memory.left().1.contains("ulimit -v"));
        let group = with_limit("512000\n");
        assert_eq!((group.left().0, group.address_left), (409_600, None));
        assert!(group.left().1.contains("cgroup"));
        let free = with_limit("max\n");
        assert_eq!(free.left(), (614_400, "available on this machine"));
    }
}
