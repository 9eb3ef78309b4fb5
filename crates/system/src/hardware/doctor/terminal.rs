//! What does the terminal support?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "terminal",
    title: "Terminal",
    rule: "TERM names a terminal with cursor control.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let session = &machine.session;
    if session.terminal != Some(true) {
        return Finding::not_applicable("no terminal");
    }
    if matches!(session.term.as_str(), "" | "dumb") {
        return Finding::warn(
            format!("TERM is {:?}", session.term),
            "the workbench cannot draw there",
            "`export TERM=xterm-256color`, or use `llmtui train --headless`",
        );
    }
    let colours = match (session.truecolor, session.term.contains("256")) {
        (true, _) => "all colours",
        (false, true) => "256 colours",
        (false, false) => "16 colours",
    };
    Finding::pass(format!("{}, {colours}", session.term))
}
