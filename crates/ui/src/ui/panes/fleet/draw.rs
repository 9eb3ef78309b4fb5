//! The fleet on the screen: a line for each machine, then the runs of all of them.

use super::FleetPane;
use crate::base::clock::{Moment, UnixMillis};
use crate::base::human::{self, grouped};
use crate::base::text::one_line;
use crate::fleet::{EXAMPLE, HostState, HostStatus, Row};
use crate::ui::keymap::Keymap;
use crate::ui::store::short_run;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, muted, word};
use crate::wire::id;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::BTreeMap;
use std::time::Duration;

/// A connected machine that sends nothing is shown as silent after this long.
const SILENT: Duration = Duration::from_secs(30);
/// Columns of a host's and of a run's name, at most.
const HOST: usize = 14;
const RUN: usize = 28;
/// Columns of a curve.
const CURVE: usize = 12;

impl FleetPane {
    /// Draws everything; the places of the rows.
    pub(super) fn draw_all(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        at_now: Moment,
        keymap: &Keymap,
        theme: &Theme,
    ) -> Vec<(usize, Rect)> {
        let inner = Rect {
            x: area.x + 2,
            width: area.width.saturating_sub(4),
            ..area
        };
        let Some(fleet) = &self.fleet else {
            let words = keymap.fill(
                "No other machine is watched. {accept} connects to the machines listed in ~/.config/llmtui/hosts.yaml, as `llmtui fleet` does. Such a file:",
            );
            let words = format!("{words}\n\n{EXAMPLE}");
            text::paragraph(buffer, inner, &words, Meaning::Muted, theme);
            return Vec::new();
        };
        let mut y = inner.y;
        let mut line = |words: &[Word]| {
            if y < inner.bottom() {
                text::draw(buffer, inner.x, y, inner.width, words, theme);
            }
            y += 1;
        };
        for host in &fleet.hosts {
            line(&machine(host, at_now.elapsed, theme));
        }
        line(&[]);
        let rows = fleet.rows(self.sort);
        let widths = widths(&rows);
        let live = rows.iter().filter(|row| row.live()).count();
        line(&[
            word(human::counted(rows.len() as u64, "run"), Meaning::Title),
            muted(format!(", {live} live, {}", self.sort.word())),
        ]);
        let room = usize::from(inner.bottom().saturating_sub(y));
        let at = self.place(fleet).unwrap_or(0);
        self.page = room;
        self.first = self.first.min(at).max((at + 1).saturating_sub(room));
        let mut places = Vec::new();
        for (number, row) in rows.iter().enumerate().skip(self.first).take(room) {
            let words = run_line(row, number == at, widths, at_now.now, theme);
            text::draw(buffer, inner.x, y, inner.width, &words, theme);
            places.push((
                number,
                Rect {
                    y,
                    height: 1,
                    ..inner
                },
            ));
            y += 1;
        }
        places
    }
}

/// Columns of hosts and of runs.
fn widths(rows: &[Row<'_>]) -> (usize, usize) {
    let widest = |of: &dyn Fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or(0);
    (
        widest(&|row| row.host.host.name.chars().count()).min(HOST),
        widest(&|row| short_run(&row.run.id).chars().count()).min(RUN),
    )
}

/// `● gpu-box  3 runs, 2 live  CPU 40 %  GPU 97 %`
fn machine(host: &HostState, elapsed: Duration, theme: &Theme) -> Vec<Word> {
    let glyphs = theme.glyphs();
    let (mark, meaning) = match host.reach {
        HostStatus::Asking => (glyphs.ring, Meaning::Muted),
        HostStatus::Up => (glyphs.ok, Meaning::Good),
        HostStatus::Gone { .. } => (glyphs.bad, Meaning::Bad),
    };
    let name = text::fit(&one_line(&host.host.name), HOST, theme.ascii);
    let mut words = vec![word(format!("{mark} "), meaning), word(format!("{name:<HOST$}"), Meaning::Title)];
    match &host.reach {
        HostStatus::Asking => words.push(muted("  asking")),
        HostStatus::Gone { since, why } => {
            let ago = human::age(elapsed.saturating_sub(*since));
            words.push(word(format!("  unreachable for {ago}"), Meaning::Bad));
            words.push(muted(format!("  {}", one_line(why))));
        }
        HostStatus::Up => {
            let live = host.runs.values().filter(|run| run.is_live()).count();
            let runs = match host.runs.len() {
                1 => "1 run".to_string(),
                n => format!("{n} runs"),
            };
            words.push(muted(format!("  {runs}, {live} live")));
            let silent = elapsed.saturating_sub(host.heard);
            if silent > SILENT {
                words.push(word(format!("  silent for {}", human::age(silent)), Meaning::Warn));
            }
        }
    }
    if let Some(cpu) = host.machine.get(id::machine::CPU) {
        words.push(muted("  CPU "));
        words.push(word(format!("{cpu:.0} %"), Meaning::Text));
    }
    let gpus = host.machine.iter().filter(|(id, _)| id.starts_with(id::machine::GPU) && id.ends_with("/util"));
    // By their numbers: as words `gpu/10` stands before `gpu/2`.
    let number = |id: &str| id.split('/').nth(1).and_then(|n| n.parse().ok());
    let gpus: BTreeMap<u32, f64> = gpus.filter_map(|(id, util)| Some((number(id)?, *util))).collect();
    let gpus: Vec<String> = gpus.values().map(|util| format!("{util:.0}")).collect();
    if !gpus.is_empty() {
        words.push(muted("  GPU "));
        words.push(word(format!("{} %", gpus.join(" ")), Meaning::Text));
    }
    words
}

fn run_line(
    row: &Row<'_>,
    marked: bool,
    (host, name): (usize, usize),
    now: UnixMillis,
    theme: &Theme,
) -> Vec<Word> {
    let glyphs = theme.glyphs();
    let run = row.run;
    let (mark, meaning) = match run.status.as_str() {
        "live" if row.live() => (glyphs.dot, Meaning::Accent),
        "live" => (glyphs.ring, Meaning::Muted),
        "finished" => (glyphs.ok, Meaning::Good),
        "stopped" | "empty" => (glyphs.ring, Meaning::Warn),
        _ => (glyphs.bad, Meaning::Bad),
    };
    let title = if marked { Meaning::Title } else { Meaning::Text };
    let cut = |text: &str, width: usize| text::fit(&one_line(text), width, theme.ascii);
    let pointer = if marked { glyphs.pointer } else { " " };
    let mut words = vec![
        word(format!("{pointer} "), Meaning::Title),
        muted(format!("{:<host$}  ", cut(&row.host.host.name, host))),
        word(format!("{mark} "), meaning),
        word(format!("{:<name$}  ", cut(short_run(&run.id), name)), title),
    ];
    let steps = match run.max_steps {
        0 => grouped(run.step),
        max => format!("{:>3} %", run.step * 100 / max.max(1)),
    };
    words.push(word(format!("{steps:>5}  "), Meaning::Text));
    let time = match run.remaining().filter(|_| row.live()) {
        Some(left) => format!("{} left", human::seconds(left)),
        // As the list is sorted, and as Home has it.
        None => format!("{} ago", human::age(now.since(UnixMillis(run.created)))),
    };
    words.push(muted(format!("{time:>12}  ")));
    if let Some((name, value)) = run.figure() {
        words.push(muted(format!("{name:>6} ")));
        words.push(word(format!("{value:<7.3}  "), Meaning::Text));
    }
    if !theme.ascii {
        words.push(word(format!("{:<CURVE$}  ", theme.glyphs().sparkline(&run.curve, CURVE)), Meaning::Train));
    }
    if let Some(verdict) = &run.verdict {
        let meaning = match verdict.as_str() {
            "LEARNING" | "STABLE" => Meaning::Good,
            "TOO EARLY" => Meaning::Muted,
            _ => Meaning::Warn,
        };
        words.push(word(cut(verdict, 16), meaning));
    }
    words
}

