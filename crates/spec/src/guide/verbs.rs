//! Questions that a verb answers.

/// A verb as an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verb {
    /// Its word after `llmtui`.
    pub id: &'static str,
    /// Words that lead to it.
    pub(super) ask: &'static str,
    /// What it does.
    pub says: &'static str,
}

const fn verb(id: &'static str, ask: &'static str, says: &'static str) -> Verb {
    Verb { id, ask, says }
}

pub(super) const VERBS: [Verb; 13] = [
    verb(
        "export",
        "export gguf ollama safetensors convert",
        "`llmtui export` writes a checkpoint as GGUF or safetensors for other programs",
    ),
    verb(
        "chat",
        "chat talk ask prompt generate inference",
        "`llmtui chat RUN` talks with a checkpoint",
    ),
    verb(
        "serve",
        "json schema structured grammar tool tools api serve http openai",
        "`llmtui serve` answers over OpenAI's API, in a JSON schema (response_format) and with tool calls",
    ),
    verb(
        "merge",
        "merge merging slerp ties dare combine lora",
        "`llmtui merge` adds adapters to their base, or makes one model of several",
    ),
    verb(
        "eval",
        "evaluate eval benchmark benchmarks tasks",
        "`llmtui eval` measures models on tasks",
    ),
    verb(
        "runs",
        "compare runs list checkpoints folder path",
        "`llmtui runs` lists runs and where they are, with `--compare` beside each other; checkpoints are in RUN/checkpoints",
    ),
    verb(
        "stop",
        "stoprun pause abort cancel",
        "`llmtui stop RUN` ends a live run after a checkpoint; `llmtui pause` and `llmtui resume` hold it and go on",
    ),
    verb(
        "release",
        "publish upload share release hub",
        "`llmtui release` checks a model folder and uploads it",
    ),
    verb(
        "quantize",
        "quantize quantise quantization int8 q4",
        "`llmtui quantize` writes weights in fewer bits",
    ),
    verb(
        "sweep",
        "tune sweep hyperparameters search",
        "`llmtui sweep` tries several values of settings",
    ),
    verb(
        "import",
        "import axolotl llama-factory llamafactory trl config convert",
        "`llmtui import` converts a LLaMA-Factory, Axolotl or TRL config",
    ),
    verb(
        "watch",
        "watch tensorboard wandb transformers trainer log logs other program",
        "`llmtui watch PATH` shows a run of another program from its logs, and `llmtui diagnose PATH` judges it",
    ),
    verb(
        "report",
        "report html summary share curves",
        "`llmtui report RUN --to report.html` writes a run as one file",
    ),
];
