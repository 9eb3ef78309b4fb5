//! How ranks are started: one alone as a plain Python process, several by torchrun; as an array of arguments, never through a
//! shell, with a separate rendezvous for every generation. The arguments contain no secrets.

use super::package::NAME;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One generation to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    pub python: PathBuf,
    /// The folder of the worker's package.
    pub package: PathBuf,
    /// Processes on this machine.
    pub ranks: usize,
    /// The run's name and the generation: a unique rendezvous id.
    pub id: String,
    /// The folder of the ranks' output.
    pub logs: PathBuf,
    /// The socket of the engine, or of the process that relays to it.
    pub socket: PathBuf,
    pub meeting: Rendezvous,
}

/// The rendezvous of a generation's ranks, and which of them are on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// The first machine's address, as all of them reach it.
    pub address: String,
    /// The network interface to it; `None` leaves the choice to the environment.
    pub interface: Option<String>,
    /// Index of this machine's first rank, and the number of all ranks.
    pub first: usize,
    pub world: usize,
}

impl Rendezvous {
    /// All ranks are on this machine.
    pub fn loopback(world: usize) -> Rendezvous {
        Rendezvous {
            address: "127.0.0.1".into(),
            interface: Some("lo".into()),
            first: 0,
            world,
        }
    }
}

/// torchrun on one machine, local or remote, with its ranks.
pub trait Launcher: Send {
    /// The machine's name; `None` for this one.
    fn machine(&self) -> Option<&str>;

    /// Registers a rank's process after it connected.
    fn admit(&mut self, pid: i32);

    /// How torchrun ended, once it has.
    fn ended(&mut self) -> Option<String>;

    /// Why ranks may have ended, as the end of a sentence; empty if nothing is known.
    fn failure_detail(&self) -> String;

    /// Has every rank print its stacks into its log.
    fn ask_for_stacks(&mut self);

    /// Terminates the ranks that react to a signal.
    fn terminate(&mut self);

    /// Kills all of them and waits for their end.
    fn kill(&mut self);
}

impl Launch {
    /// Whether there is a single rank. Importing PyTorch a second time, for torchrun, takes seconds.
    pub fn alone(&self) -> bool {
        self.meeting.world == 1
    }

    /// The arguments after the Python: the ranks of one machine meet through a file, because torchrun's own rendezvous listens on
    /// every network interface.
    pub fn arguments(&self) -> Vec<String> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let (ranks, logs, socket) = (self.ranks.to_string(), path(&self.logs), path(&self.socket));
        if self.alone() {
            return ["-m", NAME, &socket].map(String::from).to_vec();
        }
        let rendezvous = path(&self.rendezvous());
        [
            "-m",
            "torch.distributed.run",
            "--nnodes",
            "1",
            "--nproc-per-node",
            &ranks,
            "--max-restarts",
            "0",
            "--rdzv-backend",
            "c10d",
            "--rdzv-conf",
            "store_type=file",
            "--rdzv-endpoint",
            &rendezvous,
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

    /// The file for torchrun's rendezvous.
    pub fn rendezvous(&self) -> PathBuf {
        self.logs.join("rendezvous")
    }
}

/// The process to start.
pub fn command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.python);
    command.args(launch.arguments());
    command.env("PYTHONPATH", &launch.package);
    command.env("PYTHONUNBUFFERED", "1");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    // torchrun sets it to 1, with a long warning, if nothing is set.
    command.env("OMP_NUM_THREADS", "1");
    // torchrun offers ranks its own store on every interface; they use another.
    command.env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
    let meeting = &launch.meeting;
    command.env("LLMTUI_FIRST_RANK", meeting.first.to_string());
    command.env("LLMTUI_WORLD_SIZE", meeting.world.to_string());
    command.env("LLMTUI_ADDRESS", &meeting.address);
    // By default gloo uses the address of the machine's name, and NCCL the first interface that is up.
    if let Some(interface) = &meeting.interface {
        command.env("GLOO_SOCKET_IFNAME", interface);
        command.env("NCCL_SOCKET_IFNAME", interface);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_rank_needs_no_torchrun() {
        let launch = Launch {
            python: "python".into(),
            package: "/cache/torch_worker-1".into(),
            ranks: 1,
            id: "demo-k3qf-g1".into(),
            logs: "/runs/a b/torch/gen-1".into(),
            socket: "/run/t.sock".into(),
            meeting: Rendezvous::loopback(1),
        };
        assert_eq!(launch.arguments(), ["-m", "llmtui_worker", "/run/t.sock"]);
        // One of several machines needs the rendezvous.
        let one = Launch {
            meeting: Rendezvous::loopback(2),
            ..launch
        };
        assert_eq!(one.arguments()[1], "torch.distributed.run");
    }

    #[test]
    fn arguments_are_an_array_and_the_environment_identifies_ranks() {
        let launch = Launch {
            python: "/opt/my venv/bin/python".into(),
            package: "/cache/torch_worker-1".into(),
            ranks: 2,
            id: "demo-k3qf-g1".into(),
            logs: "/runs/a b/torch/gen-1".into(),
            socket: "/run/user/0/llmtui/t.sock".into(),
            meeting: Rendezvous {
                first: 6,
                ..Rendezvous::loopback(8)
            },
        };
        let expected = "-m torch.distributed.run --nnodes 1 --nproc-per-node 2 --max-restarts 0 --rdzv-backend c10d --rdzv-conf store_type=file --rdzv-endpoint /runs/a b/torch/gen-1/rendezvous --rdzv-id demo-k3qf-g1 --monitor-interval 0.2 --redirects 3 --log-dir";
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
        let command = command(&launch);
        assert_eq!(command.get_program(), "/opt/my venv/bin/python");
        let of = |key: &str| {
            let mut all = command.get_envs();
            all.find(|(name, _)| *name == key).unwrap().1.unwrap()
        };
        assert_eq!(of("LLMTUI_FIRST_RANK"), "6");
        assert_eq!(of("LLMTUI_WORLD_SIZE"), "8");
        assert_eq!(of("LLMTUI_ADDRESS"), "127.0.0.1");
        assert_eq!(of("GLOO_SOCKET_IFNAME"), "lo");
    }
}
