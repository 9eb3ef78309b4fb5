//! Where things live, and the environment: read once in `main`, passed in everywhere else so that tests never touch a
//! developer's home.

use std::path::{Path, PathBuf};

/// The environment as the program uses it.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// `$XDG_CONFIG_HOME/llmtui` or `~/.config/llmtui`: presets, themes, keymap of the user's own.
    pub config_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME/llmtui` or `~/.local/state/llmtui`: what is remembered between sessions.
    pub state_dir: Option<PathBuf>,
    /// Sockets: `$XDG_RUNTIME_DIR/llmtui` or `/tmp/llmtui-UID`.
    pub runtime_dir: PathBuf,
    /// Non-empty `NO_COLOR`.
    pub no_color: bool,
    pub term: String,
    pub colorterm: String,
    /// The locale says UTF-8.
    pub utf8: bool,
    /// Inside SSH: fewer frames a second.
    pub ssh: bool,
    pub tmux: bool,
    /// `CUDA_VISIBLE_DEVICES`, set to nothing included.
    pub cuda_visible_devices: Option<String>,
    pub cuda_device_order: Option<String>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
}

impl Env {
    /// Reads the process environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    pub fn from_process() -> Env {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let uid = rustix::process::getuid().as_raw();
        let locale = var("LC_ALL")
            .or_else(|| var("LC_CTYPE"))
            .or_else(|| var("LANG"))
            .unwrap_or_default()
            .to_lowercase();
        Env {
            config_dir: {
                use etcetera::BaseStrategy;
                etcetera::base_strategy::Xdg::new()
                    .ok()
                    .map(|xdg| xdg.config_dir().join("llmtui"))
            },
            state_dir: {
                use etcetera::BaseStrategy;
                etcetera::base_strategy::Xdg::new()
                    .ok()
                    .and_then(|xdg| xdg.state_dir())
                    .map(|dir| dir.join("llmtui"))
            },
            runtime_dir: var("XDG_RUNTIME_DIR")
                .map(|dir| Path::new(&dir).join("llmtui"))
                .unwrap_or_else(|| PathBuf::from(format!("/tmp/llmtui-{uid}"))),
            no_color: var("NO_COLOR").is_some(),
            term: var("TERM").unwrap_or_default(),
            colorterm: var("COLORTERM").unwrap_or_default(),
            utf8: locale.contains("utf-8") || locale.contains("utf8"),
            ssh: var("SSH_TTY").is_some() || var("SSH_CONNECTION").is_some(),
            tmux: var("TMUX").is_some() || var("STY").is_some(),
            cuda_visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            cuda_device_order: var("CUDA_DEVICE_ORDER"),
            path: var("PATH").map_or(Vec::new(), |path| std::env::split_paths(&path).collect()),
        }
    }
}
