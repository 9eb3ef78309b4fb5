//! The processor: its name, the cores available to this process, its instruction sets.

use super::{Root, cgroup, process};
use crate::hardware::machine::Cpu;

/// Relevant instruction sets, in Linux's spelling.
const FEATURES: &[&str] = &[
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512dq",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "asimddp",
    "bf16",
    "i8mm",
    "sve",
    "sve2",
];

pub fn read(root: &Root) -> Cpu {
    let info = root.read("proc/cpuinfo").unwrap_or_default();
    let value = |names: &[&str]| {
        info.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            names.contains(&name.trim()).then(|| value.trim())
        })
    };
    let flags: Vec<&str> = value(&["flags", "Features"])
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let online = root.read("sys/devices/system/cpu/online");
    let logical = online.as_deref().map_or_else(
        || info.lines().filter(|l| l.starts_with("processor")).count(),
        count,
    );
    let status = root.read("proc/self/status").unwrap_or_default();
    let allowed_list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .map(str::trim)
        .unwrap_or_default();
    let allowed = match allowed_list {
        "" => logical,
        list => count(list).min(logical.max(1)),
    };
    let load = load_of(root);
    // Each process is read: only where there is something to find.
    let crowded = load.is_some_and(|load| logical > 0 && load >= logical as f64);
    Cpu {
        load,
        busy: match crowded {
            true => process::running(root, std::process::id()),
            false => Vec::new(),
        },
        model: value(&["model name", "Model", "cpu model"])
            .map(tidy)
            .unwrap_or_default(),
        logical,
        allowed,
        allowed_list: allowed_list.into(),
        quota: cgroup::read(root).cpus,
        nodes: root
            .names("sys/devices/system/node")
            .iter()
            .filter(|name| {
                name.strip_prefix("node")
                    .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            })
            .count(),
        features: FEATURES
            .iter()
            .filter(|feature| flags.contains(feature))
            .map(|feature| (*feature).into())
            .collect(),
    }
}

/// The load average of the last minute.
fn load_of(root: &Root) -> Option<f64> {
    let text = root.read("proc/loadavg")?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    load.is_finite().then_some(load)
}

/// Without trademarks, clock rates and filler: `Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.0GHz` → `Intel Xeon Platinum 8480+`.
fn tidy(name: &str) -> String {
    let name = name.replace("(R)", "").replace("(TM)", "");
    let name = name.split(" @ ").next().unwrap_or_default();
    let filler = |w: &str| matches!(w, "CPU" | "Processor") || w.ends_with("-Core");
    let words: Vec<&str> = name.split_whitespace().filter(|w| !filler(w)).collect();
    words.join(" ")
}

/// `0-3,8` → 5
fn count(list: &str) -> usize {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last >= first).then(|| last - first + 1)
    };
    list.trim().split(',').filter_map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn name_cores_and_instruction_sets() {
        let (_keep, root) = tree(&[
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz\nflags\t\t: fpu avx avx2 avx512f amx_tile\n",
            ),
            ("sys/devices/system/cpu/online", "0-7,16\n"),
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t2-5\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
            ("sys/devices/system/node/online", "0-1\n"),
        ]);
        let cpu = read(&root);
        assert_eq!(cpu.model, "Intel Xeon Platinum 8480+");
        assert_eq!(
            (cpu.logical, cpu.allowed, cpu.usable(), cpu.nodes),
            (9, 4, 4, 2)
        );
        assert_eq!(cpu.allowed_list, "2-5");
        assert_eq!(cpu.features, ["avx", "avx2", "avx512f", "amx_tile"]);
        assert_eq!(cpu.widest(), "AMX");
    }

    #[test]
    fn what_runs_is_counted_where_there_is_more_of_it_than_cores() {
        let files = |load: &'static str| {
            [
                ("proc/cpuinfo", "processor\t: 0\nprocessor\t: 1\n"),
                ("proc/loadavg", load),
                ("proc/7/comm", "rustc\n"),
                ("proc/7/task/7/stat", "7 (rustc) S 1 7\n"),
                ("proc/7/task/8/stat", "8 (rustc (x) y) R 1 7\n"),
                ("proc/7/task/9/stat", "9 (rustc) R 1 7\n"),
                ("proc/12/comm", "pyth\x1bon\n"),
                ("proc/12/task/12/stat", "12 (python) R 1 12\n"),
                ("proc/13/comm", "idle\n"),
                ("proc/13/task/13/stat", "13 (idle) S 1 13\n"),
            ]
        };
        let (_keep, root) = tree(&files("12.40 9.01 3.00 4/512 99\n"));
        let cpu = read(&root);
        assert_eq!(cpu.load, Some(12.4));
        let names: Vec<_> = cpu.busy.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!((names[0], names.len()), (("rustc", 2), 2));
        assert!(!names[1].0.contains('\x1b'), "{names:?}");
        let (_keep, root) = tree(&files("0.40 9.01 3.00 4/512 99\n"));
        assert!(read(&root).busy.is_empty(), "a quiet machine");
        let (_keep, root) = tree(&[]);
        assert_eq!(read(&root).load, None);
    }

    #[test]
    fn names_are_stripped_of_filler() {
        assert_eq!(tidy("AMD EPYC 9654 96-Core Processor"), "AMD EPYC 9654");
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!(["0-3,8", "5", "", "3-1", "x"].map(count), [5, 1, 0, 0, 0]);
    }
}
