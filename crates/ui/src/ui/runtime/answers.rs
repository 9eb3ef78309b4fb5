//! Effects whose whole answer is one message: what is listed, read, or made ready. Each runs on a thread of its own; `None` for
//! an effect of another kind.

use crate::run::{RunDir, rollouts};
use crate::ui::effect::Effect;
use crate::ui::jobs::{self, JobContext};
use crate::ui::msg::Msg;

/// Lists of what there is, and the machine.
pub(super) fn listed(effect: Effect, place: &JobContext) -> Option<Msg> {
    Some(match effect {
        Effect::LookAtFolders => Msg::Folders(place.folders()),
        Effect::LookAtMachine => Msg::Machine(Box::new(place.machine())),
        Effect::RefreshRuns => Msg::Runs(place.runs()),
        Effect::ListPresets => Msg::Presets(place.presets()),
        Effect::ListStages => Msg::Stages(place.stages()),
        Effect::ListCheckpoints => Msg::Checkpoints(place.checkpoints()),
        Effect::ListModelFiles => Msg::ModelFiles(place.model_files()),
        Effect::ListEvals => Msg::EvalModels(place.eval_models()),
        _ => return None,
    })
}

/// Parts of runs, and answers to tasks.
pub(super) fn read(effect: Effect, place: &JobContext) -> Option<Msg> {
    Some(match effect {
        Effect::ReadTracks(paths) => {
            let tracks = paths.iter().map(|path| jobs::read_track(path));
            let results = tracks.collect();
            Msg::Tracks { paths, results }
        }
        Effect::ReadEntrants(paths) => {
            let found = paths.iter().filter_map(|path| jobs::read_entrant(path));
            let found = found.collect();
            Msg::Entrants { paths, found }
        }
        Effect::ReadEvals(subjects) => {
            let result = place.evals(&subjects);
            Msg::Evals { subjects, result }
        }
        Effect::ReadQuestions(row) => {
            let result = jobs::questions(&row);
            Msg::Questions { row, result }
        }
        Effect::ReadTools(path) => {
            let result = place.tools(&path);
            Msg::Tools { path, result }
        }
        Effect::ReadRollouts { run_dir, wanted } => Msg::Rollouts {
            result: rollouts::find(&run_dir, &wanted).map(Box::new),
            run_dir,
            wanted,
        },
        Effect::Revisit { run_dir, step } => Msg::Revisited {
            result: place.revisit(&run_dir, step),
            run_dir,
            step,
        },
        Effect::LookForEngine(run_dir) => {
            let alive = RunDir::open(&run_dir).is_ok_and(|run| run.is_alive());
            Msg::EngineFound { run_dir, alive }
        }
        Effect::LookAtStage(run_dir) => {
            let stage = place.stage(&run_dir);
            Msg::StageSeen { run_dir, stage }
        }
        _ => return None,
    })
}

/// What makes a run: the wizard, the editor, plans, branches, names of files.
pub(super) fn made(effect: Effect, place: &JobContext) -> Option<Msg> {
    Some(match effect {
        Effect::OpenWizard => {
            let (context, answers) = place.wizard();
            Msg::Wizard(Box::new(context), Box::new(answers))
        }
        Effect::OpenEditor(target) => {
            let draft = place.draft(&target);
            Msg::Editor { target, draft }
        }
        Effect::Look(look) => Msg::Seen(Box::new(place.look(look))),
        Effect::ModelOfRun { place: at, said } => Msg::ModelOfRun {
            found: place.model_of_run(&said),
            place: at,
            said,
        },
        Effect::SaveSpec { path, yaml } => Msg::Saved(place.save(path, &yaml)),
        Effect::SaveChat(saved) => Msg::ChatSaved(place.save_chat(&saved)),
        Effect::Complete(of) => {
            let (path, names) = jobs::complete(&of, place.env.home.as_deref());
            Msg::Completed { of, path, names }
        }
        Effect::FreeName(of) => {
            let (path, names) = (place.free_name(&of), Vec::new());
            Msg::Completed { of, path, names }
        }
        Effect::PlanTarget { name } => {
            let result = place.plan(&name);
            Msg::Planned { name, result }
        }
        Effect::PlanRemoval(run_dir) => Msg::RemovalPlanned {
            result: place.plan_removal(&run_dir),
            run_dir,
        },
        Effect::RemoveRun(run_dir) => Msg::RunRemoved {
            result: place.remove_run(&run_dir),
            run_dir,
        },
        Effect::ExportRun {
            run_dir,
            options,
            to,
        } => Msg::RunExported {
            result: place.export_run(&run_dir, &options, &to),
            to,
        },
        Effect::PlanBranch { run_dir, plan } => Msg::BranchPlanned {
            result: place.plan_branch(&run_dir, &plan),
            run_dir,
            plan,
        },
        Effect::MakeBranch { run_dir, plan } => Msg::BranchMade {
            result: place.make_branch(&run_dir, &plan),
            run_dir,
        },
        _ => return None,
    })
}
