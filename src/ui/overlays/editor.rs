//! The editor of a whole spec: every place of the schema as a row with its value and where that came from; search, undo,
//! only what changed, the YAML. What may stand where is the schema's to say; the draft judges each value when it is typed.

use super::{Canvas, Choice, Reply};
use crate::spec::schema::Kind;
use crate::spec::{Draft, Origin, Place, shown};
use crate::ui::action::Action;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{fill, framed, scroll_to, split_bottom, split_top};
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;

/// Rows of the words about the selected place.
const FOOT: u16 = 6;
/// Most steps that can be taken back.
const MAX_UNDO: usize = 200;

/// What the keyboard does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Browse,
    Search,
    /// The selected place's value is typed.
    Edit,
    /// The name of the file is typed.
    SaveAs,
    /// The YAML is shown instead of the rows.
    Yaml,
}

/// A draft and how it is looked at.
#[derive(Debug)]
pub struct Editor {
    draft: Draft,
    undo: Vec<Draft>,
    redo: Vec<Draft>,
    mode: Mode,
    field: TextField,
    query: String,
    only_changes: bool,
    selected: usize,
    scroll: usize,
    page: usize,
    error: Option<String>,
    /// Another Esc throws changes away.
    warned: bool,
}

impl Editor {
    pub fn new(draft: Draft) -> Self {
        Editor {
            draft,
            undo: Vec::new(),
            redo: Vec::new(),
            mode: Mode::Browse,
            field: TextField::new(Lines::One, ""),
            query: String::new(),
            only_changes: false,
            selected: 0,
            scroll: 0,
            page: 1,
            error: None,
            warned: false,
        }
    }

    /// True when letters are text.
    pub fn typing(&self) -> bool {
        matches!(self.mode, Mode::Search | Mode::Edit | Mode::SaveAs)
    }

    /// True while the file is shown instead of the rows.
    pub fn shows_yaml(&self) -> bool {
        self.mode == Mode::Yaml
    }

    /// The places that the search and the filter let through.
    fn places(&self) -> Vec<Place> {
        let query = self.query.to_lowercase();
        let fits = |place: &Place| {
            let text = format!("{} {}", place.path, place.node.doc).to_lowercase();
            query.split_whitespace().all(|word| text.contains(word))
        };
        let changed = |place: &Place| !self.only_changes || place.value != place.parent;
        let mut places = self.draft.places();
        places.retain(|place| fits(place) && changed(place));
        places
    }

    pub fn act(&mut self, action: Action) -> Reply {
        self.error = None;
        if action != Action::Cancel {
            self.warned = false;
        }
        match self.mode {
            Mode::Search => self.act_search(action),
            Mode::Edit => self.act_edit(action),
            Mode::SaveAs => return self.act_save(action),
            Mode::Yaml => match action {
                Action::SaveSpec => self.ask_name(),
                Action::Cancel | Action::ViewYaml | Action::Accept | Action::Leave => {
                    self.mode = Mode::Browse;
                    self.scroll = 0;
                }
                action => self.scroll_yaml(action),
            },
            Mode::Browse => return self.act_browse(action),
        }
        Reply::Stay
    }

    fn act_browse(&mut self, action: Action) -> Reply {
        let last = self.places().len().saturating_sub(1);
        match action {
            Action::Up => self.selected = self.selected.saturating_sub(1),
            Action::Down => self.selected = (self.selected + 1).min(last),
            Action::PageUp => self.selected = self.selected.saturating_sub(self.page),
            Action::PageDown => self.selected = (self.selected + self.page).min(last),
            Action::Top => self.selected = 0,
            Action::Bottom => self.selected = last,
            Action::Accept => self.edit(),
            Action::SearchSpec => {
                self.mode = Mode::Search;
                self.field.set(&self.query.clone());
            }
            Action::OnlyChanges => {
                self.only_changes = !self.only_changes;
                self.selected = 0;
            }
            Action::ViewYaml => {
                self.mode = Mode::Yaml;
                self.scroll = 0;
            }
            Action::ResetValue => self.reset(),
            Action::UndoEdit => self.take_back(),
            Action::RedoEdit => self.take_forth(),
            Action::SaveSpec => self.ask_name(),
            Action::StartSpec => return self.start(),
            Action::Cancel if !self.query.is_empty() => self.query.clear(),
            Action::Cancel | Action::Leave => return self.leave(action),
            _ => {}
        }
        Reply::Stay
    }

    /// Changes that nobody saved are worth a second Esc.
    fn leave(&mut self, action: Action) -> Reply {
        let n = self.draft.changes().len();
        if action == Action::Cancel && !self.undo.is_empty() && n > 0 && !self.warned {
            self.warned = true;
            self.error = Some(format!(
                "{n} changes are not saved: esc again leaves them, s saves"
            ));
            return Reply::Stay;
        }
        Reply::Close
    }

    fn start(&mut self) -> Reply {
        match self.draft.spec() {
            Ok(spec) => Reply::Chosen(Choice::StartSpec {
                name: spec.name.clone(),
                yaml: self.draft.to_yaml(&[]),
            }),
            Err(errors) => {
                let first = errors.issues().first();
                self.error = first.map(|i| format!("{}: {} {}", i.path, i.what, i.hint));
                Reply::Stay
            }
        }
    }

    fn act_search(&mut self, action: Action) {
        match action {
            Action::Accept | Action::Down | Action::Up => self.mode = Mode::Browse,
            Action::Cancel | Action::Leave => {
                self.query.clear();
                self.mode = Mode::Browse;
            }
            _ => {}
        }
    }

    /// Words are chosen by going round; everything else is typed.
    fn edit(&mut self) {
        let Some(place) = self.places().into_iter().nth(self.selected) else {
            return;
        };
        let options: Vec<String> = match &place.node.kind {
            Kind::Registry(members) => members.iter().map(|(name, _)| name.clone()).collect(),
            Kind::Choice(words) => words.clone(),
            Kind::Bool => vec!["false".into(), "true".into()],
            _ => Vec::new(),
        };
        if options.is_empty() {
            self.mode = Mode::Edit;
            let text = match place.value.is_null() {
                true => String::new(),
                false => shown(&place.value),
            };
            self.field.set(&text);
            return;
        }
        let now = shown(&place.value);
        let at = options.iter().position(|o| *o == now).map_or(0, |i| i + 1);
        self.change(&place.path, &options[at % options.len()]);
    }

    fn act_edit(&mut self, action: Action) {
        match action {
            Action::Accept => {
                let Some(place) = self.places().into_iter().nth(self.selected) else {
                    return;
                };
                let text = self.field.text();
                let text = match text.trim() {
                    "" if place.node.nullable => "null",
                    text => text,
                };
                if self.change(&place.path, text) {
                    self.mode = Mode::Browse;
                }
            }
            Action::Cancel | Action::Leave => self.mode = Mode::Browse,
            _ => {}
        }
    }

    /// Says one value; true when it was taken.
    fn change(&mut self, path: &str, text: &str) -> bool {
        let before = self.draft.clone();
        if let Err(issue) = self.draft.set(path, text, "") {
            self.error = Some(match issue.hint.as_str() {
                "" => issue.what,
                hint => format!("{}; {hint}", issue.what),
            });
            return false;
        }
        self.keep(before);
        true
    }

    fn keep(&mut self, before: Draft) {
        self.undo.push(before);
        if self.undo.len() > MAX_UNDO {
            self.undo.remove(0);
        }
        self.redo.clear();
    }

    fn reset(&mut self) {
        if let Some(place) = self.places().into_iter().nth(self.selected)
            && place.edited
        {
            let before = self.draft.clone();
            self.draft.reset(&place.path);
            self.keep(before);
        }
    }

    fn take_back(&mut self) {
        match self.undo.pop() {
            Some(before) => self.redo.push(std::mem::replace(&mut self.draft, before)),
            None => self.error = Some("nothing to undo".into()),
        }
    }

    fn take_forth(&mut self) {
        match self.redo.pop() {
            Some(after) => self.undo.push(std::mem::replace(&mut self.draft, after)),
            None => self.error = Some("nothing to redo".into()),
        }
    }

    fn ask_name(&mut self) {
        let name = self.draft.value("name");
        self.mode = Mode::SaveAs;
        self.field
            .set(&format!("{}.yaml", name.as_str().unwrap_or("run")));
    }

    fn act_save(&mut self, action: Action) -> Reply {
        match action {
            Action::Accept => {
                let path = self.field.text().trim().to_string();
                if path.is_empty() {
                    self.error = Some("which file?".into());
                    return Reply::Stay;
                }
                Reply::Save {
                    path: path.into(),
                    yaml: self.draft.to_yaml(&[]),
                }
            }
            Action::Cancel | Action::Leave => {
                self.mode = Mode::Browse;
                Reply::Stay
            }
            _ => Reply::Stay,
        }
    }

    fn scroll_yaml(&mut self, action: Action) {
        let lines = self.draft.to_yaml(&[]).lines().count();
        let end = lines.saturating_sub(self.page);
        self.scroll = match action {
            Action::Up => self.scroll.saturating_sub(1),
            Action::Down => (self.scroll + 1).min(end),
            Action::PageUp => self.scroll.saturating_sub(self.page),
            Action::PageDown => (self.scroll + self.page).min(end),
            _ => self.scroll,
        };
    }

    /// The file was written: what stands in it needs no undo.
    pub fn saved(&mut self) {
        self.mode = Mode::Browse;
        self.undo.clear();
        self.redo.clear();
    }

    /// The file could not be written.
    pub fn refused(&mut self, why: &str) {
        self.error = Some(why.to_string());
    }

    pub fn key(&mut self, key: KeyEvent) {
        if self.typing() {
            self.error = None;
            self.field.key(key);
            self.follow_search();
        }
    }

    pub fn paste(&mut self, text: &str) {
        if self.typing() {
            self.field.paste(text);
            self.follow_search();
        }
    }

    fn follow_search(&mut self) {
        if self.mode == Mode::Search {
            self.query = self.field.text();
            self.selected = 0;
        }
    }

    /// A click selects, a second one edits.
    pub fn click(&mut self, row: usize) -> Reply {
        if self.mode != Mode::Browse {
            return Reply::Stay;
        }
        match row == self.selected {
            true => self.act(Action::Accept),
            false => {
                self.selected = row;
                Reply::Stay
            }
        }
    }

    /// ```text
    /// ┌ edit quickstart ──────────────────────── 2 changes ┐
    /// │ ▸ model.n_layer         6   yours (quickstart: 4)   │
    /// │   model.n_head          4   presets/quickstart:9    │
    /// │ ─ model.n_layer ────────────────────────────────── │
    /// │ Number of transformer blocks.                       │
    /// │ a whole number from 1 to 1000 · quickstart says 4   │
    /// └─────────────────────────────────────────────────────┘
    /// ```
    pub fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let theme = canvas.theme;
        let changes = self.draft.changes().len();
        let count = match changes {
            0 => " as it is ".to_string(),
            1 => " 1 change ".to_string(),
            n => format!(" {n} changes "),
        };
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
        self.draw_foot(frame, foot, canvas.theme, places.get(self.selected));
    }

    fn draw_list(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas, places: &[Place]) {
        let theme = canvas.theme;
        self.page = usize::from(area.height).max(1);
        self.scroll = scroll_to(self.selected, self.scroll, area.height.into());
        if places.is_empty() {
            let words = match self.only_changes {
                true => "nothing differs from the parent yet",
                false => "no key fits the search",
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

    fn draw_foot(&mut self, frame: &mut Frame, area: Rect, theme: &Theme, place: Option<&Place>) {
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
        let fault = self.error.clone().or_else(|| {
            let issues = self.draft.issues();
            let here = issues
                .iter()
                .find(|i| place.is_some_and(|p| p.path == i.path));
            here.or(issues.first())
                .map(|i| format!("{}: {} {}", i.path, i.what, i.hint))
        });
        let about = place.map(|place| about(place, self.draft.target()));
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
    let origin = match differs {
        true => format!("yours; {parent}: {}", shown(&place.parent)),
        false => origin_words(&place.origin),
    };
    let text = crate::base::text::one_line(&shown(&place.value));
    vec![
        word(
            format!("{pointer} {} ", fill(&place.path, names, glyphs.ellipsis)),
            name,
        ),
        word(format!("{} ", fill(&text, values, glyphs.ellipsis)), value),
        word(crate::base::text::one_line(&origin), Meaning::Muted),
    ]
}

fn origin_words(origin: &Origin) -> String {
    match origin {
        Origin::Set(_) => "yours".into(),
        other => other.to_string(),
    }
}

/// What may stand here and what the others say.
fn about(place: &Place, parent: &str) -> String {
    let mut words = vec![place.node.expected()];
    if place.node.nullable {
        words.push("empty decides by itself".into());
    }
    words.push(format!("{parent} says {}", shown(&place.parent)));
    if !place.node.default.is_null() && place.node.children().is_empty() {
        words.push(format!(
            "the program's default is {}",
            shown(&place.node.default)
        ));
    }
    crate::base::text::one_line(&words.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SpecSources;

    fn editor() -> Editor {
        Editor::new(Draft::open("quickstart", &SpecSources::default()).unwrap())
    }

    fn search(editor: &mut Editor, text: &str) {
        editor.act(Action::SearchSpec);
        editor.field.clear();
        editor.paste(text);
        editor.act(Action::Accept);
    }

    fn say(editor: &mut Editor, path: &str, text: &str) {
        search(editor, path);
        editor.act(Action::Accept);
        editor.field.clear();
        editor.paste(text);
        editor.act(Action::Accept);
    }

    #[test]
    fn a_value_is_found_changed_taken_back_and_brought_again() {
        let mut editor = editor();
        say(&mut editor, "train.max_steps", "77");
        assert_eq!(editor.draft.value("train.max_steps"), 77);
        editor.act(Action::UndoEdit);
        assert_eq!(editor.draft.value("train.max_steps"), 2000);
        editor.act(Action::RedoEdit);
        assert_eq!(editor.draft.value("train.max_steps"), 77);
        editor.act(Action::ResetValue);
        assert!(editor.draft.changes().is_empty());
        editor.act(Action::UndoEdit);
        assert_eq!(editor.draft.changes().len(), 1);
    }

    #[test]
    fn a_bad_value_keeps_the_field_open_and_the_old_value_in_force() {
        let mut editor = editor();
        say(&mut editor, "train.max_steps", "soon");
        assert_eq!(editor.mode, Mode::Edit);
        assert!(editor.error.as_ref().unwrap().contains("whole number"));
        assert_eq!(editor.field.text(), "soon");
        assert_eq!(editor.draft.value("train.max_steps"), 2000);
        editor.act(Action::Cancel);
        assert_eq!(editor.mode, Mode::Browse);
    }

    #[test]
    fn words_go_round() {
        let mut editor = editor();
        search(&mut editor, "data.order");
        editor.act(Action::Accept);
        assert_eq!(editor.draft.value("data.order"), "shuffled");
        editor.act(Action::Accept);
        assert_eq!(editor.draft.value("data.order"), "random");
    }

    #[test]
    fn unsaved_changes_are_worth_a_second_esc() {
        let mut editor = editor();
        say(&mut editor, "seed", "7");
        assert_eq!(
            editor.act(Action::Cancel),
            Reply::Stay,
            "esc clears the search"
        );
        assert_eq!(editor.act(Action::Cancel), Reply::Stay);
        assert!(editor.error.as_ref().unwrap().contains("not saved"));
        assert_eq!(editor.act(Action::Cancel), Reply::Close);
        editor.saved();
        assert_eq!(editor.act(Action::Cancel), Reply::Close);
    }

    #[test]
    fn saving_and_starting_give_the_yaml() {
        let mut editor = editor();
        say(&mut editor, "seed", "7");
        editor.act(Action::SaveSpec);
        let Reply::Save { path, yaml } = editor.act(Action::Accept) else {
            panic!()
        };
        assert_eq!(path, std::path::Path::new("quickstart.yaml"));
        assert!(yaml.contains("seed: 7"));
        editor.saved();
        assert!(matches!(
            editor.act(Action::StartSpec),
            Reply::Chosen(Choice::StartSpec { .. })
        ));
        say(&mut editor, "model.n_head", "3");
        assert_eq!(editor.act(Action::StartSpec), Reply::Stay);
        assert!(editor.error.as_ref().unwrap().contains("multiple"));
    }

    #[test]
    fn only_changes_shows_only_changes() {
        let mut editor = editor();
        let all = editor.places().len();
        say(&mut editor, "seed", "7");
        search(&mut editor, "");
        editor.act(Action::OnlyChanges);
        assert_eq!((editor.places().len(), all > 30), (1, true));
    }
}
