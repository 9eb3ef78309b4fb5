//! `llmtui` without a subcommand: the workbench at a terminal, otherwise the quickstart headless.

use super::{Context, exit::Exit, train, workbench};
use crate::ui::StartView;

pub fn run(cx: &Context) -> anyhow::Result<Exit> {
    if cx.stdin_is_terminal && cx.stdout_is_terminal {
        return workbench::open(StartView::Home, cx);
    }
    // Somebody at a keyboard expected a screen: say why a training begins in its place.
    if cx.stdin_is_terminal && cx.env.term == "dumb" {
        errln!("TERM=dumb shows no workbench: the quickstart is trained headless; ctrl-c stops it");
    }
    train::run(train::Args::quickstart(), cx)
}
