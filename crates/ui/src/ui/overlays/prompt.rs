//! One question that is answered by a text.

use super::{Canvas, Choice, LIST, Overlay, PATH, Reply};
use crate::base::paths::unquoted;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, cut, framed, split_bottom};
use crate::ui::msg::Msg;
use crate::ui::request::{Answer, Hints, Topic};
use crate::ui::store::Store;
use crate::ui::theme::Meaning;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;
use std::path::PathBuf;

/// The question and the text so far.
#[derive(Debug)]
pub struct Prompt {
    topic: Topic,
    title: &'static str,
    /// Its keys are named by their actions: `{accept} keeps it`.
    hint: &'static str,
    field: TextField,
    /// An empty text is no answer.
    needed: bool,
    /// The pane follows each letter; without an answer it gets an empty text.
    live: bool,
    /// The text is a path: names that it could go on with.
    path: Option<Vec<String>>,
    /// What `~` means in a path.
    home: Option<PathBuf>,
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
            path: None,
            home: None,
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

    /// The text is a path and can be completed.
    pub fn path(self) -> Self {
        Prompt {
            path: Some(Vec::new()),
            ..self
        }
    }

    fn answer(&self, text: String) -> Choice {
        Choice::Answer(self.topic, Answer::Text(text))
    }

    fn changed(&mut self) -> Reply {
        if let Some(names) = &mut self.path {
            names.clear();
        }
        match self.live {
            true => Reply::Preview(self.answer(self.field.text())),
            false => Reply::Stay,
        }
    }
}

impl Overlay for Prompt {
    fn contexts(&self) -> &'static [Context] {
        if self.path.is_some() { PATH } else { LIST }
    }

    fn hints(&self) -> Hints {
        let mut own = vec![(Action::Accept, "accept")];
        own.extend(self.path.as_ref().map(|_| (Action::Complete, "complete")));
        Hints::of_overlay(own)
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
            Action::Accept if self.path.is_some() => {
                Reply::Chosen(self.answer(unquoted(&text, self.home.as_deref())))
            }
            Action::Accept => Reply::Chosen(self.answer(text)),
            Action::Cancel | Action::Leave if self.live => {
                Reply::Revert(self.answer(String::new()))
            }
            Action::Complete if self.path.is_some() => Reply::Do(Effect::Complete(text)),
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

    fn renew(&mut self, store: &Store) {
        self.home.clone_from(&store.home);
    }

    fn incoming(&mut self, msg: &Msg) -> Option<Reply> {
        let Msg::Completed { of, path, names } = msg else {
            return None;
        };
        if self.path.is_none() || self.field.text() != *of {
            return None;
        }
        self.field.set(path);
        self.path = Some(names.clone());
        Some(Reply::Stay)
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
        let names = self.path.as_ref().filter(|names| names.len() > 1);
        let hint = names.map_or_else(|| canvas.keymap.fill(self.hint), |names| names.join("  "));
        let hint = cut(&hint, foot.width.into(), canvas.theme.glyphs().ellipsis);
        let hint = Line::styled(hint, canvas.theme.style(Meaning::Muted));
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
    Box::new(Prompt::new(topic(), "note", "{accept} takes it"))
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
        assert_eq!(prompt.act(Action::Cancel), Reply::Revert(text("")));
    }

    #[test]
    fn a_path_in_the_home_folder_is_taken_as_it_was_copied_from_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("my data.txt"), "").unwrap();
        let mut prompt = Prompt::new(topic(), "", "").with("~/my\\ data.txt").path();
        prompt.renew(&Store {
            home: Some(dir.path().into()),
            ..Store::default()
        });
        let meant = Choice::Answer(topic(), Answer::Text("~/my data.txt".into()));
        assert_eq!(prompt.act(Action::Accept), Reply::Chosen(meant));
    }

    #[test]
    fn a_path_is_completed_and_a_late_completion_is_dropped() {
        let completed = |of: &str| Msg::Completed {
            of: of.into(),
            path: "data/chat".into(),
            names: vec!["chat.jsonl".into(), "chats/".into()],
        };
        let mut prompt = Prompt::new(topic(), "", "").with("data/c").path();
        let asked = prompt.act(Action::Complete);
        assert_eq!(asked, Reply::Do(Effect::Complete("data/c".into())));
        assert!(prompt.incoming(&completed("data/")).is_none());
        assert!(prompt.incoming(&completed("data/c")).is_some());
        assert_eq!(prompt.field.text(), "data/chat");
    }
}
