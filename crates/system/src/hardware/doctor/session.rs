//! Over SSH, inside tmux? And what happens if the connection drops.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "session",
    title: "Session",
    rule: "Always passes: shows what happens if the connection drops.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let session = &machine.session;
    if session.terminal != Some(true) {
        return Finding::not_applicable("no terminal");
    }
    let dropped = "if the connection drops, runs continue: `llmtui attach` reopens them";
    match (session.ssh, session.multiplexer) {
        (true, true) => Finding::pass(format!("SSH inside tmux or screen; {dropped}")),
        (true, false) => Finding::pass(format!("SSH; {dropped}, tmux keeps the screen too")),
        (false, true) => Finding::pass("local, inside tmux or screen"),
        (false, false) => Finding::pass("local"),
    }
}
