//! How ranks are started: torchrun as an array of arguments, never through a shell, with a rendezvous of its own for every
//! generation. Nothing secret stands in it.

use super::package::NAME;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One generation to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    pub python: PathBuf,
    /// Where the worker's package lies.
    pub package: PathBuf,
    pub ranks: usize,
    /// The run's name and the generation: nobody else meets there.
    pub id: String,
    /// Where the ranks' output goes.
    pub logs: PathBuf,
    /// Where the engine listens.
    pub socket: PathBuf,
}

impl Launch {
    /// The arguments behind the Python.
    pub fn arguments(&self) -> Vec<String> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let (ranks, logs) = (self.ranks.to_string(), path(&self.logs));
        let socket = path(&self.socket);
        [
            "-m",
            "torch.distributed.run",
            "--nnodes",
            "1",
            "--nproc-per-node",
            &ranks,
            "--max-restarts",
            "0",
            // The loopback alone, and a port that the system chooses: its store knows no password.
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "127.0.0.1:0",
            "--rdzv-id",
            &self.id,
            "--monitor-interval",
            "0.2",
            "--redirects",
            "3",
            "--log-dir",
            &logs,
            "--module",
            NAME,
            &socket,
        ]
        .map(String::from)
        .to_vec()
    }
}

/// The process to start.
pub fn command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.python);
    command.args(launch.arguments());
    command.env("PYTHONPATH", &launch.package);
    command.env("PYTHONUNBUFFERED", "1");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    // torchrun sets 1 and says so at length where nothing is set.
    command.env("OMP_NUM_THREADS", "1");
    // Ranks of one machine talk over the loopback.
    command.env("GLOO_SOCKET_IFNAME", "lo");
    command.env("MASTER_ADDR", "127.0.0.1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_array_and_bind_to_the_loopback() {
        let launch = Launch {
            python: "/opt/my venv/bin/python".into(),
            package: "/cache/torch_worker-1".into(),
            ranks: 2,
            id: "demo-k3qf-g1".into(),
            logs: "/runs/a b/torch/gen-1".into(),
            socket: "/run/user/0/llmtui/t.sock".into(),
        };
        let expected = "-m torch.distributed.run --nnodes 1 --nproc-per-node 2 --max-restarts 0 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --rdzv-id demo-k3qf-g1 --monitor-interval 0.2 --redirects 3 --log-dir";
        let arguments = launch.arguments();
        let (head, tail) = arguments.split_at(arguments.len() - 4);
        assert_eq!(head.join(" "), expected);
        assert_eq!(
            tail,
            [
                "/runs/a b/torch/gen-1",
                "--module",
                "llmtui_worker",
                "/run/user/0/llmtui/t.sock"
            ]
        );
        assert_eq!(command(&launch).get_program(), "/opt/my venv/bin/python");
    }
}
