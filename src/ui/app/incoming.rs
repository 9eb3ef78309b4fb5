//! What links and jobs bring.

use super::{App, Leaving, MAX_PENDING};
use crate::hardware::Machine;
use crate::link::Incoming;
use crate::plan::measured::{self, Place};
use crate::run::index::RunSummary;
use crate::run::state::Level;
use crate::ui::effect::Effect;
use crate::ui::msg::{Asked, Opened, Slot};
use crate::ui::panes::Tab;
use crate::ui::store::LinkState;
use crate::wire::{CommandId, Envelope, Event, Values};

impl App {
    pub(super) fn incoming(&mut self, slot: Slot, batch: Vec<Incoming>) -> Vec<Effect> {
        if self.run_slot() == Some(slot) {
            batch
                .into_iter()
                .flat_map(|item| self.run_incoming(item))
                .collect()
        } else if self.chat.owns(slot) {
            self.chat_incoming(slot, batch)
        } else {
            Vec::new()
        }
    }

    fn run_incoming(&mut self, item: Incoming) -> Vec<Effect> {
        self.data_moved();
        match item {
            Incoming::Event(envelope) => {
                self.run_event(&envelope);
                self.leave_if_stopped()
            }
            Incoming::CaughtUp => {
                if let Some(held) = &mut self.store.held {
                    held.link = LinkState::Live;
                    // What happened before somebody looked is in the log; only news pops up.
                    self.noticed = held.state.last_seq;
                }
                Vec::new()
            }
            Incoming::Closed(why) => {
                self.run_closed(why);
                self.leave_if_stopped()
            }
        }
    }

    fn run_event(&mut self, envelope: &Envelope) {
        let Some(held) = &mut self.store.held else {
            return;
        };
        held.state.apply(envelope);
        held.hardware.apply(envelope);
        let place = measured::now(&held.state).map_or(Place::Process, |m| m.place);
        let moved = self.dashboard.planned.map(|(place, _)| place) != Some(place);
        let told = match envelope.event {
            Event::Started { .. } => true,
            Event::HardwareSampled { .. } => moved && held.state.head.is_some(),
            _ => false,
        };
        if told {
            let machine = held.hardware.machine.as_ref();
            let request = measured::request_of(&held.state, machine);
            let plan = request.map(|request| crate::plan::plan(&request));
            self.dashboard.planned = plan.map(|plan| (place, plan.memory.steady()));
        }
        let fresh: Vec<_> = held
            .state
            .notices
            .iter()
            .filter(|n| n.seq > self.noticed)
            .cloned()
            .collect();
        self.noticed = self.noticed.max(held.state.last_seq);
        if held.link == LinkState::Live {
            for notice in fresh {
                self.toast(notice.level, &notice.text);
            }
        }
        match &envelope.event {
            Event::Accepted { id } => self.answered(*id, None),
            Event::Rejected { id, why } => self.answered(*id, Some(why)),
            Event::Checkpointed { .. } if self.tab == Tab::Chat => self.data_moved(),
            _ => {}
        }
    }

    fn answered(&mut self, id: CommandId, refused: Option<&str>) {
        let Some(at) = self.pending.iter().position(|(pending, _)| *pending == id) else {
            return;
        };
        let (_, asked) = self.pending.remove(at);
        match refused {
            Some(why) => {
                self.leaving = Leaving::No;
                self.toast(Level::Warn, &format!("{} refused: {why}", asked.word()));
            }
            // These are followed by an event that says more.
            None if matches!(
                asked,
                Asked::Checkpoint | Asked::Adjust | Asked::Note | Asked::Stop
            ) => {}
            None => self.toast(Level::Info, &format!("{} accepted", asked.word())),
        }
    }

    fn run_closed(&mut self, why: Option<String>) {
        let Some(held) = &mut self.store.held else {
            return;
        };
        let lost = held.state.finished.is_none() && held.holder != crate::ui::msg::Holder::Log;
        held.link = LinkState::Ended(why.clone());
        match why {
            Some(why) => self.toast(Level::Bad, &format!("the link to the run broke: {why}")),
            None if lost => self.toast(
                Level::Bad,
                "the engine is gone without a last word; its last checkpoint is kept",
            ),
            None => {}
        }
    }

    fn leave_if_stopped(&mut self) -> Vec<Effect> {
        let over = self.store.held.as_ref().is_none_or(|held| !held.live());
        match self.leaving == Leaving::WhenStopped && over {
            true => vec![Effect::Quit],
            false => Vec::new(),
        }
    }

    pub(super) fn opened(&mut self, slot: Slot, result: Result<Opened, String>) -> Vec<Effect> {
        self.ask_draw();
        if self.chat.owns(slot) {
            self.chat.opened(slot, result.map(|_| ()));
            return Vec::new();
        }
        let Some(held) = self.store.held.as_mut().filter(|held| held.slot == slot) else {
            return vec![Effect::Detach { slot }];
        };
        match result {
            Ok(opened) => {
                held.path = Some(opened.path);
                held.holder = opened.holder;
                held.link = LinkState::CatchingUp;
                self.refresh()
            }
            Err(why) => {
                held.link = LinkState::Ended(Some(why));
                Vec::new()
            }
        }
    }

    pub(super) fn sent(
        &mut self,
        slot: Slot,
        asked: Asked,
        result: Result<CommandId, String>,
    ) -> Vec<Effect> {
        self.data_moved();
        if self.chat.owns(slot) {
            if asked == Asked::Generate {
                self.chat.sent(slot, result);
            }
            return Vec::new();
        }
        match result {
            Ok(id) => {
                if self.pending.len() == MAX_PENDING {
                    self.pending.remove(0);
                }
                self.pending.push((id, asked));
            }
            Err(why) => {
                self.leaving = Leaving::No;
                self.toast(Level::Warn, &format!("{} not sent: {why}", asked.word()));
            }
        }
        Vec::new()
    }

    pub(super) fn runs(&mut self, result: Result<(Vec<RunSummary>, Vec<String>), String>) {
        self.reading_runs = false;
        self.runs_read = self.store.now;
        match result {
            Ok((runs, unreadable)) => {
                if self.store.runs.as_ref() == Some(&runs) && self.store.unreadable == unreadable {
                    return;
                }
                self.store.unreadable = unreadable;
                self.home.replace_runs(&mut self.store, runs);
            }
            Err(why) => {
                self.store.runs.get_or_insert_default();
                self.toast(Level::Bad, &format!("the runs cannot be listed: {why}"));
            }
        }
        if self.tab == Tab::Home {
            self.data_moved();
        }
    }

    /// This machine was read.
    pub(super) fn hardware(&mut self, machine: Option<Machine>, values: &Values) {
        let now = self.store.now;
        if let Some(machine) = machine {
            self.store.hardware.describe(machine);
        }
        self.store.hardware.sample(now, values);
        if self.tab == Tab::Hardware {
            self.data_moved();
        }
    }
}
