//! What links and jobs bring.

use super::{App, MAX_PENDING, QuitState, title_of};
use crate::base::clock::UnixMillis;
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::one_line;
use crate::diagnosis::VERDICT;
use crate::link::{Incoming, NO_FINAL_EVENT};
use crate::run::index::RunSummary;
use crate::run::state::Level;
use crate::ui::effect::Effect;
use crate::ui::msg::{Asked, Holder, Msg, Opened, SavedSpec, Slot, StageOf};
use crate::ui::panes::{home, run};
use crate::ui::store::{LinkState, OpenRun};
use crate::ui::toasts::ToastScope;
use crate::wire::{CommandId, Envelope, Event, Outcome, Phase};
use std::path::Path;
use std::time::Duration;

impl App {
    /// Applies a message to the store, before overlays and panes receive it.
    pub(super) fn update_store(&mut self, msg: &Msg) -> Vec<Effect> {
        match msg {
            Msg::Tick if self.toasts.expire(self.store.elapsed) => self.ask_draw(),
            Msg::Incoming { slot, batch } if self.run_slot() == Some(*slot) => {
                return batch
                    .iter()
                    .flat_map(|item| self.run_incoming(item))
                    .collect();
            }
            Msg::Opened { slot, result } => return self.opened(*slot, result),
            Msg::EngineFound {
                run_dir,
                alive: true,
            } => return self.engine_found(run_dir),
            Msg::StageSeen { run_dir, stage } => self.stage_seen(run_dir, stage.as_ref()),
            Msg::Sent {
                slot,
                asked,
                result,
            } => self.sent(*slot, *asked, result),
            Msg::Runs(result) => self.runs(result),
            Msg::Stages(stages) if self.store.stages != *stages => {
                self.store.stages.clone_from(stages);
                self.data_moved();
            }
            Msg::Presets(rows) => {
                self.store.presets.clone_from(rows);
                self.data_moved();
            }
            Msg::Checkpoints(rows) => {
                self.store.checkpoints.clone_from(rows);
                self.data_moved();
            }
            Msg::ModelFiles(files) => {
                self.store.model_files.clone_from(files);
                self.data_moved();
            }
            Msg::Machine(machine) => {
                self.store.machine = Some((**machine).clone());
                self.renew_overlays();
            }
            Msg::Hardware { machine, values } => {
                let now = self.store.now;
                let first = self.store.hardware.machine.is_none();
                if let Some(machine) = machine {
                    self.store.hardware.describe((**machine).clone());
                }
                self.store.hardware.sample(now, values);
                if first {
                    self.renew_overlays();
                }
            }
            Msg::Saved(result) => {
                self.saved(result.as_ref());
                return result.iter().map(|_| Effect::ListPresets).collect();
            }
            Msg::PictureSaved(Ok(path)) => {
                let words = format!("saved as {}, and as .png", path.display());
                self.toast(Level::Good, &words);
            }
            Msg::PictureSaved(Err(why)) => {
                self.toast(
                    Level::Bad,
                    &format!("the picture could not be saved: {why}"),
                );
            }
            _ => {}
        }
        Vec::new()
    }

    fn renew_overlays(&mut self) {
        for overlay in &mut self.overlays {
            overlay.renew(&self.store);
        }
        if !self.overlays.is_empty() {
            self.ask_draw();
        }
    }

    fn saved(&mut self, result: Result<&SavedSpec, &String>) {
        self.ask_draw();
        match result {
            Ok(SavedSpec { path, fault }) => {
                // A bare word names a preset before a file.
                let bare = path.extension().is_none() && path.components().count() == 1;
                let path = match bare {
                    true => format!("./{}", path.display()),
                    false => path.display().to_string(),
                };
                match fault {
                    None => self.toast(
                        Level::Info,
                        &format!("saved; train it with: llmtui train {path}"),
                    ),
                    Some(why) => self.toast(
                        Level::Warn,
                        &format!("saved as {path}, but it cannot run yet: {why}"),
                    ),
                }
            }
            Err(why) => self.toast(Level::Bad, why),
        }
    }

    fn run_incoming(&mut self, item: &Incoming) -> Vec<Effect> {
        self.data_moved();
        if let Some(held) = &mut self.store.held {
            held.heard = self.store.elapsed;
        }
        match item {
            Incoming::Event(envelope) => {
                self.run_event(envelope);
                let mut effects = self.leave_if_stopped();
                // Who leaves with it waits for nothing.
                let calls = effects.is_empty() && self.is_live();
                effects.extend(calls.then(|| ring(&envelope.event)).flatten());
                effects
            }
            Incoming::CaughtUp => {
                // The first whole picture: who has just attached waits for it.
                self.ask_draw();
                let (now, elapsed) = (self.store.now, self.store.elapsed);
                if let Some(held) = &mut self.store.held {
                    held.link = LinkState::Live;
                    // Somebody who comes in the middle of a step, which may have begun before this program did.
                    let moved = Some(held.state.moved_t).filter(|t| *t != UnixMillis::default());
                    held.begun = elapsed;
                    held.taken_before = moved.map_or(Duration::ZERO, |t| now.since(t));
                    // What happened before somebody looked is in the log; only news pops up.
                    self.noticed = held.state.last_seq;
                }
                Vec::new()
            }
            Incoming::Closed(why) => {
                self.run_closed(why.clone());
                self.leave_if_stopped()
            }
        }
    }

    fn run_event(&mut self, envelope: &Envelope) {
        let Some(held) = &mut self.store.held else {
            return;
        };
        if let Event::Stepped { .. } | Event::PhaseChanged { .. } = envelope.event {
            held.begun = self.store.elapsed;
            held.taken_before = Duration::ZERO;
        }
        held.state.apply(envelope);
        held.hardware.apply(envelope);
        let fresh: Vec<_> = held
            .state
            .notices
            .iter()
            .filter(|n| n.seq > self.noticed)
            .cloned()
            .collect();
        self.noticed = self.noticed.max(held.state.last_seq);
        let live = held.link == LinkState::Live;
        // The answer to a command of this screen is reported with what was asked for.
        let awaited = |id: &CommandId| held.pending.iter().any(|(pending, _)| pending == id);
        let own = match &envelope.event {
            Event::Rejected { id, .. } => awaited(id),
            // One that nobody asked for is in the log and on the charts.
            Event::Checkpointed { .. } => !std::mem::take(&mut self.asked_checkpoint),
            _ => false,
        };
        // The run's own screen shows its checks and its end, whole; of a refused resume it shows how the run stands.
        let told_there = match envelope.event {
            Event::Checked { .. } => true,
            Event::Finished { .. } => held.state.refused.is_none(),
            _ => false,
        };
        let shown = told_there && *self.entry() == run::ENTRY;
        if live && !shown && !own {
            for notice in fresh {
                self.toast_about(ToastScope::Run, notice.level, &notice.text);
            }
        }
        self.fulfilled(&envelope.event);
        match &envelope.event {
            Event::Accepted { id } => self.answered(*id, None),
            Event::Rejected { id, why } => self.answered(*id, Some(why)),
            // The link's own warning: it is not in the log, so no notice reports it.
            Event::Warned { message, hint, .. } if envelope.seq == 0 => {
                let words = one_line(&format!("{message}: {hint}"));
                self.toast_about(ToastScope::Run, Level::Bad, &words);
            }
            _ => {}
        }
    }

    fn is_live(&self) -> bool {
        let held = self.store.held.as_ref();
        held.is_some_and(|held| held.link == LinkState::Live)
    }

    fn answered(&mut self, id: CommandId, refused: Option<&str>) {
        let Some(held) = &mut self.store.held else {
            return;
        };
        let pending = &mut held.pending;
        let Some(at) = pending.iter().position(|(pending, _)| *pending == id) else {
            return;
        };
        let (_, asked) = pending.remove(at);
        self.asked_checkpoint |= asked == Asked::Checkpoint && refused.is_none();
        match refused {
            Some(why) => {
                self.not_done(asked);
                self.toast(Level::Warn, &format!("{} refused: {why}", asked.word()));
            }
            // These are followed by an event that says more.
            None if matches!(
                asked,
                Asked::Checkpoint | Asked::Adjust | Asked::Note | Asked::Stop
            ) => {}
            None => {
                let words = format!("{} {}", asked.doing(), self.theme.glyphs().ellipsis);
                self.toast_about(ToastScope::Doing(asked), Level::Info, &words);
            }
        }
    }

    /// The event that a request came to: what says that it is under way goes.
    fn fulfilled(&mut self, event: &Event) {
        let asked = match event {
            Event::Sampled { .. } => Asked::Sample,
            Event::Evaluated { .. } => Asked::Evaluate,
            Event::PhaseChanged {
                phase: Phase::Paused,
                ..
            } => Asked::Pause,
            Event::PhaseChanged {
                phase: Phase::Training,
                ..
            } => Asked::Resume,
            Event::RolledBack { .. } => Asked::Rollback,
            Event::RescueUndone { .. } => Asked::UndoRescue,
            _ => return,
        };
        self.toasts.done(asked);
    }

    /// What was asked for does not happen.
    fn not_done(&mut self, asked: Asked) {
        self.leaving = QuitState::No;
        if asked == Asked::Stop {
            self.toasts.not_stopping();
        }
    }

    fn run_closed(&mut self, why: Option<String>) {
        let Some(held) = &mut self.store.held else {
            return;
        };
        let lost =
            held.state.finished.is_none() && !matches!(held.holder, Holder::Log | Holder::Foreign);
        if held.holder != Holder::Foreign {
            held.state.orphan();
        }
        held.link = LinkState::Ended(why.clone());
        let kept = match held.state.checkpoints.last() {
            Some(kept) => format!(
                "its checkpoint of step {} is kept",
                human::grouped(kept.step)
            ),
            None => "it has saved no checkpoint".into(),
        };
        if lost {
            // What it was about to do, or had done since a resume, is past.
            self.toasts.run_changed();
        }
        match why.filter(|why| why != NO_FINAL_EVENT) {
            Some(why) => {
                let words = format!("lost the connection to the run: {why}");
                self.toast_about(ToastScope::Run, Level::Bad, &words);
            }
            None if lost => self.toast_about(
                ToastScope::Run,
                Level::Bad,
                &format!("crashed: the training process died (killed or out of memory); {kept}"),
            ),
            None => {}
        }
    }

    fn stage_seen(&mut self, run_dir: &Path, stage: Option<&StageOf>) {
        let held = self.store.held.as_mut();
        let held = held.filter(|held| held.path.as_deref() == Some(run_dir));
        if let Some(held) = held.filter(|held| held.stage.as_ref() != stage) {
            held.stage = stage.cloned();
            self.data_moved();
        }
    }

    /// A run whose engine had ended goes on: it is watched again, and the pane on the screen stays.
    fn engine_found(&mut self, run_dir: &Path) -> Vec<Effect> {
        let held = self.store.held.as_ref();
        if held.and_then(OpenRun::resumable).as_deref() != Some(run_dir) {
            return Vec::new();
        }
        let front = self.front;
        let effects = self.open_run(run_dir.into());
        self.front = front;
        let words = format!("{} was resumed", title_of(run_dir));
        self.toast_about(ToastScope::Run, Level::Info, &words);
        effects
    }

    fn leave_if_stopped(&mut self) -> Vec<Effect> {
        let over = self.store.held.as_ref().is_none_or(|held| !held.live());
        match self.leaving == QuitState::WhenStopped && over {
            true => vec![Effect::Quit],
            false => Vec::new(),
        }
    }

    /// Whether a pane holds the link of this slot.
    fn owned(&self, slot: Slot) -> bool {
        self.panes.iter().any(|pane| pane.owns(slot))
    }

    fn opened(&mut self, slot: Slot, result: &Result<Opened, String>) -> Vec<Effect> {
        self.ask_draw();
        if self.owned(slot) {
            return Vec::new();
        }
        let Some(held) = self.store.held.as_mut().filter(|held| held.slot == slot) else {
            return vec![Effect::Detach { slot }];
        };
        match result {
            Ok(opened) => {
                self.making = None;
                held.path = Some(opened.path.clone());
                held.holder = opened.holder;
                held.stage.clone_from(&opened.stage);
                held.link = LinkState::CatchingUp;
                if let Some(decided) = &opened.decided {
                    self.toast(Level::Info, decided);
                }
                self.refresh()
            }
            Err(why) => {
                held.link = LinkState::Ended(Some(why.clone()));
                self.start_refused(slot, why);
                Vec::new()
            }
        }
    }

    fn sent(&mut self, slot: Slot, asked: Asked, result: &Result<CommandId, String>) {
        self.data_moved();
        if self.owned(slot) {
            return;
        }
        match result {
            Ok(id) => {
                let held = self.store.held.as_mut().filter(|held| held.slot == slot);
                let Some(held) = held else { return };
                if held.pending.len() == MAX_PENDING {
                    held.pending.remove(0);
                }
                held.pending.push((*id, asked));
            }
            Err(why) => {
                self.not_done(asked);
                self.toast(Level::Warn, &format!("{} not sent: {why}", asked.word()));
            }
        }
    }

    fn runs(&mut self, result: &Result<(Vec<RunSummary>, Vec<String>), String>) {
        self.store.reading_runs = false;
        self.store.runs_read = self.store.elapsed;
        match result {
            Ok((runs, unreadable)) => {
                if self.store.runs.as_ref() == Some(runs) && self.store.unreadable == *unreadable {
                    return;
                }
                self.store.unreadable.clone_from(unreadable);
                self.store.runs = Some(runs.clone());
            }
            Err(why) => {
                self.store.runs.get_or_insert_default();
                self.toast(Level::Bad, &format!("the runs cannot be listed: {why}"));
            }
        }
        if *self.entry() == home::ENTRY {
            self.data_moved();
        }
    }
}

/// Rings the bell for an unrequested end and for a failing verdict.
fn ring(event: &Event) -> Option<Effect> {
    let calls = match event {
        Event::Finished { outcome, .. } => *outcome != Outcome::Stopped,
        Event::Diagnosed { finding, .. } => finding.id == VERDICT && finding.status == Status::Fail,
        _ => false,
    };
    calls.then_some(Effect::Ring)
}
