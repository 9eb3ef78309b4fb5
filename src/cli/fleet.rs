//! `llmtui fleet`: the runs of several machines in one list.

use super::exit::{Exit, Failure};
use super::{Context, workbench};
use crate::base::clock::Clock;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::fleet::{EXAMPLE, FILE, Fleet, Host, HostConnection, HostStatus, Row, Sort};
use crate::ui::StartView;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

/// Time that machines have to answer without a terminal.
const PATIENCE: Duration = Duration::from_secs(20);
/// News of machines that wait to be read; a connection waits with the next.
const QUEUED: usize = 64;

/// Watch the runs of several machines in one list
///
/// Queries each machine with the system's ssh, its agent and configuration; llmtui must be installed there. Enter opens a run, also
/// over ssh. Without a terminal: prints a table and exits.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui fleet
  llmtui fleet --hosts lab.yaml --once
  llmtui fleet --json | jq 'select(.status == \"live\")'

The file of hosts, ~/.config/llmtui/hosts.yaml unless --hosts names another:
  hosts:
    - me@gpu-box                   # as after `ssh`
    - name: lab
      ssh: lab.example.org
      program: ~/bin/llmtui
      runs_dir: /data/runs
    - {name: here, local: true}    # this machine")]
pub struct Args {
    /// The file of hosts
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Print a table of the current runs and exit
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object per run, with its host, and exit
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let hosts = hosts(args, cx)?;
    let terminal = cx.stdin_is_terminal && cx.stdout_is_terminal;
    if terminal && !args.once && !args.json {
        let here = |host: Host| host.with_runs_here(&cx.runs_dir);
        let hosts = hosts.into_iter().map(here).collect();
        return workbench::open(StartView::Fleet(hosts), cx);
    }
    let fleet = ask(hosts, cx)?;
    let mut out = std::io::stdout().lock();
    match args.json {
        true => {
            for row in fleet.rows(Sort::Newest) {
                let mut object = serde_json::to_value(row.run)?;
                object["host"] = row.host.host.name.as_str().into();
                writeln!(out, "{}", super::out::json_line(&object)?)?;
            }
        }
        false => out.write_all(table(&fleet, cx).as_bytes())?,
    }
    let mut gone = false;
    for host in &fleet.hosts {
        match &host.reach {
            HostStatus::Gone { why, .. } => {
                errln!("llmtui: {}: {}", one_line(&host.host.name), one_line(why))
            }
            HostStatus::Asking => errln!(
                "llmtui: {}: no answer within {} s",
                one_line(&host.host.name),
                PATIENCE.as_secs()
            ),
            HostStatus::Up => continue,
        }
        gone = true;
    }
    Ok(if gone { Exit::Machine } else { Exit::Done })
}

/// The file that is named, else the user's own.
fn hosts(args: &Args, cx: &Context) -> anyhow::Result<Vec<Host>> {
    let own = cx.env.config_dir.as_ref().map(|dir| dir.join(FILE));
    let Some(path) = args.hosts.clone().or(own) else {
        return Err(Failure::user_error(
            "no settings folder is known",
            "llmtui fleet --hosts FILE",
        )
        .into());
    };
    if !path.exists() && path.with_extension("yml").is_file() && args.hosts.is_none() {
        let what = format!(
            "{} is not read: its name ends in .yml",
            shown(&path.with_extension("yml"))
        );
        return Err(Failure::user_error(what, "rename it to hosts.yaml").into());
    }
    if !path.exists() {
        let what = format!(
            "{} does not exist; such a file lists the machines:\n{EXAMPLE}",
            shown(&path)
        );
        return Err(
            Failure::user_error(what, "use another file: llmtui fleet --hosts FILE").into(),
        );
    }
    Host::read(&path, cx.env.home.as_deref()).map_err(|e| {
        Failure::user_error(e.to_string(), "llmtui fleet --help shows an example").into()
    })
}

/// What there is now: each machine until it has listed all its runs or cannot be asked.
fn ask(hosts: Vec<Host>, cx: &Context) -> anyhow::Result<Fleet> {
    let own = std::env::current_exe()?;
    let (sender, heard) = mpsc::sync_channel(QUEUED);
    let mut connections = Vec::new();
    for (at, host) in hosts.iter().enumerate() {
        let connection = HostConnection::new(
            host.clone().with_runs_here(&cx.runs_dir),
            own.clone(),
            &cx.env,
        );
        connections.push(connection.clone());
        let sender = sender.clone();
        let clock = crate::base::clock::SystemClock::new();
        std::thread::spawn(move || {
            connection.watch(&clock, |said| sender.send((at, said)).is_ok())
        });
    }
    let mut fleet = Fleet::new(hosts, cx.clock.elapsed());
    let begun = cx.clock.elapsed();
    while !fleet.settled() {
        let left = PATIENCE.saturating_sub(cx.clock.elapsed() - begun);
        match heard.recv_timeout(left) {
            Ok((at, said)) => fleet.apply(at, said, cx.clock.elapsed()),
            Err(_) => break,
        }
    }
    connections.iter().for_each(HostConnection::disconnect);
    Ok(fleet)
}

fn table(fleet: &Fleet, cx: &Context) -> String {
    let head = [
        "HOST", "RUN", "STATUS", "VERDICT", "STEP", "LOSS", "VAL", "LEFT",
    ]
    .map(String::from);
    let mut rows = vec![head];
    rows.extend(fleet.rows(Sort::Newest).iter().map(cells));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..8).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let padded =
            row.iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0..=3 => format!("{cell:<width$}  "),
                    _ => format!("{cell:>width$}  "),
                });
        let line: String = padded.collect();
        let line: String = line
            .chars()
            .take(cx.columns().unwrap_or(usize::MAX))
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn cells(row: &Row<'_>) -> [String; 8] {
    let run = row.run;
    let loss = |x: Option<f64>, word: &str, instead: Option<f64>| match (x, instead) {
        (Some(x), _) => human::loss(x),
        (None, Some(x)) => format!("{word} {x:.4}"),
        (None, None) => "-".into(),
    };
    // After a cold start the loss is one of an earlier step.
    let train_loss = run.train_loss.filter(|_| run.reward.is_none());
    let left = run.remaining().filter(|_| row.live());
    [
        one_line(&row.host.host.name),
        one_line(&run.id),
        one_line(&run.status),
        one_line(run.verdict.as_deref().unwrap_or("-")),
        match run.max_steps {
            0 => run.step.to_string(),
            n => format!("{}/{n}", run.step),
        },
        loss(train_loss, "reward", run.reward),
        loss(run.val_loss, "pass@1", run.pass_at_1),
        left.map_or("-".into(), human::seconds),
    ]
}
