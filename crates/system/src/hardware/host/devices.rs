//! Accelerators found through files: NVIDIA's device nodes and kernel module, AMD's kernel driver, Google's and Apple's chips.

use super::Root;
use crate::hardware::machine::{Accelerator, AcceleratorKind, Machine};
use rustix::fs::{Access, access};

const NVIDIA: &str = "0x10de";
const GOOGLE: &str = "0x1ae0";

pub fn read(root: &Root, machine: &mut Machine) {
    let nvidia = &mut machine.nvidia;
    nvidia.module_version = root
        .read("proc/driver/nvidia/version")
        .and_then(|text| module_version(&text))
        .unwrap_or_default();
    nvidia.device_nodes = root
        .names("dev")
        .into_iter()
        .filter(|name| numbered(name, "nvidia"))
        .collect();
    nvidia.pci_devices = pci(root, NVIDIA, "0x03").len();
    nvidia.nouveau = root
        .read("proc/modules")
        .is_some_and(|text| text.lines().any(|line| line.starts_with("nouveau ")));
    nvidia.container = in_container(root);
    nvidia.fabric_manager = fabric_manager(root);
    nvidia.nccl = nccl(root);
    nvidia.iommu = root
        .exists("sys/kernel")
        .then(|| !root.names("sys/kernel/iommu_groups").is_empty());
    machine.accelerators = [rocm(root), tpu(root), apple()]
        .into_iter()
        .flatten()
        .collect();
}

/// Library folders of distributions and CUDA's installer. A Python environment may have its own NCCL.
const LIBRARIES: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/local/cuda/lib64",
];

/// `libnccl.so.2.21.5` → `2.21.5`; the longest name is the most specific.
fn nccl(root: &Root) -> Option<String> {
    const NAME: &str = "libnccl.so.";
    LIBRARIES.iter().find_map(|folder| {
        let names = root.names(folder);
        let versions = names.iter().filter_map(|name| name.strip_prefix(NAME));
        let version = versions.max_by_key(|version| version.len())?;
        Some(match version.contains('.') {
            true => version.to_string(),
            false => format!("/{folder}/{NAME}{version}"),
        })
    })
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Mon …` → `580.65.06`
fn module_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("NVRM version"))?;
    let mut words = line.split_whitespace();
    let version = words
        .find(|word| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok()));
    version.map(Into::into)
}

fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Addresses of the PCI devices of a vendor and class.
fn pci(root: &Root, vendor: &str, class: &str) -> Vec<String> {
    let is = |address: &String| {
        let file = |what: &str| root.read(&format!("sys/bus/pci/devices/{address}/{what}"));
        file("vendor").is_some_and(|v| v.trim() == vendor)
            && file("class").is_some_and(|c| c.trim().starts_with(class))
    };
    root.names("sys/bus/pci/devices")
        .into_iter()
        .filter(is)
        .collect()
}

fn in_container(root: &Root) -> bool {
    let marks = ["docker", "kubepods", "containerd", "lxc", "podman"];
    root.exists(".dockerenv")
        || root.exists("run/.containerenv")
        || root
            .read("proc/1/cgroup")
            .is_some_and(|text| marks.iter().any(|mark| text.contains(mark)))
}

/// NVSwitch machines need the Fabric Manager; a container cannot see it, so it is unknown there.
fn fabric_manager(root: &Root) -> Option<bool> {
    let switches = root
        .names("dev")
        .iter()
        .any(|name| numbered(name, "nvidia-nvswitch"));
    if !switches || in_container(root) {
        return None;
    }
    let named = |pid: &String| {
        root.read(&format!("proc/{pid}/comm"))
            // The kernel truncates names to 15 characters.
            .is_some_and(|name| name.starts_with("nv-fabricmanage"))
    };
    Some(
        root.names("proc")
            .iter()
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
            .any(named),
    )
}

fn rocm(root: &Root) -> Option<Accelerator> {
    root.exists("dev/kfd").then(|| {
        let nodes = root.names("sys/class/kfd/kfd/topology/nodes");
        let versions = nodes.iter().filter_map(|node| {
            let path = format!("sys/class/kfd/kfd/topology/nodes/{node}/properties");
            let text = root.read(&path)?;
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("gfx_target_version "))?;
            line.trim().parse::<u32>().ok().filter(|v| *v > 0)
        });
        // 90402 is gfx942: major, minor and stepping, the last two as hexadecimal digits.
        let names: Vec<String> = versions
            .map(|v| format!("gfx{}{:x}{:x}", v / 10_000, v / 100 % 100, v % 100))
            .collect();
        Accelerator {
            kind: AcceleratorKind::Rocm,
            name: names.join(", "),
            sign: "/dev/kfd".into(),
            accessible: Some(
                access(root.at("dev/kfd"), Access::READ_OK | Access::WRITE_OK).is_ok(),
            ),
        }
    })
}

fn tpu(root: &Root) -> Option<Accelerator> {
    let chips = pci(root, GOOGLE, "0x12");
    let node = root
        .names("dev")
        .into_iter()
        .find(|name| numbered(name, "accel"));
    let sign = match (chips.first(), &node) {
        (_, Some(node)) => format!("/dev/{node}"),
        (Some(address), None) => format!("PCI device {address}"),
        (None, None) => return None,
    };
    Some(Accelerator {
        kind: AcceleratorKind::Tpu,
        name: match chips.len() {
            0 => String::new(),
            n => format!("{n} chips"),
        },
        accessible: node.map(|node| {
            access(
                root.at(&format!("dev/{node}")),
                Access::READ_OK | Access::WRITE_OK,
            )
            .is_ok()
        }),
        sign,
    })
}

/// Apple's chips have a GPU that shares the machine's memory.
fn apple() -> Option<Accelerator> {
    cfg!(all(target_os = "macos", target_arch = "aarch64")).then(|| Accelerator {
        kind: AcceleratorKind::Apple,
        name: "Metal".into(),
        sign: "Apple silicon".into(),
        accessible: Some(true),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Machine {
        let (_keep, root) = tree(files);
        let mut machine = Machine::default();
        read(&root, &mut machine);
        machine
    }

    #[test]
    fn nvidia_is_detected_by_module_nodes_and_pci() {
        let machine = found(&[
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 13.2.0\n",
            ),
            ("dev/nvidia0", ""),
            ("dev/nvidia1", ""),
            ("dev/nvidiactl", ""),
            ("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:3b:00.1/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:3b:00.1/class", "0x040300\n"),
            ("proc/modules", "nouveau 123 0 - Live\n"),
            (".dockerenv", ""),
        ]);
        let nvidia = machine.nvidia;
        assert_eq!(nvidia.module_version, "580.65.06");
        assert_eq!(nvidia.device_nodes, ["nvidia0", "nvidia1"]);
        assert_eq!(nvidia.pci_devices, 1, "an audio function is not a GPU");
        assert!(nvidia.nouveau && nvidia.container);
        assert_eq!(nvidia.fabric_manager, None);
    }

    #[test]
    fn amd_and_google_are_detected_by_their_files() {
        let machine = found(&[
            ("dev/kfd", ""),
            (
                "sys/class/kfd/kfd/topology/nodes/0/properties",
                "gfx_target_version 0\n",
            ),
            (
                "sys/class/kfd/kfd/topology/nodes/1/properties",
                "simd_count 4\ngfx_target_version 90402\n",
            ),
            ("dev/accel0", ""),
        ]);
        let kinds: Vec<_> = machine.accelerators.iter().map(|a| a.kind).collect();
        assert_eq!(kinds, [AcceleratorKind::Rocm, AcceleratorKind::Tpu]);
        assert_eq!(machine.accelerators[0].name, "gfx942");
        assert_eq!(machine.accelerators[1].sign, "/dev/accel0");
    }

    #[test]
    fn nccl_is_found_by_its_file_and_the_iommu_by_its_groups() {
        let of = |files: &[(&str, &str)]| {
            let (_keep, root) = tree(files);
            let mut machine = Machine::default();
            read(&root, &mut machine);
            (machine.nvidia.nccl, machine.nvidia.iommu)
        };
        assert_eq!(of(&[]), (None, None));
        let files = [
            ("usr/lib64/libnccl.so.2", ""),
            ("usr/lib64/libnccl.so.2.21.5", ""),
            ("sys/kernel/iommu_groups/0/type", "DMA"),
        ];
        assert_eq!(of(&files), (Some("2.21.5".into()), Some(true)));
        let bare = [("usr/local/lib/libnccl.so.2", ""), ("sys/kernel/x", "")];
        assert_eq!(
            of(&bare),
            (Some("/usr/local/lib/libnccl.so.2".into()), Some(false))
        );
    }

    #[test]
    fn nvswitches_need_the_fabric_manager() {
        let switch = ("dev/nvidia-nvswitch0", "");
        assert_eq!(found(&[switch]).nvidia.fabric_manager, Some(false));
        let running = found(&[switch, ("proc/77/comm", "nv-fabricmanage\n")]);
        assert_eq!(running.nvidia.fabric_manager, Some(true));
    }
}
