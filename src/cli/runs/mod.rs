//! `llmtui runs`: the list of runs, their lineage, and runs beside each other.

mod compare;
mod follow;
mod tree;

use super::{
    Context,
    exit::{Exit, Failure},
    out,
    run_ref::RUNS_DIR,
};
use crate::base::clock::{Clock, UnixMillis};
use crate::base::text::{cut_middle, shown};
use crate::base::{human, text::one_line};
use crate::pipeline::PipelineDir;
use crate::run::compare::Alignment;
use crate::run::id::short_run;
use crate::run::index::{self, RunStatus, RunSummary};
use crate::run::state::phase_word;
use crate::wire::{Best, Num, Phase, id};
use std::io::Write;

/// List runs: live ones first, then the newest; as a tree; or compare several
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui runs --tree
  llmtui runs --compare shakespeare shakespeare-2 --by tokens
  llmtui runs --compare mine ../theirs/trainer_state.json --metric val/loss --json")]
pub struct Args {
    /// Print one JSON object per line, runs first, then pipelines
    #[arg(long)]
    pub json: bool,
    /// With --json: keep running and print changes; for `llmtui fleet`
    #[arg(long, requires = "json", conflicts_with_all = ["tree", "compare"])]
    pub follow: bool,
    /// Show which run was started from which, and what each changed
    #[arg(long)]
    pub tree: bool,
    /// Compare runs, or logs of other programs: settings, metrics, curves
    #[arg(long, value_name = "RUN", num_args = 1.., conflicts_with = "tree")]
    pub compare: Vec<String>,
    /// Align curves by this axis
    #[arg(long, value_name = "AXIS", requires = "compare", default_value = "step", value_parser = ["step", "tokens", "time"])]
    pub by: String,
    /// Show the curve of this metric; may be repeated. Default: the losses
    #[arg(long, value_name = "ID", requires = "compare")]
    pub metric: Vec<String>,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    if !args.compare.is_empty() {
        return compare_side_by_side(&args, cx);
    }
    if args.follow {
        return follow::follow(cx);
    }
    let (mut runs, unreadable) = index::list(&cx.runs_dir)
        .map_err(|e| Failure::unwritten(format!("{}: {e}", shown(&cx.runs_dir)), &e, RUNS_DIR))?;
    runs.sort_by_key(|run| run.status != RunStatus::Live);
    for error in &unreadable {
        errln!("llmtui: {error}");
    }
    let pipelines = super::pipeline::list(&cx.runs_dir);
    for (_, error) in PipelineDir::damaged(&cx.runs_dir) {
        errln!("llmtui: {error}");
    }
    let mut out = std::io::stdout().lock();
    if args.tree && !runs.is_empty() {
        let runs: Vec<&RunSummary> = runs.iter().collect();
        if args.json {
            for object in tree::objects(&runs) {
                writeln!(out, "{}", out::json_line(&object)?)?;
            }
        } else {
            out.write_all(tree::text(&runs, !cx.plain(), cx.columns()).as_bytes())?;
        }
        return Ok(Exit::Done);
    }
    if args.json {
        for run in &runs {
            writeln!(out, "{}", out::json_line(run)?)?;
        }
        for pipeline in super::pipeline::objects(&cx.runs_dir) {
            writeln!(out, "{}", out::json_line(&pipeline)?)?;
        }
    } else if runs.is_empty() {
        let folder = shown(&cx.runs_dir);
        match unreadable.len() {
            0 => writeln!(
                out,
                "no runs in {folder}; `llmtui train quickstart` starts one"
            )?,
            1 => writeln!(out, "the only run in {folder} cannot be read")?,
            n => writeln!(out, "none of the {n} runs in {folder} can be read")?,
        }
    } else {
        let text = table(&runs, cx.clock.now(), !cx.plain(), cx.columns());
        out.write_all(text.as_bytes())?;
        if !pipelines.is_empty() {
            write!(out, "\npipelines\n{pipelines}")?;
        }
    }
    Ok(Exit::Done)
}

fn compare_side_by_side(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let by = Alignment::ALL.into_iter().find(|by| by.word() == args.by);
    let by = by.unwrap_or_default();
    let tracks = compare::read(&args.compare, cx)?;
    let figures = crate::run::compare::figures(&tracks);
    let wanted = compare::metrics(&figures, &args.metric)?;
    if args.json {
        let object = compare::object(&tracks, &wanted, by);
        outln!("{}", out::json_line(&object)?)?;
    } else {
        let text = cx.words(compare::text(&tracks, &wanted, by));
        outln!("{}", text.trim_end())?;
    }
    Ok(Exit::Done)
}

/// Method, steps and validation loss in words.
fn rows_of(run: &RunSummary) -> [String; 3] {
    let val = match (run.val_loss, run.pass_at_1) {
        (Some(loss), _) => format!("val {}", human::loss(loss)),
        (None, Some(share)) => format!("pass@1 {share:.4}"),
        (None, None) => "-".into(),
    };
    [one_line(&run.method), steps(run), val]
}

fn steps(run: &RunSummary) -> String {
    match run.max_steps {
        0 => run.step.to_string(),
        max => format!("{}/{max}", run.step),
    }
}

/// Rows of equal columns, the header first:
/// `RUN  STATUS  VERDICT  STEP  EPOCH  LOSS  VAL  BEST  TIME  AGE  CURVE  CHANGED`. Methods on answers of their own have no such
/// losses: there the reward and pass@1 are named in their places. On a terminal of `columns` the least important
/// columns give way, what was changed is cut, and names lose their date; then they are cut in their middle: half a number would
/// be another number. The verdict stays wherever a name of [`SHORTEST_NAME`] columns leaves room for it.
fn table(runs: &[RunSummary], now: UnixMillis, utf8: bool, columns: Option<usize>) -> String {
    let head = [
        "RUN", "STATUS", "VERDICT", "STEP", "EPOCH", "LOSS", "VAL", "BEST", "TIME", "AGE", "CURVE",
        "CHANGED",
    ];
    let mut rows = vec![head.map(String::from)];
    rows.extend(runs.iter().map(|run| row(run, now, utf8)));
    let mut widths = widths_of(&rows);
    let mut shown = [true; N];
    let columns = columns.unwrap_or(usize::MAX);
    let room = columns.saturating_add(2);
    // Curve, best, epoch, training loss, time.
    for least in [10, 7, 4, 5, 8] {
        if needed(&widths, &shown) > room {
            shown[least] = false;
        }
    }
    if needed(&widths, &shown) > room {
        for (row, run) in rows[1..].iter_mut().zip(runs) {
            row[0] = one_line(short_run(&run.id));
        }
        widths = widths_of(&rows);
    }
    if needed(&widths, &shown) > room {
        shown[CHANGED] = false;
    }
    let spared = widths[0].saturating_sub(SHORTEST_NAME);
    if needed(&widths, &shown).saturating_sub(spared) > room {
        shown[VERDICT] = false;
    }
    let over = needed(&widths, &shown).saturating_sub(room);
    if over > 0 {
        widths[0] = widths[0]
            .saturating_sub(over)
            .max(SHORTEST_NAME.min(widths[0]));
        for row in &mut rows {
            row[0] = cut_middle(&row[0], widths[0], if utf8 { "…" } else { "~" });
        }
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Text left-aligned, numbers right-aligned.
            let padded = match column {
                _ if !shown[column] => continue,
                0..=2 | 10 | CHANGED => format!("{cell:<width$}  "),
                _ => format!("{cell:>width$}  "),
            };
            line.push_str(&padded);
        }
        let line: String = line.trim_end().chars().take(columns).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn widths_of(rows: &[[String; N]]) -> [usize; N] {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// Columns that the shown ones take, two between them. What was changed is worth a few, and is cut to what is left.
fn needed(widths: &[usize; N], shown: &[bool; N]) -> usize {
    let least = |i: usize| match i {
        CHANGED => widths[i].min(16),
        i => widths[i],
    };
    (0..N).filter(|i| shown[*i]).map(|i| least(i) + 2).sum()
}

/// Columns, the one of the verdict, and the one of what was changed.
const N: usize = 12;
const VERDICT: usize = 2;
const CHANGED: usize = N - 1;
/// Columns that a run's name keeps in the narrowest terminal.
const SHORTEST_NAME: usize = 12;

/// What a run's request changed of its preset: `from a@500 lr=1e-5 max_steps=60`.
fn changed(run: &RunSummary) -> String {
    let parent = run
        .parent
        .as_ref()
        .map(|p| format!("from {}@{}", p.run, p.step));
    let words: Vec<String> = parent.into_iter().chain(run.changed.clone()).collect();
    one_line(&words.join(" "))
}

fn row(run: &RunSummary, now: UnixMillis, utf8: bool) -> [String; N] {
    let loss = |loss: Option<f64>, word: &str, instead: Option<f64>| match (loss, instead) {
        (Some(loss), _) => human::loss(loss),
        (None, Some(x)) => format!("{word} {x:.4}"),
        (None, None) => "-".into(),
    };
    // After a cold start the loss is one of an earlier step.
    let train_loss = run.train_loss.filter(|_| run.reward.is_none());
    let status = match run.phase {
        _ if run.suspended => "suspended",
        Some(phase @ (Phase::Paused | Phase::Queued)) => phase_word(phase),
        _ => run.status.word(),
    };
    [
        one_line(&run.id),
        status.into(),
        run.verdict.clone().unwrap_or_else(|| "-".into()),
        steps(run),
        run.epochs.map_or("-".into(), human::epochs),
        loss(train_loss, "reward", run.reward),
        loss(run.val_loss, "pass@1", run.pass_at_1),
        best(run).unwrap_or_else(|| loss(run.best_val_loss, "pass@1", run.best_pass_at_1)),
        human::seconds(run.seconds),
        human::age(now.since(run.created)),
        curve(&run.curve, utf8),
        changed(run),
    ]
}

/// The best evaluation. One at another step than the newest may have read fewer rows: a value that is worse than that of the newest
/// would contradict it, so the step stands alone. `None` where the log does not say which it is.
fn best(run: &RunSummary) -> Option<String> {
    let best = run.best_evaluation.as_ref()?;
    let newest = match best.metric.as_str() {
        id::VAL_LOSS => run.val_loss,
        id::PASS_AT_1 => run.pass_at_1,
        _ => return best.brief(),
    };
    let name = match best.metric == id::PASS_AT_1 {
        true => "pass@1 ",
        false => "",
    };
    let number = |value: f64| format!("{name}{value:.4}");
    let newest = newest.map(|value| Best {
        value: Num(value),
        ..best.clone()
    })?;
    Some(match run.evaluated_at == Some(best.step) {
        true => number(newest.value.0),
        false if newest.improves_on(Some(best)) => format!("step {}", best.step),
        false => number(best.value.0),
    })
}

/// Columns of a curve.
const CURVE: usize = 12;

/// A curve in one row; in ASCII the heights are marks of more and more ink.
fn curve(values: &[f64], utf8: bool) -> String {
    const INK: [&str; 8] = [".", ":", "-", "=", "+", "*", "%", "#"];
    human::sparkline(values, CURVE, if utf8 { &human::BARS } else { &INK })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> RunSummary {
        RunSummary {
            id: "2026-11-21-1422-demo-k3qf".into(),
            created_as: "2026-11-21-1422-demo-k3qf".into(),
            name: "demo".into(),
            path: "runs/2026-11-21-1422-demo-k3qf".into(),
            status: RunStatus::Live,
            method: "pretrain".into(),
            step: 40,
            max_steps: 2000,
            n_params: 1,
            train_loss: Some(2.5),
            seconds: 61.0,
            curve: vec![4.0, 3.0, 2.0],
            verdict: Some("LEARNING".into()),
            ..RunSummary::default()
        }
    }

    #[test]
    fn rows_line_up_and_missing_values_are_dashes() {
        let stopped = RunSummary {
            id: "b\x1b[2J".into(),
            path: "runs/b\x1b[2J".into(),
            status: RunStatus::Stopped,
            max_steps: 0,
            val_loss: Some(1.25),
            ..summary()
        };
        let text = table(&[summary(), stopped], UnixMillis(60_000), true, None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("RUN"), "{text}");
        assert!(lines[1].contains("40/2000") && lines[1].contains(" - "));
        assert!(lines[1].ends_with("█▅▁"), "{text}");
        assert!(lines[2].contains("1.2500") && !text.contains('\x1b'));
        let column = |line: &str| line.find("live").or(line.find("stopped"));
        assert_eq!(
            column(lines[1]),
            column(lines[2]).map(|c| c - 1),
            "one · has two bytes"
        );
        assert!(!table(&[summary()], UnixMillis(0), false, None).contains('█'));
    }

    #[test]
    fn runs_on_answers_of_their_own_show_reward_and_pass_at_1() {
        let run = RunSummary {
            method: "grpo".into(),
            reward: Some(0.5),
            pass_at_1: Some(0.75),
            best_pass_at_1: Some(0.875),
            epochs: Some(1.25),
            ..summary()
        };
        let text = table(std::slice::from_ref(&run), UnixMillis(0), true, None);
        for cell in [" 1.25 ", "reward 0.5000", "pass@1 0.7500", "pass@1 0.8750"] {
            assert!(text.contains(cell), "{text}");
        }
        assert!(!text.contains("2.5000"), "of the cold start: {text}");
        assert_eq!(rows_of(&run)[2], "pass@1 0.7500");
    }

    #[test]
    fn the_best_is_that_of_the_reading_that_decides() {
        let best = |metric: &str| crate::wire::Best {
            step: 20,
            metric: metric.into(),
            value: crate::wire::Num(0.8125),
            direction: crate::wire::Direction::Higher,
        };
        let run = |metric: &str| RunSummary {
            val_loss: Some(0.7),
            best_val_loss: Some(0.6),
            best_evaluation: Some(best(metric)),
            ..summary()
        };
        let text = |metric: &str| table(&[run(metric)], UnixMillis(0), true, None);
        let dpo = text("val/rewards/accuracies");
        assert!(
            dpo.contains(" accuracies 0.8125 ") && !dpo.contains("0.6000"),
            "{dpo}"
        );
        // 0.8125 of a part at step 20, 0.7 over the whole split at the end.
        let listed = |at, value| {
            let lowest = Best {
                value: Num(value),
                direction: crate::wire::Direction::Lower,
                ..best("val/loss")
            };
            super::best(&RunSummary {
                best_evaluation: Some(lowest),
                evaluated_at: Some(at),
                ..run("val/loss")
            })
        };
        assert_eq!(listed(20, 0.8125).as_deref(), Some("0.7000"));
        assert_eq!(listed(40, 0.8125).as_deref(), Some("step 20"));
        assert_eq!(listed(40, 0.65).as_deref(), Some("0.6500"));
    }

    #[test]
    fn the_tree_says_the_same_to_scripts_as_to_people() {
        let best = Best {
            step: 20,
            metric: "val/rewards/accuracies".into(),
            value: Num(0.8125),
            direction: crate::wire::Direction::Higher,
        };
        let run = RunSummary {
            best_evaluation: Some(best),
            ..summary()
        };
        let text = tree::text(&[&run], true, None);
        for words in ["40/2000", "best accuracies 0.8125", "LEARNING"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        // The only evaluation is the best one: it stands once.
        let passed = RunSummary {
            val_loss: None,
            pass_at_1: Some(0.25),
            best_evaluation: run.best_evaluation.clone().map(|best| Best {
                metric: id::PASS_AT_1.into(),
                value: Num(0.25),
                ..best
            }),
            ..run.clone()
        };
        let text = tree::text(&[&passed], true, None);
        assert_eq!(text.matches("pass@1 0.2500").count(), 1, "{text}");
        let json = &tree::objects(&[&run])[0];
        assert_eq!(
            (&json["step"], &json["max_steps"]),
            (&40.into(), &2000.into())
        );
        assert_eq!(json["verdict"], "LEARNING");
        assert_eq!(json["best_evaluation"]["metric"], "val/rewards/accuracies");
    }

    #[test]
    fn long_names_are_cut_before_numbers_are() {
        let run = RunSummary {
            id: "2026-11-21-1422-a-very-long-name-for-a-run-of-someones-k3qf".into(),
            path: "runs/2026-11-21-1422-a-very-long-name-for-a-run-of-someones-k3qf".into(),
            step: 2000,
            val_loss: Some(1.2512),
            ..summary()
        };
        let text = table(std::slice::from_ref(&run), UnixMillis(0), true, Some(60));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        for cell in ["-k3qf ", " LEARNING ", " 2000/2000 ", " 1.2512 "] {
            assert!(lines[1].contains(cell), "{text}");
        }
        assert!(
            lines[0].contains(" VAL ") && lines[0].ends_with("AGE"),
            "{text}"
        );
        let ascii = table(&[run], UnixMillis(0), false, Some(60));
        assert!(ascii.contains("~") && ascii.contains("-k3qf "), "{ascii}");
    }

    #[test]
    fn a_narrow_terminal_gets_short_rows_and_what_was_changed() {
        let run = || RunSummary {
            changed: vec!["lr=1e-5".into(), "max_steps=60".into()],
            ..summary()
        };
        let wide = table(&[run()], UnixMillis(0), true, None);
        assert!(wide.contains("CHANGED") && wide.contains("lr=1e-5 max_steps=60"));
        for columns in [60, 80, 100, 120] {
            let text = table(&[run(), run()], UnixMillis(0), true, Some(columns));
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns}:\n{text}");
            assert!(text.contains("STEP") && text.contains("VAL"), "{text}");
            assert!(text.contains("VERDICT"), "{text}");
        }
        let text = table(&[run()], UnixMillis(0), true, Some(100));
        assert!(text.contains("lr=1e-5"), "{text}");
    }

    #[test]
    fn flat_and_empty_curves_draw() {
        assert_eq!(curve(&[], true), "");
        assert_eq!(curve(&[2.0, 2.0], true), "▄▄");
        assert_eq!(curve(&[1.0, 2.0, 3.0], false), ".+#");
        let long: Vec<f64> = (0..24).map(|i| f64::from(24 - i)).collect();
        assert_eq!(curve(&long, true).chars().count(), 12);
        assert!(curve(&long, true).starts_with('█') && curve(&long, true).ends_with('▁'));
    }
}
