//! A list to choose from by typing a part of a name: palette, themes, checkpoints.

mod search;

use super::{Canvas, Choice, LIST, Overlay, PATH, Reply};
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, cut, fill, framed, scroll_to, split_bottom, split_top};
use crate::ui::msg::Msg;
use crate::ui::request::{Answer, Hints, Topic};
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use search::{Rank, Search};
use unicode_width::UnicodeWidthStr;

/// Columns of the box: what rows need, between these.
const WIDTH: (usize, usize) = (76, 124);
/// Columns that are left to secondary words where titles are long.
const LEAST: usize = 16;
/// Rows below the list for the words of the selected row, where some row does not fit.
const FOOT: u16 = 4;
/// Below this height the list needs all rows.
const TALL: u16 = 16;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub title: String,
    /// Secondary words; found by typing, too.
    pub detail: String,
    /// At the right edge, e.g. the key.
    pub right: String,
    pub choice: Choice,
}

/// The list, what was typed, and what fits it.
#[derive(Debug)]
pub struct Picker {
    title: String,
    /// Shown instead of rows when there are none.
    empty: String,
    query: TextField,
    items: Vec<Item>,
    /// Indices into `items`, best first; their number stands for the row of what was typed.
    shown: Vec<usize>,
    selected: usize,
    scroll: usize,
    page: usize,
    topic: Option<Topic>,
    /// Each selected row is previewed; this one is shown again when none is chosen.
    before: Option<Choice>,
    /// A path that is in no row is an answer, too: names that it could go on with.
    paths: Option<Vec<String>>,
    /// The row of what was typed.
    typed: Option<Item>,
    /// A row's other names, which no row shows.
    known_as: Option<(Choice, &'static [&'static str])>,
}

impl Picker {
    pub fn new(title: &str, empty: &str, items: Vec<Item>) -> Self {
        Picker {
            title: title.into(),
            empty: empty.into(),
            query: TextField::new(Lines::One, ""),
            shown: (0..items.len()).collect(),
            items,
            selected: 0,
            scroll: 0,
            page: 1,
            topic: None,
            before: None,
            paths: None,
            typed: None,
            known_as: None,
        }
    }

    /// The row of this choice is found by these words too.
    pub fn known_as(self, choice: Choice, words: &'static [&'static str]) -> Self {
        Picker {
            known_as: Some((choice, words)),
            ..self
        }
    }

    fn names(&self, item: &Item) -> &'static [&'static str] {
        match &self.known_as {
            Some((choice, words)) if *choice == item.choice => words,
            _ => &[],
        }
    }

    /// A path or a hub id that is typed is an answer as well; paths are completed.
    pub fn or_path(self) -> Self {
        Picker {
            paths: Some(Vec::new()),
            ..self
        }
    }

    fn typed(&self) -> Option<Item> {
        let (text, names) = (self.query.text().trim().to_string(), self.paths.as_ref()?);
        let topic = self.topic.filter(|_| !text.is_empty())?;
        Some(Item {
            title: text.clone(),
            detail: match names.len() {
                0 | 1 => "as a path, or a hub id".into(),
                _ => names.join("  "),
            },
            right: String::new(),
            choice: Choice::Answer(topic, Answer::Text(text)),
        })
    }

    fn item(&self, at: usize) -> Option<&Item> {
        self.items.get(at).or(self.typed.as_ref())
    }

    /// Previews each row that is selected; `before` is shown again when none is chosen.
    pub fn previewing(self, before: Choice) -> Self {
        Picker {
            before: Some(before),
            ..self
        }
    }

    /// The text is another one now.
    fn written(&mut self) -> Reply {
        if let Some(names) = &mut self.paths {
            names.clear();
        }
        self.search();
        self.moved()
    }

    /// The selection may be another one now.
    fn moved(&self) -> Reply {
        match (&self.before, self.current()) {
            (Some(_), Some(item)) => Reply::Preview(item.choice.clone()),
            _ => Reply::Stay,
        }
    }

    /// Says for which of a pane's questions it is open.
    pub fn about(self, topic: Topic) -> Self {
        Picker {
            topic: Some(topic),
            ..self
        }
    }

    /// Puts the selection on the first row for which `wanted` holds.
    pub fn select(mut self, wanted: impl Fn(&Item) -> bool) -> Self {
        self.selected = self.items.iter().position(wanted).unwrap_or(0);
        self
    }

    /// The selected row.
    pub fn current(&self) -> Option<&Item> {
        self.shown.get(self.selected).and_then(|i| self.item(*i))
    }

    fn search(&mut self) {
        let mut search = Search::new(&self.query.text());
        let items = self.items.iter().enumerate();
        let mut found: Vec<(Rank, usize)> = items
            .filter_map(|(i, item)| Some((search.rank(item, self.names(item))?, i)))
            .collect();
        found.sort_by_key(|(rank, i)| (std::cmp::Reverse(*rank), *i));
        self.shown = found.into_iter().map(|(_, i)| i).collect();
        self.typed = self.typed();
        if let Some(typed) = &self.typed {
            // Whoever types the beginning of a path means a path.
            let at = match is_path(&typed.title) {
                true => 0,
                false => self.shown.len(),
            };
            self.shown.insert(at, self.items.len());
        }
        self.selected = 0;
        self.scroll = 0;
    }

    /// Columns of the longest title and of the longest row.
    fn needed(&self) -> (usize, usize) {
        let longest = |of: &dyn Fn(&Item) -> usize| self.items.iter().map(of).max().unwrap_or(0);
        let titles = longest(&|item| item.title.width());
        let rest = longest(&|item| item.detail.width() + item.right.width());
        (titles, titles + rest + 6)
    }

    fn row(&self, item: &Item, selected: bool, width: u16, canvas: &Canvas) -> Line<'static> {
        let (theme, dots) = (canvas.theme, canvas.theme.glyphs().ellipsis);
        let width = usize::from(width);
        let right = cut(&item.right, width / 3, dots);
        let room = width.saturating_sub(right.width() + 4);
        let (titles, row) = self.needed();
        let titles = if row <= width {
            titles
        } else {
            // What is said beside a title is below the list as a whole; titles are told apart in the list only.
            titles.min(room.saturating_sub(LEAST).max(room / 2))
        };
        let title = fill(&item.title, titles, dots);
        let detail = fill(
            &format!("  {}", item.detail),
            room.saturating_sub(title.width()),
            dots,
        );
        let pointer = if selected {
            theme.glyphs().pointer
        } else {
            " "
        };
        let base = if selected {
            theme.style(Meaning::Selected)
        } else {
            theme.style(Meaning::Text)
        };
        let quiet = |meaning| if selected { base } else { theme.style(meaning) };
        Line::from(vec![
            Span::styled(format!("{pointer} "), base),
            Span::styled(title, base),
            Span::styled(detail, quiet(Meaning::Muted)),
            Span::styled(format!(" {right}"), quiet(Meaning::Key)),
            Span::styled(" ", base),
        ])
    }
}

impl Picker {
    /// All words of the selected row.
    fn draw_foot(&self, frame: &mut Frame, area: Rect, theme: &Theme) {
        let (line, area) = split_top(area, 1);
        let edge = theme.glyphs().rule.repeat(line.width.into());
        frame.render_widget(Line::styled(edge, theme.style(Meaning::Border)), line);
        let Some(item) = self.current() else {
            return;
        };
        let words = match item.detail.is_empty() {
            true => item.title.clone(),
            false => format!("{}: {}", item.title, item.detail),
        };
        text::paragraph(frame.buffer_mut(), area, &words, Meaning::Text, theme);
    }
}

/// Whether a text can be nothing but a path.
fn is_path(text: &str) -> bool {
    ["/", "./", "../", "~/"]
        .iter()
        .any(|start| text.starts_with(start))
        || text.ends_with(".gguf")
}

impl Overlay for Picker {
    fn contexts(&self) -> &'static [Context] {
        if self.paths.is_some() { PATH } else { LIST }
    }

    fn hints(&self) -> Hints {
        let mut own = vec![(Action::Accept, Action::Accept.info().title)];
        own.extend(
            self.paths
                .as_ref()
                .map(|_| (Action::Complete, "complete a path")),
        );
        Hints::of_overlay(own)
    }

    fn typing(&self) -> bool {
        true
    }

    fn topic(&self) -> Option<Topic> {
        self.topic
    }

    fn act(&mut self, action: Action) -> Reply {
        let last = self.shown.len().saturating_sub(1);
        self.selected = match action {
            Action::Up if self.selected == 0 => last,
            Action::Up => self.selected - 1,
            Action::Down if self.selected >= last => 0,
            Action::Down => self.selected + 1,
            Action::PageUp => self.selected.saturating_sub(self.page),
            Action::PageDown => (self.selected + self.page).min(last),
            Action::Top => 0,
            Action::Bottom => last,
            Action::Accept => {
                let choice = self.current().map(|item| item.choice.clone());
                return choice.map_or(Reply::Stay, Reply::Chosen);
            }
            Action::Complete if self.paths.is_some() => {
                return Reply::Do(Effect::Complete(self.query.text()));
            }
            Action::Cancel | Action::Leave => {
                return self.before.clone().map_or(Reply::Close, Reply::Revert);
            }
            _ => return Reply::Stay,
        };
        self.moved()
    }

    fn key(&mut self, key: KeyEvent) -> Reply {
        self.query.key(key);
        self.written()
    }

    fn paste(&mut self, text: &str) -> Reply {
        self.query.paste(text);
        self.written()
    }

    fn incoming(&mut self, msg: &Msg) -> Option<Reply> {
        let Msg::Completed { of, path, names } = msg else {
            return None;
        };
        if self.paths.is_none() || self.query.text() != *of {
            return None;
        }
        self.query.set(path);
        self.paths = Some(names.clone());
        self.search();
        // Whoever completes a path means it, wherever its row stands.
        let typed = self.items.len();
        self.selected = self.shown.iter().position(|i| *i == typed).unwrap_or(0);
        Some(Reply::Stay)
    }

    fn click(&mut self, row: usize) -> Reply {
        self.selected = row.min(self.shown.len().saturating_sub(1));
        self.act(Action::Accept)
    }

    /// Takes the rows of a newer list; what was typed stays.
    fn refill(&mut self, newer: Picker) {
        self.items = newer.items;
        self.search();
        if self.query.is_empty() {
            self.selected = newer.selected;
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let theme = canvas.theme;
        let rows = u16::try_from(self.items.len().max(1))
            .unwrap_or(u16::MAX)
            .clamp(3, 16);
        let (_, row) = self.needed();
        let width = u16::try_from((row + 2).clamp(WIDTH.0, WIDTH.1)).unwrap_or(u16::MAX);
        let width = width.min(area.width.saturating_sub(2));
        let cut_off = row + 2 > usize::from(width) && area.height >= TALL;
        let foot = if cut_off { FOOT } else { 0 };
        let area = centred(area, width, rows.saturating_add(3 + foot));
        let block = framed(theme, &self.title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        let (query, list) = split_top(inner, 1);
        let (list, foot) = split_bottom(list, foot);
        self.draw_foot(frame, foot, theme);
        frame.render_widget(
            Span::styled(theme.glyphs().pointer, theme.style(Meaning::Accent)),
            query,
        );
        let typed = Rect {
            x: query.x + 2.min(query.width),
            width: query.width.saturating_sub(2),
            ..query
        };
        self.query.draw(frame, typed, theme, true);
        if self.shown.is_empty() {
            let words = match self.items.is_empty() {
                true => self.empty.as_str(),
                false => "no match",
            };
            let line = Line::styled(format!("  {words}"), theme.style(Meaning::Muted));
            frame.render_widget(Paragraph::new(line), list);
            return;
        }
        self.page = usize::from(list.height).max(1);
        self.scroll = scroll_to(self.selected, self.scroll, list.height.into());
        let visible = self
            .shown
            .iter()
            .enumerate()
            .skip(self.scroll)
            .take(list.height.into());
        for ((row, item), y) in visible.zip(list.y..) {
            let place = Rect {
                y,
                height: 1,
                ..list
            };
            let Some(item) = self.item(*item) else {
                continue;
            };
            let line = self.row(item, row == self.selected, list.width, canvas);
            frame.render_widget(line, place);
            canvas.hits.add(place, Target::OverlayRow(row));
        }
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(Picker::new("palette", "none", Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::hit::HitMap;
    use crate::ui::keymap::Keymap;
    use crossterm::event::{KeyCode, KeyModifiers};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picker() -> Picker {
        let item = |action: Action| Item {
            title: action.info().title.into(),
            detail: action.info().doc.into(),
            right: String::new(),
            choice: Choice::Action(action),
        };
        let actions = [
            Action::Help,
            Action::Checkpoint,
            Action::Checkpoints,
            Action::Pause,
        ];
        Picker::new("palette", "none", actions.map(item).to_vec())
    }

    fn type_in(picker: &mut Picker, text: &str) {
        for c in text.chars() {
            picker.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        }
    }

    #[test]
    fn typing_finds_and_enter_chooses() {
        let mut picker = picker();
        type_in(&mut picker, "pse");
        assert_eq!(
            picker.act(Action::Accept),
            Reply::Chosen(Choice::Action(Action::Pause))
        );
        type_in(&mut picker, "zzz");
        assert_eq!(picker.act(Action::Accept), Reply::Stay);
        assert_eq!(picker.act(Action::Cancel), Reply::Close);
    }

    #[test]
    fn letters_strewn_over_a_sentence_are_no_hit() {
        let row = |title: &str, detail: &str| Item {
            title: title.into(),
            detail: detail.into(),
            right: String::new(),
            choice: Choice::Action(Action::Help),
        };
        let rows = vec![
            row("start orpo-demo", "Preference pairs without a reference"),
            row(
                "start arithmetic",
                "A small model learns to add numbers by rewards",
            ),
            row("start quickstart", "A GPT learns to write Shakespeare"),
        ];
        let titles = |query: &str| -> Vec<String> {
            let mut picker = Picker::new("palette", "none", rows.clone());
            type_in(&mut picker, query);
            let shown = picker.shown.iter().filter_map(|i| picker.item(*i));
            shown.map(|item| item.title.clone()).collect()
        };
        for word in ["stop", "merge", "logs", "pause", "score"] {
            assert_eq!(titles(word), Vec::<String>::new(), "{word}");
        }
        assert_eq!(titles("qs"), ["start quickstart"]);
        assert_eq!(titles("rewards"), ["start arithmetic"]);
        assert_eq!(titles("orpo start"), ["start orpo-demo"]);
        assert_eq!(titles("STaRT").len(), 3);
    }

    /// `sft` chose the run sft-demo, which stood above it.
    #[test]
    fn a_whole_name_is_found_before_a_longer_one() {
        let row = |title: &&str| Item {
            title: title.to_string(),
            detail: String::new(),
            right: String::new(),
            choice: Choice::Action(Action::Help),
        };
        let titles = [
            "open sft-demo",
            "open sft",
            "H100-PCIe",
            "H100",
            "theme dark",
            "theme",
        ];
        let rows: Vec<Item> = titles.iter().map(row).collect();
        for (query, first) in [
            ("sft", "open sft"),
            ("open sft", "open sft"),
            ("sft-", "open sft-demo"),
            ("h100", "H100"),
            ("theme", "theme"),
            ("dark theme", "theme dark"),
        ] {
            let mut picker = Picker::new("palette", "none", rows.clone());
            type_in(&mut picker, query);
            assert_eq!(picker.current().unwrap().title, first, "{query}");
        }
    }

    #[test]
    fn rows_are_previewed_and_what_was_before_comes_back() {
        let help = Choice::Action(Action::Help);
        let mut picker = picker().previewing(help.clone());
        let pause = Choice::Action(Action::Pause);
        assert_eq!(picker.act(Action::Up), Reply::Preview(pause.clone()));
        assert_eq!(picker.act(Action::Accept), Reply::Chosen(pause));
        assert_eq!(picker.act(Action::Cancel), Reply::Revert(help));
    }

    #[test]
    fn a_path_is_an_answer_where_that_is_asked_even_where_its_letters_fit_a_row() {
        let topic = super::super::prompt::topic();
        let typed = |text: &str| Reply::Chosen(Choice::Answer(topic, Answer::Text(text.into())));
        let mut asking = picker().about(topic).or_path();
        type_in(&mut asking, "org/help");
        assert_eq!(asking.act(Action::Accept), typed("org/help"));
        let mut asking = picker().about(topic).or_path();
        type_in(&mut asking, "help.gguf");
        assert_eq!(asking.act(Action::Accept), typed("help.gguf"));
        // A name of a row is that row, and what was typed stands below it.
        let mut asking = picker().about(topic).or_path();
        type_in(&mut asking, "help");
        let help = Choice::Action(Action::Help);
        assert_eq!(asking.act(Action::Accept), Reply::Chosen(help));
        asking.act(Action::Up);
        assert_eq!(asking.act(Action::Accept), typed("help"));
        let mut plain = picker().about(topic);
        type_in(&mut plain, "zzz");
        assert_eq!(plain.act(Action::Accept), Reply::Stay);
    }

    #[test]
    fn a_path_is_completed_and_its_row_is_selected() {
        let topic = super::super::prompt::topic();
        let mut asking = picker().about(topic).or_path();
        type_in(&mut asking, "h");
        let asked = asking.act(Action::Complete);
        assert_eq!(asked, Reply::Do(Effect::Complete("h".into())));
        let completed = Msg::Completed {
            of: "h".into(),
            path: "help".into(),
            names: vec!["help.gguf".into(), "help/".into()],
        };
        assert_eq!(asking.incoming(&completed), Some(Reply::Stay));
        let row = asking.current().unwrap();
        assert_eq!(
            (row.title.as_str(), row.detail.as_str()),
            ("help", "help.gguf  help/")
        );
        assert!(
            asking.incoming(&completed).is_none(),
            "asked of another text"
        );
    }

    #[test]
    fn the_selected_row_is_told_whole_and_a_wide_screen_is_used() {
        let cause = "each step went further than the gradient holds";
        let title = "optimizer.adamw.lr=3e-4 in a branch from 1,000 (before it)";
        let item = Item {
            title: title.into(),
            detail: cause.into(),
            right: String::new(),
            choice: Choice::Action(Action::Help),
        };
        let drawn = |width: u16| {
            let mut picker = Picker::new("advice", "", vec![item.clone()]);
            let theme = Theme::ansi();
            let (keymap, mut hits) = (Keymap::embedded(), HitMap::default());
            let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
            let draw = |frame: &mut Frame| {
                let mut canvas = Canvas {
                    theme: &theme,
                    keymap: &keymap,
                    hits: &mut hits,
                };
                picker.draw(frame, frame.area(), &mut canvas);
            };
            terminal.draw(draw).unwrap();
            terminal.backend().to_string()
        };
        let wide = drawn(160);
        assert!(wide.contains(&format!("{title}  {cause}")), "{wide}");
        let narrow = drawn(80);
        let words: String = narrow.split(['│', '"', '\n']).collect();
        let words: Vec<&str> = words.split_whitespace().collect();
        assert!(
            words.join(" ").contains(&format!("{title}: {cause}")),
            "{narrow}"
        );
    }

    #[test]
    fn the_selection_goes_round_and_clicks_choose() {
        let mut picker = picker();
        picker.act(Action::Up);
        assert_eq!(
            picker.current().unwrap().choice,
            Choice::Action(Action::Pause)
        );
        picker.act(Action::Down);
        assert_eq!(
            picker.current().unwrap().choice,
            Choice::Action(Action::Help)
        );
        assert_eq!(
            picker.click(1),
            Reply::Chosen(Choice::Action(Action::Checkpoint))
        );
    }
}
