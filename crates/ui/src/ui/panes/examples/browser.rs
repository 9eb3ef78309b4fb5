//! The answers of rollouts among the examples: whose they are, which step, which groups in which order, what is pinned and
//! compared. What they look like is `groups`' matter.

use crate::run::rollouts::{Found, Group, Rollout, RolloutQuery};
use crate::ui::action::Action;
use crate::ui::effect::Effect;
use crate::ui::msg::Slot;
use crate::ui::request::Request;
use crate::ui::store::Store;
use crate::wire::id;
use std::path::{Path, PathBuf};

/// The order of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Written,
    Reward,
    Range,
    Length,
    Nll,
}

impl Sort {
    fn next(self) -> Sort {
        match self {
            Sort::Written => Sort::Reward,
            Sort::Reward => Sort::Range,
            Sort::Range => Sort::Length,
            Sort::Length => Sort::Nll,
            Sort::Nll => Sort::Written,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Sort::Written => "as written",
            Sort::Reward => "lowest reward first",
            Sort::Range => "widest range of rewards first",
            Sort::Length => "longest first",
            Sort::Nll => "highest NLL first",
        }
    }

    fn key(self, group: &Group) -> f64 {
        match self {
            Sort::Written => 0.0,
            Sort::Reward => group.mean_reward(),
            Sort::Range => -group.range(),
            Sort::Length => -group.length(),
            Sort::Nll => -group.nll(),
        }
    }
}

/// Which groups are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Only {
    #[default]
    All,
    Teaching,
    Flat,
    Cut,
}

impl Only {
    fn next(self) -> Only {
        match self {
            Only::All => Only::Teaching,
            Only::Teaching => Only::Flat,
            Only::Flat => Only::Cut,
            Only::Cut => Only::All,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Only::All => "all groups",
            Only::Teaching => "groups with signal",
            Only::Flat => "groups with equal rewards",
            Only::Cut => "groups with truncated completions",
        }
    }

    fn takes(self, group: &Group) -> bool {
        match self {
            Only::All => true,
            Only::Teaching => !group.is_flat(),
            Only::Flat => group.is_flat(),
            Only::Cut => group.answers.iter().any(|answer| answer.cut),
        }
    }
}

/// What tokens are coloured by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Colours {
    #[default]
    Probability,
    /// log π − log π_ref.
    Reference,
    Advantage,
    Off,
}

impl Colours {
    fn next(self) -> Colours {
        match self {
            Colours::Probability => Colours::Reference,
            Colours::Reference => Colours::Advantage,
            Colours::Advantage => Colours::Off,
            Colours::Off => Colours::Probability,
        }
    }
}

#[derive(Debug, Default)]
pub struct Browser {
    /// Whose cursors these are.
    pub(super) slot: Option<Slot>,
    pub(super) run: Option<PathBuf>,
    /// The run's last step when it was last looked at.
    pub(super) looked: Option<u64>,
    /// Something is being read.
    pub(super) under_way: bool,
    pub steps: Vec<u64>,
    pub now: Option<Rollout>,
    /// Newer answers take the place of those on the screen.
    pub follows: bool,
    pub base: Option<Rollout>,
    pub pinned: Option<(String, Vec<Rollout>)>,
    pub fault: Option<String>,
    pub sort: Sort,
    pub only: Only,
    pub search: String,
    pub colours: Colours,
    /// Of the groups that are shown.
    pub marked: usize,
    /// Lines of answers scrolled away, and how many there could be.
    pub scroll: usize,
    pub(super) most: usize,
    pub(super) page: usize,
    /// Answers alone, without the list of groups.
    pub full: bool,
}

impl Browser {
    /// Another run gets fresh cursors.
    pub fn follow(&mut self, store: &Store) {
        let held = store.held.as_ref();
        let slot = held.map(|held| held.slot);
        let run = held.and_then(|held| held.path.clone());
        if slot != self.slot || (self.run.is_some() && run != self.run) {
            *self = Browser {
                slot,
                follows: true,
                ..Browser::default()
            };
        }
        self.run = run;
    }

    /// Whether the run on the screen has answers to look at.
    pub fn any(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Asks for what is new since the last look.
    pub fn look(&mut self, store: &Store) -> Vec<Request> {
        let Some(held) = store.held.as_ref() else {
            return Vec::new();
        };
        let learns = held.state.series.contains_key(id::REWARD);
        let step = held.state.step;
        if self.under_way || self.looked == Some(step) || !learns {
            return Vec::new();
        }
        self.looked = Some(step);
        let shown = self.now.as_ref().map(|rollout| rollout.step);
        self.ask(RolloutQuery::Upto(shown.filter(|_| !self.follows).unwrap_or(u64::MAX)))
    }

    fn ask(&mut self, wanted: RolloutQuery) -> Vec<Request> {
        let Some(run_dir) = self.run.clone() else {
            return Vec::new();
        };
        self.under_way = true;
        vec![Request::Do(Effect::ReadRollouts { run_dir, wanted })]
    }

    /// Takes what was read.
    pub fn take(&mut self, run: &Path, wanted: &RolloutQuery, result: &Result<Box<Found>, String>) {
        if self.run.as_deref() != Some(run) {
            return;
        }
        self.under_way = false;
        let found = match result {
            Ok(found) => found,
            Err(why) => {
                self.fault = Some(why.clone());
                return;
            }
        };
        self.fault = None;
        self.steps.clone_from(&found.steps);
        match wanted {
            RolloutQuery::Prompt(prompt) => {
                self.pinned = Some((prompt.clone(), found.rollouts.clone()));
                self.scroll = 0;
            }
            RolloutQuery::Upto(_) => {
                let before = self.now.as_ref().map(|rollout| rollout.step);
                self.now = found.rollouts.first().cloned();
                if before != self.now.as_ref().map(|rollout| rollout.step) {
                    self.scroll = 0;
                }
            }
        }
    }

    /// Indices of the groups that are shown, in their order.
    pub fn order(&self) -> Vec<usize> {
        let Some(now) = &self.now else {
            return Vec::new();
        };
        let wanted = self.search.to_lowercase();
        let has = |group: &Group| {
            let holds = |text: &str| text.to_lowercase().contains(&wanted);
            self.search.is_empty()
                || holds(&group.prompt)
                || group.answers.iter().any(|answer| holds(&answer.text()))
        };
        let groups = now.groups.iter().enumerate();
        let taken = groups.filter(|(_, group)| self.only.takes(group) && has(group));
        let mut order: Vec<usize> = taken.map(|(at, _)| at).collect();
        let key = |at: &usize| self.sort.key(&now.groups[*at]);
        order.sort_by(|a, b| key(a).total_cmp(&key(b)));
        order
    }

    /// The group that the keys act on.
    pub fn group(&self) -> Option<&Group> {
        let order = self.order();
        let at = order.get(self.marked.min(order.len().saturating_sub(1)))?;
        self.now.as_ref()?.groups.get(*at)
    }

    fn walk(&mut self, later: bool) -> Vec<Request> {
        let Some(now) = self.now.as_ref().map(|rollout| rollout.step) else {
            return Vec::new();
        };
        let step = match later {
            true => self.steps.iter().find(|step| **step > now).copied(),
            false => self.steps.iter().rev().find(|step| **step < now).copied(),
        };
        let Some(step) = step else {
            return Vec::new();
        };
        self.follows = later && self.steps.last() == Some(&step);
        self.ask(RolloutQuery::Upto(step))
    }

    fn pin(&mut self) -> Vec<Request> {
        if self.pinned.take().is_some() {
            self.scroll = 0;
            return Vec::new();
        }
        let prompt = self.group().map(|group| group.prompt.clone());
        prompt.map_or_else(Vec::new, |prompt| self.ask(RolloutQuery::Prompt(prompt)))
    }

    pub fn act(&mut self, action: Action) -> Vec<Request> {
        let (before, last) = (self.marked, self.order().len().saturating_sub(1));
        // Where no list of groups is on the screen, the same keys scroll.
        let scrolls = self.full || self.pinned.is_some();
        match action {
            Action::RolloutEarlier => return self.walk(false),
            Action::RolloutLater => return self.walk(true),
            Action::PinPrompt => return self.pin(),
            Action::RolloutSort => (self.sort, self.marked) = (self.sort.next(), 0),
            Action::RolloutFilter => (self.only, self.marked) = (self.only.next(), 0),
            Action::RolloutColours => self.colours = self.colours.next(),
            Action::CompareSteps => {
                self.base = match self.base.take() {
                    Some(_) => None,
                    None => self.now.clone(),
                };
            }
            Action::Accept => (self.full, self.scroll) = (!self.full, 0),
            Action::Cancel => {
                (self.full, self.pinned, self.base, self.scroll) = (false, None, None, 0);
                self.search.clear();
            }
            Action::Up if scrolls => self.scroll = self.scroll.saturating_sub(1),
            Action::Down if scrolls => self.scroll += 1,
            Action::Up => self.marked = self.marked.saturating_sub(1),
            Action::Down => self.marked = (self.marked + 1).min(last),
            Action::PageUp => self.scroll = self.scroll.saturating_sub(self.page.max(1)),
            Action::PageDown => self.scroll += self.page.max(1),
            Action::Top => (self.marked, self.scroll) = (0, 0),
            Action::Bottom if scrolls => self.scroll = self.most,
            Action::Bottom => self.marked = last,
            _ => {}
        }
        if self.marked != before {
            self.scroll = 0;
        }
        self.scroll = self.scroll.min(self.most);
        Vec::new()
    }
}
