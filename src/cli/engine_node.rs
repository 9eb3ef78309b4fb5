//! `llmtui engine node`: a machine's end of a run that has ranks on several; and the same machines asked by `engine check --nodes`.

use super::exit::{Exit, Failure};
use super::{Context, finding};
use crate::base::clock::{Clock, SystemClock};
use crate::base::files::private_dir;
use crate::base::finding::{Finding, Status};
use crate::base::text::one_line;
use crate::link::signals::{self, Hangup};
use crate::workers::node::{self, Ask, Bridge, Machine, NodeInfo};
use crate::workers::{Environment, WorkerFailure, environment, torch};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// A PyTorch on a cold disk takes its time.
const PATIENCE: Duration = Duration::from_secs(180);

/// Start ranks for an engine on another machine, which calls this over ssh or srun and communicates over standard input and output
#[derive(Debug, clap::Args)]
pub struct NodeArgs {}

pub fn node(_: &NodeArgs, cx: &Context) -> anyhow::Result<Exit> {
    // SLURM signals every step of a job that it cancels or preempts. The engine saves a checkpoint then, for which it needs the
    // ranks: they end with the connection, or by SIGKILL. The signals are caught, not ignored: ranks would inherit that.
    signals::listen(Hangup::Ignore);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    node::serve(&cx.env, &clock, std::io::stdin(), std::io::stdout())
        .map_err(|e| Failure::user_error(e.to_string(), "llmtui engine check --nodes HOST,HOST"))?;
    Ok(Exit::Done)
}

/// Calls every machine and prints what its PyTorch is, or what is wrong.
pub fn check(config: &torch::Config, json: bool, cx: &Context) -> anyhow::Result<Exit> {
    let machines = node::machines(config, &cx.env)
        .map_err(|what| Failure::user_error(what, "--nodes HOST,HOST"))?;
    let errors = cx
        .env
        .runtime_dir
        .join(format!("check-{}", std::process::id()));
    // The folders above it become private, too, where they are new: engines bind their sockets there.
    private_dir(&errors)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let own = std::env::current_exe()?;
    let call = |machine: &Machine| -> Option<Result<Bridge, WorkerFailure>> {
        let line = machine.line(config, &own, &cx.env)?;
        let name = machine.name();
        let errors = errors.join(name.replace('/', "_"));
        let ask = Ask::of(Some(config));
        Some(Bridge::dial(name, &line, &ask, &errors, clock.clone()))
    };
    // All at once: each reads PyTorch from its disk.
    let called: Vec<_> = machines.iter().map(call).collect();
    let findings: Vec<(Finding, Option<NodeInfo>)> = machines
        .iter()
        .zip(called)
        .map(|(machine, bridge)| match bridge {
            None => {
                let found = environment::python(config, &cx.env)
                    .and_then(|python| Environment::ask(&python));
                (Environment::finding(&found), None)
            }
            Some(bridge) => asked(machine, bridge),
        })
        .collect();
    // The connections are over.
    let _ = std::fs::remove_dir_all(&errors);
    let abouts: Vec<Option<NodeInfo>> = findings.iter().map(|(_, about)| about.clone()).collect();
    let mut findings: Vec<Finding> = findings
        .into_iter()
        .zip(&machines)
        .map(|((finding, _), machine)| finding.named("torch", machine.name()))
        .collect();
    if findings.iter().all(passes) {
        findings.push(meeting(config, &machines, &abouts));
    }
    print(&findings, json)?;
    Ok(match findings.iter().all(passes) {
        true => Exit::Done,
        false => Exit::Machine,
    })
}

fn asked(machine: &Machine, bridge: Result<Bridge, WorkerFailure>) -> (Finding, Option<NodeInfo>) {
    let about = bridge.and_then(|mut bridge| bridge.about(PATIENCE, &mut || false));
    match about {
        Ok(about) => {
            let found = Ok(Environment {
                python: about.python.clone(),
                about: about.environment.clone(),
            });
            (Environment::finding(&found), Some(about))
        }
        Err(lost) => {
            // The row is the machine's already.
            let name = format!("{}: ", machine.name());
            let what = lost.what.strip_prefix(&name).unwrap_or(&lost.what);
            let what = match what {
                "" => "it does not answer",
                what => what,
            };
            (Finding::fail(one_line(what), "", lost.kind.hint()), None)
        }
    }
}

fn passes(finding: &Finding) -> bool {
    finding.status == Status::Pass
}

/// Whether their ranks have a place to meet.
fn meeting(config: &torch::Config, machines: &[Machine], abouts: &[Option<NodeInfo>]) -> Finding {
    let finding = match node::address(config, machines, abouts) {
        Ok(address) => Finding::pass(format!(
            "ranks connect to {address}, the first machine; firewalls must let the machines reach each other"
        )),
        Err(what) => Finding::fail(what, "", ""),
    };
    finding.named("address", "meeting")
}

fn print(findings: &[Finding], json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", super::out::json(&findings)?)?;
        return Ok(());
    }
    let width = findings.iter().map(|f| f.title.chars().count()).max();
    let width = width.unwrap_or(0).max(14);
    for found in findings {
        out.write_all(finding::rows(found, width, "").as_bytes())?;
    }
    Ok(())
}
