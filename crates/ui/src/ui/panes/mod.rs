//! The panes: one file (or folder) each and one word in the list below. A pane owns its cursors; its data comes folded in
//! the [`Store`], and what it wants done it returns as [`Request`]s.

pub mod dashboard;
mod ending;

use super::action::{Action, Context};
use super::effect::Effect;
use super::hit::HitMap;
use super::keymap::Keymap;
use super::msg::{Msg, Slot};
use super::overlays::Overlay;
use super::request::{Answer, Hints, Request, Topic};
use super::store::Store;
use super::theme::Theme;
use crate::run::state::Level;
use crossterm::event::{KeyEvent, MouseEvent};
use ratatui::Frame;
use ratatui::layout::Rect;
use std::any::Any;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Steps of spinners.
pub const SPIN: Duration = Duration::from_millis(250);

macro_rules! panes {
    ($($pane:ident)+) => {
        $(pub mod $pane;)+

        /// Every pane, in the order of the tabs.
        pub static PANES: &[&PaneEntry] = &[$(&$pane::ENTRY),+];
    };
}

panes! { home run chat data plan hardware examples samples health compare evals batch fleet }

/// What tabs, keymap, palette and help know of a pane; each pane's file exports one as `ENTRY`.
pub struct PaneEntry {
    /// The word in keymap files.
    pub id: &'static str,
    /// On the tab.
    pub title: &'static str,
    /// What going there shows, in one sentence.
    pub doc: &'static str,
    /// The contexts of its keys, the most particular first, [`Context::Global`] last.
    pub contexts: &'static [Context],
    /// Actions of its own that the palette offers on other panes, too.
    pub everywhere: &'static [Action],
    pub make: fn() -> Box<dyn Pane>,
}

impl PartialEq for PaneEntry {
    fn eq(&self, other: &PaneEntry) -> bool {
        self.id == other.id
    }
}

impl Eq for PaneEntry {}

impl Hash for PaneEntry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Debug for PaneEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

/// Numbers for new links and other things that must never be mistaken for one another.
#[derive(Debug, Default)]
pub struct Slots(u32);

impl Slots {
    pub fn take(&mut self) -> Slot {
        self.0 += 1;
        Slot(self.0)
    }
}

/// Everything that a pane may see of the workbench.
pub struct PaneContext<'a> {
    pub store: &'a Store,
    pub theme: &'a Theme,
    pub keymap: &'a Keymap,
    pub hits: &'a mut HitMap,
    pub slots: &'a mut Slots,
    /// The pane is the one on the screen.
    pub in_front: bool,
    /// What the overlay on top was opened for.
    pub asked: Option<Topic>,
}

/// One pane. What is left out does nothing.
pub trait Pane: Any + Debug {
    /// The keys worth knowing now.
    fn hints(&self, store: &Store) -> Hints;

    /// True while letters are text.
    fn typing(&self) -> bool {
        false
    }

    /// How soon [`Msg::Tick`] is wanted while the pane is in front.
    fn tick(&self, _store: &Store) -> Option<Duration> {
        None
    }

    /// Whether the link of this slot is the pane's.
    fn owns(&self, _slot: Slot) -> bool {
        false
    }

    /// Called when the pane is opened.
    fn enter(&mut self, _context: &mut PaneContext) -> Vec<Request> {
        Vec::new()
    }

    /// Called before the workbench exits, if the pane would lose data; the answer must end in [`Request::Leave`].
    fn confirm_quit(&mut self) -> Option<Box<dyn Overlay>> {
        None
    }

    /// Does an action of one of the pane's contexts.
    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request>;

    /// A key that no binding took, while [`Pane::typing`].
    fn key(&mut self, _key: KeyEvent, _context: &mut PaneContext) -> Vec<Request> {
        Vec::new()
    }

    fn paste(&mut self, _text: &str, _context: &mut PaneContext) -> Vec<Request> {
        Vec::new()
    }

    /// A click on a [`super::hit::Target::Row`] of the pane.
    fn click(&mut self, _row: usize, _context: &mut PaneContext) -> Vec<Request> {
        Vec::new()
    }

    fn wheel(&mut self, up: bool, context: &mut PaneContext) -> Vec<Request> {
        self.act(if up { Action::Up } else { Action::Down }, context)
    }

    /// Any event of the mouse over a [`super::hit::Target::Pane`]; `None` leaves it to [`Pane::wheel`].
    fn mouse(&mut self, _mouse: MouseEvent, _context: &mut PaneContext) -> Option<Vec<Request>> {
        None
    }

    /// A message that is not a key's or the mouse's, after the store took it in. Every pane hears all of them.
    fn incoming(&mut self, _msg: &Msg, _context: &mut PaneContext) -> Vec<Request> {
        Vec::new()
    }

    /// The answer to a question of the pane; `about` is the word of its [`Topic`].
    fn answered(
        &mut self,
        _about: &str,
        _answer: Answer,
        _context: &mut PaneContext,
    ) -> Vec<Request> {
        Vec::new()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext);
}

/// Saves a part of the screen under a name; nothing to save is said.
fn save_chart(name: String, area: Rect) -> Vec<Request> {
    vec![match area.is_empty() {
        true => Request::Toast(Level::Info, "there is no chart to save here".into()),
        false => Request::Do(Effect::SavePicture {
            name: crate::base::text::one_line(&name),
            area: Some(area),
        }),
    }]
}

/// What a test of one pane puts around it.
#[cfg(test)]
pub(crate) mod bench {
    use super::*;

    #[derive(Debug)]
    pub struct TestContext {
        pub store: Store,
        theme: Theme,
        keymap: Keymap,
        hits: HitMap,
        slots: Slots,
    }

    impl TestContext {
        pub fn new() -> TestContext {
            TestContext {
                store: Store::default(),
                theme: Theme::ansi(),
                keymap: Keymap::embedded(),
                hits: HitMap::default(),
                slots: Slots::default(),
            }
        }

        pub fn context(&mut self) -> PaneContext<'_> {
            PaneContext {
                store: &self.store,
                theme: &self.theme,
                keymap: &self.keymap,
                hits: &mut self.hits,
                slots: &mut self.slots,
                in_front: true,
                asked: None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bench::TestContext;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::collections::BTreeSet;

    #[test]
    fn every_pane_is_told_apart_and_can_be_gone_to() {
        let keymap = Keymap::embedded();
        let mut words = BTreeSet::new();
        for pane in PANES {
            assert!(words.insert(pane.id), "{pane:?} twice");
            let named = crate::ui::action::actions()
                .find(|a| a.id == pane.id)
                .map(|a| a.action);
            assert_eq!(named, Some(Action::Open(pane)));
            assert!(
                pane.doc.ends_with('.') && pane.title.len() <= 12,
                "{pane:?}"
            );
            assert_eq!(pane.contexts.last(), Some(&Context::Global), "{pane:?}");
            assert!(!keymap.label(Action::Open(pane)).is_empty(), "{pane:?}");
        }
    }

    #[test]
    fn every_pane_draws_before_it_has_anything_to_show() {
        for entry in PANES {
            let (mut pane, mut around) = ((entry.make)(), TestContext::new());
            assert!(!pane.typing() || entry.id == "chat", "{entry:?}");
            assert!(!pane.hints(&around.store).kept.is_empty(), "{entry:?}");
            pane.enter(&mut around.context());
            for (width, height) in [(1, 1), (24, 4), (80, 22), (200, 60)] {
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                terminal
                    .draw(|frame| pane.draw(frame, frame.area(), &mut around.context()))
                    .unwrap();
            }
        }
    }
}
