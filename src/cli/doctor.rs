//! `llmtui doctor`: is this machine fit to train on? Read-only.

use super::{
    Context,
    exit::{Exit, Failure},
    finding,
};
use crate::base::files::write_new;
use crate::base::text::one_line;
use crate::hardware::doctor::{Finding, Status, examine};
use crate::hardware::machine::Machine;
use crate::hardware::{Live, Provider, Recorded, Recording};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Columns of a title.
const TITLE: usize = 28;

/// Check this machine for problems that would affect training; read-only
///
/// Exit codes: 0 if nothing fails, 3 if something fails.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the findings as JSON: [{id, title, status, evidence, cause, fix, expected, …}]
    #[arg(long)]
    pub json: bool,
    /// Also list checks that pass or do not apply
    #[arg(long)]
    pub all: bool,
    /// Also record this machine to FILE, for use with --hardware; never overwrites
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Measure write speed on the runs disk: writes 256 MiB, then deletes them
    #[arg(long)]
    pub measure: bool,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let machine = machine(&args, cx)?;
    if let Some(path) = &args.record {
        record(&machine, path)?;
    }
    let findings = examine(&machine);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", super::out::json(&findings)?)?;
    } else {
        let text = cx.words(table(&machine, &findings, args.all, cx.columns()));
        out.write_all(text.as_bytes())?;
    }
    let failed = findings.iter().any(|f| f.status == Status::Fail);
    Ok(if failed { Exit::Machine } else { Exit::Done })
}

fn machine(args: &Args, cx: &Context) -> anyhow::Result<Machine> {
    if let Some(recording) = cx.recording()? {
        if args.measure {
            let what = "--measure writes to this machine's disk, but --hardware selects a recorded machine";
            return Err(Failure::user_error(what, "drop one of them").into());
        }
        return Ok(Recorded::new(recording).machine());
    }
    let mut live = Live::new(&cx.env)
        .with_runs_in(&cx.runs_dir)
        .with_terminal(cx.stdin_is_terminal && cx.stdout_is_terminal);
    let mut machine = live.machine();
    if args.measure {
        let speed = live.write_speed(&machine);
        if let Some(disk) = machine.disks.iter_mut().find(|d| d.holds_runs) {
            disk.write_speed = speed;
        }
    }
    Ok(machine)
}

fn record(machine: &Machine, path: &std::path::Path) -> anyhow::Result<()> {
    let recording = Recording {
        machine: machine.clone(),
        readings: BTreeMap::new(),
    };
    write_new(path, recording.to_json().as_bytes(), 0o666)
        .map_err(|e| Failure::not_written(path, &e).into())
}

/// ```text
/// atlas · AMD EPYC 9654 (32 cores, AVX-512 with bf16) · 231 of 256 GiB free · 1 × NVIDIA H100 80GB HBM3
///
/// FAIL     Clocks are not held back      GPU 0: too hot (hardware)
///          why   the hardware protects itself …
///          fix   check fans, airflow, dust
/// ```
fn table(machine: &Machine, findings: &[Finding], all: bool, columns: Option<usize>) -> String {
    let mut text = format!("{}\n\n", head(machine));
    for finding in findings {
        if finding.status < Status::Pass || all {
            text.push_str(&finding::rows_in(finding, TITLE, "", columns));
        }
    }
    if all || findings.iter().any(|f| f.status < Status::Pass) {
        text.push('\n');
    }
    text.push_str(&finding::tally(findings));
    if !all {
        text.push_str("   (--all shows every check)");
    }
    text.push('\n');
    text
}

fn head(machine: &Machine) -> String {
    one_line(&machine.in_one_line())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(status: Status) -> Finding {
        Finding {
            status,
            ..Finding::fail("seen\x1b[2J", "because", "do this").named("x", "A check")
        }
    }

    #[test]
    fn troubles_are_shown_with_cause_and_fix_and_the_rest_is_counted() {
        let findings = [finding(Status::Fail), finding(Status::Pass)];
        let text = table(&Machine::default(), &findings, false, None);
        assert!(text.contains("FAIL     A check"), "{text}");
        assert!(text.contains("why   because") && text.contains("fix   do this"));
        assert!(text.contains("1 fail · 1 pass"), "{text}");
        assert_eq!(text.matches("A check").count(), 1);
        assert_eq!(
            table(&Machine::default(), &findings, true, None)
                .matches("A check")
                .count(),
            2
        );
        assert!(!text.contains('\x1b'));
    }
}
