//! A long list of the wizard as it is shown: headings between its parts, and only the rows that have the words that are typed.

use super::WizardScreen;
use crate::advisor::wizard::{Row, Step};

/// A line of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Heading(&'static str),
    /// The row of this number.
    Row(usize),
}

impl WizardScreen {
    /// Whether letters choose among the rows: where there are many, and none takes a text.
    pub(super) fn filters(&self) -> bool {
        self.question.step == Step::Method
    }

    /// Whether a letter begins a path, whichever row is selected: dropped or taken for a command, it would be lost.
    pub(super) fn awaits_a_path(&self) -> bool {
        let asks = matches!(self.question.step, Step::Data | Step::Start);
        asks && self
            .question
            .rows
            .iter()
            .any(|row| row.open && row.input.is_some())
    }

    /// The rows that have all words of the filter, in their name, their reason or their heading.
    pub(super) fn visible(&self) -> Vec<usize> {
        let wanted = self.filter.text().to_lowercase();
        let has = |row: &Row| {
            let group = row.group.unwrap_or_default();
            let text = format!("{} {} {group}", row.title, row.detail).to_lowercase();
            wanted.split_whitespace().all(|word| text.contains(word))
        };
        let rows = self.question.rows.iter().enumerate();
        rows.filter(|(_, row)| has(row)).map(|(at, _)| at).collect()
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        let (mut lines, mut group) = (Vec::new(), None);
        for at in self.visible() {
            let of = self.question.rows[at].group;
            if of != group {
                lines.extend(of.map(Line::Heading));
                group = of;
            }
            lines.push(Line::Row(at));
        }
        lines
    }

    /// The row above or below the selected one, from an end to the other.
    pub(super) fn neighbour(&self, down: bool) -> Option<usize> {
        let rows = self.visible();
        let here = rows.iter().position(|row| *row == self.wizard.selected());
        let last = rows.len().checked_sub(1)?;
        let at = match (here, down) {
            (None, _) => 0,
            (Some(at), true) if at < last => at + 1,
            (Some(_), true) => 0,
            (Some(at), false) => at.checked_sub(1).unwrap_or(last),
        };
        Some(rows[at])
    }

    /// Whether the selected row is on the screen: Enter takes no other.
    pub(super) fn is_visible(&self) -> bool {
        !self.filters() || self.visible().contains(&self.wizard.selected())
    }

    /// What is typed leaves fewer rows, or more again.
    pub(super) fn filtered(&mut self) {
        self.scroll = 0;
        let rows = self.visible();
        // The first that can be had: what does not suit comes last.
        let open = |row: &&usize| self.question.rows[**row].open;
        let first = rows.iter().find(open).or(rows.first()).copied();
        if let Some(row) = first {
            self.select(row);
        }
    }

    /// Everything again.
    pub(super) fn unfiltered(&mut self) {
        self.filter.clear();
        self.scroll = 0;
        self.refresh(false);
    }
}
