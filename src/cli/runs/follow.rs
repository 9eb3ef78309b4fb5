//! `llmtui runs --json --follow`: what changes among the runs here, line by line, for a fleet.

use crate::base::clock::pause;
use crate::base::text::shown;
use crate::cli::Context;
use crate::cli::exit::Exit;
use crate::fleet::{FleetMessage, Machine, Run, VERSION, encode};
use crate::hardware::{Live, Provider};
use crate::run::index;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(2);
/// Polls without changes after which a heartbeat is sent; it also detects whether the reader is gone.
const QUIET: u32 = 3;

/// Runs until the reader is gone.
pub fn follow(cx: &Context) -> anyhow::Result<Exit> {
    let mut provider = Live::new(&cx.env).with_runs_in(&cx.runs_dir);
    let mut told: BTreeMap<String, Run> = BTreeMap::new();
    let mut out = std::io::stdout().lock();
    let begin = FleetMessage::Begin {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").into(),
    };
    out.write_all(encode(&begin).as_bytes())?;
    let mut quiet = QUIET;
    loop {
        let (runs, _) = index::list(&cx.runs_dir)
            .map_err(|e| anyhow::Error::new(e).context(shown(&cx.runs_dir)))?;
        let mut now = BTreeMap::new();
        for summary in &runs {
            // The same words as `runs --json`, of which a list needs a part.
            let run: Run = serde_json::from_value(serde_json::to_value(summary)?)?;
            now.insert(run.id.clone(), run);
        }
        let mut changed = false;
        for (id, run) in &now {
            if told.get(id) != Some(run) {
                out.write_all(
                    encode(&FleetMessage::Run {
                        run: Box::new(run.clone()),
                    })
                    .as_bytes(),
                )?;
                changed = true;
            }
        }
        for id in told.keys().filter(|id| !now.contains_key(*id)) {
            out.write_all(encode(&FleetMessage::Gone { id: id.clone() }).as_bytes())?;
            changed = true;
        }
        told = now;
        quiet += 1;
        if changed || quiet > QUIET {
            quiet = 0;
            let machine = readings(&mut provider);
            out.write_all(encode(&FleetMessage::Beat { machine }).as_bytes())?;
        }
        out.flush()?;
        pause(EVERY);
    }
}

fn readings(provider: &mut dyn Provider) -> Machine {
    let values = provider.sample().into_iter();
    values
        .filter(|(_, value)| value.0.is_finite())
        .map(|(id, value)| (id, value.0))
        .collect()
}
