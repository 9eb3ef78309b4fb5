//! Main memory, swap, and the cgroup's share of them.

use super::{Root, cgroup};
use crate::hardware::machine::Memory;

pub fn read(root: &Root) -> Memory {
    let info = root.read("proc/meminfo").unwrap_or_default();
    let bytes = |name: &str| {
        info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
            (key == name).then(|| kib * 1024)
        })
    };
    let of = |name: &str| bytes(name).unwrap_or(0);
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
        oom_kills: group.oom_kills,
    }
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
    fn a_limit_counts_only_below_what_there_is() {
        let memory = with_limit("512000\n");
        assert_eq!((memory.usable(), memory.free()), (512_000, 409_600));
        assert_eq!(with_limit("99999999\n").cgroup_limit, None);
    }
}
