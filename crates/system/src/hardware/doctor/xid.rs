//! Xid messages in the kernel's log (NVIDIA Xid catalog; severities are operational).

use super::{Check, Finding};
use crate::hardware::machine::Machine;
use crate::hardware::machine::Xid;

pub const CHECK: Check = Check {
    id: "xid",
    title: "NVIDIA errors in the log",
    rule: "The kernel log has no Xid messages.",
    judge,
};

/// Codes, their meaning, what to do; most severe first.
const KNOWN: &[(&[u32], Severity, &str, &str)] = &[
    (
        &[79],
        Severity::Broken,
        "a GPU fell off the bus",
        "check power, PCIe contact and cooling; power-cycle; return the card if it repeats",
    ),
    (
        &[48, 95, 140],
        Severity::Broken,
        "uncorrectable memory error",
        "stop all work on it, reset the GPU; return the card if it repeats",
    ),
    (
        &[64],
        Severity::Broken,
        "a memory row could not be replaced",
        "take the GPU out of service and return it",
    ),
    (
        &[74],
        Severity::Broken,
        "NVLink error",
        "check the bridge or tray, reset the GPU, reseat it",
    ),
    (
        &[61, 62],
        Severity::Broken,
        "the GPU's microcontroller stopped",
        "reset the GPU; contact the vendor if it repeats",
    ),
    (
        &[119, 120],
        Severity::Broken,
        "the GPU system processor does not respond",
        "reset the GPU, update the driver",
    ),
    (
        &[109],
        Severity::Broken,
        "a context switch took too long",
        "reset the GPU",
    ),
    (
        &[154],
        Severity::Broken,
        "the driver asks for a recovery action",
        "follow the message",
    ),
    (
        &[94],
        Severity::Worth,
        "a memory error that was contained",
        "restart the application",
    ),
    (
        &[63],
        Severity::Worth,
        "a memory row was replaced",
        "reset the GPU when it is convenient",
    ),
    (
        &[92],
        Severity::Worth,
        "many single-bit memory errors",
        "run `dcgmi diag -r 3` when it is convenient",
    ),
    (
        &[13, 31],
        Severity::Worth,
        "a program made an invalid memory access",
        "most likely an application bug; run `dcgmi diag -r 2` if one GPU repeats it",
    ),
    (
        &[32, 69],
        Severity::Worth,
        "the driver received a corrupted command",
        "update application and driver",
    ),
    (
        &[43, 45],
        Severity::Worth,
        "work was aborted after another error or a kill",
        "look at the preceding message",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Broken,
    Worth,
}

fn judge(machine: &Machine) -> Finding {
    let log = &machine.kernel_log;
    if machine.gpus.is_empty() && machine.nvidia.pci_devices == 0 && log.xids.is_empty() {
        return Finding::not_applicable("no NVIDIA GPU in this machine");
    }
    let Some(source) = &log.read_from else {
        return Finding::unknown(
            "no permission to read the kernel log",
            "sudo dmesg | grep -i xid",
        );
    };
    let Some(worst) = log.xids.iter().min_by_key(|xid| severity(xid)) else {
        return Finding::pass(format!("none in {source}"));
    };
    let more = match log.xids.len() {
        1 => String::new(),
        n => format!(" ({n} messages in total)"),
    };
    let evidence = format!("Xid {} on {}: {}{more}", worst.code, worst.pci, worst.text);
    let known = KNOWN.iter().find(|(codes, ..)| codes.contains(&worst.code));
    match known {
        Some((_, Severity::Broken, meaning, fix)) => Finding::fail(evidence, *meaning, *fix),
        Some((_, Severity::Worth, meaning, fix)) => Finding::warn(evidence, *meaning, *fix),
        None => Finding::warn(
            evidence,
            "an error of the driver",
            "look up the code in NVIDIA's Xid catalog",
        ),
    }
}

fn severity(xid: &Xid) -> Severity {
    let known = KNOWN.iter().find(|(codes, ..)| codes.contains(&xid.code));
    known.map_or(Severity::Worth, |(_, severity, ..)| *severity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::doctor::Status;

    #[test]
    fn the_most_severe_message_is_reported() {
        let mut machine = Machine::default();
        machine.kernel_log.read_from = Some("/dev/kmsg".into());
        let xid = |code| Xid {
            code,
            ..Xid::default()
        };
        machine.kernel_log.xids = vec![xid(31), xid(79), xid(45)];
        let verdict = judge(&machine);
        assert_eq!(verdict.status, Status::Fail);
        let evidence = verdict.evidence.to_string();
        assert!(evidence.starts_with("Xid 79") && evidence.contains("3 messages"));
        machine.kernel_log.xids = vec![xid(999)];
        assert_eq!(judge(&machine).status, Status::Warn);
    }
}
