//! The machines of a run, and the command that reaches each.

use crate::base::paths::Env;
use crate::base::ssh;
use crate::workers::torch::{Config, Launcher};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// The arguments after the program there.
const SERVE: [&str; 2] = ["engine", "node"];

/// How a machine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    /// This machine.
    Here(String),
    /// By the system's ssh.
    Ssh(String),
    /// By a step of the SLURM job that this process belongs to.
    Srun(String),
}

impl Config {
    /// Whether machines are named and this one is not among them.
    pub fn is_elsewhere(&self) -> bool {
        let named = !self.nodes.is_empty();
        let machines = named.then(|| machines(self, &Env::default()));
        let is_here = |machine: &Machine| matches!(machine, Machine::Here(_));
        machines.is_some_and(|all| all.is_ok_and(|all| !all.iter().any(is_here)))
    }
}

impl Machine {
    pub fn name(&self) -> &str {
        match self {
            Machine::Here(name) | Machine::Ssh(name) | Machine::Srun(name) => name,
        }
    }

    /// The command line that starts this program's remote end there; `None` for this machine.
    pub fn line(&self, config: &Config, own: &Path, env: &Env) -> Option<Vec<OsString>> {
        let program = config.program.as_deref();
        match self {
            Machine::Here(_) => None,
            Machine::Ssh(host) => {
                let mut line = ssh::begin(false);
                line.extend(["--".into(), host.into()]);
                line.push(ssh::in_shell(program.unwrap_or("llmtui"), &SERVE).into());
                Some(line)
            }
            Machine::Srun(host) => {
                let mut line: Vec<OsString> = [
                    "srun",
                    "--nodes=1",
                    "--ntasks=1",
                    // Next to the batch step, which already has all resources.
                    "--overlap",
                    "--kill-on-bad-exit=1",
                    "--mpi=none",
                ]
                .map(OsString::from)
                .to_vec();
                // Since SLURM 22.05 a step does not inherit it.
                if let Some(cpus) = &env.machines.slurm_cpus {
                    line.push(format!("--cpus-per-task={cpus}").into());
                }
                line.push(format!("--nodelist={host}").into());
                line.push(program.map_or_else(|| own.into(), OsString::from));
                line.extend(SERVE.map(OsString::from));
                Some(line)
            }
        }
    }
}

/// The machines of a run, in rank order; empty if it computes only on this machine.
///
/// # Errors
/// SLURM's are requested outside of a job, or cannot be listed.
pub fn machines(config: &Config, env: &Env) -> Result<Vec<Machine>, String> {
    let names = match (&config.nodes[..], config.launcher) {
        ([], Launcher::Ssh) => return Ok(Vec::new()),
        ([], Launcher::Srun) => of_slurm(env)?,
        (names, _) => names.to_vec(),
    };
    let own = crate::hardware::host_name();
    Ok(names
        .into_iter()
        .map(|name| match (is_here(&name, &own), config.launcher) {
            (true, _) => Machine::Here(name),
            (false, Launcher::Ssh) => Machine::Ssh(name),
            (false, Launcher::Srun) => Machine::Srun(name),
        })
        .collect())
}

/// Whether a name means this machine; a user before it means a login there.
fn is_here(name: &str, own: &str) -> bool {
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let numbers = name.chars().all(|c| c.is_ascii_digit() || c == '.');
    name == "localhost" || name == own || (!numbers && label(name) == label(own))
}

fn of_slurm(env: &Env) -> Result<Vec<String>, String> {
    let Some(list) = &env.machines.slurm_nodes else {
        return Err(
            "engine.torch.launcher is srun, but this is not a SLURM job (SLURM_JOB_NODELIST is not set)"
                .into(),
        );
    };
    let output = Command::new("scontrol")
        .args(["show", "hostnames", list])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("scontrol: {e}"))?;
    let names: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .map(String::from)
        .collect();
    match output.status.success() && !names.is_empty() {
        true => Ok(names),
        false => Err(format!(
            "scontrol show hostnames {list}: {}",
            crate::base::text::one_line(String::from_utf8_lossy(&output.stderr).trim())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: Option<Vec<OsString>>) -> String {
        let line = line.unwrap().into_iter();
        let line: Vec<String> = line.map(|word| word.into_string().unwrap()).collect();
        line.join("|")
    }

    #[test]
    fn each_launcher_has_its_command_line() {
        let mut env = Env::default();
        env.machines.slurm_cpus = Some("32".into());
        let own = Path::new("/opt/my bin/llmtui");
        let mut config = Config::default();
        let ssh = Machine::Ssh("me@gpu2".into());
        let options = "ssh|-o|ConnectTimeout=10|-o|ServerAliveInterval=10|-o|ServerAliveCountMax=3|-T|-o|BatchMode=yes|--|me@gpu2";
        assert_eq!(
            words(ssh.line(&config, own, &env)),
            format!("{options}|llmtui engine node")
        );
        let srun = Machine::Srun("n07".into());
        assert_eq!(
            words(srun.line(&config, own, &env)),
            "srun|--nodes=1|--ntasks=1|--overlap|--kill-on-bad-exit=1|--mpi=none|--cpus-per-task=32|--nodelist=n07|/opt/my bin/llmtui|engine|node"
        );
        config.program = Some("~/my bin/llmtui".into());
        assert_eq!(
            words(ssh.line(&config, own, &env)),
            format!("{options}|~/'my bin/llmtui' engine node")
        );
        assert_eq!(Machine::Here("a".into()).line(&config, own, &env), None);
    }

    #[test]
    fn machines_keep_their_order_and_this_one_is_recognized() {
        assert!(is_here("localhost", "gpu1"));
        assert!(is_here("gpu1", "gpu1.lab.example.org"));
        assert!(is_here("gpu1.lab", "gpu1"));
        assert!(!is_here("gpu10", "gpu1") && !is_here("10.0.0.1", "10"));
        let config = Config {
            nodes: vec!["localhost".into(), "b".into()],
            ..Config::default()
        };
        let found = machines(&config, &Env::default()).unwrap();
        assert_eq!(
            found,
            [Machine::Here("localhost".into()), Machine::Ssh("b".into())]
        );
        assert_eq!(machines(&Config::default(), &Env::default()).unwrap(), []);
        let outside = Config {
            launcher: Launcher::Srun,
            ..Config::default()
        };
        let error = machines(&outside, &Env::default()).unwrap_err();
        assert!(error.contains("SLURM_JOB_NODELIST"), "{error}");
    }
}
