//! The editor of a whole spec: every place of the schema as a row with its value and where that came from; search, undo,
//! only what changed, the YAML. What may stand where is the schema's to say; the draft judges each value when it is typed.

mod draw;
mod runs;

use super::{Canvas, Choice, EDITOR, Overlay, PATH, Reply};
use crate::spec::schema::Kind;
use crate::spec::{Change, Draft, Origin, Place, shown};
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::field::{Lines, TextField};
use crate::ui::msg::Msg;
use crate::ui::request::{Hints, titles};
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;

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
    /// As it was opened, or saved last.
    saved: Draft,
    undo: Vec<Draft>,
    redo: Vec<Draft>,
    mode: Mode,
    field: TextField,
    query: String,
    only_changes: bool,
    /// The row of the last change: it is listed among the changes though its value is the file's again.
    kept: Option<String>,
    selected: usize,
    scroll: usize,
    page: usize,
    error: Option<String>,
    /// Another Esc throws changes away.
    warned: bool,
    /// Models of the place that was typed last which may be runs.
    awaited: Vec<String>,
}

impl Editor {
    /// The cursor stands on the first row; in a template, where it wants a model of the user's.
    pub fn new(draft: Draft) -> Self {
        let places = draft.places();
        let value_at = |path: &str| places.iter().find(|place| place.path == path).map(|p| &p.value);
        let template = value_at("group").is_some_and(|group| group == "template");
        let wanted = places.iter().position(|place| place.path == "train.from");
        let wanted = wanted.filter(|at| template && places[*at].value.is_null());
        Editor {
            selected: wanted.unwrap_or(0),
            saved: draft.clone(),
            draft,
            undo: Vec::new(),
            redo: Vec::new(),
            mode: Mode::Browse,
            field: TextField::new(Lines::One, ""),
            query: String::new(),
            only_changes: false,
            kept: None,
            scroll: 0,
            page: 1,
            error: None,
            warned: false,
            awaited: Vec::new(),
        }
    }

    /// The places that the search and the filter let through.
    fn places(&self) -> Vec<Place> {
        let query = self.query.to_lowercase();
        let fits = |place: &Place| {
            let (path, doc) = (&place.path, &place.node.doc);
            let text = format!("{path} {} {doc}", place.node.choices().join(" ")).to_lowercase();
            query.split_whitespace().all(|word| text.contains(word))
        };
        let changed = |place: &Place| {
            let kept = self.kept.as_ref() == Some(&place.path);
            !self.only_changes || kept || place.value != place.parent
        };
        let mut places = self.draft.places();
        places.retain(|place| fits(place) && changed(place));
        if !query.trim().is_empty() {
            places.sort_by_key(|place| {
                let close = closeness(place, query.trim());
                // By the name first, then by what the spec sets; of equals the short one.
                let by_name = u8::from(close > 0) + u8::from(close > 2);
                let set = place.origin != Origin::Default;
                (by_name, !set, close, place.path.len())
            });
        }
        places
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
                // Another search, not more of the last one.
                self.query.clear();
                self.field.set("");
            }
            Action::OnlyChanges => {
                self.only_changes = !self.only_changes;
                self.kept = None;
                self.selected = 0;
            }
            Action::ViewYaml => {
                self.mode = Mode::Yaml;
                self.scroll = 0;
            }
            Action::ResetValue => self.reset(),
            Action::UndoEdit => self.undo_edit(),
            Action::RedoEdit => self.redo_edit(),
            Action::SaveSpec => return self.ask_name(),
            Action::StartSpec => return self.start(),
            Action::Cancel if !self.query.is_empty() => self.show_all(),
            // All places again: one level back, with changes to show or without.
            Action::Cancel if self.only_changes => {
                self.only_changes = false;
                self.selected = 0;
            }
            Action::Cancel | Action::Leave => return self.leave(),
            _ => {}
        }
        Reply::Stay
    }

    fn browse(&mut self) {
        self.mode = Mode::Browse;
        self.scroll = 0;
    }

    /// How many places have another value than in the file.
    fn unsaved(&self) -> usize {
        let (now, then) = (self.draft.changes(), self.saved.changes());
        let value = |list: &[Change], path: &str| list.iter().find(|c| c.path == path).map(|c| c.after.clone());
        let differs = |change: &&Change| value(&then, &change.path).as_ref() != Some(&change.after);
        let gone = |change: &&Change| value(&now, &change.path).is_none();
        now.iter().filter(differs).count() + then.iter().filter(gone).count()
    }

    /// Changes that nobody saved are worth a second Esc.
    fn leave(&mut self) -> Reply {
        let n = self.unsaved();
        if n > 0 && !self.warned {
            self.warned = true;
            let changes = if n == 1 { "change" } else { "changes" };
            self.error = Some(format!(
                "{n} unsaved {changes}: {{cancel}} again discards, {{save-spec}} saves"
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
                force: false,
            }),
            Err(errors) => {
                let first = errors.issues().first();
                self.error = first.map(|i| format!("this spec cannot be trained: {}", i.line()));
                Reply::Stay
            }
        }
    }

    fn act_search(&mut self, action: Action) {
        match action {
            Action::Accept | Action::Down | Action::Up => self.mode = Mode::Browse,
            Action::Cancel | Action::Leave => {
                self.show_all();
                self.mode = Mode::Browse;
            }
            _ => {}
        }
    }

    /// Ends the search; the same place stays selected.
    fn show_all(&mut self) {
        self.on_this_place(|editor| editor.query.clear());
    }

    /// Changes what is listed; the same place stays selected, wherever its row is then.
    fn on_this_place<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        let path = self.places().into_iter().nth(self.selected).map(|place| place.path);
        let done = change(self);
        self.kept = path;
        let places = self.places();
        let at = places.iter().position(|place| Some(&place.path) == self.kept.as_ref());
        let last = places.len().saturating_sub(1);
        self.selected = at.unwrap_or(self.selected.min(last));
        done
    }

    /// Words are chosen by going round; everything else is typed.
    fn edit(&mut self) {
        let Some(place) = self.places().into_iter().nth(self.selected) else {
            return;
        };
        if place.from_start {
            let words = format!("{} is the start model's: change train.from instead", place.path);
            self.error = Some(words);
            return;
        }
        let mut options: Vec<String> = match &place.node.kind {
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
        // No choice is one of them: the adapter that a preset brings, for one, can go.
        options.extend(place.node.nullable.then(|| "null".into()));
        let now = shown(&place.value);
        let at = options.iter().position(|o| *o == now).map_or(0, |i| i + 1);
        self.change(&place.path, &options[at % options.len()]);
    }

    fn act_edit(&mut self, action: Action) -> Reply {
        match action {
            Action::Accept => {
                let Some(place) = self.places().into_iter().nth(self.selected) else {
                    return Reply::Stay;
                };
                let text = self.field.text();
                let text = match text.trim() {
                    "" if place.node.nullable => "null",
                    text => text,
                };
                if self.change(&place.path, text) {
                    self.mode = Mode::Browse;
                    return self.ask_for_runs(&place.path, text);
                }
            }
            Action::Cancel | Action::Leave => self.mode = Mode::Browse,
            _ => {}
        }
        Reply::Stay
    }

    /// Says one value; true when it was taken.
    fn change(&mut self, path: &str, text: &str) -> bool {
        let before = self.draft.clone();
        if let Err(issue) = self.on_this_place(|editor| editor.draft.set(path, text, "")) {
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
            self.on_this_place(|editor| editor.draft.reset(&place.path));
            self.keep(before);
        }
    }

    fn undo_edit(&mut self) {
        match self.undo.pop() {
            Some(before) => {
                let after = self.on_this_place(|editor| std::mem::replace(&mut editor.draft, before));
                self.redo.push(after);
            }
            None => self.error = Some("nothing to undo".into()),
        }
    }

    fn redo_edit(&mut self) {
        match self.redo.pop() {
            Some(after) => {
                let before = self.on_this_place(|editor| std::mem::replace(&mut editor.draft, after));
                self.undo.push(before);
            }
            None => self.error = Some("nothing to redo".into()),
        }
    }

    /// No file is overwritten, so a name is offered that none has: it comes as a path that was completed.
    fn ask_name(&mut self) -> Reply {
        self.mode = Mode::SaveAs;
        self.field.set(&format!("{}.yaml", self.draft.run_name()));
        Reply::Do(Effect::FreeName(self.field.text()))
    }

    fn act_save(&mut self, action: Action) -> Reply {
        match action {
            Action::Accept => {
                let path = crate::spec::file_name(&self.field.text());
                if path.is_empty() {
                    self.error = Some("which file?".into());
                    return Reply::Stay;
                }
                Reply::Do(Effect::SaveSpec {
                    path: path.into(),
                    yaml: self.draft.to_yaml(&[]),
                })
            }
            Action::Complete => Reply::Do(Effect::Complete(self.field.text())),
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

    /// The file was written; what led to it can still be taken back.
    fn saved(&mut self) {
        self.mode = Mode::Browse;
        self.saved = self.draft.clone();
    }

    fn follow_search(&mut self) {
        if self.mode == Mode::Search {
            self.query = self.field.text();
            self.selected = 0;
        }
    }
}

/// How well a place fits what is searched for, 0 the best: the field itself, its beginning, a part of the path, one of its
/// choices, a word of the description.
fn closeness(place: &Place, query: &str) -> u8 {
    let path = place.path.as_str();
    let field = path.rsplit('.').next().unwrap_or(path);
    let choices = place.node.choices();
    match () {
        () if field == query || path == query => 0,
        () if field.starts_with(query) => 1,
        () if path.contains(query) => 2,
        () if choices.iter().any(|choice| choice.starts_with(query)) => 3,
        () if choices.iter().any(|choice| choice.contains(query)) => 4,
        () => 5,
    }
}

impl Overlay for Editor {
    fn start_refused(&mut self, why: &str) {
        self.error = Some(format!("not started: {}", crate::base::text::one_line(why)));
    }

    fn contexts(&self) -> &'static [Context] {
        match self.mode {
            Mode::SaveAs => PATH,
            _ => EDITOR,
        }
    }

    fn hints(&self) -> Hints {
        use Action as A;
        if self.typing() {
            let mut own = vec![(A::Accept, "accept")];
            own.extend((self.mode == Mode::SaveAs).then_some((A::Complete, "complete")));
            own.push((A::KillLine, "clear"));
            return Hints::of_overlay(own);
        }
        if self.mode == Mode::Yaml {
            return Hints::of_overlay(vec![(A::SaveSpec, "save as"), (A::Down, "scroll")]);
        }
        let mut own = vec![(A::Accept, "change"), (A::StartSpec, "train")];
        own.extend(titles(&[
            A::SearchSpec,
            A::SaveSpec,
            A::OnlyChanges,
            A::ViewYaml,
            A::ResetValue,
            A::RedoEdit,
        ]));
        let kept = titles(&[A::UndoEdit, A::Help, A::Cancel]);
        Hints { own, kept }
    }

    fn typing(&self) -> bool {
        matches!(self.mode, Mode::Search | Mode::Edit | Mode::SaveAs)
    }

    fn act(&mut self, action: Action) -> Reply {
        self.error = None;
        if !matches!(action, Action::Cancel | Action::Leave) {
            self.warned = false;
        }
        match self.mode {
            Mode::Search => self.act_search(action),
            Mode::Edit => return self.act_edit(action),
            Mode::SaveAs => return self.act_save(action),
            Mode::Yaml => match action {
                Action::SaveSpec => return self.ask_name(),
                Action::Cancel | Action::ViewYaml | Action::Accept => self.browse(),
                Action::Leave => {
                    self.browse();
                    return self.leave();
                }
                action => self.scroll_yaml(action),
            },
            Mode::Browse => return self.act_browse(action),
        }
        Reply::Stay
    }

    fn key(&mut self, key: KeyEvent) -> Reply {
        if self.typing() {
            self.error = None;
            self.field.key(key);
            self.follow_search();
        }
        Reply::Stay
    }

    fn paste(&mut self, text: &str) -> Reply {
        if self.typing() {
            self.field.paste(text);
            self.follow_search();
        }
        Reply::Stay
    }

    /// A click selects, a second one edits.
    fn click(&mut self, row: usize) -> Reply {
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

    fn incoming(&mut self, msg: &Msg) -> Option<Reply> {
        match msg {
            Msg::Saved(Ok(_)) => self.saved(),
            Msg::Completed { of, path, .. } if self.field.text() == *of => self.field.set(path),
            Msg::ModelOfRun { place, said, found } => {
                return Some(self.model_of_run(place, said, found.as_ref()));
            }
            Msg::Saved(Err(why)) => self.error = Some(why.clone()),
            _ => return None,
        }
        Some(Reply::Stay)
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        self.draw_all(frame, area, canvas);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    let sources = crate::spec::SpecSources::default();
    let draft = Draft::open("quickstart", &sources).unwrap();
    Box::new(Editor::new(draft))
}

#[cfg(test)]
mod tests;
