//! Connections to other machines, and the terminal that is lent to a run there.

use super::{JobResult, Shell};
use crate::base::clock::SystemClock;
use crate::base::paths::Env;
use crate::base::text::shown;
use crate::fleet::{FILE, Host, HostConnection};
use crate::run::state::Level;
use crate::ui::msg::Msg;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

impl Shell {
    /// Watches the machines of the user's file, or says why it cannot.
    pub(super) fn watch_own_fleet(&mut self) {
        // Another press while the first one is being done.
        if !self.connections.is_empty() {
            return;
        }
        match own_hosts(&self.place.env, &self.place.runs_dir) {
            Ok(hosts) => self.watch_fleet(hosts),
            Err(why) => self.update(Msg::Said(Level::Warn, why)),
        }
    }

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

/// The machines of the file in the user's settings.
fn own_hosts(env: &Env, runs_dir: &Path) -> Result<Vec<Host>, String> {
    let folder = env.config_dir.as_ref();
    let path = folder.ok_or("no settings folder is known")?.join(FILE);
    if !path.exists() {
        let words = format!("{} does not exist: write it as shown", shown(&path));
        return Err(words);
    }
    let hosts = Host::read(&path, env.home.as_deref()).map_err(|e| e.to_string())?;
    let here = |host: Host| host.with_runs_here(runs_dir);
    Ok(hosts.into_iter().map(here).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pane showed an example of the file that was there, and read it never.
    #[test]
    fn the_machines_of_the_user_s_file_are_watched_or_it_is_said_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            config_dir: Some(dir.path().into()),
            ..Env::default()
        };
        let hosts = || own_hosts(&env, Path::new("/data/runs"));
        let why = hosts().unwrap_err();
        assert!(why.contains("hosts.yaml does not exist"), "{why}");
        let write = |text: &str| std::fs::write(dir.path().join(FILE), text).unwrap();
        write("hosts: [{name: here, local: true}, me@gpu-box]\n");
        let found = hosts().unwrap();
        let of = |at: usize| found[at].runs_dir.as_deref();
        assert_eq!((found.len(), of(0), of(1)), (2, Some("/data/runs"), None));
        write("machines: []\n");
        let why = hosts().unwrap_err();
        assert!(why.contains("hosts.yaml: "), "{why}");
        assert!(own_hosts(&Env::default(), Path::new("runs")).is_err());
    }
}
