//! Why a generation of ranks ended early, and whether a restart may succeed.

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No Python, no package, no permission: nothing started.
    Start,
    /// Another machine does not answer.
    Unreachable,
    /// A worker of another version, or a PyTorch that lacks something.
    Version,
    /// Device or host memory ran out.
    Memory,
    /// A process ended without a message: killed from outside, or by the kernel.
    Killed,
    /// No progress, or a process that is stopped.
    Hang,
    /// Communication between ranks broke.
    Peers,
    /// An error in the worker.
    Bug,
    /// The engine was asked to stop while it waited.
    Stopped,
}

impl FailureKind {
    /// The kind that a worker's error names.
    pub(super) fn named(word: &str) -> FailureKind {
        match word {
            "memory" => FailureKind::Memory,
            "start" => FailureKind::Start,
            "version" => FailureKind::Version,
            "peers" => FailureKind::Peers,
            _ => FailureKind::Bug,
        }
    }

    /// Whether a retry may succeed.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            FailureKind::Killed | FailureKind::Hang | FailureKind::Peers | FailureKind::Unreachable
        )
    }

    /// What to do about it.
    pub fn hint(self) -> &'static str {
        match self {
            FailureKind::Start => {
                "llmtui engine check shows what is missing; llmtui engine install torch; or set one: -s engine.torch.python=/path/to/venv; \
                 or -s engine=candle"
            }
            FailureKind::Unreachable => {
                "llmtui engine check --nodes HOST,HOST checks each of them; ssh must work without a password, and llmtui must be in the \
                 PATH there (or set engine.torch.program)"
            }
            FailureKind::Version => "llmtui engine check shows the required versions",
            FailureKind::Memory => {
                "lower train.micro_batch_size (and raise train.grad_accum_steps), set train.activation_checkpointing: full, or \
                 engine.torch.shard: fsdp2 with more ranks, or with engine.torch.offload: true"
            }
            FailureKind::Killed => {
                "see `dmesg` for the kernel's out-of-memory killer, and the logs of the ranks in the run's torch folder"
            }
            FailureKind::Hang => {
                "the ranks' stacks are in their logs in the run's torch folder; where they are only slow: engine.torch.patience=SECONDS"
            }
            FailureKind::Peers => "the logs in the run's torch folder show which rank failed first",
            FailureKind::Bug => "the full error is in the rank's log in the run's torch folder",
            FailureKind::Stopped => "",
        }
    }
}

/// The failure of a generation.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}")]
pub struct WorkerFailure {
    pub kind: FailureKind,
    /// The rank where it started, if known.
    pub rank: Option<usize>,
    /// One sentence.
    pub what: String,
}

impl WorkerFailure {
    pub(super) fn new(
        kind: FailureKind,
        rank: Option<usize>,
        what: impl Into<String>,
    ) -> WorkerFailure {
        WorkerFailure {
            kind,
            rank,
            what: what.into(),
        }
    }
}
