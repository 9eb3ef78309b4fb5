//! The machines of a fleet: a small YAML file.

use crate::base::paths::expand_home;
use crate::base::ssh;
use crate::spec::yaml;
use serde::Deserialize;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file in the user's settings.
pub const FILE: &str = "hosts.yaml";

/// What is shown where there is no file.
pub const EXAMPLE: &str = "hosts:
  - me@gpu-box                   # as after `ssh`
  - name: lab
    ssh: lab.example.org
    program: ~/bin/llmtui
    runs_dir: /data/runs
  - {name: here, local: true}    # this machine
";

/// Bytes of a file, and machines in it, at most.
const MAX_BYTES: u64 = 64 << 10;
const MAX_HOSTS: usize = 64;

/// Where a machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Here,
    /// A destination of `ssh`: `host`, `user@host`, an alias of its configuration.
    Ssh(String),
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    pub place: Place,
    /// The program there; `llmtui` in its PATH otherwise.
    pub program: String,
    /// Its folder of runs; on another machine a leading `~` is the home folder there.
    pub runs_dir: Option<String>,
}

/// Why a file of hosts cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    #[error("{path}: {error}")]
    Unreadable {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {what}")]
    Wrong { path: PathBuf, what: String },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    hosts: Vec<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: Option<String>,
    ssh: Option<String>,
    #[serde(default)]
    local: bool,
    program: Option<String>,
    runs_dir: Option<String>,
}

impl Host {
    /// Reads a file of hosts. `home` is what `~` means on this machine.
    ///
    /// # Errors
    /// It cannot be read, is no such file, or names a machine in a way that `ssh` would take for an option.
    pub fn read(path: &Path, home: Option<&Path>) -> Result<Vec<Host>, HostsError> {
        let text = crate::base::files::read_small_text(path, MAX_BYTES);
        let text = text.map_err(|error| HostsError::Unreadable {
            path: path.to_path_buf(),
            error,
        })?;
        parse(&text, home).map_err(|what| HostsError::Wrong {
            path: path.to_path_buf(),
            what,
        })
    }

    /// This machine's runs are those of `runs_dir` unless the file says otherwise.
    #[must_use]
    pub fn with_runs_here(mut self, runs_dir: &Path) -> Host {
        if self.place == Place::Here && self.runs_dir.is_none() {
            self.runs_dir = Some(runs_dir.display().to_string());
        }
        self
    }

    /// The command line that `words` are for this machine's program. `terminal`: somebody will type there.
    pub fn command(
        &self,
        own: &Path,
        control: Option<&Path>,
        words: &[&str],
        terminal: bool,
    ) -> Vec<OsString> {
        const RUNS_DIR: &str = "--runs-dir";
        let Place::Ssh(destination) = &self.place else {
            let dir = self
                .runs_dir
                .iter()
                .flat_map(|dir| [RUNS_DIR, dir.as_str()]);
            let inner = dir.chain(words.iter().copied()).map(OsString::from);
            return std::iter::once(OsString::from(own)).chain(inner).collect();
        };
        let mut line = ssh::begin(terminal);
        if let Some(control) = control {
            line.extend(
                ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o"].map(OsString::from),
            );
            let mut path = OsString::from("ControlPath=");
            path.push(control);
            line.push(path);
        }
        line.extend(["--".into(), destination.into()]);
        let dir = self.runs_dir.as_deref().map(ssh::path_in_shell);
        let inner = [ssh::path_in_shell(&self.program)].into_iter();
        let inner = inner.chain(dir.into_iter().flat_map(|dir| [RUNS_DIR.into(), dir]));
        let inner = inner.chain(words.iter().map(|word| ssh::shell_quote(word)));
        line.push(inner.collect::<Vec<_>>().join(" ").into());
        line
    }
}

fn parse(text: &str, home: Option<&Path>) -> Result<Vec<Host>, String> {
    let value = yaml::parse(text).map_err(|e| e.to_string())?;
    let file: File = crate::base::json::read(&value).map_err(|e| e.to_string())?;
    if file.hosts.len() > MAX_HOSTS {
        return Err(format!("{} hosts; {MAX_HOSTS} at most", file.hosts.len()));
    }
    let mut names = HashSet::new();
    let mut hosts = Vec::new();
    for (at, entry) in file.hosts.iter().enumerate() {
        let host = Named::read(entry).and_then(|named| named.host(home));
        let host = host.map_err(|what| format!("hosts[{at}]: {what}"))?;
        if !names.insert(host.name.clone()) {
            return Err(format!(
                "hosts[{at}]: another one is called {} already; give it a name",
                host.name
            ));
        }
        hosts.push(host);
    }
    if hosts.is_empty() {
        return Err("no hosts; write at least one".into());
    }
    Ok(hosts)
}

impl Named {
    /// A word is a destination of `ssh`.
    fn read(entry: &serde_json::Value) -> Result<Named, String> {
        match entry.as_str() {
            Some(ssh) => Ok(Named {
                ssh: Some(ssh.into()),
                ..Named::default()
            }),
            None => crate::base::json::read(entry).map_err(|e| e.to_string()),
        }
    }

    fn host(self, home: Option<&Path>) -> Result<Host, String> {
        let place = match (self.ssh, self.local) {
            (Some(ssh), false) => {
                ssh::is_destination(&ssh).map_err(|what| format!("ssh: {what}"))?;
                Place::Ssh(ssh)
            }
            (None, true) => Place::Here,
            _ => return Err("write either ssh: DESTINATION or local: true".into()),
        };
        let name = self.name.unwrap_or_else(|| match &place {
            Place::Ssh(ssh) => ssh.rsplit('@').next().unwrap_or(ssh).to_string(),
            Place::Here => "here".into(),
        });
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("{name:?} is not a valid name"));
        }
        let program = self.program.unwrap_or_else(|| "llmtui".into());
        if program.is_empty() || program.starts_with('-') {
            return Err(format!("program: {program:?} is not a valid program"));
        }
        let dir = self.runs_dir.map(|dir| runs_dir(dir, &place, home));
        Ok(Host {
            name,
            runs_dir: dir.transpose()?,
            place,
            program,
        })
    }
}

/// The folder of runs as the program gets it: without its own shell, this machine's is expanded here.
fn runs_dir(dir: String, place: &Place, home: Option<&Path>) -> Result<String, String> {
    if dir.is_empty() {
        return Err("runs_dir: empty; remove it, or name a folder".into());
    }
    let there = Path::new("~");
    let home = match place {
        Place::Here => home,
        Place::Ssh(_) => Some(there),
    };
    let expanded = expand_home(Path::new(&dir), Path::new(""), home);
    let dir = expanded.map_err(|(what, fix)| format!("runs_dir: {what}; {fix}"))?;
    Ok(dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_file_of_three_hosts() {
        let hosts = parse(EXAMPLE, None).unwrap();
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["gpu-box", "lab", "here"]);
        assert_eq!(hosts[0].place, Place::Ssh("me@gpu-box".into()));
        assert_eq!(hosts[2].place, Place::Here);
        assert_eq!(hosts[1].runs_dir.as_deref(), Some("/data/runs"));
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_refused_with_its_place() {
        for (text, what) in [
            ("hosts: ['-oProxyCommand=touch /tmp/x']", "hosts[0]: ssh:"),
            ("hosts: [a, {ssh: 'b c'}]", "hosts[1]: ssh:"),
            ("hosts: [a, me@a]", "another one is called a"),
            ("hosts: [{name: x}]", "either ssh"),
            ("hosts: [{ssh: a, program: -x}]", "program:"),
            ("hosts: []", "no hosts"),
            ("host: [a]", "host"),
            ("hosts: [a, {ssh: b, prgram: x}]", "hosts[1]: "),
            ("hosts: [a, {ssh: b, prgram: x}]", "prgram"),
            ("hosts: [a, {ssh: b, prgram: x}]", "runs_dir"),
            ("hosts: [7]", "hosts[0]: "),
            ("hosts: [{ssh: a, runs_dir: ~bob/runs}]", "`~bob` is not"),
            ("hosts: [{local: true, runs_dir: ~/runs}]", "HOME is not"),
            ("hosts: [{ssh: a, runs_dir: ''}]", "runs_dir: empty"),
        ] {
            let error = parse(text, None).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    /// `~/runs` was a folder of that name, and a machine without runs.
    #[test]
    fn a_folder_of_runs_may_be_in_the_home_folder() {
        let text = "hosts: [{ssh: lab, runs_dir: ~/my runs}, {local: true, runs_dir: ~/runs}]";
        let hosts = parse(text, Some(Path::new("/home/u"))).unwrap();
        let command = |host: &Host| {
            let line = host.command(Path::new("/own"), None, &["runs"], false);
            let words = line.into_iter().map(|w| w.into_string().unwrap());
            words.collect::<Vec<String>>()
        };
        let there = "llmtui --runs-dir ~/'my runs' runs";
        assert_eq!(command(&hosts[0]).last().unwrap(), there);
        let here = ["/own", "--runs-dir", "/home/u/runs", "runs"];
        assert_eq!(command(&hosts[1]), here);
    }

    #[test]
    fn words_reach_the_other_shell_as_they_are() {
        let text = "hosts: [{ssh: lab, program: ~/bin/my llmtui, runs_dir: \"/d/it's\"}]";
        let host = &parse(text, None).unwrap()[0];
        let line = host.command(Path::new("/own"), None, &["attach", "a; rm -rf ~"], true);
        let line: Vec<String> = line.into_iter().map(|w| w.into_string().unwrap()).collect();
        assert_eq!(line[0], "ssh");
        assert!(line.contains(&"-t".to_string()) && !line.contains(&"BatchMode=yes".to_string()));
        assert_eq!(line[line.len() - 3..line.len() - 1], ["--", "lab"]);
        assert_eq!(
            line.last().unwrap(),
            r"~/'bin/my llmtui' --runs-dir '/d/it'\''s' attach 'a; rm -rf ~'"
        );
        let here = Host {
            name: "here".into(),
            place: Place::Here,
            program: "llmtui".into(),
            runs_dir: Some("runs".into()),
        };
        let line = here.command(Path::new("/own"), None, &["runs"], false);
        assert_eq!(line, ["/own", "--runs-dir", "runs", "runs"]);
    }
}
