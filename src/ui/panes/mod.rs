//! One file a pane. A pane owns its cursors; its data comes folded in the [`super::store::Store`].

pub mod chat;
pub mod dashboard;
pub mod data;
pub mod hardware;
pub mod home;
pub mod plan;

use super::action::Action;
use super::hit::HitMap;
use super::keymap::Keymap;
use super::store::Store;
use super::theme::Theme;

/// The panes that have a tab, in the order of the tabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    Home,
    Run,
    Chat,
    Data,
    Plan,
    Hardware,
}

impl Tab {
    pub const ALL: [Tab; 6] = [
        Tab::Home,
        Tab::Run,
        Tab::Chat,
        Tab::Data,
        Tab::Plan,
        Tab::Hardware,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Tab::Home => "Home",
            Tab::Run => "Run",
            Tab::Chat => "Chat",
            Tab::Data => "Data",
            Tab::Plan => "Plan",
            Tab::Hardware => "Hardware",
        }
    }

    /// The action that goes there.
    pub fn action(self) -> Action {
        match self {
            Tab::Home => Action::Home,
            Tab::Run => Action::RunPane,
            Tab::Chat => Action::Chat,
            Tab::Data => Action::DataPane,
            Tab::Plan => Action::PlanPane,
            Tab::Hardware => Action::Hardware,
        }
    }
}

/// What a pane draws with.
pub struct PaneContext<'a> {
    pub store: &'a Store,
    pub theme: &'a Theme,
    pub keymap: &'a Keymap,
    pub hits: &'a mut HitMap,
}
