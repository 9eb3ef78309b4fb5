//! `llmtui watch`: runs that other programs started, by their logs. Nothing is written there.

use super::diagnose;
use super::exit::{Exit, Failure};
use super::progress::Progress;
use super::subject::{LogArgs, no_readings, not_yet};
use super::{Context, workbench};
use crate::base::clock::{Clock, SystemClock, UnixMillis};
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::diagnosis::diagnose;
use crate::link::{Incoming, Link, foreign};
use crate::run::state::MarkKind;
use crate::run::{RunDir, RunState, Series};
use crate::ui::StartView;
use crate::watch::{CALLBACK, ExternalRun, FORMATS, Found, Mapping, expected};
use crate::wire::encode;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Columns of a metric's name.
const NAME: usize = 28;
/// A log that grows is written more often.
const SILENCE: Duration = Duration::from_secs(60);

/// Watch a run that another program trains: charts and diagnosis from its logs
///
/// Reads logs of Hugging Face Trainer, TRL, TensorBoard, Weights & Biases (offline), Lightning, nanochat, torchtitan and others,
/// and follows them as they grow. Writes nothing there and never opens pickles. Without a terminal: prints a summary. Exit codes:
/// 0, or 4 if a finding fails.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A log, or a folder (its newest log)
    #[arg(value_name = "PATH", required_unless_present_any = ["callback", "list"])]
    pub path: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
    /// Print a summary instead of opening the workbench
    #[arg(long)]
    pub headless: bool,
    /// Print events, one JSON object per line (implies --headless)
    #[arg(long)]
    pub json: bool,
    /// Without the workbench: follow until the run ends; waits for the first step if there is none yet
    #[arg(long)]
    pub follow: bool,
    /// Print a callback that makes a Hugging Face trainer write a live log: 30 lines of Python
    #[arg(long)]
    pub callback: bool,
    /// List the formats
    #[arg(long)]
    pub list: bool,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    if args.callback {
        std::io::stdout().lock().write_all(CALLBACK.as_bytes())?;
        return Ok(Exit::Done);
    }
    let Some(path) = args.path.as_ref().filter(|_| !args.list) else {
        for format in FORMATS {
            outln!("{:14} {}", format.entry.id, format.entry.summary)?;
        }
        return Ok(Exit::Done);
    };
    if let Ok(run) = RunDir::open(path) {
        let what = format!("{} is a run of llmtui", shown(path));
        return Err(
            Failure::user_error(what, format!("llmtui attach {}", shown(run.path()))).into(),
        );
    }
    let mapping = args.log.mapping()?;
    let terminal = cx.stdin_is_terminal && cx.stdout_is_terminal;
    let opens = terminal && !args.headless && !args.json;
    let found = match args.log.find(path) {
        Ok(found) => found,
        // A run that has not come to its first step is waited for.
        Err(failure) => match expected(path) {
            Some(found) if args.follow && args.log.format.is_none() => found,
            Some(found) if found.named => return Err(not_yet(&found).into()),
            _ => return Err(failure.into()),
        },
    };
    let mut watched =
        ExternalRun::open(found.clone(), mapping.clone(), Box::new(SystemClock::new()));
    let link = foreign(move || watched.poll().map(|news| (news.events, news.more)));
    if opens {
        return workbench::open(StartView::Foreign(found.path, link), cx);
    }
    print(link, &found, &mapping, &args, cx)
}

/// What there is, and with `--follow` what comes.
fn print(
    mut link: Link,
    found: &Found,
    mapping: &Mapping,
    args: &Args,
    cx: &Context,
) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    let mut progress = Progress::new();
    let mut live = false;
    loop {
        match link.blocking_recv() {
            Incoming::Event(envelope) => {
                let lines = progress.lines_for(&envelope);
                if args.json {
                    out.write_all(encode(&*envelope).as_bytes())?;
                } else if live {
                    for line in lines {
                        writeln!(out, "{}", cx.words(line))?;
                    }
                }
                if live && progress.state().finished.is_some() {
                    break;
                }
            }
            Incoming::CaughtUp => {
                live = true;
                // What is followed may have it later.
                if let Some(what) = mapping.missing().filter(|_| !args.follow) {
                    return Err(Failure::user_error(
                        what,
                        "--map OURS=THEIRS names a column of the log",
                    )
                    .into());
                }
                if !args.json {
                    let text = summary(progress.state(), found, cx.clock.now(), cx.columns());
                    out.write_all(text.as_bytes())?;
                }
                if !args.follow || progress.state().finished.is_some() {
                    break;
                }
            }
            Incoming::Closed(Some(why)) => return Err(Failure::machine(why, "").into()),
            Incoming::Closed(None) => break,
        }
        out.flush()?;
    }
    if progress.state().series.is_empty() {
        return Err(no_readings(found).into());
    }
    Ok(match diagnose(progress.state()).failed() {
        true => Exit::Training,
        false => Exit::Done,
    })
}

/// ```text
/// hf (trainer_state): finished at step 60 of 60
/// metric             last    lowest   readings
/// train/loss       0.8124    0.8124         12
/// warning: kl: 3 of 12 readings are not finite (NaN or infinite), the first at step 40
///
/// LEARNING  train loss 4.15 → 1.76, val 1.88
/// ```
fn summary(state: &RunState, found: &Found, now: UnixMillis, columns: Option<usize>) -> String {
    let of = state.head.as_ref().filter(|head| head.max_steps > 0);
    let of = of.map_or(String::new(), |head| {
        format!(" of {}", human::grouped(head.max_steps))
    });
    // A tracker's own run name is more informative than its folder.
    let name = state.head.as_ref().map_or(&found.name, |head| &head.name);
    let mut text = format!(
        "{} ({}): {} at step {}{of}{}\n{}\n",
        one_line(name),
        found.format.entry.id,
        state.word(),
        human::grouped(state.step),
        silent(state, now),
        shown(&found.path),
    );
    if found.others > 0 {
        text.push_str(&format!(
            "the newest of {} runs there; name another's folder to see it\n",
            found.others + 1
        ));
    }
    let ids = state.metrics.iter().map(|metric| metric.id.as_str());
    let rows: Vec<String> = ids
        .filter_map(|id| {
            let series = state.series.get(id)?;
            let all = series
                .columns(0.0, f64::MAX, 1)
                .into_iter()
                .flatten()
                .next()?;
            let unit = state.metric(id).map_or("", |info| info.unit.as_str());
            let said = |x: f64| human::reading(x, unit);
            // Of no finite value there is neither a lowest nor a highest.
            let extreme = |x: f64| match all.n {
                0 => "-".to_string(),
                _ => said(x),
            };
            Some(format!(
                "{:NAME$} {:>10} {:>10} {:>10} {:>9}\n",
                one_line(id),
                said(series.last()?.value),
                extreme(all.min),
                extreme(all.max),
                human::grouped(series.len()),
            ))
        })
        .collect();
    if !rows.is_empty() {
        let (last, low, high, n) = ("last", "lowest", "highest", "readings");
        text.push_str(&format!(
            "\n{:NAME$} {last:>10} {low:>10} {high:>10} {n:>9}\n",
            "metric"
        ));
        text.extend(rows);
        let ids = state.metrics.iter().map(|metric| metric.id.as_str());
        text.extend(ids.filter_map(|id| not_finite(id, state.series.get(id)?)));
    }
    let notes = state
        .marks
        .iter()
        .filter(|mark| mark.kind == MarkKind::Note);
    for note in notes.rev().take(3) {
        text.push_str(&format!("note: {}\n", note.text));
    }
    for warning in state
        .log
        .iter()
        .filter(|line| line.level == crate::run::state::Level::Warn)
        .take(5)
    {
        text.push_str(&format!("warning: {}\n", warning.text));
    }
    text.push('\n');
    text.push_str(&diagnose::table(&diagnose(state), columns));
    text
}

/// Since when nothing was written, of a log that does not say that its run is over: it may be.
fn silent(state: &RunState, now: UnixMillis) -> String {
    let silence = now.since(state.moved_t);
    let known = state.running() && state.moved_t != UnixMillis::default();
    match known && silence >= SILENCE {
        true => format!(", last written {} ago", human::age(silence)),
        false => String::new(),
    }
}

/// Which series has readings that are no numbers, how many, and since when.
fn not_finite(id: &str, series: &Series) -> Option<String> {
    let at = match series.first_non_finite()? {
        (first, last) if first == last => format!("at step {}", human::grouped(first)),
        (first, last) => format!(
            "between steps {} and {}",
            human::grouped(first),
            human::grouped(last)
        ),
    };
    let (odd, all) = (series.non_finite(), series.len());
    let rest = match odd == all {
        true => "",
        false => "; lowest and highest are of the finite ones",
    };
    Some(format!(
        "warning: {}: {} of {} readings are not finite (NaN or infinite), the first {at}{rest}\n",
        one_line(id),
        human::grouped(odd),
        human::grouped(all),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Envelope, Event, VERSION};

    #[test]
    fn a_run_is_called_as_its_tracker_calls_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("run-abc.jsonl");
        std::fs::write(&log, "{\"step\": 1, \"loss\": 2.5}\n").unwrap();
        let found = crate::watch::find(&log, None).unwrap();
        let started = Event::Started {
            name: "hf-demo".into(),
            method: "jsonl".into(),
            spec: serde_json::json!({}),
            n_params: 0,
            vocab_size: 0,
            max_steps: 0,
            batch_tokens: 0,
            epoch_tokens: 0,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        };
        let event = Envelope {
            v: VERSION,
            seq: 1,
            t: Default::default(),
            event: started,
        };
        let named = summary(
            &RunState::from_events(&[event]),
            &found,
            UnixMillis::default(),
            None,
        );
        assert!(named.starts_with("hf-demo (jsonl): "), "{named}");
        let plain = summary(&RunState::new(), &found, UnixMillis::default(), None);
        assert!(plain.starts_with("run-abc (jsonl): "), "{plain}");
    }

    /// "training at step 2,000" was said of a run whose log had been silent since it ended.
    #[test]
    fn a_log_that_is_silent_says_since_when() {
        let at = |t: u64, event: Event| Envelope {
            v: VERSION,
            seq: t,
            t: UnixMillis(1_000 * t),
            event,
        };
        let training = Event::PhaseChanged {
            phase: crate::wire::Phase::Training,
            step: 0,
        };
        let stepped = Event::Stepped {
            step: 1,
            tokens: 1,
            values: Default::default(),
        };
        let state = RunState::from_events(&[at(1, training), at(2, stepped)]);
        assert_eq!(silent(&state, UnixMillis(30_000)), "");
        assert_eq!(
            silent(&state, UnixMillis(2_000 + 12 * 60_000)),
            ", last written 12 min ago"
        );
    }
}
