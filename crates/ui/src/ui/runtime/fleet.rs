//! Connections to other machines, and the terminal that is lent to a run there.

use super::{JobResult, Shell};
use crate::base::clock::SystemClock;
use crate::fleet::{Host, HostConnection};
use crate::run::state::Level;
use crate::ui::msg::Msg;
use std::ffi::OsString;
use std::process::Command;

impl Shell {
    /// Starts a thread for each machine; they end with the workbench.
    pub(super) fn watch_fleet(&mut self, hosts: Vec<Host>) {
        let own = std::env::current_exe().unwrap_or_else(|_| "llmtui".into());
        self.update(Msg::FleetOpened(hosts.clone()));
        for (at, host) in hosts.into_iter().enumerate() {
            let connection = HostConnection::new(host, own.clone(), &self.place.env);
            self.connections.push(connection.clone());
            let sender = self.jobs.0.clone();
            let name = format!("fleet-{at}");
            let spawned = std::thread::Builder::new().name(name).spawn(move || {
                connection.watch(&SystemClock::new(), |said| {
                    sender
                        .blocking_send(JobResult::Msg(Msg::Fleet { at, said }))
                        .is_ok()
                });
            });
            if let Err(e) = spawned {
                tracing::warn!("a machine cannot be watched: {e}");
            }
        }
    }

    /// The command that shows a run of a machine.
    pub(super) fn attach_there(&mut self, host: usize, run: &str) {
        self.elsewhere = self
            .connections
            .get(host)
            .map(|connection| connection.attach(run));
    }

    /// Lends the terminal to a command and takes it back when that ends.
    pub(super) fn run_in_terminal(&mut self, line: &[OsString]) -> std::io::Result<()> {
        let Some((program, arguments)) = line.split_first() else {
            return Ok(());
        };
        self.guard.leave();
        let ended = Command::new(program).args(arguments).status();
        self.guard.take()?;
        self.update(Msg::Resumed);
        let words = match ended {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => format!("{} ended: {status}", program.display()),
            Err(error) => format!("{}: {error}", program.display()),
        };
        self.update(Msg::Said(Level::Warn, words));
        Ok(())
    }
}
