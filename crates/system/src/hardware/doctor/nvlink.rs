//! Do the GPUs have fast links to each other?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "nvlink",
    title: "Links between GPUs",
    rule: "Every NVLink is up without errors.",
    judge,
};

/// GeForce generations without peer access to each other's memory.
const NO_PEER: &[&str] = &["RTX 40", "RTX 50"];

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) if gpus.len() > 1 => gpus,
        Ok(_) => return Finding::not_applicable("one GPU"),
        Err(none) => return *none,
    };
    let down = each(&gpus, |gpu| {
        let n = gpu.nvlinks.iter().filter(|l| !l.active).count();
        (n > 0 && n < gpu.nvlinks.len())
            .then(|| format!("{n} of {} links are down", gpu.nvlinks.len()))
    });
    let errors = each(&gpus, |gpu| {
        let n: u64 = gpu.nvlinks.iter().map(|l| l.errors).sum();
        (n > 0).then(|| format!("{n} link errors"))
    });
    let troubles: Vec<String> = [down, errors].into_iter().flatten().collect();
    if !troubles.is_empty() {
        return Finding::warn(
            troubles.join("; "),
            "a bridge, a tray or a contact",
            "`nvidia-smi nvlink --status` and `-e`; reseat bridge and cards",
        );
    }
    if gpus.iter().all(|gpu| gpu.nvlinks.iter().any(|l| l.active)) {
        return Finding::pass(format!(
            "{} links a GPU, all up, no errors",
            gpus[0].nvlinks.len()
        ));
    }
    let geforce = |name: &str| NO_PEER.iter().any(|n| name.contains(n));
    if gpus
        .iter()
        .any(|gpu| gpu.name.contains("GeForce") && geforce(&gpu.name))
    {
        return Finding::warn(
            "GeForce cards without NVLink and without peer access",
            "transfers between them go through main memory",
            "multi-GPU programs that hang at startup need `NCCL_P2P_DISABLE=1`",
        );
    }
    Finding::pass("no NVLink: the GPUs communicate over PCIe")
}
