//! One question that is answered by a text.

use super::{Canvas, Choice, Overlay, Reply};
use crate::ui::action::Action;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, framed, split_bottom};
use crate::ui::request::{Answer, Hints, Topic};
use crate::ui::theme::Meaning;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;

/// The question and the text so far.
#[derive(Debug)]
pub struct Prompt {
    topic: Topic,
    title: &'static str,
    hint: &'static str,
    field: TextField,
    /// An empty text is no answer.
    needed: bool,
    /// The pane follows each letter; without an answer it gets an empty text.
    live: bool,
}

impl Prompt {
    pub fn new(topic: Topic, title: &'static str, hint: &'static str) -> Self {
        Prompt {
            topic,
            title,
            hint,
            field: TextField::new(Lines::One, ""),
            needed: false,
            live: false,
        }
    }

    /// Begins with this text.
    pub fn with(mut self, text: &str) -> Self {
        self.field.set(text);
        self
    }

    pub fn needed(self) -> Self {
        Prompt {
            needed: true,
            ..self
        }
    }

    pub fn live(self) -> Self {
        Prompt { live: true, ..self }
    }

    fn answer(&self, text: String) -> Choice {
        Choice::Answer(self.topic, Answer::Text(text))
    }

    fn changed(&self) -> Reply {
        match self.live {
            true => Reply::Preview(self.answer(self.field.text())),
            false => Reply::Stay,
        }
    }
}

impl Overlay for Prompt {
    fn hints(&self) -> Hints {
        Hints::of_overlay(vec![(Action::Accept, "take"), (Action::Down, "next")])
    }

    fn typing(&self) -> bool {
        true
    }

    fn topic(&self) -> Option<Topic> {
        Some(self.topic)
    }

    fn act(&mut self, action: Action) -> Reply {
        let text = self.field.text();
        match action {
            Action::Accept if self.needed && text.trim().is_empty() => Reply::Stay,
            Action::Accept => Reply::Chosen(self.answer(text)),
            Action::Cancel | Action::Leave if self.live => {
                Reply::Chosen(self.answer(String::new()))
            }
            Action::Cancel | Action::Leave => Reply::Close,
            _ => Reply::Stay,
        }
    }

    fn key(&mut self, key: KeyEvent) -> Reply {
        self.field.key(key);
        self.changed()
    }

    fn paste(&mut self, text: &str) -> Reply {
        self.field.paste(text);
        self.changed()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let area = centred(area, 72.min(area.width.saturating_sub(2)), 4);
        let block = framed(canvas.theme, self.title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        let (text, foot) = split_bottom(inner, u16::from(inner.height > 1));
        self.field.draw(frame, text, canvas.theme, true);
        let hint = Line::styled(self.hint, canvas.theme.style(Meaning::Muted));
        frame.render_widget(hint, foot);
    }
}

/// A question of a pane, for tests.
#[cfg(test)]
pub(super) fn topic() -> Topic {
    Topic {
        pane: &crate::ui::panes::run::ENTRY,
        about: "test",
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(Prompt::new(topic(), "note", "enter takes it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_needed_is_waited_for_and_a_followed_text_is_taken_back() {
        let text = |text: &str| Choice::Answer(topic(), Answer::Text(text.into()));
        let mut prompt = Prompt::new(topic(), "", "").with(" ").needed();
        assert_eq!(prompt.act(Action::Accept), Reply::Stay);
        assert_eq!(prompt.paste("x"), Reply::Stay);
        assert_eq!(prompt.act(Action::Accept), Reply::Chosen(text(" x")));
        assert_eq!(prompt.act(Action::Cancel), Reply::Close);
        let mut prompt = Prompt::new(topic(), "", "").with("lo").live();
        assert_eq!(prompt.paste("ss"), Reply::Preview(text("loss")));
        assert_eq!(prompt.act(Action::Cancel), Reply::Chosen(text("")));
    }
}
