//! The editor on the screen: the rows, the words about the selected one, the YAML.

use super::{Editor, FOOT, Mode};
use crate::spec::{Issue, Origin, Place, shown};
use crate::ui::hit::Target;
use crate::ui::layout::{fill, framed, scroll_to, split_bottom, split_top};
use crate::ui::overlays::Canvas;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;
use std::path::Path;

impl Editor {
    /// ```text
    /// ┌ edit quickstart ──────────────────────── 2 changes ┐
    /// │ ▸ model.n_layer         6   yours (quickstart: 4)   │
    /// │   model.n_head          4   presets/quickstart:9    │
    /// │ ─ model.n_layer ────────────────────────────────── │
    /// │ Number of transformer blocks.                       │
    /// │ a whole number from 1 to 1000 · opened as 4         │
    /// └─────────────────────────────────────────────────────┘
    /// ```
    pub(super) fn draw_all(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let theme = canvas.theme;
        let changes = self.draft.changes().len();
        let count = match changes {
            0 => " as it is ".to_string(),
            1 => " 1 change ".to_string(),
            n => format!(" {n} changes "),
        };
        // What hides the other rows stands there for as long as it does.
        let only = if self.only_changes { " only changes," } else { "" };
        let found = match (self.query.trim(), self.mode) {
            ("", _) | (_, Mode::Search) => String::new(),
            (query, _) => format!(" search: {},", crate::base::text::one_line(query)),
        };
        let count = format!("{found}{only}{count}");
        let title = format!("edit {}", crate::base::text::one_line(self.draft.target()));
        let block = framed(theme, &title)
            .title_top(Line::styled(count, theme.style(Meaning::Muted)).right_aligned());
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        if self.mode == Mode::Yaml {
            self.draw_yaml(frame, inner, theme);
            return;
        }
        let (list, foot) = split_bottom(inner, FOOT.min(inner.height / 2));
        let places = self.places();
        self.selected = self.selected.min(places.len().saturating_sub(1));
        self.draw_list(frame, list, canvas, &places);
        self.draw_foot(frame, foot, canvas, places.get(self.selected));
    }

    fn draw_list(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas, places: &[Place]) {
        let theme = canvas.theme;
        self.page = usize::from(area.height).max(1);
        self.scroll = scroll_to(self.selected, self.scroll, area.height.into());
        if places.is_empty() {
            let words = match (self.only_changes, self.query.is_empty()) {
                (true, true) => "nothing differs from the parent yet",
                (true, false) => "no changed key matches the search",
                (false, _) => "no key matches the search",
            };
            let words = [word(format!("  {words}"), Meaning::Muted)];
            text::draw(
                frame.buffer_mut(),
                area.x,
                area.y,
                area.width,
                &words,
                theme,
            );
            return;
        }
        let names = (usize::from(area.width) * 2 / 5).clamp(16, 44);
        let values = (usize::from(area.width) / 4).clamp(10, 40);
        let rows = places.iter().enumerate().skip(self.scroll);
        for ((i, place), y) in rows.zip(area.y..area.bottom()) {
            let spot = Rect {
                y,
                height: 1,
                ..area
            };
            let selected = i == self.selected;
            let words = row_words(place, self.draft.target(), selected, (names, values), theme);
            text::draw(frame.buffer_mut(), spot.x, y, spot.width, &words, theme);
            if selected && self.mode == Mode::Edit {
                let x = spot.x + u16::try_from(names + 3).unwrap_or(0);
                let field = Rect {
                    x,
                    width: spot.right().saturating_sub(x),
                    ..spot
                };
                frame.render_widget(Clear, field);
                self.field.draw(frame, field, theme, true);
            }
            canvas.hits.add(spot, Target::OverlayRow(i));
        }
    }

    fn draw_foot(&mut self, frame: &mut Frame, area: Rect, canvas: &Canvas, place: Option<&Place>) {
        let theme = canvas.theme;
        let (head, area) = split_top(area, 1);
        let title = place.map_or("", |p| p.path.as_str());
        let rule = crate::ui::layout::rule(theme, title, head.width);
        frame.render_widget(rule, head);
        let (line, area) = match self.mode {
            Mode::Search | Mode::SaveAs => split_top(area, 1),
            _ => (Rect::default(), area),
        };
        if !line.is_empty() {
            let label = if self.mode == Mode::Search {
                "search "
            } else {
                "save as "
            };
            let words = [word(label, Meaning::Accent)];
            let x = text::draw(
                frame.buffer_mut(),
                line.x,
                line.y,
                line.width,
                &words,
                theme,
            );
            let field = Rect {
                x,
                width: line.right().saturating_sub(x),
                ..line
            };
            self.field.draw(frame, field, theme, true);
        }
        let mut y = area.y;
        let told = self.error.as_ref().map(|words| canvas.keymap.fill(words));
        let fault = told.or_else(|| {
            let issues = self.draft.issues();
            let here = issues
                .iter()
                .find(|i| place.is_some_and(|p| p.path == i.path));
            here.or(issues.first()).map(Issue::line)
        });
        let about = place.map(about);
        let texts = [
            fault.map(|words| (words, Meaning::Bad)),
            place.map(|p| (p.node.doc.clone(), Meaning::Text)),
            about.map(|words| (words, Meaning::Muted)),
        ];
        for (words, meaning) in texts.into_iter().flatten() {
            let rest = Rect {
                y,
                height: area.bottom().saturating_sub(y),
                ..area
            };
            y += text::paragraph(frame.buffer_mut(), rest, &words, meaning, theme);
        }
    }

    fn draw_yaml(&mut self, frame: &mut Frame, area: Rect, theme: &Theme) {
        self.page = usize::from(area.height).max(1);
        let yaml = self.draft.to_yaml(&[]);
        for (line, y) in yaml.lines().skip(self.scroll).zip(area.y..area.bottom()) {
            let meaning = match line.trim_start().starts_with('#') {
                true => Meaning::Muted,
                false => Meaning::Text,
            };
            let words = [word(crate::base::text::one_line(line), meaning)];
            text::draw(
                frame.buffer_mut(),
                area.x + 1,
                y,
                area.width.saturating_sub(1),
                &words,
                theme,
            );
        }
    }
}

fn row_words(
    place: &Place,
    parent: &str,
    selected: bool,
    (names, values): (usize, usize),
    theme: &Theme,
) -> Vec<Word> {
    let glyphs = theme.glyphs();
    let pointer = if selected { glyphs.pointer } else { " " };
    let differs = place.value != place.parent;
    let name = if selected {
        Meaning::Accent
    } else {
        Meaning::Text
    };
    let value = match (differs, place.value.is_null()) {
        (true, _) => Meaning::Warn,
        (false, true) => Meaning::Muted,
        (false, false) => Meaning::Text,
    };
    let origin = origin_text(place, parent);
    let text = crate::base::text::one_line(&value_words(place, &place.value));
    vec![
        word(
            format!("{pointer} {} ", fill(&place.path, names, glyphs.ellipsis)),
            name,
        ),
        word(format!("{} ", fill(&text, values, glyphs.ellipsis)), value),
        word(crate::base::text::one_line(&origin), Meaning::Muted),
    ]
}

/// What every model has: null is no value of theirs, but one that is not known yet.
const REQUIRED: [&str; 6] = [
    "model.n_layer",
    "model.n_head",
    "model.d_model",
    "model.position",
    "model.norm",
    "model.mlp",
];

/// A value as the editor writes it.
fn value_words(place: &Place, value: &serde_json::Value) -> String {
    // Its files are read when the run starts.
    if place.from_start && value.is_null() && REQUIRED.contains(&&*place.path) {
        return "its own".into();
    }
    match value.is_null() {
        true => none_word(place).into(),
        false => shown(value),
    }
}

/// What no value means here: the description says it where nothing is chosen instead.
fn none_word(place: &Place) -> &'static str {
    // A run has no start model unless one is named.
    if place.path == "train.from" {
        return "random weights";
    }
    let doc = &place.node.doc;
    match doc.contains("Default: none") || doc.contains("Default: no ") {
        true => "none",
        false => "auto",
    }
}

/// Where a value comes from. A changed value that the user did not edit follows from one that was: a schedule's final rate from its peak,
/// for example.
pub(super) fn origin_text(place: &Place, parent: &str) -> String {
    if place.from_start {
        return "from the start model".into();
    }
    let was = || format!("{parent}: {}", value_words(place, &place.parent));
    match (place.value != place.parent, place.edited) {
        (true, true) => format!("yours; {}", was()),
        (true, false) => format!("follows; {}", was()),
        (false, _) => origin_words(&place.origin),
    }
}

fn origin_words(origin: &Origin) -> String {
    match origin {
        Origin::Set(_) => "yours".into(),
        Origin::Model(_) => "base".into(),
        // The folder would hide the line where there is little room.
        Origin::File { name, line } => {
            let file = Path::new(name).file_name().unwrap_or_default();
            let name = file.to_string_lossy().into_owned();
            Origin::File { name, line: *line }.to_string()
        }
        other => other.to_string(),
    }
}

/// What may stand here and what the others say.
fn about(place: &Place) -> String {
    if place.from_start {
        return "read only: the start model (train.from) decides it; name another one, or none, to change it".into();
    }
    let mut words = vec![place.node.expected()];
    if place.node.nullable {
        words.push(format!("empty: {}", none_word(place)));
    }
    // Not what the file says: it may have the value from a preset or a default.
    words.push(format!("opened as {}", value_words(place, &place.parent)));
    if !place.node.default.is_null() && place.node.children().is_empty() {
        words.push(format!(
            "default: {}",
            shown(&place.node.default)
        ));
    }
    crate::base::text::one_line(&words.join(" · "))
}
