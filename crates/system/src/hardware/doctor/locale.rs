//! Does the locale allow more than ASCII?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "locale",
    title: "Locale",
    rule: "Says UTF-8.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let session = &machine.session;
    if session.terminal != Some(true) {
        return Finding::not_applicable("no terminal");
    }
    match session.utf8 {
        true => Finding::pass("UTF-8"),
        false => Finding::warn(
            "the locale is not UTF-8",
            "the workbench falls back to ASCII",
            "`export LANG=C.UTF-8` (over SSH: SendEnv and AcceptEnv LANG)",
        ),
    }
}
