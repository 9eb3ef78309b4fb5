//! Does a run outlive its user's logout?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "logout",
    title: "Logout",
    rule: "logind does not kill the processes of a user who logs out.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let logout = machine.logout;
    match logout {
        _ if !logout.logind => Finding::not_applicable("no systemd-logind"),
        _ if logout.lingers => Finding::pass("lingering: processes and sockets stay"),
        _ if logout.kills => Finding::warn(
            "KillUserProcesses=yes, and no lingering",
            "systemd-logind kills every process of a user who logs out, runs too",
            "`loginctl enable-linger`, or start runs with `systemd-run --user --scope llmtui train …`",
        ),
        _ => Finding::pass(
            "runs continue; their sockets move into their folders (`loginctl enable-linger` keeps them)",
        ),
    }
}
