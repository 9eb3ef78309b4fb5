//! A benchmark of planted faults: small models trained with one thing wrong each, and healthy ones for comparison. The rules must
//! name what is wrong soon after it shows, and must not fire on healthy runs. `cargo long --test planted` runs it;
//! LLMTUI_UPDATE_DOCS=1 renews its table in docs/diagnosis.md.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "planted/histories.rs"]
mod histories;
#[path = "planted/plans.rs"]
mod plans;
#[path = "planted/world.rs"]
mod world;

use llmtui::base::finding::Status;
use llmtui::diagnosis::Diagnosis;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const VOCAB: u64 = 48;
const SEQ_LEN: usize = 32;
const ROWS: usize = 8;
const MICRO: usize = 4;
const LAYERS: usize = 4;
const STEPS: u64 = 500;
/// Steps of each healthy run: more than 10,000 in total.
const HEALTHY_STEPS: u64 = 1_100;
/// A rule is in time if it fires within this many steps after the fault shows.
const SOON: u64 = 100;
/// The step at which late faults begin.
const LATE: u64 = 200;
/// Steps between two evaluations of the rules.
const CHECK_INTERVAL: u64 = 10;

/// A run of the benchmark: its name, the rules of which one has to fire, and when each fired first.
struct Row {
    name: String,
    expected: Vec<&'static str>,
    found: BTreeMap<String, u64>,
    /// The step from which the fault is detectable.
    shows: u64,
    /// Readings on the way, where they are asked for.
    trace: Vec<String>,
}

/// Trains all of them, two at a time.
fn trained() -> Vec<Row> {
    // PLANTED="dropout 0.7|six batches repeated" trains only these and prints what rules see, for work on a rule.
    let wanted = std::env::var_os("PLANTED")
        .unwrap_or_default()
        .into_string()
        .unwrap();
    let named =
        |plan: &plans::Plan| wanted.is_empty() || wanted.split('|').any(|part| plan.name == part);
    let plans: Vec<plans::Plan> = plans::plans().into_iter().filter(named).collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((at, plan)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|at| Some((at, plans.get(at)?)))
                {
                    let seen = world::train(plan);
                    let row = Row {
                        name: plan.name.into(),
                        expected: plan.expected.to_vec(),
                        found: seen.found,
                        shows: seen.shows,
                        trace: seen.trace,
                    };
                    rows.lock().unwrap().push((at, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap();
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// A report whose findings do not advise opposite learning rates.
fn agreeing(report: Diagnosis) -> Diagnosis {
    let advises = |words: &[&str]| {
        let wrong = report.findings.iter().filter(|f| f.status <= Status::Warn);
        let mut fixes = wrong.map(|f| &f.fix);
        fixes.any(|fix| words.iter().any(|words| fix.contains(words)))
    };
    let raise = advises(&["raise the learning rate", "higher learning rate"]);
    let lower = advises(&[
        "lower the learning rate",
        "lower learning rate",
        "smaller learning rate",
    ]);
    assert!(!(raise && lower), "{report:#?}");
    report
}

const BEGIN: &str = "<!-- faults -->\n";

#[test]
#[ignore = "trains fifty small models: cargo long --test planted"]
fn planted_faults_are_named_without_false_alarms() {
    let mut table = String::from(
        "| planted | expected | shows from | named | at step | others that spoke |\n|---|---|---|---|---|---|\n",
    );
    let (mut named, mut faults, mut alarms) = (0, 0, Vec::new());
    let mut late = Vec::new();
    for row in trained().into_iter().chain(histories::rows()) {
        row.trace.iter().for_each(|line| println!("{line}"));
        let hits = row
            .expected
            .iter()
            .filter_map(|id| Some((*id, *row.found.get(*id)?)));
        let hit = hits.min_by_key(|(_, step)| *step);
        let others: Vec<&str> = row
            .found
            .keys()
            .map(String::as_str)
            .filter(|id| !row.expected.contains(id))
            .collect();
        if row.expected.is_empty() {
            alarms.extend(
                row.found
                    .iter()
                    .map(|(id, step)| format!("{}: {id} at {step}", row.name)),
            );
        } else {
            faults += 1;
            let soon = hit.is_some_and(|(_, step)| step <= row.shows + SOON);
            named += u32::from(soon);
            if !soon {
                late.push(format!("{} ({:?})", row.name, hit.map(|(_, step)| step)));
            }
        }
        let shows = match row.expected.is_empty() {
            true => "–".to_string(),
            false => row.shows.to_string(),
        };
        let (id, step) = hit.map_or(("–".to_string(), "–".to_string()), |(id, step)| {
            (format!("`{id}`"), step.to_string())
        });
        let expected: Vec<String> = row.expected.iter().map(|id| format!("`{id}`")).collect();
        let expected = if expected.is_empty() {
            "silence".into()
        } else {
            expected.join(" or ")
        };
        let line = format!(
            "| {} | {expected} | {shows} | {id} | {step} | {} |",
            row.name,
            others.join(", ")
        );
        println!("{line}");
        let _ = writeln!(table, "{line}");
    }
    println!(
        "{named} of {faults} named within {SOON} steps; late or not: {late:?}; false alarms: {alarms:?}"
    );
    if std::env::var_os("LLMTUI_UPDATE_DOCS").is_some() && std::env::var_os("PLANTED").is_none() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/diagnosis.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = page.split_once(BEGIN).unwrap();
        let tail = rest.split_once("\n\n").map_or("", |(_, tail)| tail);
        std::fs::write(&path, format!("{head}{BEGIN}{table}\n{tail}")).unwrap();
    }
    // Fewer than one in 10,000 steps.
    let steps = plans::healthy_steps();
    assert!(
        10_000 * alarms.len() as u64 <= steps,
        "{alarms:?} in {steps} steps"
    );
    assert!(10 * named >= 9 * faults, "{named} of {faults}");
}

/// The short histories are checked in every test run.
#[test]
fn made_up_histories_are_named_without_false_alarms() {
    for row in histories::rows() {
        let hit = row.expected.iter().any(|id| row.found.contains_key(*id));
        assert_eq!(
            hit,
            !row.expected.is_empty(),
            "{}: {:?}",
            row.name,
            row.found
        );
        assert!(
            !row.expected.is_empty() || row.found.is_empty(),
            "{}: {:?}",
            row.name,
            row.found
        );
    }
}
