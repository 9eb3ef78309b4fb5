//! `llmtui` without a verb: the workbench where there is a terminal, the quickstart where there is none.

use super::{
    Context,
    exit::{Exit, Failure},
    train,
};

pub fn run(cx: &Context) -> anyhow::Result<Exit> {
    if cx.stdin_is_terminal && cx.stdout_is_terminal {
        return Err(Failure::machine("the workbench is not in this build", "").into());
    }
    train::run(train::Args::quickstart(), cx)
}
