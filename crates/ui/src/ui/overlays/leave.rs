//! Asks what to do with a live run when its viewer leaves or stops it.

use super::{Canvas, Choice, LEAVE, Overlay, Reply};
use crate::run::state::StopCause;
use crate::ui::action::{Action, Context};
use crate::ui::hit::Target;
use crate::ui::layout::{centred, fill, framed};
use crate::ui::msg::{Holder, PipelineStatus};
use crate::ui::store::OpenRun;
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

/// What the run does while it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Running,
    Paused,
    /// Waiting for another run to end.
    Queued,
    /// The disk takes no event, and so no checkpoint either.
    Stalled,
    /// The process is suspended by a signal and receives nothing until it is continued.
    Suspended,
}

impl LeaveQuestion {
    pub fn new(leaving: bool, held: &OpenRun) -> Self {
        let now = match held.state.halted {
            Some((StopCause::Disk, _)) => Now::Stalled,
            Some((StopCause::Signal, _)) => Now::Suspended,
            _ if held.state.phase == Some(Phase::Paused) => Now::Paused,
            _ if held.state.phase == Some(Phase::Queued) => Now::Queued,
            _ => Now::Running,
        };
        let mut asked = Self::asked(leaving, held.holder, held.name(), now);
        let stage = held.stage.as_ref();
        if !matches!(now, Now::Stalled | Now::Suspended) && stage.is_some_and(|stage| stage.standing == PipelineStatus::Running) {
            for (_, choice, _, what) in &mut asked.rows {
                if *choice == LeaveChoice::StopAfterCheckpoint {
                    *what = "nothing is lost; its pipeline stops too, and can be resumed";
                }
            }
        }
        asked
    }

    fn asked(leaving: bool, holder: Holder, run: &str, now: Now) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        if leaving && holder == Holder::Detached {
            let title = match now {
                Now::Paused => "leave it paused",
                Now::Queued => "leave it queued",
                Now::Running | Now::Stalled | Now::Suspended => Action::LeaveRunning.info().title,
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
            match now {
                Now::Stalled => "saves only if the disk has room by then; else as below",
                Now::Suspended => "takes effect after kill -CONT PID",
                Now::Queued => "it begins no more; it can be resumed",
                Now::Running | Now::Paused => "nothing is lost; it can be resumed",
            },
        );
        stop(
            Action::StopNow,
            LeaveChoice::StopNow,
            match now {
                Now::Suspended => "also only then; steps since the checkpoint are lost",
                Now::Queued => "the same",
                _ => "steps since the last checkpoint are lost",
            },
        );
        let word = match now {
            Now::Running => "running",
            Now::Paused => "paused",
            Now::Queued => "queued",
            Now::Stalled => "waiting for the disk",
            Now::Suspended => "suspended",
        };
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
        let stay = match self.leaving {
            true => "stay here",
            false => "nothing changes",
        };
        let cancel = (Action::Cancel, "cancel", stay);
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
    Box::new(LeaveQuestion::asked(true, Holder::Detached, "x", Now::Running))
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
        let mut question = LeaveQuestion::asked(true, Holder::Detached, "x", Now::Running);
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
        let mut question = LeaveQuestion::asked(true, Holder::Here, "x", Now::Running);
        assert_eq!(question.act(Action::LeaveRunning), Reply::Stay);
        assert_eq!(question.rows.len(), 2);
        assert_eq!(
            LeaveQuestion::asked(false, Holder::Detached, "x", Now::Running).rows.len(),
            2
        );
    }

    #[test]
    fn who_stops_a_stage_is_told_that_its_pipeline_stops_too() {
        use crate::ui::msg::{Slot, StageOf};
        let mut held = OpenRun::opening(Slot(1), "x".into(), Default::default());
        let stops = |held: &OpenRun| LeaveQuestion::new(true, held).rows[1].3;
        assert!(!stops(&held).contains("pipeline"));
        held.stage = Some(StageOf {
            id: "p-x7ka".into(),
            pipeline: "p".into(),
            stage: "a".into(),
            number: 1,
            n_stages: 2,
            is_over: false,
            standing: PipelineStatus::Running,
            next: Some("b".into()),
            live: None,
            outputs: Vec::new(),
        });
        assert!(stops(&held).contains("pipeline"));
    }

    #[test]
    fn a_paused_run_is_not_called_running() {
        let question = LeaveQuestion::asked(true, Holder::Detached, "x", Now::Paused);
        assert_eq!(question.title, "x is paused");
        assert_eq!(question.rows[0].2, "leave it paused");
        let question = LeaveQuestion::asked(true, Holder::Detached, "x", Now::Suspended);
        assert_eq!(question.title, "x is suspended");
        assert!(question.rows[1].3.contains("kill -CONT"), "nothing is saved before");
        let question = LeaveQuestion::asked(true, Holder::Detached, "x", Now::Running);
        assert_eq!(question.title, "x is running");
        assert_eq!(question.rows[0].2, "leave it running");
    }
}
