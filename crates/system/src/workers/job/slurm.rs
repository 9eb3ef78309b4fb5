//! An sbatch script. SLURM's warning before the time limit goes only to the script's bash (`B:`), which forwards it to
//! llmtui: PyTorch's ranks would die of it, and llmtui stops them once they have sent what a checkpoint needs. The script uses no
//! `srun`: the batch step of a node has all that was allocated there, and on other nodes llmtui itself starts its ranks by
//! `srun`.

use super::{IDLE, Job, name, shell_quote, training};

/// Options of the SLURM job.
#[derive(Debug, Clone, PartialEq)]
pub struct Slurm {
    /// As accepted by `--time`.
    pub time: Option<String>,
    pub partition: Option<String>,
    /// The cluster's name for the GPU type; `None` for any.
    pub gpu: Option<String>,
    /// Main memory per node in GiB; `None` for the cluster's default.
    pub memory: Option<u64>,
    /// Other options of sbatch, without the dashes: `account=NAME`, `exclusive`. They come last, so that they take precedence.
    pub options: Vec<String>,
    /// The program; `LLMTUI` in the job's environment overrides it.
    pub llmtui: String,
    /// The working directory: relative paths of a spec start here.
    pub folder: String,
    pub runs_dir: String,
}

/// Seconds of warning before the end, and the fraction of the time limit that caps it for a short job.
const NOTICE: u64 = 300;
const SHARE: u64 = 4;

/// The script.
pub fn script(job: &Job, slurm: &Slurm) -> String {
    let job_name = name(&job.name);
    let mut out = String::from("#!/bin/bash\n");
    let mut ask = |words: String| out.push_str(&format!("#SBATCH {words}\n"));
    ask(format!("--job-name={job_name}"));
    ask(format!("--nodes={}", job.nodes));
    ask("--ntasks-per-node=1".into());
    ask(format!("--cpus-per-task={}", job.cpus));
    if job.gpus > 0 {
        let kind = slurm.gpu.as_ref().map(|kind| format!("{kind}:"));
        ask(format!(
            "--gpus-per-node={}{}",
            kind.unwrap_or_default(),
            job.gpus
        ));
    }
    if let Some(time) = &slurm.time {
        ask(format!("--time={time}"));
    }
    if let Some(partition) = &slurm.partition {
        ask(format!("--partition={partition}"));
    }
    let limit = slurm.time.as_deref().and_then(seconds);
    let notice = limit.map_or(NOTICE, |limit| NOTICE.min(limit / SHARE).max(1));
    ask(format!("--signal=B:USR1@{notice}"));
    ask("--requeue".into());
    ask("--open-mode=append".into());
    ask(format!("--output={job_name}-%j.log"));
    let names_memory = |option: &String| option.starts_with("mem");
    if let Some(memory) = slurm
        .memory
        .filter(|_| !slurm.options.iter().any(names_memory))
    {
        ask(format!("--mem={memory}G"));
    }
    for option in &slurm.options {
        ask(format!("--{option}"));
    }
    out.push_str(&format!(
        "# Made by `llmtui engine script`. sbatch takes it; {notice} s before the time limit the run saves a checkpoint and the job is\n\
         # requeued, until the run is complete. scancel ends it at a checkpoint, if that is saved within the cluster's KillWait (30 s by\n\
         # default). Tokens belong in the environment, not here.\n\n"
    ));
    out.push_str(&format!(
        ": \"${{SLURM_JOB_ID:?give this script to sbatch}}\"\ncd {} || exit 3\nllmtui=${{LLMTUI:-{}}}\n",
        shell_quote(&slurm.folder),
        shell_quote(&slurm.llmtui)
    ));
    out.push_str(&training(
        job,
        &shell_quote(&slurm.runs_dir),
        "$SLURM_JOB_ID",
    ));
    out.push_str(&again());
    out
}

/// The lines that requeue the job if it ends before the last step.
fn again() -> String {
    format!(
        r#"if [ "$ending" = again ] && {{ [ "$status" -eq 0 ] || [ "$status" -gt 128 ]; }}; then
    if [ "$(ls "$run/checkpoints" 2> /dev/null)" = "$before" ]; then
        echo idle >> "$note.idle"
        if [ "$(wc -l < "$note.idle")" -ge {IDLE} ]; then
            echo "job: no new checkpoint {IDLE} times; use more --time, or a smaller checkpoint.every" >&2
            exit 1
        fi
    else
        rm -f "$note.idle"
    fi
    scontrol requeue "$SLURM_JOB_ID" && exit 0
    echo "job: not requeued; continue with: llmtui engine script $run --slurm" >&2
    exit 1
fi
if [ "$status" -eq 0 ]; then
    echo "job: stopped on request; continue with: llmtui engine script $run --slurm"
fi
exit "$status"
"#
    )
}

/// Seconds of `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS`; `None` for any other format.
pub fn seconds(time: &str) -> Option<u64> {
    let number = |text: &str| -> Option<u64> {
        let digits =
            !text.is_empty() && text.len() <= 6 && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let (days, rest) = match time.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, time),
    };
    let parts: Option<Vec<u64>> = rest.split(':').map(number).collect();
    let [h, m, s] = match (days.is_some(), parts?.as_slice()) {
        (true, [h]) => [*h, 0, 0],
        (true, [h, m]) => [*h, *m, 0],
        (false, [m]) => [0, *m, 0],
        (false, [m, s]) => [0, *m, *s],
        (_, [h, m, s]) => [*h, *m, *s],
        _ => return None,
    };
    // Only the leading number may exceed its unit, as in `48:00:00` and `90`.
    let first = if days.is_some() { 24 } else { u64::MAX };
    let of_minutes = days.is_none() && rest.matches(':').count() < 2;
    let fits = s < 60 && (m < 60 || of_minutes) && h < first;
    if !fits {
        return None;
    }
    Some(days.unwrap_or(0) * 86_400 + h * 3_600 + m * 60 + s).filter(|s| *s > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_slurm_reads_them() {
        let read = ["30", "90:00", "48:02:03", "1-2", "1-02:30", "1-02:30:15"];
        assert_eq!(
            read.map(seconds),
            [
                Some(1_800),
                Some(5_400),
                Some(172_923),
                Some(93_600),
                Some(95_400),
                Some(95_415)
            ]
        );
        for wrong in [
            "",
            "0",
            "1h",
            "-5",
            "1:2:3:4",
            "1-",
            "4:00:00\n",
            "25:99:00",
            "01:00:75",
            "30:60",
            "1-24:00",
            "99999999",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong:?}");
        }
    }
}
