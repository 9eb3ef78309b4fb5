//! Can several GPUs work together? NCCL's library, and peer access.

use super::{Check, Finding, answering};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "nccl",
    title: "NCCL and peer access",
    rule: "With several GPUs: NCCL's library is installed, and the IOMMU is not between them.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    match answering(machine) {
        Ok(gpus) if gpus.len() > 1 => {}
        Ok(_) => return Finding::not_applicable("one GPU: no collectives"),
        Err(none) => return *none,
    }
    let Some(library) = &machine.nvidia.nccl else {
        return Finding::warn(
            "no libnccl among the system's libraries",
            "multi-GPU trainers all-reduce gradients through it; PyTorch ships its own copy",
            "`apt install libnccl2`, or rely on the trainer's own copy",
        );
    };
    if machine.nvidia.iommu == Some(true) && !linked(machine) {
        return Finding::warn(
            format!("NCCL {library}; the IOMMU translates addresses and the GPUs have no NVLink"),
            "peer copies over PCIe may hang or crawl while ACS and the IOMMU redirect them",
            "if multi-GPU programs hang at startup: `NCCL_P2P_DISABLE=1`, or `iommu=pt` on the kernel command line",
        );
    }
    let way = if linked(machine) { "NVLink" } else { "PCIe" };
    Finding::pass(format!("NCCL {library}; the GPUs communicate over {way}"))
}

/// Every GPU has a link that is up.
fn linked(machine: &Machine) -> bool {
    let mut gpus = machine.gpus.iter().filter(|gpu| gpu.lost.is_none());
    gpus.all(|gpu| gpu.nvlinks.iter().any(|link| link.active))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::hardware::doctor::Status;
    use crate::hardware::gpu::NvLink;

    fn machine(n: u32, links: bool, nccl: Option<&str>, iommu: Option<bool>) -> Machine {
        let link = NvLink {
            active: true,
            ..NvLink::default()
        };
        let mut machine = Machine {
            gpus: (0..n)
                .map(|index| Gpu {
                    index,
                    nvlinks: if links { vec![link] } else { Vec::new() },
                    ..Gpu::default()
                })
                .collect(),
            ..Machine::default()
        };
        (machine.nvidia.nccl, machine.nvidia.iommu) = (nccl.map(Into::into), iommu);
        machine
    }

    #[test]
    fn only_several_gpus_need_nccl_and_the_iommu_matters_without_links() {
        let status = |n, links, nccl, iommu| judge(&machine(n, links, nccl, iommu)).status;
        assert_eq!(status(0, false, None, None), Status::NotApplicable);
        assert_eq!(status(1, false, None, None), Status::NotApplicable);
        assert_eq!(status(2, false, None, None), Status::Warn);
        let version = Some("2.21.5");
        assert_eq!(status(2, false, version, Some(true)), Status::Warn);
        assert_eq!(status(2, true, version, Some(true)), Status::Pass);
        assert_eq!(status(2, false, version, Some(false)), Status::Pass);
    }
}
