//! Over SSH, inside tmux? What happens when the connection drops.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "session",
    title: "Session",
    rule: "Nothing to pass: says what happens when the connection drops.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let session = &machine.session;
    if session.terminal != Some(true) {
        return Finding::not_applicable("no terminal");
    }
    let dropped = "if the connection drops, runs go on: `llmtui attach` joins them again";
    match (session.ssh, session.multiplexer) {
        (true, true) => Finding::pass(format!("SSH inside tmux or screen; {dropped}")),
        (true, false) => Finding::pass(format!("SSH; {dropped}, tmux keeps the screen too")),
        (false, true) => Finding::pass("local, inside tmux or screen"),
        (false, false) => Finding::pass("local"),
    }
}
