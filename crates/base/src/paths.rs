//! Directories and environment variables: read once in `main`, passed in everywhere else so that tests never touch a
//! developer's home.

use std::path::{Path, PathBuf};

/// The environment of the program.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// `$HOME`: what `~` at the start of a path means.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME/llmtui` or `~/.config/llmtui`: the user's presets, themes and keymap.
    pub config_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME/llmtui` or `~/.local/state/llmtui`: state kept between sessions.
    pub state_dir: Option<PathBuf>,
    /// `$XDG_DATA_HOME/llmtui` or `~/.local/share/llmtui`: installed environments.
    pub data_dir: Option<PathBuf>,
    /// `$XDG_CACHE_HOME/llmtui` or `~/.cache/llmtui`: data that can be regenerated.
    pub cache_dir: Option<PathBuf>,
    /// Sockets: `$XDG_RUNTIME_DIR/llmtui`, where that folder exists, or `/tmp/llmtui-UID`.
    pub runtime_dir: PathBuf,
    /// Non-empty `NO_COLOR`.
    pub no_color: bool,
    pub term: String,
    pub colorterm: String,
    /// The locale is UTF-8.
    pub utf8: bool,
    /// Inside SSH: a lower frame rate.
    pub ssh: bool,
    pub tmux: bool,
    /// `CUDA_VISIBLE_DEVICES`, even if empty.
    pub cuda_visible_devices: Option<String>,
    pub cuda_device_order: Option<String>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// `LLMTUI_NOTIFY`: a shell command that notifies a person of a run's end.
    pub notify: Option<String>,
    /// `LLMTUI_API_KEY`: the key that requests to `llmtui serve` must have.
    pub api_key: Option<String>,
    /// The Hugging Face hub's variables.
    pub hub: HubEnv,
    /// What is known about other machines.
    pub machines: MachinesEnv,
}

/// Variables of ssh, SLURM and PyTorch that describe other machines.
#[derive(Debug, Clone, Default)]
pub struct MachinesEnv {
    /// `SSH_CONNECTION`: the client's address and port, then this machine's. SLURM passes on that of the shell that submitted
    /// the job.
    pub ssh_connection: Option<String>,
    /// `SLURM_JOB_NODELIST`: the machines of this job, as `scontrol show hostnames` accepts them.
    pub slurm_nodes: Option<String>,
    /// `SLURM_CPUS_PER_TASK`
    pub slurm_cpus: Option<String>,
    /// `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME`: the network interface is already chosen.
    pub interface_is_chosen: bool,
}

/// Variables of Hugging Face's own tools.
#[derive(Debug, Clone, Default)]
pub struct HubEnv {
    /// `HF_HOME`, or `huggingface` in the user's cache folder.
    pub home: Option<PathBuf>,
    /// `HF_HUB_CACHE` (or `HUGGINGFACE_HUB_CACHE`), if set.
    pub cache: Option<PathBuf>,
    /// `HF_ENDPOINT`: a mirror.
    pub endpoint: Option<String>,
    /// `HF_TOKEN`, or `HUGGING_FACE_HUB_TOKEN`.
    pub token: Option<String>,
    /// `HF_TOKEN_PATH`: a file with the token.
    pub token_path: Option<PathBuf>,
    /// `HF_HUB_OFFLINE`: never use the network.
    pub offline: bool,
    /// `HF_HUB_DOWNLOAD_TIMEOUT`, seconds.
    pub timeout_seconds: Option<u64>,
}

impl HubEnv {
    /// `var` returns a variable that is set and not empty.
    fn read(var: &dyn Fn(&str) -> Option<String>, cache_dir: Option<PathBuf>) -> HubEnv {
        let yes =
            |text: String| matches!(text.to_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE");
        HubEnv {
            home: var("HF_HOME")
                .map(PathBuf::from)
                .or_else(|| cache_dir.map(|dir| dir.join("huggingface"))),
            cache: var("HF_HUB_CACHE")
                .or_else(|| var("HUGGINGFACE_HUB_CACHE"))
                .map(PathBuf::from),
            endpoint: var("HF_ENDPOINT"),
            token: var("HF_TOKEN").or_else(|| var("HUGGING_FACE_HUB_TOKEN")),
            token_path: var("HF_TOKEN_PATH").map(PathBuf::from),
            offline: var("HF_HUB_OFFLINE").is_some_and(yes),
            timeout_seconds: var("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|s| s.trim().parse().ok()),
        }
    }
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
            home: var("HOME").map(PathBuf::from),
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
            data_dir: {
                use etcetera::BaseStrategy;
                etcetera::base_strategy::Xdg::new()
                    .ok()
                    .map(|xdg| xdg.data_dir().join("llmtui"))
            },
            cache_dir: {
                use etcetera::BaseStrategy;
                etcetera::base_strategy::Xdg::new()
                    .ok()
                    .map(|xdg| xdg.cache_dir().join("llmtui"))
            },
            // Schedulers pass on the variable of the login session, whose folder does not exist on a compute node.
            runtime_dir: var("XDG_RUNTIME_DIR")
                .filter(|dir| Path::new(dir).is_dir())
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
            notify: var("LLMTUI_NOTIFY"),
            api_key: var("LLMTUI_API_KEY"),
            hub: HubEnv::read(&var, {
                use etcetera::BaseStrategy;
                etcetera::base_strategy::Xdg::new()
                    .ok()
                    .map(|xdg| xdg.cache_dir())
            }),
            machines: MachinesEnv {
                ssh_connection: var("SSH_CONNECTION"),
                slurm_nodes: var("SLURM_JOB_NODELIST"),
                slurm_cpus: var("SLURM_CPUS_PER_TASK"),
                interface_is_chosen: var("GLOO_SOCKET_IFNAME").is_some()
                    || var("NCCL_SOCKET_IFNAME").is_some(),
            },
        }
    }
}

/// Specs, logs and other programs name files in UTF-8.
///
/// # Errors
/// A name on the whole path is not UTF-8.
pub fn check_utf8(path: &Path) -> std::io::Result<()> {
    match std::path::absolute(path)?.to_str() {
        Some(_) => Ok(()),
        None => Err(std::io::Error::new(
            std::io::ErrorKind::InvalidFilename,
            NOT_UTF8,
        )),
    }
}

/// What is wrong with a path that [`check_utf8`] refuses.
pub const NOT_UTF8: &str = "the name of a folder on this path is not UTF-8, as paths in specs are";

/// A hint for a path that does not exist and resembles no other: where it was looked for. `full` is the resolved path of `said`.
pub fn not_found_hint(said: &Path, full: &Path) -> String {
    let folder = full.parent().unwrap_or(full);
    let there = folder.as_os_str().is_empty() || folder.is_dir();
    let relative = "relative paths start from the working directory";
    match (there, said.is_absolute()) {
        (true, true) => format!(
            "check the name: no such file in {}",
            crate::text::shown(folder)
        ),
        (true, false) => format!("check the path: {relative}"),
        (false, true) => "check the path: its folder does not exist either".into(),
        (false, false) => format!("check the path: its folder does not exist either; {relative}"),
    }
}

/// Cause and fix for each `.yml` file in a folder where only `.yaml` is looked for.
pub fn misnamed(folder: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "yml"))
        .collect();
    found.sort();
    let words = |path: PathBuf| {
        let name = path.with_extension("yaml");
        let name = crate::text::shown(Path::new(name.file_name().unwrap_or_default()));
        let what = format!(
            "{} is not read: its name ends in .yml",
            crate::text::shown(&path)
        );
        (what, format!("rename it to {name}"))
    };
    found.into_iter().map(words).collect()
}

/// Whether a name is a YAML file: a task's or pipeline's file, where names of shipped ones are allowed too.
pub fn is_yaml(name: &str) -> bool {
    let ending = Path::new(name).extension();
    ending.is_some_and(|e| e == "yaml" || e == "yml")
}

/// A path as the user wrote it, with a leading `~` or `~/…` replaced by the home folder, as a shell does. Any other
/// path is returned unchanged, and so is a file of this name in `base`.
///
/// # Errors
/// `~` without a home folder, or another user's home: what is wrong, and what to do.
pub fn expand_home(
    said: &Path,
    base: &Path,
    home: Option<&Path>,
) -> Result<PathBuf, (String, String)> {
    if let Ok(rest) = said.strip_prefix("~") {
        return match home {
            Some(home) => Ok(home.components().chain(rest.components()).collect()),
            None => Err((
                format!(
                    "`~` in {} means the folder that HOME names, and HOME is not set",
                    crate::text::shown(said)
                ),
                "write the whole path, or set HOME".into(),
            )),
        };
    }
    let first = said.components().next();
    let user = first.map(|c| crate::text::shown(Path::new(c.as_os_str())));
    match user.filter(|name| name.starts_with('~') && !base.join(said).exists()) {
        Some(user) => Err((
            format!("`{user}` is not expanded: `~` works only for your own home folder"),
            "write the whole path".into(),
        )),
        None => Ok(said.to_path_buf()),
    }
}

/// A path as it was meant that was copied from a shell, in quotes or with backslashes before its blanks: where nothing has the name
/// as typed, and something the name without them. Any other text is returned unchanged.
pub fn unquoted(typed: &str, home: Option<&Path>) -> String {
    let exists = |path: &str| {
        let full = expand_home(Path::new(path), Path::new(""), home);
        full.is_ok_and(|full| full.exists())
    };
    let said = typed.trim();
    if !said.contains(['\'', '"', '\\']) || exists(said) {
        return typed.into();
    }
    let mut meant = String::new();
    let (mut quote, mut letters) = (None, said.chars());
    while let Some(c) = letters.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => meant.extend(letters.next()),
            (_, c) => meant.push(c),
        }
    }
    if exists(&meant) { meant } else { typed.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_copied_from_a_shell_is_read_without_its_quotes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("essay 0.txt");
        std::fs::write(&file, "x").unwrap();
        let (folder, meant) = (dir.path().display(), file.display().to_string());
        for typed in [
            format!("'{folder}/essay 0.txt'"),
            format!(" \"{folder}/essay 0.txt\""),
            format!("{folder}/essay\\ 0.txt"),
            format!("{folder}/'essay 0'.txt"),
            "~/essay\\ 0.txt".into(),
        ] {
            let found = unquoted(&typed, Some(dir.path()));
            let found = expand_home(Path::new(&found), Path::new(""), Some(dir.path()));
            assert_eq!(found.unwrap().display().to_string(), meant, "{typed}");
        }
        // A name that has them, and one of nothing, stay.
        let odd = format!("{folder}/it's");
        assert_eq!(unquoted(&odd, None), odd);
        std::fs::write(&odd, "x").unwrap();
        std::fs::write(dir.path().join("its"), "x").unwrap();
        assert_eq!(unquoted(&odd, None), odd);
    }

    #[test]
    fn a_path_is_utf8_as_a_whole() {
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/tmp/sp \xff"));
        assert!(check_utf8(&odd.join("a")).is_err());
        check_utf8(Path::new("/tmp/später")).unwrap();
    }

    #[test]
    fn a_leading_tilde_is_the_users_home() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("~odd"), "x").unwrap();
        let expand = |said: &str, home| expand_home(Path::new(said), dir.path(), home);
        let home = Some(Path::new("/home/u"));
        for (said, meant) in [
            ("~", "/home/u"),
            ("~/", "/home/u"),
            ("~/a/b.txt", "/home/u/a/b.txt"),
            ("~//a", "/home/u/a"),
            ("~/*.jsonl", "/home/u/*.jsonl"),
            ("a/~/b", "a/~/b"),
            ("a~", "a~"),
            ("/a/b/", "/a/b/"),
            ("", ""),
            ("~odd", "~odd"),
        ] {
            let path = expand(said, home).unwrap();
            assert_eq!(path.as_os_str(), meant, "{said}");
        }
        let (what, fix) = expand("~root/x", home).unwrap_err();
        assert!(what.contains("`~root` is not expanded"), "{what}");
        assert_eq!(fix, "write the whole path");
        let (what, fix) = expand("~/x", None).unwrap_err();
        assert!(what.contains("HOME is not set"), "{what}");
        assert!(fix.contains("set HOME"), "{fix}");
    }

    #[test]
    fn only_missing_relative_paths_get_a_hint_about_the_base_folder() {
        let dir = tempfile::tempdir().unwrap();
        for (said, folder, relative) in [
            ("a.txt", true, true),
            ("b/a.txt", false, true),
            ("/a.txt", true, false),
            ("/no/such/folder/a.txt", false, false),
        ] {
            let said = Path::new(said);
            let words = not_found_hint(said, &dir.path().join(said));
            assert_eq!(words.contains("relative"), relative, "{words}");
            let folder_said = words.contains("its folder does not exist");
            assert_eq!(folder_said, !folder, "{words}");
        }
        assert!(!not_found_hint(Path::new("a.txt"), Path::new("a.txt")).contains("folder"));
    }

    #[test]
    fn the_hubs_variables_have_their_usual_defaults_and_precedence() {
        let none = HubEnv::read(&|_| None, Some("/home/u/.cache".into()));
        assert_eq!(none.home, Some("/home/u/.cache/huggingface".into()));
        assert!(!none.offline && none.token.is_none());
        let said = HubEnv::read(
            &|name| {
                let value = match name {
                    "HF_TOKEN" => "new",
                    "HUGGING_FACE_HUB_TOKEN" => "old",
                    "HF_HUB_OFFLINE" => "yes",
                    "HF_HUB_DOWNLOAD_TIMEOUT" => "30",
                    _ => return None,
                };
                Some(value.into())
            },
            None,
        );
        assert_eq!(said.token.as_deref(), Some("new"));
        assert!(said.offline);
        assert_eq!(said.timeout_seconds, Some(30));
    }
}
