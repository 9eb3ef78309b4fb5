//! A SkyPilot task of one node. The program is uploaded with the working directory; runs are in a bucket if one is named, so that
//! a managed job that loses its machine continues on the next one.

use super::{Job, name, training};

/// Options of the SkyPilot task.
#[derive(Debug, Clone, PartialEq)]
pub struct Sky {
    /// As SkyPilot names it: `H100`.
    pub accelerator: Option<String>,
    /// `s3://…`, `gs://…`
    pub bucket: Option<String>,
    /// The local program, which is uploaded.
    pub llmtui: String,
    /// The local folder, which is uploaded.
    pub folder: String,
    /// Whether PyTorch is installed there.
    pub installs_torch: bool,
}

const PROGRAM: &str = "~/.llmtui/llmtui";
const RUNS: &str = "~/llmtui-runs";

/// The task file.
pub fn task(job: &Job, sky: &Sky) -> String {
    let mut out = String::from(
        "# Made by `llmtui engine script`. A machine for it: sky launch FILE. One that is replaced when it is lost: sky jobs launch FILE.\n\
         # Tokens belong in the environment (--secret HF_TOKEN), not here.\n",
    );
    if sky.bucket.is_none() {
        out.push_str(
            "# Runs lie on the machine's own disk and are lost with it; --bucket URL keeps them.\n",
        );
    }
    out.push_str(&format!(
        "name: {}\n",
        yaml(&name(&job.name).to_lowercase())
    ));
    out.push_str(&format!("workdir: {}\n", yaml(&sky.folder)));
    out.push_str("num_nodes: 1\nresources:\n");
    if let Some(gpu) = &sky.accelerator {
        out.push_str(&format!(
            "  accelerators: {}\n",
            yaml(&format!("{gpu}:{}", job.gpus))
        ));
    }
    out.push_str(&format!("  cpus: {}\n", yaml(&format!("{}+", job.cpus))));
    out.push_str(&format!(
        "file_mounts:\n  {PROGRAM}: {}\n",
        yaml(&sky.llmtui)
    ));
    if let Some(bucket) = &sky.bucket {
        // Checkpoints are renamed into place and the log is appended to: MOUNT supports neither on most stores.
        out.push_str(&format!(
            "  {RUNS}:\n    source: {}\n    mode: MOUNT_CACHED\n",
            yaml(bucket)
        ));
    }
    out.push_str(&format!("setup: |\n  chmod +x {PROGRAM}\n"));
    if sky.installs_torch {
        out.push_str(&format!("  {PROGRAM} engine install torch\n"));
    }
    out.push_str("run: |\n");
    let head = format!("llmtui={PROGRAM}\n");
    let key = "${SKYPILOT_TASK_ID//[^A-Za-z0-9_.-]/_}";
    let body = head + &training(job, RUNS, key) + "exit \"$status\"\n";
    for line in body.lines() {
        match line.is_empty() {
            true => out.push('\n'),
            false => out.push_str(&format!("  {line}\n")),
        }
    }
    out
}

/// A string in double quotes: JSON's are valid YAML.
fn yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
