//! A question with its reasons: sentences, then the answers, the last of which is no. For what cannot be taken back without a loss.

use super::{Canvas, Choice, Overlay, Reply};
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{centred, fill, framed, wrap};
use crate::ui::request::{Answer, Topic};
use crate::ui::theme::Meaning;
use crate::ui::widgets::text::readable;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

/// The answer that a pane hears.
pub const YES: &str = "yes";

/// The question; no answer at all is no.
#[derive(Debug)]
pub struct Question {
    title: String,
    reasons: Vec<String>,
    /// The rows before the last: the word that the pane hears, and what stands there.
    answers: Vec<(&'static str, &'static str)>,
    no: &'static str,
    topic: Topic,
    /// In the beginning the last row, which is the harmless one.
    selected: usize,
}

impl Question {
    /// `answers`: yes and no, in words that say what each one does.
    pub fn new(
        title: &str,
        reasons: Vec<String>,
        [yes, no]: [&'static str; 2],
        topic: Topic,
    ) -> Question {
        Question {
            title: title.into(),
            reasons,
            answers: vec![(YES, yes)],
            no,
            topic,
            selected: 1,
        }
    }

    /// Another way, in front of yes.
    pub fn or(mut self, word: &'static str, row: &'static str) -> Question {
        self.answers.insert(0, (word, row));
        self.selected = self.answers.len();
        self
    }

    /// The first row is selected in the beginning, where no answer loses anything.
    pub fn first(mut self) -> Question {
        self.selected = 0;
        self
    }

    fn answer(&self) -> Reply {
        match self.answers.get(self.selected) {
            None => Reply::Close,
            Some((word, _)) => {
                let answer = Answer::Text((*word).into());
                Reply::Chosen(Choice::Answer(self.topic, answer))
            }
        }
    }
}

impl Overlay for Question {
    fn topic(&self) -> Option<Topic> {
        Some(self.topic)
    }

    fn act(&mut self, action: Action) -> Reply {
        let rows = self.answers.len() + 1;
        match action {
            Action::Up => self.selected = (self.selected + rows - 1) % rows,
            Action::Down => self.selected = (self.selected + 1) % rows,
            Action::Top => self.selected = 0,
            Action::Bottom => self.selected = rows - 1,
            Action::Accept => return self.answer(),
            Action::Cancel | Action::Leave => return Reply::Close,
            _ => {}
        }
        Reply::Stay
    }

    fn click(&mut self, row: usize) -> Reply {
        self.selected = row.min(self.answers.len());
        self.answer()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        const INDENT: u16 = 2;
        let theme = canvas.theme;
        let width = 76.min(area.width.saturating_sub(2));
        let room = width.saturating_sub(2 + 2 * INDENT).max(1);
        let lines: Vec<String> = self
            .reasons
            .iter()
            .flat_map(|reason| wrap(&readable(reason, theme), room))
            .collect();
        let rows = self.answers.iter().map(|(_, row)| *row).chain([self.no]);
        let n_rows = self.answers.len() as u16 + 1;
        let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX).saturating_add(n_rows);
        let area = centred(area, width, height);
        let title = readable(&self.title, theme);
        let block = framed(theme, &title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        // The rows come before the reasons where the screen is too small for both.
        let reasons = inner.height.saturating_sub(n_rows + 1);
        for (line, y) in lines.iter().zip(inner.y..inner.y + reasons) {
            let place = Rect {
                y,
                height: 1,
                ..inner
            };
            let text = format!("{:1$}{line}", "", usize::from(INDENT));
            let text = fill(&text, inner.width.into(), theme.glyphs().ellipsis);
            frame.render_widget(Line::styled(text, theme.style(Meaning::Text)), place);
        }
        let first = inner.bottom().saturating_sub(n_rows).max(inner.y);
        for ((i, words), y) in rows.enumerate().zip(first..inner.bottom()) {
            let place = Rect {
                y,
                height: 1,
                ..inner
            };
            let selected = i == self.selected;
            let (pointer, meaning) = match selected {
                true => (theme.glyphs().pointer, Meaning::Selected),
                false => (" ", Meaning::Text),
            };
            let text = fill(words, usize::from(inner.width.saturating_sub(INDENT)), "");
            let line = Line::from(vec![
                Span::styled(format!("{pointer} "), theme.style(meaning)),
                Span::styled(text, theme.style(meaning)),
            ]);
            frame.render_widget(line, place);
            canvas.hits.add(place, Target::OverlayRow(i));
        }
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    let topic = Topic {
        pane: &crate::ui::panes::run::ENTRY,
        about: "x",
    };
    Box::new(Question::new(
        "undo the rescue",
        vec!["why".into()],
        ["undo it", "keep the rescue"],
        topic,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_alone_changes_nothing() {
        let mut question = example();
        assert_eq!(question.act(Action::Accept), Reply::Close);
        question.act(Action::Up);
        let yes = question.act(Action::Accept);
        assert!(matches!(yes, Reply::Chosen(Choice::Answer(_, Answer::Text(word))) if word == YES));
        assert_eq!(question.act(Action::Cancel), Reply::Close);
    }

    #[test]
    fn another_way_stands_before_yes_and_no_is_still_where_it_begins() {
        let topic = example().topic().unwrap();
        let answers = ["discard", "stay"];
        let mut question = Question::new("leave", Vec::new(), answers, topic).or("save", "save");
        assert_eq!(question.act(Action::Accept), Reply::Close);
        question.act(Action::Top);
        let first = question.act(Action::Accept);
        let answer = Answer::Text("save".into());
        assert_eq!(first, Reply::Chosen(Choice::Answer(topic, answer)));
    }
}
