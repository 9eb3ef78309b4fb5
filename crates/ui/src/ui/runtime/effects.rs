//! What the app asks for is done here: on this thread when it takes no time, else by a job or a thread whose answer comes
//! back as a message.

use super::signals::Stop;
use super::{JobResult, Shell, answers};
use crate::base::clock::Clock;
use crate::link::SendError;
use crate::ui::effect::Effect;
use crate::ui::jobs::{self, JobContext, Linked};
use crate::ui::msg::{Asked, Msg, Slot};
use crate::wire::Command;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Shell {
    pub(super) fn do_effects(&mut self, mut effects: VecDeque<Effect>) {
        while let Some(effect) = effects.pop_front() {
            effects.extend(self.do_effect(effect));
        }
    }

    /// Does one effect; what the app wants done after it.
    fn do_effect(&mut self, effect: Effect) -> Vec<Effect> {
        use Effect as E;
        match effect {
            E::StartRun { .. }
            | E::QueueRun { .. }
            | E::ResumeRun { .. }
            | E::ContinuePipeline { .. }
            | E::StartSpec { .. }
            | E::Attach { .. }
            | E::OpenChat { .. } => self.link(effect),
            E::LookAtFolders
            | E::LookAtMachine
            | E::ListPresets
            | E::ListStages
            | E::ListCheckpoints
            | E::ListModelFiles
            | E::ListEvals => self.answer(effect, answers::listed),
            E::RefreshRuns => {
                self.answer(effect, answers::listed);
                return vec![E::ListStages];
            }
            E::ReadTracks(_)
            | E::ReadEntrants(_)
            | E::ReadEvals(_)
            | E::ReadQuestions(_)
            | E::ReadTools(_)
            | E::ReadRollouts { .. }
            | E::Revisit { .. }
            | E::LookForEngine(_)
            | E::LookAtStage(_) => self.answer(effect, answers::read),
            E::OpenWizard
            | E::OpenEditor(_)
            | E::Look(_)
            | E::ModelOfRun { .. }
            | E::SaveSpec { .. }
            | E::SaveChat(_)
            | E::Complete(_)
            | E::FreeName(_)
            | E::PlanTarget { .. }
            | E::PlanRemoval(_)
            | E::RemoveRun(_)
            | E::ExportRun { .. }
            | E::PlanBranch { .. }
            | E::MakeBranch { .. } => self.answer(effect, answers::made),
            E::Send {
                slot,
                asked,
                command,
            } => return self.send(slot, asked, command),
            E::RememberTheme(_)
            | E::RememberModel(_)
            | E::Remember(_)
            | E::Detach { .. }
            | E::Ring
            | E::InspectData(_)
            | E::SavePicture { .. }
            | E::AttachThere { .. }
            | E::WatchFleet
            | E::WatchHardware
            | E::Preflight { .. }
            | E::Redraw
            | E::Suspend
            | E::Quit => self.here(effect),
        }
        Vec::new()
    }

    /// Puts a run or a chat behind a slot.
    fn link(&self, effect: Effect) {
        match effect {
            Effect::StartRun { slot, target } => {
                self.job(move |place| match place.start_pipeline(&target) {
                    Ok(Some((dir, linked))) => JobResult::Stages(slot, dir, linked),
                    Ok(None) => JobResult::Linked(slot, place.start(&target, None)),
                    Err(why) => JobResult::Linked(slot, Err(why)),
                });
            }
            Effect::QueueRun {
                slot,
                target,
                after,
            } => self.link_job(slot, move |place| place.start(&target, Some(after))),
            Effect::ResumeRun {
                slot,
                run_dir,
                after,
            } => self.link_job(slot, move |place| place.resume(&run_dir, after)),
            Effect::ContinuePipeline { slot, run_dir } => {
                self.job(move |place| match place.continue_pipeline(&run_dir) {
                    Ok((dir, linked)) => JobResult::Stages(slot, dir, linked),
                    Err(why) => JobResult::Linked(slot, Err(why)),
                });
            }
            Effect::StartSpec {
                slot,
                name,
                yaml,
                force,
                after,
            } => self.link_job(slot, move |place| {
                place.start_text(&name, &yaml, force, after)
            }),
            Effect::Attach { slot, run_dir } => {
                self.link_job(slot, move |place| place.attach(&run_dir));
            }
            Effect::OpenChat { slot, model } => {
                self.link_job(slot, move |place| place.chat(&model));
            }
            _ => {}
        }
    }

    /// What takes no time, or has a thread of its own.
    fn here(&mut self, effect: Effect) {
        match effect {
            Effect::RememberTheme(name) => self.place.remember_theme(&name),
            Effect::RememberModel(path) => self.place.remember_model(&path),
            // On this thread: answers of a wizard that starts a run and leaves must not be lost, and it is one small file.
            Effect::Remember(answers) => self.place.remember(&answers),
            Effect::Detach { slot } => self.links.retain(|(s, _)| *s != slot),
            Effect::Ring => self.guard.ring(),
            Effect::InspectData(subject) => self.inspect_data(*subject),
            Effect::SavePicture { name, area } => self.save_picture(name, area),
            Effect::AttachThere { host, run } => self.attach_there(host, &run),
            Effect::WatchFleet => self.watch_own_fleet(),
            Effect::WatchHardware => self.watch_hardware(),
            Effect::Preflight { round, yaml } => self.preflight(round, yaml),
            Effect::Redraw => {
                let _ = self.guard.redraw();
            }
            Effect::Suspend => self.suspended_by = Some(Stop::Group),
            Effect::Quit => self.over = true,
            _ => {}
        }
    }

    /// Does an effect by a job that answers with one message.
    fn answer(&self, effect: Effect, by: fn(Effect, &JobContext) -> Option<Msg>) {
        let (place, sender) = (self.place.clone(), self.jobs.0.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(msg) = by(effect, &place) {
                // The receiver is gone only when the workbench is.
                let _ = sender.blocking_send(JobResult::Msg(msg));
            }
        });
    }

    fn save_picture(&mut self, name: String, area: Option<Rect>) {
        let picture = self.picture(area);
        let ground = self.app.theme().ground();
        self.job(move |_| {
            let saved = picture.and_then(|screen| jobs::save_picture(&name, &screen, ground));
            JobResult::Msg(Msg::PictureSaved(saved))
        });
    }

    /// The screen as it stands, drawn once more, or a part of it.
    fn picture(&mut self, area: Option<Rect>) -> Result<Buffer, String> {
        let fault = |e: std::io::Error| e.to_string();
        let (width, height) = crossterm::terminal::size().map_err(fault)?;
        let mut screen =
            Terminal::new(TestBackend::new(width, height)).map_err(|e| e.to_string())?;
        screen
            .draw(|frame| self.app.draw_still(frame))
            .map_err(|e| e.to_string())?;
        let whole = screen.backend().buffer();
        let area = area.map_or(whole.area, |area| area.intersection(whole.area));
        Ok(jobs::part(whole, area))
    }

    fn send(&mut self, slot: Slot, asked: Asked, command: Command) -> Vec<Effect> {
        let link = self.links.iter_mut().find(|(s, _)| *s == slot);
        let result = match link {
            Some((_, link)) => link.send(command).map_err(|e| e.to_string()),
            None => Err(SendError::Closed.to_string()),
        };
        self.app.update(
            Msg::Sent {
                slot,
                asked,
                result,
            },
            self.clock.moment(),
        )
    }

    fn job(&self, work: impl FnOnce(&JobContext) -> JobResult + Send + 'static) {
        let (place, sender) = (self.place.clone(), self.jobs.0.clone());
        tokio::task::spawn_blocking(move || {
            // The receiver is gone only when the workbench is.
            let _ = sender.blocking_send(work(&place));
        });
    }

    /// Looks at data on a thread of its own; an inspection still under way is cancelled.
    fn inspect_data(&mut self, subject: crate::data::inspect::Subject) {
        let given_up = Arc::new(AtomicBool::new(false));
        if let Some(before) = self.inspecting.replace(given_up.clone()) {
            before.store(true, Ordering::Relaxed);
        }
        let sender = self.jobs.0.clone();
        let context = self.place.reading();
        let home = self.place.env.home.clone();
        let spawned = std::thread::Builder::new()
            .name("inspect".into())
            .spawn(move || {
                jobs::inspect(&subject, &context, home.as_deref(), &given_up, |msg| {
                    sender.blocking_send(JobResult::Msg(msg)).is_ok()
                })
            });
        if let Err(e) = spawned {
            tracing::warn!("the data cannot be read: {e}");
        }
    }

    /// Starts the thread that reads this machine; it ends with the workbench.
    fn watch_hardware(&mut self) {
        if std::mem::replace(&mut self.watching, true) {
            return;
        }
        let (place, sender) = (self.place.clone(), self.jobs.0.clone());
        let spawned = std::thread::Builder::new()
            .name("hardware".into())
            .spawn(move || {
                place.watch_hardware(|msg| sender.blocking_send(JobResult::Msg(msg)).is_ok())
            });
        if let Err(e) = spawned {
            tracing::warn!("the machine cannot be inspected: {e}");
        }
    }

    /// Starts the thread that runs a round of checks; an earlier round ends with its next check.
    fn preflight(&mut self, round: u64, yaml: String) {
        self.round.store(round, Ordering::Relaxed);
        let (wanted, place) = (self.round.clone(), self.place.clone());
        let sender = self.jobs.0.clone();
        tokio::task::spawn_blocking(move || {
            let mut take = |event| {
                let event = Box::new(event);
                let told = sender.blocking_send(JobResult::Msg(Msg::Checked { round, event }));
                told.is_ok() && wanted.load(Ordering::Relaxed) == round
            };
            let result = place.preflight(&yaml, &mut take);
            let _ = sender.blocking_send(JobResult::Msg(Msg::ChecksOver { round, result }));
        });
    }

    pub(super) fn link_job(
        &self,
        slot: Slot,
        work: impl FnOnce(&JobContext) -> Linked + Send + 'static,
    ) {
        self.job(move |place| JobResult::Linked(slot, work(place)));
    }
}
