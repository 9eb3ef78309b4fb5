//! The question what becomes of a live run when its viewer leaves or stops it.

use super::{Canvas, Choice, LEAVE, Overlay, Reply};
use crate::ui::action::{Action, Context};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, fill, framed};
use crate::ui::msg::Holder;
use crate::ui::store::HeldRun;
use crate::ui::theme::Meaning;
use crate::wire::Phase;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

/// The answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveChoice {
    Running,
    StopAfterCheckpoint,
    StopNow,
}

/// An answer: its action, what it is called and what follows from it.
type Row = (Action, LeaveChoice, &'static str, &'static str);

/// The question. `leaving`: the workbench closes afterwards.
#[derive(Debug)]
pub struct LeaveQuestion {
    leaving: bool,
    title: String,
    rows: Vec<Row>,
    selected: usize,
}

impl LeaveQuestion {
    pub fn new(leaving: bool, held: &HeldRun) -> Self {
        let paused = held.state.phase == Some(Phase::Paused);
        Self::asked(leaving, held.holder, held.name(), paused)
    }

    fn asked(leaving: bool, holder: Holder, run: &str, paused: bool) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        if leaving && holder == Holder::Detached {
            let title = match paused {
                true => "leave it paused",
                false => Action::LeaveRunning.info().title,
            };
            rows.push((
                Action::LeaveRunning,
                LeaveChoice::Running,
                title,
                "llmtui attach reopens it",
            ));
        }
        let mut stop = |action: Action, choice, what| {
            rows.push((action, choice, action.info().title, what));
        };
        stop(
            Action::StopAfterCheckpoint,
            LeaveChoice::StopAfterCheckpoint,
            "nothing is lost; it can be resumed",
        );
        stop(
            Action::StopNow,
            LeaveChoice::StopNow,
            "steps since the last checkpoint are lost",
        );
        let word = if paused { "paused" } else { "running" };
        LeaveQuestion {
            leaving,
            title: format!("{run} is {word}"),
            rows,
            selected: 0,
        }
    }

    fn answer(&self, row: usize) -> Reply {
        match self.rows.get(row) {
            Some((_, choice, ..)) => Reply::Chosen(Choice::Leave {
                choice: *choice,
                leaving: self.leaving,
            }),
            None => Reply::Close,
        }
    }
}

impl Overlay for LeaveQuestion {
    fn contexts(&self) -> &'static [Context] {
        LEAVE
    }

    fn act(&mut self, action: Action) -> Reply {
        let last = self.rows.len();
        match action {
            Action::Up => self.selected = self.selected.checked_sub(1).unwrap_or(last),
            Action::Down => {
                self.selected = if self.selected >= last {
                    0
                } else {
                    self.selected + 1
                }
            }
            Action::Accept => return self.answer(self.selected),
            Action::Cancel | Action::Leave => return Reply::Close,
            wanted => {
                if let Some(row) = self.rows.iter().position(|(action, ..)| *action == wanted) {
                    return self.answer(row);
                }
            }
        }
        Reply::Stay
    }

    fn click(&mut self, row: usize) -> Reply {
        self.answer(row)
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let theme = canvas.theme;
        let height = u16::try_from(self.rows.len() + 3).unwrap_or(u16::MAX);
        let area = centred(area, 78.min(area.width.saturating_sub(2)), height);
        let block = framed(theme, &self.title);
        let inner = block.inner(area);
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        canvas.hits.add(area, Target::Overlay);
        let cancel = (Action::Cancel, "cancel", "stay here");
        let rows = self
            .rows
            .iter()
            .map(|(action, _, title, what)| (*action, *title, *what));
        for ((i, (action, title, what)), y) in rows
            .chain([cancel])
            .enumerate()
            .zip(inner.y..inner.bottom())
        {
            let place = Rect {
                y,
                height: 1,
                ..inner
            };
            let selected = i == self.selected;
            let base = theme.style(if selected {
                Meaning::Selected
            } else {
                Meaning::Text
            });
            let quiet = |m| if selected { base } else { theme.style(m) };
            let pointer = if selected {
                theme.glyphs().pointer
            } else {
                " "
            };
            let dots = theme.glyphs().ellipsis;
            let rest = usize::from(inner.width).saturating_sub(34);
            let line = Line::from(vec![
                Span::styled(format!("{pointer} "), base),
                Span::styled(
                    fill(&canvas.keymap.label(action), 4, dots),
                    quiet(Meaning::Key),
                ),
                Span::styled(fill(title, 26, dots), base),
                Span::styled(fill(what, rest, dots), quiet(Meaning::Muted)),
            ]);
            frame.render_widget(line, place);
            canvas.hits.add(place, Target::OverlayRow(i));
        }
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(LeaveQuestion::asked(true, Holder::Detached, "x", false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(choice: LeaveChoice) -> Reply {
        Reply::Chosen(Choice::Leave {
            choice,
            leaving: true,
        })
    }

    #[test]
    fn only_what_is_possible_is_offered() {
        let mut question = LeaveQuestion::asked(true, Holder::Detached, "x", false);
        assert_eq!(
            question.act(Action::Accept),
            chosen(LeaveChoice::Running)
        );
        assert_eq!(
            question.act(Action::StopNow),
            chosen(LeaveChoice::StopNow)
        );
        question.act(Action::Up);
        assert_eq!(question.act(Action::Accept), Reply::Close);
        let mut question = LeaveQuestion::asked(true, Holder::Here, "x", false);
        assert_eq!(question.act(Action::LeaveRunning), Reply::Stay);
        assert_eq!(question.rows.len(), 2);
        assert_eq!(
            LeaveQuestion::asked(false, Holder::Detached, "x", false).rows.len(),
            2
        );
    }

    #[test]
    fn a_paused_run_is_not_called_running() {
        let question = LeaveQuestion::asked(true, Holder::Detached, "x", true);
        assert_eq!(question.title, "x is paused");
        assert_eq!(question.rows[0].2, "leave it paused");
        let question = LeaveQuestion::asked(true, Holder::Detached, "x", false);
        assert_eq!(question.title, "x is running");
        assert_eq!(question.rows[0].2, "leave it running");
    }
}
