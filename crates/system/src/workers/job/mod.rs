//! Job files for schedulers: an sbatch script for one or more nodes, and a SkyPilot task for one. Both contain the same lines of
//! bash: create or find the run of this job, train headless, save a checkpoint and end on a signal, resume where it stopped.
//!
//! Nothing is started here, and no scheduler is contacted.

mod skypilot;
mod slurm;

pub use crate::base::ssh::shell_quote;
pub use skypilot::{Sky, task};
pub use slurm::{Slurm, script, seconds as slurm_seconds};

/// What a job trains.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    /// A new run of a preset or a file, with its `-s KEY=VALUE` settings.
    Spec { spec: String, set: Vec<String> },
    /// An existing run.
    Run(String),
}

/// A job on one or more nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// For job lists and log names.
    pub name: String,
    pub goal: Goal,
    /// Nodes: the first one runs the engine, and all of them ranks.
    pub nodes: usize,
    /// GPUs per node; with 0 the CPU computes.
    pub gpus: usize,
    pub cpus: usize,
}

/// Requeues without a new checkpoint after which a job stops requeueing.
const IDLE: usize = 3;

/// Letters, digits, dots and dashes: what schedulers accept as a name.
pub fn name(said: &str) -> String {
    let keep = |c: char| match c.is_ascii_alphanumeric() || "._-".contains(c) {
        true => c,
        false => '-',
    };
    let name: String = said.chars().map(keep).take(60).collect();
    match name.trim_matches(['-', '.']) {
        "" => "llmtui".into(),
        name => name.into(),
    }
}

/// Why a word must not be in a file that is shown, copied and kept by schedulers: it looks like a secret, or would break the
/// file.
pub fn unfit(word: &str) -> Option<&'static str> {
    if word.chars().any(char::is_control) {
        return Some("a line break or another control character");
    }
    let of_token = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let tokens = word.split(|c: char| !of_token(c));
    let looks_secret = |token: &str| {
        let long = |prefix: &str, least: usize| {
            token
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.len() >= least)
        };
        long("hf_", 20)
            || long("sk-", 20)
            || long("ghp_", 20)
            || long("github_pat_", 20)
            || long("glpat-", 20)
            || (long("AKIA", 16) && token.len() == 20)
    };
    let with_password = word.split("://").skip(1).any(|rest| {
        let authority = rest.split('/').next().unwrap_or_default();
        authority
            .split_once('@')
            .is_some_and(|(user, _)| user.contains(':'))
    });
    (with_password || tokens.into_iter().any(looks_secret))
        .then_some("what looks like a password or a token")
}

/// The lines that both files share. `folder`: a bash expression for the folder of runs. `key`: a bash expression that identifies
/// the job, the same after a requeue.
fn training(job: &Job, folder: &str, key: &str) -> String {
    let find = match &job.goal {
        Goal::Run(run) => format!("run={}\n", shell_quote(run)),
        Goal::Spec { spec, set } => {
            let mut words = format!("train {}", shell_quote(spec));
            for setting in set {
                words.push_str(&format!(" -s {}", shell_quote(setting)));
            }
            format!(
                "if [ -s \"$note\" ]; then\n    run=$(cat \"$note\")\nelse\n    run=$(\"$llmtui\" --runs-dir \"$runs\" {words} --no-start) || exit\n    \
                 printf '%s\\n' \"$run\" > \"$note\" || exit 3\nfi\n"
            )
        }
    };
    format!(
        r#"runs={folder}
mkdir -p "$runs" || exit 3

# The program alone gets the signal: it saves a checkpoint and ends, and its ranks with it.
ending=
program=
forward() {{
    interrupted=1
    [ -z "$program" ] || kill -s "$1" "$program" 2> /dev/null
}}
trap 'ending=again; forward USR1' USR1
trap 'ending=${{ending:-stop}}; forward TERM' TERM

# Which run is this job's: one that begins again goes on with it.
note="$runs/.job-{key}"
{find}echo "job: run $run"

before=$(ls "$run/checkpoints" 2> /dev/null)
"$llmtui" --runs-dir "$runs" train --resume "$run" --headless &
program=$!
[ -z "$ending" ] || forward TERM
while
    interrupted=
    wait "$program"
    status=$?
    [ -n "$interrupted" ]
do :; done
program=

state=$("$llmtui" --runs-dir "$runs" engine state "$run") || exit
echo "job: the program ended with $status, the run is $state"
if [ "$state" = finished ]; then
    rm -f "$note" "$note.idle"
    exit 0
fi
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_bash_unchanged() {
        for word in [
            "plain/path.yaml",
            "a b",
            "it's",
            "$(rm -rf x)",
            "`x`",
            "a\"b",
            "data.path=my file's.txt",
            "",
            "*",
            "~/x",
            "\\",
            "ä ö",
            "-s",
            "=x",
        ] {
            let out = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {}", shell_quote(word))])
                .output();
            let Ok(out) = out else {
                println!("skipped: no bash here");
                return;
            };
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            // printf takes a dash for an option in its format: here it is the second word.
            assert_eq!(said, word);
        }
    }

    #[test]
    fn names_are_valid_for_schedulers() {
        assert_eq!(name("my run"), "my-run");
        assert_eq!(name("a/b'c%j\n"), "a-b-c-j");
        assert_eq!(name("--"), "llmtui");
        assert!(name(&"x".repeat(500)).len() <= 60);
    }

    #[test]
    fn secrets_and_line_breaks_are_rejected() {
        for word in [
            "data.path=https://me:pass@host/x",
            "key=hf_abcdefghijklmnopqrstuvwxyz",
            "sk-abcdefghijklmnopqrstuvwx",
            "x=AKIAABCDEFGHIJKLMNOP",
        ] {
            assert_eq!(
                unfit(word),
                Some("what looks like a password or a token"),
                "{word}"
            );
        }
        assert!(unfit("a\nb").unwrap().contains("line break"));
        for word in [
            "tokenizer=bpe",
            "data.path=hf://datasets/x@main/y:z",
            "train.from=hf_model",
            "https://host/x@y:z",
            "sk-1",
        ] {
            assert_eq!(unfit(word), None, "{word}");
        }
    }
}
