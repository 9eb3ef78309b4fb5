//! What the model generates, as it learns: samples of one prompt at several steps side by side under the loss, with their line
//! breaks. Which steps stand there is `spread`'s matter, what is drawn `draw`'s.

mod draw;
mod spread;

pub(super) use draw::{curve, lines};

use crate::base::clock::UnixMillis;
use super::{Pane, PaneContext, PaneEntry, chat, run, save_chart};
use crate::run::RunState;
use crate::run::state::Sample;
use crate::ui::action::{Action, Context};
use crate::ui::hit::Target;
use crate::ui::msg::Slot;
use crate::ui::request::{Answer, Hints, Request};
use crate::ui::store::Store;
use ratatui::Frame;
use ratatui::layout::Rect;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "samples",
    title: "Samples",
    doc: "Go to Samples: samples from several steps, side by side under the loss.",
    contexts: &[Context::Samples, Context::Chart, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(SamplesPane::fresh(None)),
};

/// Texts side by side, at most.
const MOST: usize = 4;
/// Columns of a text from which on it reads well.
const COLUMN: u16 = 37;

/// The cursors of the pane.
#[derive(Debug, Default)]
pub struct SamplesPane {
    /// Whose cursors these are.
    slot: Option<Slot>,
    /// Which of the run's prompts is shown, counted from the newest one.
    prompt: usize,
    /// Which samples stand side by side, by their steps and times; none: those that tell most, up to the newest.
    chosen: Option<Vec<(u64, UnixMillis)>>,
    marked: usize,
    full: bool,
    scroll: usize,
    /// The last frame: lines that could be scrolled away, lines of a page, texts side by side.
    most: usize,
    page: usize,
    columns: usize,
    /// The place of loss and texts; empty without any.
    place: Rect,
}

/// Prompts of a run, that of the newest sample first.
fn prompts(state: &RunState) -> Vec<&str> {
    let mut prompts: Vec<&str> = Vec::new();
    for sample in state.samples.iter().rev() {
        if !prompts.contains(&sample.prompt.as_str()) {
            prompts.push(&sample.prompt);
        }
    }
    prompts
}

fn samples_of<'a>(state: &'a RunState, prompt: &str) -> Vec<&'a Sample> {
    let same = |sample: &&Sample| sample.prompt == prompt;
    state.samples.iter().filter(same).collect()
}

impl SamplesPane {
    /// The newest text is marked.
    fn fresh(slot: Option<Slot>) -> SamplesPane {
        SamplesPane {
            slot,
            marked: MOST,
            ..Self::default()
        }
    }

    /// Another run gets fresh cursors.
    fn follow(&mut self, store: &Store) {
        let slot = store.held.as_ref().map(|held| held.slot);
        if slot != self.slot {
            *self = SamplesPane::fresh(slot);
        }
    }

    /// The samples of the prompt that is shown.
    fn shown<'a>(&mut self, state: &'a RunState) -> Vec<&'a Sample> {
        let prompts = prompts(state);
        self.prompt = self.prompt.min(prompts.len().saturating_sub(1));
        prompts
            .get(self.prompt)
            .map_or_else(Vec::new, |prompt| samples_of(state, prompt))
    }

    /// Indices of the samples that stand side by side, `columns` at most.
    fn places(&mut self, samples: &[&Sample], columns: usize) -> Vec<usize> {
        let steps: Vec<u64> = samples.iter().map(|sample| sample.step).collect();
        // One that was left out meanwhile gives way to the nearest.
        let place = |(step, t): &(u64, UnixMillis)| {
            let mut all = samples.iter();
            let same = all.position(|sample| (sample.step, sample.t) == (*step, *t));
            same.or_else(|| (0..steps.len()).min_by_key(|at| steps[*at].abs_diff(*step)))
        };
        let chosen = self.chosen.as_ref().filter(|chosen| chosen.len() == columns);
        let chosen: Option<Vec<usize>> =
            chosen.and_then(|chosen| chosen.iter().map(place).collect());
        let places = match chosen {
            Some(chosen) => chosen,
            None => {
                self.chosen = None;
                spread::spread(&steps, columns)
            }
        };
        self.columns = places.len();
        self.marked = self.marked.min(places.len().saturating_sub(1));
        places
    }

    /// Shows an earlier or a later sample in the marked place.
    fn walk(&mut self, state: &RunState, later: bool) {
        let samples = self.shown(state);
        let columns = self.columns.max(1);
        let mut places = self.places(&samples, columns);
        if let Some(place) = places.get_mut(self.marked) {
            *place = match later {
                true => (*place + 1).min(samples.len().saturating_sub(1)),
                false => place.saturating_sub(1),
            };
            let chosen = places.iter().map(|at| (samples[*at].step, samples[*at].t));
            self.chosen = Some(chosen.collect());
            self.scroll = 0;
        }
    }
}

/// A prompt of the user's: to the run while it trains, to its newest checkpoint once it is over. What is typed next is the prompt
/// either way.
fn ask(store: &Store) -> Vec<Request> {
    let over = store.held.as_ref().filter(|held| !held.live());
    let kept = over.filter(|held| !held.state.checkpoints.is_empty());
    match kept.and_then(|held| held.path.clone()) {
        Some(path) => vec![
            Request::Show(&chat::ENTRY),
            Request::SendAnswer(chat::WITH_RUN, Answer::Path(path)),
        ],
        None => run::ask_sample(store),
    }
}

impl Pane for SamplesPane {
    fn hints(&self, store: &Store) -> Hints {
        use Action as A;
        let Some(held) = store.held.as_ref() else {
            return Hints::of_pane(Vec::new());
        };
        // Of a run that is over its checkpoint is asked, in the chat.
        let ask = match held.live() {
            true => (A::AskSample, "sample"),
            false => (A::AskSample, "ask it"),
        };
        let prompts = prompts(&held.state);
        let prompt = prompts.get(self.prompt.min(prompts.len().saturating_sub(1)));
        let n = prompt.map_or(0, |prompt| samples_of(&held.state, prompt).len());
        // The most useful first: on a narrow screen the last ones have no room. Keys without an effect are skipped.
        let mut own = Vec::new();
        if n > 0 {
            let full = match self.full {
                true => (A::FullText, "back"),
                false => (A::FullText, "full"),
            };
            own.push(full);
        }
        if n > 0 || held.live() {
            own.push(ask);
        }
        own.extend((prompts.len() > 1).then_some((A::OtherPrompt, "prompt")));
        if n > 1 {
            own.extend([(A::SampleEarlier, "earlier"), (A::SampleLater, "later")]);
        }
        own.extend((self.columns > 1 && !self.full).then_some((A::NextText, "next")));
        own.extend((n > 0).then_some((A::SaveChart, "save")));
        Hints::of_pane(own)
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        self.follow(context.store);
        let page = self.page.max(1);
        let state = context.store.held.as_ref().map(|held| &held.state);
        match (action, state) {
            (Action::AskSample, _) => return ask(context.store),
            (Action::SaveChart, _) => {
                let run = context.store.held.as_ref().map_or("llmtui", |held| held.name());
                return save_chart(format!("{run}-samples"), self.place);
            }
            (Action::SampleEarlier, Some(state)) => self.walk(state, false),
            (Action::SampleLater, Some(state)) => self.walk(state, true),
            (Action::NextText, _) => self.marked = (self.marked + 1) % self.columns.max(1),
            (Action::FullText | Action::Accept, _) => {
                self.full = !self.full;
                self.scroll = 0;
            }
            (Action::OtherPrompt, Some(state)) => {
                self.prompt = (self.prompt + 1) % prompts(state).len().max(1);
                (self.chosen, self.scroll) = (None, 0);
            }
            (Action::Cancel, _) => (self.chosen, self.full, self.scroll) = (None, false, 0),
            (Action::Up, _) => self.scroll = self.scroll.saturating_sub(1),
            (Action::Down, _) => self.scroll += 1,
            (Action::PageUp, _) => self.scroll = self.scroll.saturating_sub(page),
            (Action::PageDown, _) => self.scroll += page,
            (Action::Top, _) => self.scroll = 0,
            (Action::Bottom, _) => self.scroll = self.most,
            _ => {}
        }
        self.scroll = self.scroll.min(self.most);
        Vec::new()
    }

    fn click(&mut self, row: usize, _context: &mut PaneContext) -> Vec<Request> {
        self.marked = row.min(self.columns.saturating_sub(1));
        Vec::new()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.follow(context.store);
        self.place = Rect::default();
        let theme = context.theme;
        let buffer = frame.buffer_mut();
        let Some(state) = context.store.held.as_ref().map(|held| &held.state) else {
            return draw::note(buffer, area, "No run is open: choose one on Home.", theme);
        };
        let samples = self.shown(state);
        let Some(newest) = samples.last() else {
            return draw::note(buffer, area, &draw::waiting(state, context.keymap), theme);
        };
        let room = usize::from(area.width / COLUMN).clamp(1, MOST);
        let all = self.places(&samples, room.min(samples.len()));
        let places = match self.full {
            true => vec![all[self.marked]],
            false => all,
        };
        let texts: Vec<&Sample> = places.iter().map(|at| samples[*at]).collect();
        let page = draw::Page {
            state,
            texts: &texts,
            marked: (!self.full && texts.len() > 1).then_some(self.marked),
            scroll: self.scroll,
            full: self.full,
            prompt: (&newest.prompt, self.prompt + 1, prompts(state).len()),
            n_samples: samples.len(),
        };
        let drawn = page.draw(buffer, area, theme);
        self.place = area;
        (self.most, self.page) = (drawn.most, drawn.rows);
        self.scroll = self.scroll.min(self.most);
        for (column, place) in drawn.columns.into_iter().enumerate() {
            context.hits.add(place, Target::Row(column));
        }
    }
}

#[cfg(test)]
mod tests;
