//! Home on the screen: presets above, runs below.

use super::{HomePane, HomeRow};
use super::list::{Listed, stage_mark};
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::diagnosis::Verdict;
use crate::run::index::{RunStatus, RunSummary};
use crate::run::lineage::find_parent;
use crate::run::state::phase_word;
use crate::ui::glyphs::Glyphs;
use crate::ui::hit::Target;
use crate::ui::layout::{cut, cut_middle, fill, rule, scroll_to, split_bottom, split_top};
use crate::ui::panes::PaneContext;
use crate::ui::rows::PresetRow;
use crate::ui::store::{Store, short_run};
use crate::ui::theme::{Meaning, Theme};
use crate::wire::Phase;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use std::path::{Path, PathBuf};
use unicode_width::UnicodeWidthStr;

/// The row behind the presets.
const WIZARD: (&str, &str) = (
    "new run",
    "The wizard asks for goal and data, explains, plans and writes the spec.",
);

/// About the runs that failed before their first step.
const GC: &str = "llmtui gc lists those that can be deleted";

/// One line of the upper list.
#[derive(Debug, PartialEq, Eq)]
enum PresetLine {
    /// Cannot be selected.
    Heading(&'static str),
    /// The index of a row; the wizard's is behind those of the presets.
    Row(usize),
}

/// Presets under the headings of their groups, then the wizard. One group alone needs no heading.
fn preset_lines(presets: &[&PresetRow], wizard: bool) -> Vec<PresetLine> {
    let groups = presets.chunk_by(|a, b| a.kind == b.kind);
    let alone = groups.clone().count() < 2;
    let mut lines = Vec::new();
    let mut row = 0;
    for group in groups {
        if let Some(first) = group.first().filter(|_| !alone) {
            lines.push(PresetLine::Heading(first.kind.title()));
        }
        lines.extend((row..row + group.len()).map(PresetLine::Row));
        row += group.len();
    }
    lines.extend(wizard.then_some(PresetLine::Row(row)));
    lines
}

impl HomePane {
    /// ```text
    ///  Start a run
    ///  demos: run anywhere, as they are
    ///  ▸ quickstart       A 0.8M-parameter GPT learns to write Shakespeare, character by character.
    ///
    ///  ─ runs · ./runs · newest first ─────────────────────────────────────────
    ///    ● shakespeare-k3qf        training   1,240 / 2,000   1.886  ▇▅▃▂▁  2 min
    /// ```
    pub(super) fn draw_all(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let store = context.store;
        self.drawn = store.now;
        let n_runs = u16::try_from(self.listed(store).len()).unwrap_or(u16::MAX);
        let lines = preset_lines(&self.presets(store), self.offers_wizard());
        let n_presets = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let airy = area.height >= 16;
        // Runs get what they need, up to two thirds; presets the rest.
        let wanted = n_runs.saturating_add(4).min((area.height / 3 * 2).max(4));
        let top = area
            .height
            .saturating_sub(wanted)
            .min(n_presets + 2 + 2 * u16::from(airy));
        let (start, runs) = split_top(area, top);
        self.draw_presets(frame, start, airy, context);
        self.draw_runs(frame, runs, context);
    }

    fn draw_presets(
        &mut self,
        frame: &mut Frame,
        area: Rect,
        airy: bool,
        context: &mut PaneContext,
    ) {
        let (theme, store) = (context.theme, context.store);
        let (_, area) = split_top(area, u16::from(airy));
        let (head, area) = split_top(area, 1);
        let title = match store.runs.as_deref() {
            Some([]) => context
                .keymap
                .fill(" Start your first run: {accept} trains the preset"),
            _ => " Start a run".into(),
        };
        let (area, _) = split_bottom(area, u16::from(airy));
        let presets = self.presets(store);
        let lines = preset_lines(&presets, self.offers_wizard());
        let selected = PresetLine::Row(self.selected.min(presets.len()));
        let at = lines.iter().position(|line| *line == selected);
        let height = usize::from(area.height);
        // With the cursor among the runs the presets stay where they are.
        if self.selected < self.offset(store) {
            self.scroll_presets = scroll_to(at.unwrap_or(0), self.scroll_presets, height);
        }
        self.scroll_presets = self.scroll_presets.min(lines.len().saturating_sub(height));
        // The heading above the first row is not out of reach.
        if at == Some(1) {
            self.scroll_presets = 0;
        }
        let below = lines.iter().skip(self.scroll_presets + height);
        let is_row = |line: &&PresetLine| matches!(line, PresetLine::Row(_));
        let below = below.filter(is_row).count();
        let more = match below {
            0 => String::new(),
            n => format!(" {} {n} more ", theme.glyphs().down),
        };
        let room = usize::from(head.width).saturating_sub(more.width());
        let title = cut(&title, room, theme.glyphs().ellipsis);
        frame.render_widget(Line::styled(title, theme.style(Meaning::Title)), head);
        let more = Line::styled(more, theme.style(Meaning::Muted));
        let right = Rect {
            x: head.x + room.min(head.width.into()) as u16,
            width: head.width.saturating_sub(room as u16),
            ..head
        };
        frame.render_widget(more, right);
        let names = presets.iter().map(|preset| preset.title().width());
        let names = names.max().unwrap_or(0).clamp(8, 24);
        let shown = lines.iter().skip(self.scroll_presets);
        for (line, y) in shown.zip(area.y..area.bottom()) {
            let place = Rect {
                y,
                height: 1,
                ..area
            };
            let i = match line {
                PresetLine::Heading(title) => {
                    let title = Line::styled(format!(" {title}"), theme.style(Meaning::Muted));
                    frame.render_widget(title, place);
                    continue;
                }
                PresetLine::Row(i) => *i,
            };
            let preset = presets.get(i).copied();
            let name = preset.map_or_else(|| WIZARD.0.into(), PresetRow::title);
            let about = preset.map_or(WIZARD.1, |preset| preset.about.as_str());
            let row = RowText {
                mark: None,
                main: fill(&name, names, theme.glyphs().ellipsis),
                rest: format!("   {about}"),
            };
            frame.render_widget(row.line(theme, i == self.selected, area.width), place);
            context.hits.add(place, Target::Row(i));
        }
    }

    fn draw_runs(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let (theme, store) = (context.theme, context.store);
        let (head, area) = split_top(area, 1);
        self.draw_head(frame, head, context);
        let runs = self.listed(store);
        if runs.is_empty() {
            let line = Line::styled(no_runs(context), theme.style(Meaning::Muted));
            frame.render_widget(line, split_top(area, 1).0);
            return;
        }
        let longest = runs.iter().map(|row| row.name_columns(store)).max();
        let longest = longest.unwrap_or(0);
        let changes = runs.iter().any(|row| matches!(row, Listed::Run(run, _) if !run.changed.is_empty()));
        let columns = Columns::new(area.width, longest, changes);
        let (header, area) = split_top(area, u16::from(area.height > 4));
        let titles = Line::styled(columns.header(), theme.style(Meaning::Muted));
        frame.render_widget(titles, header);
        let selected = self.selected.checked_sub(self.offset(store));
        let origin = selected
            .and_then(|at| runs.get(at))
            .and_then(|listed| match listed {
                Listed::Run(run, _) => about(run, store),
                Listed::Unbegun(_) => Some((GC.into(), Meaning::Muted)),
                Listed::Stages { of, .. } => Some((
                    format!("pipeline {}: {}", one_line(&of.pipeline), of.place()),
                    Meaning::Muted,
                )),
            });
        let area = draw_foot(frame, area, origin, theme);
        let unreadable = unreadable(store).map(|words| (words, Meaning::Warn));
        let area = draw_foot(frame, area, unreadable, theme);
        self.scroll(&runs, selected.unwrap_or(0), area.height);
        self.draw_more(frame, head, &runs, context);
        self.draw_list(frame, area, (&runs, &columns), context);
    }

    /// A window that has grown shows what it has room for.
    fn scroll(&mut self, runs: &[Listed], selected: usize, height: u16) {
        self.page = usize::from(height).max(1);
        let height = usize::from(height);
        let last = runs.len().saturating_sub(height);
        self.scroll_runs = scroll_to(selected, self.scroll_runs, height).min(last);
    }

    /// How many runs are marked, also where a filter hides them, and how many have no room.
    fn draw_more(&self, frame: &mut Frame, head: Rect, runs: &[Listed], context: &PaneContext) {
        let theme = context.theme;
        let hidden = runs.len().saturating_sub(self.page);
        let below = hidden.saturating_sub(self.scroll_runs);
        let more = match (hidden, below) {
            (0, _) => None,
            (_, 0) => Some(format!("{} {hidden} more", theme.glyphs().up)),
            _ => Some(format!("{} {below} more", theme.glyphs().down)),
        };
        let there = |path: &&PathBuf| context.store.runs().iter().any(|run| run.path == **path);
        let seen = |path: &&PathBuf| runs.iter().any(|row| row.row() == HomeRow::Run((*path).clone()));
        let marked: Vec<&PathBuf> = self.marked.iter().filter(there).collect();
        let unseen = marked.iter().filter(|path| !seen(path)).count();
        let marked = match (marked.len(), unseen) {
            (0, _) => None,
            (n, 0) => Some(format!("{n} marked")),
            (n, unseen) => Some(format!("{n} marked, {unseen} not listed")),
        };
        let words: Vec<String> = marked.into_iter().chain(more).collect();
        if !words.is_empty() {
            let words = words.join(&format!(" {} ", theme.glyphs().separator));
            let words = Line::styled(format!(" {words} "), theme.style(Meaning::Muted));
            frame.render_widget(words.right_aligned(), head);
        }
    }

    fn draw_list(
        &self,
        frame: &mut Frame,
        area: Rect,
        (runs, columns): (&[Listed], &Columns),
        context: &mut PaneContext,
    ) {
        let (theme, store) = (context.theme, context.store);
        let shown = runs.iter().enumerate().skip(self.scroll_runs);
        for ((i, listed), y) in shown.zip(area.y..area.bottom()) {
            let place = Rect {
                y,
                height: 1,
                ..area
            };
            let row = match listed {
                Listed::Run(run, node) => columns.row(run, &node.branch(theme.ascii), store, theme),
                Listed::Unbegun(n) => RowText {
                    mark: Some((theme.glyphs().bad, Meaning::Muted)),
                    main: String::new(),
                    rest: format!("{n} runs failed before their first step"),
                },
                Listed::Stages { of, n } => RowText {
                    mark: None,
                    main: String::new(),
                    rest: format!(
                        "    {} of pipeline {}",
                        human::counted(*n as u64, "earlier stage"),
                        one_line(&of.pipeline)
                    ),
                },
            };
            let at = i + self.offset(store);
            frame.render_widget(row.line(theme, at == self.selected, area.width), place);
            if let Listed::Run(run, _) = listed
                && self.marked.contains(&run.path)
            {
                let sign = Line::styled("*", theme.style(Meaning::Accent));
                let width = 1.min(place.width);
                frame.render_widget(sign, Rect { width, ..place });
            }
            context.hits.add(place, Target::Row(at));
        }
    }

    fn draw_head(&mut self, frame: &mut Frame, area: Rect, context: &PaneContext) {
        let theme = context.theme;
        let dot = theme.glyphs().separator;
        let place = shown_path(&context.store.runs_dir);
        let title = format!("runs in {place} {dot} {}", self.sort.words());
        if !self.filtering && self.filter.is_empty() {
            frame.render_widget(rule(theme, &title, area.width), area);
            return;
        }
        let label = "─ presets and runs with: ".replace('─', theme.glyphs().rule);
        let used = u16::try_from(label.width()).unwrap_or(0).min(area.width);
        frame.render_widget(Line::styled(label, theme.style(Meaning::Accent)), area);
        let field = Rect {
            x: area.x + used,
            width: area.width - used,
            ..area
        };
        self.filter.draw(frame, field, theme, self.filtering);
    }
}

/// Why the list is empty.
fn no_runs(context: &PaneContext) -> String {
    let store = context.store;
    let words = match store.runs.as_deref() {
        None => "looking for runs".to_string(),
        Some([]) => format!(
            "none yet {} runs will live in {}",
            context.theme.glyphs().separator,
            shown_path(&store.runs_dir)
        ),
        Some(_) => context
            .keymap
            .fill("no run matches the filter; {cancel} clears it"),
    };
    format!("   {words}")
}

fn unreadable(store: &Store) -> Option<String> {
    let first = store.unreadable.first()?;
    let more = match store.unreadable.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("not readable: {}{more}", one_line(first)))
}

/// A line below a list, where there is one and room for it; what is left above it.
fn draw_foot(
    frame: &mut Frame,
    area: Rect,
    line: Option<(String, Meaning)>,
    theme: &Theme,
) -> Rect {
    let line = line.filter(|_| area.height > 2);
    let (area, foot) = split_bottom(area, u16::from(line.is_some()));
    if let Some((words, meaning)) = line {
        let words = format!("   {words}");
        let words = cut(&words, foot.width.into(), theme.glyphs().ellipsis);
        frame.render_widget(Line::styled(words, theme.style(meaning)), foot);
    }
    area
}

/// The line about the selected run: why it failed, else its pipeline and where it came from, or what it changed of
/// its preset.
fn about(run: &RunSummary, store: &Store) -> Option<(String, Meaning)> {
    let why = one_line(&run.message);
    if run.status == RunStatus::Failed && !why.is_empty() {
        return Some((why, Meaning::Bad));
    }
    let stage = store.stages.get(&run.created_as);
    let stage = stage.map(|stage| match stage.resume() {
        Some(_) => format!("{}, which stands still", stage.words()),
        None => stage.words(),
    });
    // Runs of a sweep differ in nothing else.
    let changed = || {
        let changed = one_line(&run.changed.join(" "));
        (!changed.is_empty()).then(|| format!("changed: {changed}"))
    };
    let origin = origin_of(run, store.runs()).or_else(changed);
    let words = [stage, origin];
    let words: Vec<String> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| (words.join("; "), Meaning::Accent))
}

/// `from shakespeare-k3qf, step 500: lr=3e-4`
fn origin_of(run: &RunSummary, runs: &[RunSummary]) -> Option<String> {
    let parent = run.parent.as_ref()?;
    let changed = one_line(&run.changed.join(" "));
    let colon = if changed.is_empty() { "" } else { ": " };
    let step = human::grouped(parent.step);
    // By the name that finds it now, where it is still there.
    let from = find_parent(parent, runs).map_or(&parent.run, |run| &run.id);
    let from = one_line(short_run(from));
    Some(format!("from {from}, step {step}{colon}{changed}"))
}

/// A path as one would type it: `./runs`, not `runs`.
fn shown_path(path: &Path) -> String {
    let text = shown(path);
    match path.is_relative() && !text.starts_with('.') {
        true => format!("./{text}"),
        false => text,
    }
}

/// The words of one row, before the selection colours them.
struct RowText {
    mark: Option<(&'static str, Meaning)>,
    main: String,
    rest: String,
}

impl RowText {
    fn line(self, theme: &Theme, selected: bool, width: u16) -> Line<'static> {
        let glyphs = theme.glyphs();
        let base = theme.style(if selected {
            Meaning::Selected
        } else {
            Meaning::Text
        });
        let quiet = |m| if selected { base } else { theme.style(m) };
        let pointer = if selected { glyphs.pointer } else { " " };
        let mut spans = vec![Span::styled(format!(" {pointer} "), base)];
        let mut used = 3;
        if let Some((mark, meaning)) = self.mark {
            spans.push(Span::styled(format!("{mark} "), quiet(meaning)));
            used += 2;
        }
        used += self.main.width();
        spans.push(Span::styled(self.main, base));
        let room = usize::from(width).saturating_sub(used + 1);
        spans.push(Span::styled(
            fill(&self.rest, room, glyphs.ellipsis),
            quiet(Meaning::Muted),
        ));
        Line::from(spans)
    }
}

/// Columns that are worth it to show changed settings in.
const CHANGED: usize = 10;
/// Columns of a name that is shown in full.
const LONGEST_NAME: usize = 40;

/// Which columns of the list of runs fit, and their widths.
struct Columns {
    name: usize,
    /// Columns of the settings that a run changed of its preset; 0 where there is no room, or nothing was changed.
    changed: usize,
    /// Columns that there are for the name and the changed settings.
    room: usize,
    /// Columns of the verdict; 0 where there is no room.
    verdict: usize,
    /// Columns of the steps; 0 where there is no room.
    steps: usize,
    /// Columns of the validation loss, or of pass@1 where the answers are the run's own.
    val: usize,
    curve: usize,
}

impl Columns {
    /// Where the longest name has `longest` columns: less informative columns give way to it. What runs changed, where there are
    /// such `changes`, takes what is left.
    fn new(width: u16, longest: usize, changes: bool) -> Self {
        let mut columns = Self::around(width, longest);
        let longest = longest.clamp("run".len(), columns.name);
        let left = columns.room - longest;
        if changes && left > CHANGED {
            (columns.name, columns.changed) = (longest, left - 1);
        }
        columns
    }

    fn around(width: u16, longest: usize) -> Self {
        let width = usize::from(width);
        let layouts: &[_] = match width {
            0..70 => &[(0, 13, 8, 0), (0, 0, 8, 0)],
            70..110 => &[(0, 13, 8, 11), (0, 13, 8, 0)],
            _ => &[
                (12, 17, 13, 24),
                (12, 17, 13, 11),
                (12, 13, 8, 11),
                (0, 13, 8, 11),
            ],
        };
        let mut fitting = layouts.iter().map(|layout| Self::with(width, *layout));
        let first = Self::with(width, layouts[0]);
        fitting
            .find(|columns| columns.name >= longest.min(LONGEST_NAME))
            .unwrap_or(first)
    }

    fn with(width: usize, (verdict, steps, val, curve): (usize, usize, usize, usize)) -> Self {
        // Pointer and mark, state, loss, age, and the gaps between them.
        let shown = verdict + usize::from(verdict > 0);
        let done = steps + usize::from(steps > 0);
        let fixed =
            5 + 1 + 12 + shown + done + 1 + val + curve + 2 * usize::from(curve > 0) + 7 + 1;
        let room = width.saturating_sub(fixed).max(6);
        Columns {
            name: room.min(LONGEST_NAME),
            room,
            changed: 0,
            verdict,
            steps,
            val,
            curve,
        }
    }

    fn cells(&self, [state, verdict, steps, loss, curve, age]: [&str; 6]) -> String {
        let curve = match self.curve {
            0 => String::new(),
            n => format!("  {}", fill(curve, n, "")),
        };
        let verdict = match self.verdict {
            0 => String::new(),
            n => format!(" {}", fill(verdict, n, "")),
        };
        let steps = match self.steps {
            0 => String::new(),
            n => format!(" {steps:>n$}"),
        };
        let (state, val) = (fill(state, 12, ""), self.val);
        format!(" {state}{verdict}{steps} {loss:>val$}{curve} {age:>6}")
    }

    fn header(&self) -> String {
        let cells = self.cells(["state", "verdict", "steps", "held out", "curve", "age"]);
        let changed = self.changed_cell("changed", "");
        format!("     {}{changed}{cells}", fill("run", self.name, ""))
    }

    fn changed_cell(&self, words: &str, ellipsis: &str) -> String {
        match self.changed {
            0 => String::new(),
            n => format!(" {}", fill(words, n, ellipsis)),
        }
    }

    fn row(&self, run: &RunSummary, branch: &str, store: &Store, theme: &Theme) -> RowText {
        let glyphs = theme.glyphs();
        let verdict = match (&run.verdict, run.status) {
            (Some(verdict), _) => verdict.as_str(),
            (None, RunStatus::Live | RunStatus::Empty) => "",
            (None, _) => "-",
        };
        let status = match (verdict, Verdict::named(verdict)) {
            ("" | "-", _) => Status::Unknown,
            // The word of a newer program is shown, not passed over.
            (_, named) => named.map_or(Status::Warn, Verdict::status),
        };
        // Where there is no column for it, a verdict that something is wrong takes the place of the state, any of a finished run.
        let says_more =
            is_wrong(status) || run.status == RunStatus::Finished && status == Status::Pass;
        let state = match self.verdict == 0 && says_more {
            true => verdict,
            false => state_word(run),
        };
        let steps = match run.max_steps {
            0 => human::grouped(run.step),
            max if run.step == max => human::grouped(max),
            max => format!("{} / {}", human::grouped(run.step), human::grouped(max)),
        };
        let loss = self.loss(run);
        let curve = glyphs.sparkline(&run.curve, self.curve);
        // As `llmtui runs` has it, and as the list is sorted.
        let age = human::age(store.now.since(run.created));
        // What distinguishes runs of one name is at its end.
        let stage = stage_mark(run, store);
        let room = self.name.saturating_sub(branch.width() + stage.width());
        let name = cut_middle(&one_line(short_run(&run.id)), room, glyphs.ellipsis);
        let name = format!("{branch}{name}{stage}");
        let changed = one_line(&run.changed.join(" "));
        let changed = self.changed_cell(&changed, glyphs.ellipsis);
        RowText {
            mark: Some(mark(run, status, glyphs)),
            main: fill(&name, self.name, glyphs.ellipsis),
            rest: changed + &self.cells([state, verdict, &steps, &loss, &curve, &age]),
        }
    }

    /// The validation loss, or pass@1 where the answers are the run's own.
    fn loss(&self, run: &RunSummary) -> String {
        match (run.val_loss, run.pass_at_1) {
            (Some(loss), _) => human::number(loss),
            // In per cent, as its chart has it: 0.2 % was 0.00.
            (None, Some(share)) if self.val < 13 => {
                format!("p@1 {}", human::reading(share, "share").replace(' ', ""))
            }
            (None, Some(share)) => format!("pass@1 {}", human::percent(share, 1)),
            (None, None) => String::new(),
        }
    }
}

fn state_word(run: &RunSummary) -> &'static str {
    match (run.status, run.phase) {
        (RunStatus::Live, _) if run.suspended => "suspended",
        // The word of other screens is longer than the column.
        (RunStatus::Live, Some(Phase::Checkpointing)) => "saving",
        (RunStatus::Live, Some(phase)) => phase_word(phase),
        (status, _) => status.word(),
    }
}

/// Whether a verdict says that something is wrong.
fn is_wrong(verdict: Status) -> bool {
    matches!(verdict, Status::Fail | Status::Warn)
}

/// The mark of a run's state, unless its verdict says that something is wrong.
fn mark(run: &RunSummary, verdict: Status, glyphs: &Glyphs) -> (&'static str, Meaning) {
    let (mark, meaning) = match run.status {
        RunStatus::Live if run.suspended => (glyphs.ring, Meaning::Warn),
        RunStatus::Live if run.phase == Some(Phase::Queued) => (glyphs.ring, Meaning::Muted),
        RunStatus::Live => (glyphs.dot, Meaning::Good),
        RunStatus::Finished => (glyphs.ok, Meaning::Muted),
        RunStatus::Stopped => (glyphs.ring, Meaning::Muted),
        RunStatus::Failed | RunStatus::Crashed | RunStatus::Unreadable => (glyphs.bad, Meaning::Bad),
        RunStatus::Empty => (" ", Meaning::Muted),
    };
    match verdict {
        _ if !is_wrong(verdict) => (mark, meaning),
        // That it is live, and so can be stopped, comes first.
        _ if run.status == RunStatus::Live => (mark, Meaning::Bad),
        // All its steps are no success.
        Status::Warn if meaning != Meaning::Bad => (glyphs.warn, Meaning::Warn),
        _ => (glyphs.bad, Meaning::Bad),
    }
}
