//! The items of one task: a list with each model's mark, and the marked item in full, prompt and answers.

use super::draw::model_name;
use crate::base::text::{one_line, sanitize};
use crate::tasks::{Question, TaskRow};
use crate::ui::action::Action;
use crate::ui::layout::{scroll_to, split_top, wrap};
use crate::ui::glyphs::Glyphs;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, letter, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Which items are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Only {
    #[default]
    All,
    /// Some model differs from the first one.
    Flipped,
    /// The first one is wrong and another right.
    Won,
    /// The first one is right and another wrong.
    Lost,
    /// Nobody is right.
    Missed,
}

impl Only {
    fn next(self) -> Only {
        match self {
            Only::All => Only::Flipped,
            Only::Flipped => Only::Won,
            Only::Won => Only::Lost,
            Only::Lost => Only::Missed,
            Only::Missed => Only::All,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Only::All => "all items",
            Only::Flipped => "items that flipped",
            Only::Won => "items that A fails and another solves",
            Only::Lost => "items that A solves and another fails",
            Only::Missed => "items solved by none",
        }
    }

    fn fits(self, question: &Question) -> bool {
        let others = 1..question.given.len();
        let mut flips = others.filter_map(|at| question.flip(at));
        match self {
            Only::All => true,
            Only::Flipped => flips.next().is_some(),
            Only::Won => flips.any(|won| won),
            Only::Lost => flips.any(|won| !won),
            Only::Missed => {
                let given = question.given.iter().flatten();
                let mut right = given.map(|given| given.right());
                right.all(|right| right == Some(false))
            }
        }
    }
}

/// What was read, and the cursors.
#[derive(Debug)]
pub struct Items {
    row: TaskRow,
    models: Vec<String>,
    questions: Vec<Question>,
    only: Only,
    /// Indices into `questions`.
    shown: Vec<usize>,
    selected: usize,
    first: usize,
    /// Lines of the marked item that are scrolled away, and could be at most.
    scroll: usize,
    most: usize,
    page: usize,
}

impl Items {
    pub fn new(row: TaskRow, models: Vec<String>, questions: Vec<Question>) -> Items {
        Items {
            shown: (0..questions.len()).collect(),
            row,
            models,
            questions,
            only: Only::All,
            selected: 0,
            first: 0,
            scroll: 0,
            most: 0,
            page: 1,
        }
    }

    pub fn act(&mut self, action: Action) {
        let last = self.shown.len().saturating_sub(1);
        let page = self.page.max(1);
        match action {
            Action::Up => self.select(self.selected.saturating_sub(1)),
            Action::Down => self.select(self.selected + 1),
            Action::Top => self.select(0),
            Action::Bottom => self.select(last),
            Action::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Action::PageDown => self.scroll = (self.scroll + page).min(self.most),
            Action::EvalsOnly => {
                self.only = self.only.next();
                let all = self.questions.iter().enumerate();
                let fits = all.filter(|(_, question)| self.only.fits(question));
                self.shown = fits.map(|(at, _)| at).collect();
                self.select(0);
            }
            _ => {}
        }
    }

    pub fn select(&mut self, row: usize) {
        self.selected = row.min(self.shown.len().saturating_sub(1));
        self.scroll = 0;
    }

    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, theme: &Theme) -> Vec<(usize, Rect)> {
        let (head, rest) = split_top(area, 1);
        let title = [
            word(one_line(&self.row.task), Meaning::Title),
            word(
                format!(
                    "  {}: {} of {}, by {}",
                    self.only.words(),
                    self.shown.len(),
                    self.questions.len(),
                    one_line(&self.row.metric)
                ),
                Meaning::Muted,
            ),
        ];
        text::draw(buffer, head.x, head.y, head.width, &title, theme);
        let (list, below) = split_top(rest, (rest.height / 3).max(3));
        let height = usize::from(list.height);
        self.first = scroll_to(self.selected, self.first, height);
        let shown = self.shown.iter().enumerate().skip(self.first);
        let mut places = Vec::new();
        for (y, (row, at)) in (list.y..list.bottom()).zip(shown) {
            let words = self.line(&self.questions[*at], row == self.selected, theme.glyphs());
            text::draw(buffer, list.x, y, list.width, &words, theme);
            places.push((row, Rect { y, height: 1, ..list }));
        }
        let (_, below) = split_top(below, 1);
        let Some(question) = self.shown.get(self.selected).map(|at| &self.questions[*at]) else {
            return places;
        };
        let lines = self.whole(question, below.width, theme.glyphs());
        self.page = usize::from(below.height);
        self.most = lines.len().saturating_sub(self.page);
        self.scroll = self.scroll.min(self.most);
        for (y, words) in (below.y..below.bottom()).zip(lines.iter().skip(self.scroll)) {
            text::draw(buffer, below.x, y, below.width, words, theme);
        }
        places
    }

    /// `▸ 12  A ✓ B ✗  The capital of France is`
    fn line(&self, question: &Question, marked: bool, glyphs: &Glyphs) -> Vec<Word> {
        let pointer = if marked { glyphs.pointer } else { " " };
        let meaning = if marked { Meaning::Selected } else { Meaning::Text };
        let mut words = vec![word(format!("{pointer} {:>5} ", question.item), meaning)];
        for (at, given) in question.given.iter().enumerate() {
            let right = given.as_ref().map(|given| given.right());
            let (mark, meaning) = match right {
                Some(Some(true)) => (glyphs.ok, Meaning::Good),
                Some(Some(false)) => (glyphs.bad, Meaning::Bad),
                Some(None) => (glyphs.dot, Meaning::Muted),
                None => ("-", Meaning::Muted),
            };
            words.push(word(format!(" {}", letter(at)), Meaning::Muted));
            words.push(word(mark, meaning));
        }
        // The end of a prompt is its question; worked examples stand before it.
        let prompt = one_line(question.prompt.trim());
        let skip = prompt.chars().count().saturating_sub(TAIL);
        let tail: String = prompt.chars().skip(skip).collect();
        let mark = if skip > 0 { glyphs.ellipsis } else { "" };
        words.push(word(format!("  {mark}{tail}"), meaning));
        words
    }

    /// Prompt, what is right, what each model made of it.
    fn whole(&self, question: &Question, width: u16, glyphs: &Glyphs) -> Vec<Vec<Word>> {
        let mut lines = Vec::new();
        let mut part = |title: String, text: &str, meaning: Meaning| {
            lines.push(vec![word(title, Meaning::Title)]);
            let rows = wrap(sanitize(text).trim_end(), width.saturating_sub(2).max(1));
            lines.extend(rows.into_iter().map(|row| vec![word(format!("  {row}"), meaning)]));
        };
        part("prompt".into(), &question.prompt, Meaning::Text);
        if !question.target.is_empty() {
            part("right".into(), &question.target, Meaning::Text);
        }
        for (at, given) in question.given.iter().enumerate() {
            let name = self.models.get(at).map(|name| model_name(name)).unwrap_or_default();
            let title = format!("{} {name}", letter(at));
            match given {
                Some(given) => {
                    let (mark, meaning) = match given.right() {
                        Some(true) => (glyphs.ok.to_string(), Meaning::Good),
                        Some(false) => (glyphs.bad.to_string(), Meaning::Bad),
                        None => (crate::base::human::number(given.score), Meaning::Text),
                    };
                    part(format!("{title} {mark}"), &given.text, meaning);
                }
                None => part(title, "no answer to this item", Meaning::Muted),
            }
        }
        lines
    }
}

/// Letters of a prompt in a row of the list.
const TAIL: usize = 110;
