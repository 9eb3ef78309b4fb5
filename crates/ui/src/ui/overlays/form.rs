//! A few named values to change at once: decoding settings, live tuning.

use super::{Canvas, Choice, Overlay, Reply};
use crate::ui::action::Action;
use crate::ui::field::{Lines, TextField};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, fill, framed, split_bottom};
use crate::ui::request::{Answer, Hints, Topic};
use crate::ui::theme::Meaning;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

/// Columns of the names.
const NAMES: u16 = 22;

/// One value.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    /// One sentence, shown while the field is selected.
    pub hint: String,
    field: TextField,
    /// Why the text is no value; `None` when it is one.
    check: fn(&str) -> Option<String>,
}

impl Field {
    pub fn new(
        name: &'static str,
        hint: &str,
        value: &str,
        check: fn(&str) -> Option<String>,
    ) -> Self {
        Field {
            name,
            hint: hint.into(),
            field: TextField::new(Lines::One, value),
            check,
        }
    }
}

/// The fields and which one is edited.
#[derive(Debug)]
pub struct Form {
    topic: Topic,
    title: &'static str,
    fields: Vec<Field>,
    selected: usize,
    /// What was wrong at the last Enter.
    error: Option<String>,
}

impl Form {
    pub fn new(topic: Topic, title: &'static str, fields: Vec<Field>) -> Self {
        Form {
            topic,
            title,
            fields,
            selected: 0,
            error: None,
        }
    }

    fn submit(&mut self) -> Reply {
        for (i, field) in self.fields.iter().enumerate() {
            if let Some(why) = (field.check)(field.field.text().trim()) {
                self.selected = i;
                self.error = Some(format!("{}: {why}", field.name));
                return Reply::Stay;
            }
        }
        let values = self.fields.iter().map(|f| f.field.text()).collect();
        Reply::Chosen(Choice::Answer(self.topic, Answer::Values(values)))
    }
}

impl Overlay for Form {
    fn hints(&self) -> Hints {
        Hints::of_overlay(vec![(Action::Accept, "accept"), (Action::Down, "next")])
    }

    fn typing(&self) -> bool {
        true
    }

    fn topic(&self) -> Option<Topic> {
        Some(self.topic)
    }

    fn act(&mut self, action: Action) -> Reply {
        let last = self.fields.len().saturating_sub(1);
        match action {
            Action::Up => self.selected = self.selected.checked_sub(1).unwrap_or(last),
            Action::Down => {
                self.selected = if self.selected >= last {
                    0
                } else {
                    self.selected + 1
                }
            }
            Action::Accept => return self.submit(),
            Action::Cancel | Action::Leave => return Reply::Close,
            _ => {}
        }
        Reply::Stay
    }

    fn key(&mut self, key: KeyEvent) -> Reply {
        self.error = None;
        if let Some(field) = self.fields.get_mut(self.selected) {
            field.field.key(key);
        }
        Reply::Stay
    }

    fn paste(&mut self, text: &str) -> Reply {
        if let Some(field) = self.fields.get_mut(self.selected) {
            field.field.paste(text);
        }
        Reply::Stay
    }

    fn click(&mut self, row: usize) -> Reply {
        self.selected = row.min(self.fields.len().saturating_sub(1));
        Reply::Stay
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let theme = canvas.theme;
        let rows = u16::try_from(self.fields.len()).unwrap_or(u16::MAX);
        let area = centred(
            area,
            72.min(area.width.saturating_sub(2)),
            rows.saturating_add(5),
        );
        let block = framed(theme, self.title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        let (list, foot) = split_bottom(inner, 3.min(inner.height.saturating_sub(1)));
        let first = (self.selected + 1).saturating_sub(list.height.into());
        for ((i, field), y) in self
            .fields
            .iter_mut()
            .enumerate()
            .skip(first)
            .zip(list.y..list.bottom())
        {
            let selected = i == self.selected;
            let place = Rect {
                y,
                height: 1,
                ..list
            };
            let pointer = if selected {
                theme.glyphs().pointer
            } else {
                " "
            };
            let meaning = if selected {
                Meaning::Accent
            } else {
                Meaning::Muted
            };
            let name = format!("{pointer} {}", fill(field.name, usize::from(NAMES) - 2, ""));
            frame.render_widget(Line::styled(name, theme.style(meaning)), place);
            let names = NAMES.min(place.width);
            let value = Rect {
                x: place.x + names,
                width: place.width - names,
                ..place
            };
            field.field.draw(frame, value, theme, selected);
            canvas.hits.add(place, Target::OverlayRow(i));
        }
        let hint = self
            .fields
            .get(self.selected)
            .map_or("", |f| f.hint.as_str());
        let (words, meaning) = match &self.error {
            Some(error) => (error.as_str(), Meaning::Bad),
            None => (hint, Meaning::Muted),
        };
        let mut lines = vec![Line::default()];
        lines.extend(
            crate::ui::layout::wrap(words, foot.width)
                .into_iter()
                .map(|row| Line::styled(row, theme.style(meaning))),
        );
        frame.render_widget(Paragraph::new(lines), foot);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    let fields = vec![Field::new("lr", "", "0.1", |_| None)];
    Box::new(Form::new(super::prompt::topic(), "tune", fields))
}

#[cfg(test)]
mod tests {
    use super::super::prompt::topic;
    use super::*;

    fn number(text: &str) -> Option<String> {
        text.parse::<f64>()
            .err()
            .map(|_| format!("`{text}` is not a number"))
    }

    #[test]
    fn wrong_values_are_named_and_keep_the_form_open() {
        let fields = vec![
            Field::new("lr", "", "0.1", number),
            Field::new("clip", "", "1", number),
        ];
        let mut form = Form::new(topic(), "tune", fields);
        form.act(Action::Down);
        form.paste("x");
        form.act(Action::Up);
        assert_eq!(form.act(Action::Accept), Reply::Stay);
        assert_eq!(
            (form.selected, form.error.as_deref()),
            (1, Some("clip: `1x` is not a number"))
        );
        form.fields[1].field.set("2");
        let values = vec!["0.1".to_string(), "2".to_string()];
        assert_eq!(
            form.act(Action::Accept),
            Reply::Chosen(Choice::Answer(topic(), Answer::Values(values)))
        );
    }
}
