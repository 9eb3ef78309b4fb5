//! What the app asks for is done here: on this thread when it takes no time, else by a job or a thread whose answer comes
//! back as a message.

use super::signals::Stop;
use super::{Done, Shell};
use crate::base::clock::Clock;
use crate::link::SendError;
use crate::run::RunDir;
use crate::ui::effect::Effect;
use crate::ui::jobs::{self, Linked, Workplace};
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
            match effect {
                Effect::StartRun { slot, target } => {
                    self.job(move |place| match place.start_pipeline(&target) {
                        Ok(Some((dir, linked))) => Done::Stages(slot, dir, linked),
                        Ok(None) => Done::Linked(slot, place.start(&target)),
                        Err(why) => Done::Linked(slot, Err(why)),
                    })
                }
                Effect::ResumeRun { slot, run_dir } => {
                    self.link_job(slot, move |place| place.resume(&run_dir))
                }
                Effect::StartSpec {
                    slot,
                    name,
                    yaml,
                    force,
                } => self.link_job(slot, move |place| place.start_text(&name, &yaml, force)),
                Effect::OpenWizard => self.job(|place| {
                    let (context, answers) = place.wizard();
                    Done::Msg(Msg::Wizard(Box::new(context), Box::new(answers)))
                }),
                Effect::OpenEditor(target) => self.job(move |place| {
                    let draft = place.draft(&target);
                    Done::Msg(Msg::Editor { target, draft })
                }),
                Effect::Look(look) => {
                    self.job(move |place| Done::Msg(Msg::Seen(Box::new(place.look(look)))))
                }
                Effect::ModelOfRun { place: at, said } => self.job(move |place| {
                    let found = place.model_of_run(&said);
                    Done::Msg(Msg::ModelOfRun {
                        place: at,
                        said,
                        found,
                    })
                }),
                Effect::SaveSpec { path, yaml } => {
                    self.job(move |place| Done::Msg(Msg::Saved(place.save(path, &yaml))))
                }
                Effect::Complete(of) => self.job(move |place| {
                    let (path, names) = jobs::complete(&of, place.env.home.as_deref());
                    Done::Msg(Msg::Completed { of, path, names })
                }),
                Effect::FreeName(of) => self.job(move |place| {
                    let (path, names) = (place.free_name(&of), Vec::new());
                    Done::Msg(Msg::Completed { of, path, names })
                }),
                Effect::RememberTheme(name) => self.place.remember_theme(&name),
                Effect::RememberModel(path) => self.place.remember_model(&path),
                Effect::Remember(answers) => {
                    // On this thread: answers of a wizard that starts a run and leaves must not be lost, and it is one
                    // small file.
                    self.place.remember(&answers);
                }
                Effect::LookForEngine(run_dir) => self.job(move |_| {
                    let alive = RunDir::open(&run_dir).is_ok_and(|run| run.is_alive());
                    Done::Msg(Msg::EngineFound { run_dir, alive })
                }),
                Effect::LookAtStage(run_dir) => self.job(move |place| {
                    let stage = place.stage(&run_dir);
                    Done::Msg(Msg::StageSeen { run_dir, stage })
                }),
                Effect::Attach { slot, run_dir } => {
                    self.link_job(slot, move |place| place.attach(&run_dir))
                }
                Effect::OpenChat { slot, model } => {
                    self.link_job(slot, move |place| place.chat(&model))
                }
                Effect::Detach { slot } => self.links.retain(|(s, _)| *s != slot),
                Effect::Send {
                    slot,
                    asked,
                    command,
                } => effects.extend(self.send(slot, asked, command)),
                Effect::Ring => self.guard.ring(),
                Effect::LookAtMachine => {
                    self.job(|place| Done::Msg(Msg::Machine(Box::new(place.machine()))));
                }
                Effect::PlanTarget { name } => self.job(move |place| {
                    let result = place.plan(&name);
                    Done::Msg(Msg::Planned { name, result })
                }),
                Effect::InspectData(subject) => self.inspect_data(*subject),
                Effect::LookAtFolders => self.job(|place| Done::Msg(Msg::Folders(place.folders()))),
                Effect::RefreshRuns => self.job(|place| Done::Msg(Msg::Runs(place.runs()))),
                Effect::ListPresets => self.job(|place| Done::Msg(Msg::Presets(place.presets()))),
                Effect::ListCheckpoints => {
                    self.job(|place| Done::Msg(Msg::Checkpoints(place.checkpoints())))
                }
                Effect::ListModelFiles => {
                    self.job(|place| Done::Msg(Msg::ModelFiles(place.model_files())))
                }
                Effect::SaveChat(saved) => {
                    self.job(move |place| Done::Msg(Msg::ChatSaved(place.save_chat(&saved))))
                }
                Effect::ReadTracks(paths) => self.job(move |_| {
                    let tracks = paths.iter().map(|path| jobs::read_track(path));
                    let result = tracks.collect();
                    Done::Msg(Msg::Tracks { paths, result })
                }),
                Effect::ReadEvals(subjects) => self.job(move |place| {
                    let result = place.evals(&subjects);
                    Done::Msg(Msg::Evals { subjects, result })
                }),
                Effect::ReadQuestions(row) => self.job(move |_| {
                    let result = jobs::questions(&row);
                    Done::Msg(Msg::Questions { row, result })
                }),
                Effect::ListEvals => {
                    self.job(|place| Done::Msg(Msg::EvalModels(place.eval_models())))
                }
                Effect::SavePicture { name, area } => {
                    let picture = self.picture(area);
                    let ground = self.app.theme().ground();
                    self.job(move |_| {
                        let saved =
                            picture.and_then(|screen| jobs::save_picture(&name, &screen, ground));
                        Done::Msg(Msg::PictureSaved(saved))
                    });
                }
                Effect::ReadRollouts { run_dir, wanted } => self.job(move |_| {
                    let result = crate::run::rollouts::find(&run_dir, &wanted).map(Box::new);
                    Done::Msg(Msg::Rollouts {
                        run_dir,
                        wanted,
                        result,
                    })
                }),
                Effect::Revisit { run_dir, step } => self.job(move |place| {
                    let result = place.revisit(&run_dir, step);
                    Done::Msg(Msg::Revisited {
                        run_dir,
                        step,
                        result,
                    })
                }),
                Effect::PlanBranch { run_dir, plan } => self.job(move |place| {
                    let result = place.plan_branch(&run_dir, &plan);
                    Done::Msg(Msg::BranchPlanned {
                        run_dir,
                        plan,
                        result,
                    })
                }),
                Effect::MakeBranch { run_dir, plan } => self.job(move |place| {
                    let result = place.make_branch(&run_dir, &plan);
                    Done::Msg(Msg::BranchMade { run_dir, result })
                }),
                Effect::AttachThere { host, run } => self.attach_there(host, &run),
                Effect::WatchHardware => self.watch_hardware(),
                Effect::Preflight { round, yaml } => self.preflight(round, yaml),
                Effect::Redraw => {
                    let _ = self.guard.redraw();
                }
                Effect::Suspend => self.suspended_by = Some(Stop::Group),
                Effect::Quit => self.over = true,
            }
        }
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
            self.clock.now(),
        )
    }

    fn job(&self, work: impl FnOnce(&Workplace) -> Done + Send + 'static) {
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
                    sender.blocking_send(Done::Msg(msg)).is_ok()
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
                place.watch_hardware(|msg| sender.blocking_send(Done::Msg(msg)).is_ok())
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
                let told = sender.blocking_send(Done::Msg(Msg::Checked { round, event }));
                told.is_ok() && wanted.load(Ordering::Relaxed) == round
            };
            let result = place.preflight(&yaml, &mut take);
            let _ = sender.blocking_send(Done::Msg(Msg::ChecksOver { round, result }));
        });
    }

    pub(super) fn link_job(
        &self,
        slot: Slot,
        work: impl FnOnce(&Workplace) -> Linked + Send + 'static,
    ) {
        self.job(move |place| Done::Linked(slot, work(place)));
    }
}
