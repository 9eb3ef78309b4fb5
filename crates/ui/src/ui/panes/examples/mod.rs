//! Held-out examples of the run on the screen as its method sees them, at the last evaluation: texts with their
//! log-probability, pairs with the reward of each side and the margin, and what changed since the evaluation before. Of a
//! model that learns from its own answers: the groups of its rollouts (`browser`), and held-out prompts.

mod browser;
mod groups;
mod held_out;

use self::browser::Browser;
use self::held_out::{lines, note};
use super::{Pane, PaneContext, PaneEntry};
use crate::base::text::{cut, one_line};
use crate::spec::reward_summary;
use self::groups::Look;
use crate::ui::action::{Action, Context};
use crate::ui::freshness::Freshness;
use crate::ui::msg::Msg;
use crate::ui::overlays::Prompt;
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::Store;
use crate::ui::theme::Meaning;
use crate::ui::widgets::text;
use ratatui::Frame;
use ratatui::layout::Rect;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "examples",
    title: "Examples",
    doc: "Go to Examples: scores and samples on held-out texts and pairs; the completions it trains on.",
    contexts: &[Context::Rollouts, Context::List, Context::Global],
    everywhere: &[],
    make: || Box::new(ExamplesPane::default()),
};

const SEARCH: &str = "search";
/// Rows from which on one says what the rewards ask for.
const ROOM_FOR_WANTS: u16 = 12;

/// The first line on the screen, and the cursors over rollouts.
#[derive(Debug, Default)]
pub struct ExamplesPane {
    browser: Browser,
    /// Held-out examples instead of the answers of rollouts.
    held_out: bool,
    scroll: usize,
    most: usize,
    page: usize,
}

impl ExamplesPane {
    /// Rollouts are on the screen.
    fn browses(&self) -> bool {
        self.browser.any() && !self.held_out
    }

    fn ask_search(&self) -> Vec<Request> {
        let topic = Topic {
            pane: &ENTRY,
            about: SEARCH,
        };
        let hint = "{accept} applies it, {cancel} shows all";
        let prompt = Prompt::new(topic, "show only groups with", hint).with(&self.browser.search);
        vec![Request::Open(Box::new(prompt.live()))]
    }
}

impl Pane for ExamplesPane {
    fn hints(&self, store: &Store) -> Hints {
        use Action as A;
        if store.held.is_none() {
            return Hints::of_pane(Vec::new());
        }
        if self.browses() {
            return Hints::of_pane(titles(&[
                A::RolloutEarlier,
                A::RolloutLater,
                A::RolloutSort,
                A::RolloutFilter,
                A::RolloutSearch,
                A::RolloutColours,
                A::PinPrompt,
                A::CompareSteps,
                A::HeldOut,
            ]));
        }
        let mut hints = vec![(A::Down, "scroll"), (A::PageDown, "page")];
        hints.extend(self.browser.any().then_some((A::HeldOut, "completions")));
        Hints::of_pane(hints)
    }

    fn enter(&mut self, context: &mut PaneContext) -> Vec<Request> {
        self.browser.follow(context.store);
        self.browser.look(context.store)
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        self.browser.follow(context.store);
        let mut requests = Vec::new();
        if let Msg::Rollouts {
            run_dir,
            wanted,
            result,
        } = msg
        {
            self.browser.take(run_dir, wanted, result);
            requests.push(Request::Draw(Freshness::Asked));
        }
        if context.in_front {
            requests.extend(self.browser.look(context.store));
        }
        requests
    }

    fn answered(
        &mut self,
        about: &str,
        answer: Answer,
        _context: &mut PaneContext,
    ) -> Vec<Request> {
        if let (SEARCH, Answer::Text(text)) = (about, answer) {
            (self.browser.search, self.browser.marked) = (text, 0);
        }
        Vec::new()
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        self.browser.follow(context.store);
        if action == Action::HeldOut {
            (self.held_out, self.scroll) = (!self.held_out, 0);
            return Vec::new();
        }
        if self.browses() {
            return match action {
                Action::RolloutSearch => self.ask_search(),
                action => self.browser.act(action),
            };
        }
        let page = self.page.max(1);
        self.scroll = match action {
            Action::Up => self.scroll.saturating_sub(1),
            Action::Down => self.scroll + 1,
            Action::PageUp => self.scroll.saturating_sub(page),
            Action::PageDown => self.scroll + page,
            Action::Top => 0,
            Action::Bottom => self.most,
            _ => self.scroll,
        }
        .min(self.most);
        Vec::new()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        let theme = context.theme;
        let mut inner = Rect {
            x: area.x + 2,
            width: area.width.saturating_sub(4),
            ..area
        };
        self.browser.follow(context.store);
        let head = context.store.held.as_ref().and_then(|held| held.state.head.as_ref());
        let wanted = head.and_then(|head| reward_summary(&head.spec));
        if let Some(wanted) = wanted.filter(|_| inner.height >= ROOM_FOR_WANTS) {
            let room = usize::from(inner.width);
            let words = cut(&one_line(&wanted), room, theme.glyphs().ellipsis);
            let words = [text::word(words, Meaning::Muted)];
            text::draw(frame.buffer_mut(), inner.x, inner.y, inner.width, &words, theme);
            (inner.y, inner.height) = (inner.y + 1, inner.height - 1);
        }
        if self.browses() {
            let look = Look {
                theme,
                keymap: context.keymap,
            };
            return self.browser.draw(frame.buffer_mut(), inner, look);
        }
        let lines = match context.store.held.as_ref() {
            Some(held) => lines(&held.state, usize::from(inner.width), theme),
            None => note("No run is open: choose one on Home."),
        };
        self.page = usize::from(inner.height);
        self.most = lines.len().saturating_sub(self.page);
        self.scroll = self.scroll.min(self.most);
        let shown = lines.iter().skip(self.scroll).take(self.page);
        for (y, words) in (inner.y..).zip(shown) {
            text::draw(frame.buffer_mut(), inner.x, y, inner.width, words, theme);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::spec::{SpecSources, load, yaml};
    use crate::ui::msg::Slot;
    use crate::ui::panes::bench::TestContext;
    use crate::ui::store::OpenRun;
    use crate::wire::{Envelope, Event, VERSION};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn what_the_rewards_ask_for_stands_above_the_answers() {
        let picture = |preset: &str| {
            let spec = load(preset, &[], &SpecSources::default()).unwrap().spec;
            let mut around = TestContext::new();
            let mut held = OpenRun::opening(Slot(1), "x".into(), Default::default());
            held.state.apply(&Envelope {
                v: VERSION,
                seq: 1,
                t: UnixMillis(0),
                event: Event::Started {
                    name: "x".into(),
                    method: "ppo".into(),
                    spec: yaml::parse(&spec.to_yaml()).unwrap(),
                    n_params: 1,
                    vocab_size: 1,
                    max_steps: 1,
                    batch_tokens: 1,
                    epoch_tokens: 1,
                    resumed_from: None,
                    precision: None,
                    unigram_entropy: None,
                },
            });
            around.store.held = Some(held);
            let mut terminal = Terminal::new(TestBackend::new(100, 20)).unwrap();
            let mut pane = ExamplesPane::default();
            let draw = |frame: &mut Frame| pane.draw(frame, frame.area(), &mut around.context());
            terminal.draw(draw).unwrap();
            terminal.backend().to_string()
        };
        let ppo = picture("ppo-demo");
        let first = ppo.lines().next().unwrap();
        assert!(first.contains("references are written last digit first; reward exact: 1"), "{ppo}");
        assert!(!picture("quickstart").contains("reward"));
    }
}
