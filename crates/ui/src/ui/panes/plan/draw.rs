//! The plan on the screen: the form on the left, memory and work on the right, what fits below.

use super::below::{Below, draw_below};
use super::cursor::Cursor;
use super::facts::{Fact, facts};
use super::{Field, Kind, PlanPane, Shown, stack};
use crate::base::human;
use crate::plan::engines::EngineChoice;
use crate::plan::measured::{self, Measured, Place};
use crate::plan::quantity::capacity;
use crate::plan::{Plan, Verdict};
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{rule, scroll_to, split_bottom, split_top};
use crate::ui::panes::PaneContext;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::frame;
use crate::ui::widgets::text::{self, Word, word};
use crate::ui::widgets::bar;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Columns of the form's labels.
const LABELS: usize = 15;
/// Columns of the names of parts.
const PARTS: usize = 21;
/// Columns below which there is the form, with the headline above it.
const NARROW: u16 = 49;

pub(super) fn draw(pane: &mut PlanPane, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
    let theme = context.theme;
    let Some(shown) = &pane.shown else {
        return empty(pane, frame, area, context);
    };
    let lines = Below::new((shown, &pane.run), area.width, context);
    let measured = measured(pane, context);
    let needed = rows_needed(shown, measured.is_some(), area.width, theme);
    let below = below_rows(&lines, area, needed);
    let (top, bottom) = split_bottom(area, below);
    if area.width < NARROW {
        let (line, form) = split_top(top, 1);
        let words = headline(&shown.plan, line.width);
        let width = line.width.saturating_sub(1);
        text::draw(frame.buffer_mut(), line.x + 1, line.y, width, &words, theme);
        draw_below(frame, bottom, &lines, theme);
        return draw_form(pane, frame, form, context);
    }
    let form_width = form_width(area.width);
    let form = Rect {
        width: form_width,
        ..top
    };
    let right = Rect {
        x: top.x + form_width + 1,
        width: top.width.saturating_sub(form_width + 1),
        ..top
    };
    draw_right(frame.buffer_mut(), right, shown, measured, theme);
    draw_below(frame, bottom, &lines, theme);
    draw_form(pane, frame, form, context);
}

/// Rows of what fits, of the changes and, where there is room, of the advice: what is left by the plan itself.
fn below_rows(lines: &Below, area: Rect, needed: usize) -> u16 {
    let advice = if area.height > 30 {
        lines.advice.len()
    } else {
        1
    };
    let wanted = 2 + lines.fits.len().max(2) + advice;
    let left = usize::from(area.height).saturating_sub(needed);
    let least = 4.min(area.height);
    let wanted = u16::try_from(wanted.min(left)).unwrap_or(u16::MAX);
    wanted.min(area.height / 3).max(least)
}

/// Rows in which all fields and figures of the plan stand, with a row of help and the two largest parts of the memory.
fn rows_needed(shown: &Shown, measured: bool, width: u16, theme: &Theme) -> usize {
    let form = Field::of(&shown.request).len() + 2;
    if width < NARROW {
        return form + 1;
    }
    let width = width.saturating_sub(form_width(width) + 1);
    let figures = fact_lines(&all_facts(shown), usize::from(width), theme).len();
    // Of a measured run its bar and the words about it, else what earlier runs took.
    let known = match measured {
        true => 2,
        false => usize::from(shown.plan.corrected_bytes().is_some()),
    };
    form.max(figures + known + 5)
}

fn form_width(width: u16) -> u16 {
    (width * 3 / 8).clamp(28, 46).min(width)
}

fn all_facts(shown: &Shown) -> Vec<Fact> {
    let mut facts = facts(&shown.plan);
    facts.extend(
        shown
            .engine
            .as_ref()
            .map(|choice| ("engine", engine_words(choice))),
    );
    facts
}

/// Nothing is planned yet: what to do.
fn empty(pane: &PlanPane, frame: &mut Frame, area: Rect, context: &PaneContext) {
    let (words, meaning) = match (&pane.reading, &pane.error) {
        (Some(name), _) => (format!("reading {name} and its data …"), Meaning::Muted),
        (None, Some(why)) => (why.clone(), Meaning::Bad),
        (None, None) => {
            let key = context.keymap.label(Action::PlanTarget);
            (
                format!("Choose what to plan: {key} lists presets and reference models."),
                Meaning::Muted,
            )
        }
    };
    let area = Rect {
        x: area.x + 2,
        y: area.y + 1,
        width: area.width.saturating_sub(4),
        height: area.height.saturating_sub(1),
    };
    text::paragraph(frame.buffer_mut(), area, &words, meaning, context.theme);
}

fn draw_form(pane: &mut PlanPane, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
    let theme = context.theme;
    let Some(shown) = &pane.shown else { return };
    let fields = Field::of(&shown.request);
    let (head, rest) = split_top(area, 1);
    frame.render_widget(rule(theme, "plan", head.width), head);
    // Fields come first; what is wrong is reported as a whole.
    let wrong = pane.error.is_some() || pane.editing.as_ref().is_some_and(|e| e.error.is_some());
    let spare = rest.height.saturating_sub(fields.len() as u16).max(1);
    let hint_rows = if wrong { 3 } else { spare.min(3) };
    let hint_rows = hint_rows.min(rest.height.saturating_sub(4));
    let (rows, foot) = split_bottom(rest, hint_rows);
    pane.scroll = scroll_to(pane.selected, pane.scroll, rows.height.into());
    let visible = fields.iter().enumerate().skip(pane.scroll);
    for ((i, field), y) in visible.zip(rows.y..rows.bottom()) {
        let place = Rect {
            y,
            height: 1,
            ..rows
        };
        let selected = i == pane.selected;
        let changed = field.value(&shown.request) != field.value(&shown.original);
        form_row(
            frame.buffer_mut(),
            place,
            *field,
            shown,
            (selected, changed),
            theme,
        );
        if let (true, Some(editing)) = (selected, &mut pane.editing) {
            let x = place.x + LABELS as u16 + 3;
            let width = place.right().saturating_sub(x);
            let value = Rect { x, width, ..place };
            let blank = " ".repeat(width.into());
            text::draw(
                frame.buffer_mut(),
                x,
                y,
                width,
                &[word(blank, Meaning::Text)],
                theme,
            );
            editing.text.draw(frame, value, theme, true);
        }
        context.hits.add(place, Target::Row(i));
    }
    let error = pane.editing.as_ref().and_then(|e| e.error.as_deref());
    let hint = fields.get(pane.selected).map_or("", |f| f.hint());
    let hint = context.keymap.fill(hint);
    let (words, meaning) = match (error, &pane.error) {
        (Some(why), _) => (why, Meaning::Bad),
        (None, Some(why)) => (why.as_str(), Meaning::Bad),
        (None, None) => (hint.as_str(), Meaning::Muted),
    };
    let foot = frame::with_padding(foot);
    text::paragraph(frame.buffer_mut(), foot, words, meaning, theme);
}

fn form_row(
    buffer: &mut Buffer,
    place: Rect,
    field: Field,
    shown: &Shown,
    (selected, changed): (bool, bool),
    theme: &Theme,
) {
    let pointer = if selected {
        theme.glyphs().pointer
    } else {
        " "
    };
    let label = if selected {
        Meaning::Accent
    } else {
        Meaning::Muted
    };
    let value = match (selected, field.kind()) {
        (true, _) => Meaning::Accent,
        (false, _) if changed => Meaning::Mark,
        (false, Kind::List) => Meaning::Title,
        (false, _) => Meaning::Text,
    };
    let mark = if changed { "*" } else { " " };
    let words = [
        word(format!("{pointer} {:<LABELS$}", field.label()), label),
        word(mark, Meaning::Mark),
        word(field.value(&shown.request), value),
    ];
    text::draw(buffer, place.x, place.y, place.width, &words, theme);
}

/// What was measured of the run whose plan this is: highest so far.
fn measured(pane: &PlanPane, context: &PaneContext) -> Option<Measured> {
    let held = context.store.held.as_ref()?;
    let shown = pane.shown.as_ref()?;
    let same = pane.run.is_some() && pane.run == held.identity() && shown.request == shown.original;
    same.then(|| measured::most(&held.state)).flatten()
}

/// Memory part by part, then work.
fn draw_right(
    buffer: &mut Buffer,
    area: Rect,
    shown: &Shown,
    measured: Option<Measured>,
    theme: &Theme,
) {
    if area.width < 20 {
        return;
    }
    let plan = &shown.plan;
    let mut at = Cursor { area, y: area.y };
    at.line(buffer, &headline(plan, area.width), theme);
    let width = area.width.saturating_sub(2).min(100);
    let sizes: Vec<u64> = plan.memory.parts().iter().map(|c| c.bytes).collect();
    let scale = scale(plan, measured.map(|m| m.bytes));
    if let Some(y) = at.next() {
        stack::draw(buffer, (area.x + 1, y), width, &sizes, scale, theme);
        if let Some(limit) = plan.request.device.memory.filter(|l| (*l as f64) < scale) {
            let column = (f64::from(width) * limit as f64 / scale) as u16;
            let mark = [word(theme.glyphs().vertical, Meaning::Bad)];
            text::draw(buffer, area.x + 1 + column, y, 1, &mark, theme);
        }
    }
    if let (Some(found), Some(y)) = (measured, measured.and_then(|_| at.next())) {
        bar::level(
            buffer,
            area.x + 1,
            y,
            width,
            found.bytes as f64 / scale,
            Meaning::Series,
            theme,
        );
        at.line(buffer, &measured_words(plan, found), theme);
    }
    if let Some(bytes) = plan.corrected_bytes().filter(|_| measured.is_none()) {
        let words = format!("{} from earlier runs on this machine", human::bytes(bytes));
        at.line(buffer, &[word(words, Meaning::Muted)], theme);
    }
    let lines = fact_lines(&all_facts(shown), usize::from(area.width), theme);
    let room = usize::from(area.bottom().saturating_sub(at.y)).saturating_sub(lines.len() + 1);
    parts(buffer, &mut at, plan, room, theme);
    at.next();
    for words in lines {
        at.line(buffer, &words, theme);
    }
}

/// Facts with their labels, those that are longer than the width on several lines.
fn fact_lines(facts: &[Fact], width: usize, theme: &Theme) -> Vec<[Word; 2]> {
    const LABEL: usize = 12;
    let columns = width.saturating_sub(LABEL + 1);
    let lines = facts.iter().flat_map(|(label, value)| {
        let wrapped = text::wrap(value, columns, usize::MAX, theme.ascii).into_iter();
        wrapped.enumerate().map(move |(i, line)| {
            let label = if i == 0 { label } else { "" };
            [
                word(format!("{label:<LABEL$}"), Meaning::Muted),
                word(line, Meaning::Text),
            ]
        })
    });
    lines.collect()
}

/// Columns from which the headline names what it is about.
const WIDE: u16 = 68;

/// `memory  too large: 110.7 GiB, 127.3 with margin, of 80.0 GiB`
fn headline(plan: &Plan, width: u16) -> Vec<Word> {
    let lead = if width >= WIDE { "memory  " } else { "" };
    let (verdict, meaning) = match plan.verdict() {
        Some(Verdict::Fits) => ("fits: ", Meaning::Good),
        Some(Verdict::Tight) => ("just so: ", Meaning::Warn),
        Some(Verdict::TooLarge) => ("too large: ", Meaning::Bad),
        None => ("", Meaning::Muted),
    };
    let of = match plan.request.device.memory {
        Some(limit) => format!(", of {}", capacity(limit)),
        None => String::new(),
    };
    let need = human::bytes(plan.p50_bytes());
    let margin = human::bytes(plan.p90_bytes());
    // One unit is enough where both have it.
    let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_string());
    let margin = match unit(&need) == unit(&margin) {
        true => margin.split(' ').next().unwrap_or_default().to_string(),
        false => margin,
    };
    vec![
        word(lead, Meaning::Muted),
        word(verdict, meaning),
        word(need, Meaning::Title),
        word(format!(", {margin} with margin"), Meaning::Muted),
        word(of, Meaning::Text),
    ]
}

/// The bar's right end: the limit, or the plan itself where the limit is so far away that nothing would be seen.
fn scale(plan: &Plan, measured: Option<u64>) -> f64 {
    let most = plan.p90_bytes().max(measured.unwrap_or(0));
    match plan.request.device.memory {
        Some(limit) if limit / 6 < most => limit.max(most) as f64,
        _ => most as f64,
    }
}

/// `measured 2.35 / 2.45 GiB for training  4 % less`: of what was planned for as long as it trains, which is less than the plan where
/// evaluations need more.
fn measured_words(plan: &Plan, found: Measured) -> Vec<Word> {
    let bytes = found.bytes;
    let of = match found.place {
        Place::Process => "measured ".to_string(),
        Place::Gpu(index) => format!("measured on GPU {index} "),
        Place::Rank(rank) => format!("measured by rank {rank} "),
    };
    let planned = found.place.planned(plan);
    let error = bytes as f64 / planned.max(1) as f64 - 1.0;
    let meaning = if error.abs() <= 0.10 {
        Meaning::Good
    } else {
        Meaning::Warn
    };
    let words = match error {
        e if e < -0.005 => format!("{:.0} % less", -100.0 * e),
        e if e > 0.005 => format!("{:.0} % more", 100.0 * e),
        _ => "as planned".into(),
    };
    vec![
        word(of, Meaning::Muted),
        word(human::bytes_of(bytes, planned), Meaning::Title),
        word(" for training  ", Meaning::Muted),
        word(words, meaning),
    ]
}

/// One row a part; the smallest together in the last one when not all fit.
fn parts(buffer: &mut Buffer, at: &mut Cursor, plan: &Plan, room: usize, theme: &Theme) {
    let all = plan.memory.parts();
    let total = plan.p50_bytes().max(1) as f64;
    let mut order: Vec<usize> = (0..all.len()).collect();
    let mut rest = 0;
    if room == 0 {
        return;
    }
    if all.len() > room {
        order.sort_by_key(|i| std::cmp::Reverse(all[*i].bytes));
        // In a single row "the rest" would be all of it: the largest part says more.
        let cut = match room {
            1 => {
                order.truncate(1);
                Vec::new()
            }
            room => order.split_off(room - 1),
        };
        rest = cut.iter().map(|i| all[*i].bytes).sum();
        order.sort_unstable();
    }
    for i in order {
        let (glyph, meaning) = stack::mark(i, theme);
        let share = 100.0 * all[i].bytes as f64 / total;
        at.line(
            buffer,
            &[
                word(format!("{glyph} "), meaning),
                word(format!("{:<PARTS$}", all[i].part.title()), Meaning::Text),
                word(
                    format!("{:>8} {share:>3.0} %", human::bytes(all[i].bytes)),
                    Meaning::Text,
                ),
                word(how(&all[i].how, at.area.width), Meaning::Muted),
            ],
            theme,
        );
    }
    if rest > 0 {
        let share = 100.0 * rest as f64 / total;
        let words = [
            word(format!("  {:<PARTS$}", "the rest"), Meaning::Muted),
            word(
                format!("{:>8} {share:>3.0} %", human::bytes(rest)),
                Meaning::Text,
            ),
        ];
        at.line(buffer, &words, theme);
    }
}

/// The formula behind a part, where there is room for more than its beginning.
fn how(formula: &str, width: u16) -> String {
    match usize::from(width) {
        width if width >= PARTS + 46 => format!("  {formula}"),
        _ => String::new(),
    }
}

/// `torch, 8 GPUs that share the model (fsdp2)`; why it is candle, or none.
fn engine_words(choice: &EngineChoice) -> String {
    if choice.engine == "none" {
        return choice.why.clone();
    }
    if choice.engine == "candle" {
        return format!("candle, on the CPU: {}", choice.why);
    }
    let again = match choice.recomputes {
        true => ", activations recomputed",
        false => "",
    };
    match (choice.gpus, choice.shard) {
        (_, Some("fsdp2")) if !choice.fits => "torch, but it does not fit even on 64 GPUs".into(),
        (1, _) => format!("torch, one GPU{again}"),
        (n, Some("fsdp2")) => format!("torch, {n} GPUs, model sharded (fsdp2){again}"),
        (n, _) => format!("torch, {n} GPUs, data parallel (ddp){again}"),
    }
}
