//! Home: what can be started, and the runs there are.

mod draw;
mod export;
mod list;

use super::{Pane, PaneContext, PaneEntry};
use crate::base::clock::UnixMillis;
use crate::base::human;
use crate::base::paths::is_yaml;
use crate::base::text::one_line;
use crate::run::index::{RunStatus, RunSummary};
use crate::run::lineage::{find_parent, same_origin};
use crate::run::state::Level;
use crate::ui::action::{Action, Context};
use crate::ui::effect::Effect;
use crate::ui::field::{Lines, TextField};
use crate::ui::freshness::Freshness;
use crate::ui::keymap::Keymap;
use crate::ui::msg::Msg;
use crate::ui::overlays::{Question, YES};
use crate::ui::panes::{chat, compare, evals};
use crate::ui::request::{Answer, Hints, Request, Topic, titles};
use crate::ui::store::Store;
use crossterm::event::KeyEvent;
use ratatui::Frame;
use list::{Listed, Sort};
use ratatui::layout::Rect;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub static ENTRY: PaneEntry = PaneEntry {
    id: "home",
    title: "Home",
    doc: "Go to Home: start a run, open a run.",
    contexts: &[Context::Home, Context::List, Context::Global],
    everywhere: &[Action::NewRun, Action::ExportRun],
    make: || Box::new(HomePane::default()),
};

/// How often the list of runs is read again while one of them is live and the list is on the screen.
const REFRESH: Duration = Duration::from_secs(2);

/// How often it is looked for runs and spec files that came, went or changed otherwise, while the list is on the screen.
const LOOK: Duration = Duration::from_secs(3);

/// The question whether the selected run is deleted.
const DELETE: &str = "delete-run";

/// What a row stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum HomeRow {
    /// A preset by its name, or a spec by the path of its file.
    Preset(String),
    /// The wizard.
    New,
    Run(PathBuf),
    /// The runs that failed before their first step.
    Unbegun,
    /// The earlier stages of the pipeline of this id.
    Stages(String),
}

/// The pane's cursors.
#[derive(Debug)]
pub struct HomePane {
    selected: usize,
    sort: Sort,
    filter: TextField,
    filtering: bool,
    scroll_presets: usize,
    scroll_runs: usize,
    page: usize,
    /// The first list of runs decides where the selection starts.
    settled: bool,
    /// Whether the runs that failed before their first step are listed one by one.
    unbegun_shown: bool,
    /// Pipelines whose earlier stages are listed.
    stages_shown: BTreeSet<String>,
    /// Runs for a comparison or a chat side by side, in the order in which they were marked.
    marked: Vec<PathBuf>,
    /// The selected row, to be found again in the next list.
    anchor: Option<HomeRow>,
    /// The folders of runs and specs as they were seen last.
    folders: Option<u64>,
    /// When they were looked at; `None` while a look is under way.
    looked_at: Option<Duration>,
    /// The run that it is asked about whether to delete it.
    doomed: Option<PathBuf>,
    /// The run whose format and folder are asked for.
    exporting: Option<export::Export>,
    /// When the ages on the screen were right.
    drawn: UnixMillis,
}

impl Default for HomePane {
    fn default() -> Self {
        HomePane {
            selected: 0,
            sort: Sort::Newest,
            filter: TextField::new(Lines::One, ""),
            filtering: false,
            scroll_presets: 0,
            scroll_runs: 0,
            page: 1,
            settled: false,
            unbegun_shown: false,
            stages_shown: BTreeSet::new(),
            marked: Vec::new(),
            anchor: None,
            folders: None,
            looked_at: Some(Duration::ZERO),
            doomed: None,
            exporting: None,
            drawn: UnixMillis::default(),
        }
    }
}

impl HomePane {
    fn rows(&self, store: &Store) -> Vec<HomeRow> {
        let presets = self.presets(store).into_iter();
        let presets = presets.map(|p| HomeRow::Preset(p.name.clone()));
        let listed = self.listed(store);
        let runs = listed.iter().map(Listed::row);
        let wizard = self.offers_wizard().then_some(HomeRow::New);
        presets.chain(wizard).chain(runs).collect()
    }

    /// The selected row.
    pub fn current(&self, store: &Store) -> Option<HomeRow> {
        self.rows(store).get(self.selected).cloned()
    }

    /// Keeps the selection on the same row while the list changes; at the first list it goes to a live run, else, where nobody
    /// moved it yet, to the newest run, or to the quickstart where there is none.
    fn replaced(&mut self, store: &Store) {
        let rows = self.rows(store);
        if !self.settled {
            self.settled = true;
            let quickstart = store.presets.iter().position(|p| p.name == "quickstart");
            let untouched = self.anchor.is_none();
            if store.any_live() || untouched && !store.runs().is_empty() {
                self.selected = self.offset(store);
            } else if untouched {
                self.selected = quickstart.unwrap_or(0);
            }
        } else {
            return self.found_again(store);
        }
        self.selected = self.selected.min(rows.len().saturating_sub(1));
    }

    /// Where the selected row is now. A run that is no row any more is behind the line of those that failed.
    fn anchored(&self, rows: &[HomeRow], store: &Store) -> Option<usize> {
        let anchor = self.anchor.as_ref()?;
        let at = |wanted: &HomeRow| rows.iter().position(|row| row == wanted);
        at(anchor).or_else(|| {
            // A stage that is folded away stands behind the line of its pipeline.
            let run = match anchor {
                HomeRow::Run(path) => store.runs().iter().find(|run| run.path == *path),
                _ => None,
            };
            let stage = run.and_then(|run| store.stages.get(&run.created_as));
            stage.and_then(|stage| at(&HomeRow::Stages(stage.id.clone())))
        }).or_else(|| {
            let there = |run: &RunSummary| *anchor == HomeRow::Run(run.path.clone());
            let there = store.runs().iter().any(there);
            at(&HomeRow::Unbegun).filter(|_| there)
        })
    }

    /// The same row is selected in another list: what acts on it next means that one.
    fn found_again(&mut self, store: &Store) {
        let rows = self.rows(store);
        if let Some(row) = self.anchored(&rows, store) {
            self.selected = row;
        }
        self.selected = self.selected.min(rows.len().saturating_sub(1));
    }

    fn walk(&mut self, action: Action, store: &Store) {
        let last = self.rows(store).len().saturating_sub(1);
        match action {
            Action::Up => self.selected = self.selected.saturating_sub(1),
            Action::Down => self.selected = (self.selected + 1).min(last),
            Action::PageUp => self.selected = self.selected.saturating_sub(self.page),
            Action::PageDown => self.selected = (self.selected + self.page).min(last),
            Action::Top => self.selected = 0,
            Action::Bottom => self.selected = last,
            Action::Filter => self.filtering = true,
            Action::Accept => self.filtering = false,
            Action::Cancel => {
                self.filtering = false;
                self.filter.clear();
                self.found_again(store);
            }
            Action::Sort => {
                self.sort = self.sort.next();
                self.found_again(store);
            }
            _ => {}
        }
    }

    /// The selection may be another one now.
    fn moved(&mut self, store: &Store) -> Vec<Request> {
        self.anchor = self.current(store);
        let preset = match &self.anchor {
            Some(HomeRow::Preset(name)) if !store.is_pipeline(name) => Some(name.clone()),
            _ => None,
        };
        vec![Request::Preset(preset)]
    }

    /// The first hit: of the runs, which it opens, before the presets, which it would start.
    fn select_first_hit(&mut self, store: &Store) {
        self.selected = match self.listed(store).is_empty() {
            true => 0,
            false => self.offset(store),
        };
    }

    fn accept(&mut self, store: &Store) -> Vec<Request> {
        match self.current(store) {
            Some(HomeRow::Preset(name)) => vec![Request::StartRun(name)],
            Some(HomeRow::New) => vec![Request::Do(Effect::OpenWizard)],
            Some(HomeRow::Run(path)) => vec![Request::OpenRun(path)],
            Some(HomeRow::Unbegun) => {
                self.unbegun_shown = !self.unbegun_shown;
                self.anchor = Some(HomeRow::Unbegun);
                self.found_again(store);
                Vec::new()
            }
            Some(HomeRow::Stages(id)) => {
                if !self.stages_shown.remove(&id) {
                    self.stages_shown.insert(id.clone());
                }
                self.anchor = Some(HomeRow::Stages(id));
                self.found_again(store);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn edit(&self, store: &Store) -> Vec<Request> {
        match self.current(store) {
            Some(HomeRow::Preset(name)) if store.is_pipeline(&name) => {
                let words = match is_yaml(&name) {
                    true => format!("edit the file; llmtui train {name} --dry-run checks it"),
                    false => format!("llmtui presets eject {name} writes its file for editing"),
                };
                vec![info(&words)]
            }
            Some(HomeRow::Preset(name)) => vec![Request::Do(Effect::OpenEditor(name))],
            _ => vec![info("select a preset or a spec to edit")],
        }
    }

    /// Marks the selected run, or takes the mark away, and goes on to the next row.
    fn mark(&mut self, store: &Store) -> Vec<Request> {
        let Some(HomeRow::Run(path)) = self.current(store) else {
            return vec![info("select a run to mark it")];
        };
        match self.marked.iter().position(|marked| *marked == path) {
            Some(at) => drop(self.marked.remove(at)),
            None => self.marked.push(path),
        }
        self.walk(Action::Down, store);
        self.moved(store)
    }

    /// Marks every run of the selected one's origin, or takes the marks away where all have one.
    fn mark_sweep(&mut self, store: &Store, keymap: &Keymap) -> Vec<Request> {
        let Some(HomeRow::Run(path)) = self.current(store) else {
            return vec![info("select a run of the sweep")];
        };
        let Some(selected) = store.runs().iter().find(|run| run.path == path) else {
            return Vec::new();
        };
        let begun = |run: &&RunSummary| {
            run.status != RunStatus::Empty && !run.failed_before_its_first_step()
        };
        let full = |key: &str| {
            let key = key.replace('-', "_");
            crate::spec::alias::resolve(&key).map_or(key, String::from)
        };
        let alike = |run: &&RunSummary| same_origin(run, selected, full);
        let sweep = store.runs().iter().filter(begun).filter(alike);
        let sweep: Vec<PathBuf> = sweep.map(|run| run.path.clone()).collect();
        if sweep.len() < 2 {
            return vec![info("no other run has the same preset or spec file, and the same data")];
        }
        let is_marked = |path: &PathBuf| self.marked.contains(path);
        if sweep.iter().all(is_marked) {
            self.marked.retain(|path| !sweep.contains(path));
            return Vec::new();
        }
        self.marked.retain(|path| !sweep.contains(path));
        let there = |path: &&PathBuf| store.runs().iter().any(|run| run.path == **path);
        let others = self.marked.iter().filter(there).count();
        let n = sweep.len();
        self.marked.extend(sweep);
        let others = match others {
            0 => String::new(),
            others => format!(", beside {others} marked before"),
        };
        let words = format!("{n} runs are marked{others}; {{compare-runs}} compares them");
        vec![info(&keymap.fill(&words))]
    }

    /// Whether a run's age is another one than on the screen.
    fn aged(&self, store: &Store) -> bool {
        let age = |now: UnixMillis, run: &RunSummary| human::age(now.since(run.created));
        let other = |run: &RunSummary| age(self.drawn, run) != age(store.now, run);
        store.runs().iter().any(other)
    }

    /// The marked runs that are still there; without marks the selected one under the one that it came from.
    fn chosen(&self, store: &Store) -> Vec<PathBuf> {
        let there = |path: &&PathBuf| store.runs().iter().any(|run| run.path == **path);
        let marked: Vec<PathBuf> = self.marked.iter().filter(there).cloned().collect();
        if !marked.is_empty() {
            return marked;
        }
        self.with_parent(store)
    }

    /// The selected run under the one that it came from.
    fn with_parent(&self, store: &Store) -> Vec<PathBuf> {
        let Some(HomeRow::Run(path)) = self.current(store) else {
            return Vec::new();
        };
        let of = |run: &&RunSummary| run.path == path;
        let parent = store.runs().iter().find(of).and_then(|run| run.parent.clone());
        let parent = parent.and_then(|p| find_parent(&p, store.runs()));
        parent.map(|run| run.path.clone()).into_iter().chain([path]).collect()
    }

    fn compare(&self, store: &Store, keymap: &Keymap) -> Vec<Request> {
        match self.chosen(store) {
            paths if paths.len() < 2 => {
                vec![info(&keymap.fill("mark at least two runs with {mark-run}, then compare them"))]
            }
            paths => vec![
                Request::Show(&compare::ENTRY),
                Request::SendAnswer(compare::RUNS, Answer::Paths(paths)),
            ],
        }
    }

    fn evals(&self, store: &Store, keymap: &Keymap) -> Vec<Request> {
        match self.chosen(store) {
            paths if paths.is_empty() => {
                vec![info(&keymap.fill(
                    "select a run, or mark several with {mark-run}, to see their evaluations",
                ))]
            }
            paths => vec![
                Request::Show(&evals::ENTRY),
                Request::SendAnswer(evals::MODELS, Answer::Paths(paths)),
            ],
        }
    }

    fn chat(&self, store: &Store) -> Vec<Request> {
        if self.marked.len() > 1 {
            let paths = self.chosen(store);
            return vec![
                Request::Show(&chat::ENTRY),
                Request::SendAnswer(chat::WITH_RUN, Answer::Paths(paths)),
            ];
        }
        match self.current(store) {
            Some(HomeRow::Run(path)) => vec![
                Request::Show(&chat::ENTRY),
                Request::SendAnswer(chat::WITH_RUN_OR_HOME, Answer::Path(path)),
            ],
            _ => vec![info("select a run to chat with its best checkpoint")],
        }
    }

    fn chat_side_by_side(&self, store: &Store) -> Vec<Request> {
        // The key is about the selected run, whatever is marked.
        let mut paths = self.with_parent(store);
        if let [one] = paths.as_slice()
            && let Some(run) = store.runs().iter().find(|run| run.path == *one)
            && let Some(model) = run.start_model.clone()
        {
            paths.insert(0, model);
        }
        match paths {
            paths if paths.len() < 2 => {
                let words = "select a run that has a parent or a base model, to chat with both";
                vec![info(words)]
            }
            paths => vec![
                Request::Show(&chat::ENTRY),
                Request::SendAnswer(chat::WITH_RUN, Answer::Paths(paths)),
            ],
        }
    }

    /// Asks what would go with the selected run, which is then asked about.
    fn delete(&mut self, store: &Store) -> Vec<Request> {
        let selected = match self.current(store) {
            Some(HomeRow::Run(path)) => store.runs().iter().find(|run| run.path == path),
            _ => None,
        };
        vec![match selected {
            None => info("select the run to delete"),
            Some(run) if run.status == RunStatus::Live => {
                info("this run is live: stop it first, then it can be deleted")
            }
            Some(run) => {
                self.doomed = Some(run.path.clone());
                Request::Do(Effect::PlanRemoval(run.path.clone()))
            }
        }]
    }

    fn resume(&self, store: &Store, keymap: &Keymap) -> Vec<Request> {
        let selected = match self.current(store) {
            Some(HomeRow::Run(path)) => store.runs().iter().find(|run| run.path == path),
            _ => None,
        };
        vec![match selected.map(|run| (run.status, run)) {
            None => info("select a run that was stopped"),
            Some((RunStatus::Live, _)) => info(&keymap.fill("this run is live; {accept} opens it")),
            Some((_, run)) if store.continues(run) => Request::ContinuePipeline(run.path.clone()),
            Some((RunStatus::Finished, run)) if !run.has_steps_left() => {
                info("this run has completed all its steps")
            }
            Some((_, run)) => Request::ResumeRun(run.path.clone()),
        }]
    }
}

/// The word for going on with a run: its pipeline, where that stands still, or the run alone if it ended with steps left.
fn resume_word(store: &Store, path: &Path) -> Option<&'static str> {
    let run = store.runs().iter().find(|run| run.path == path)?;
    let ended = run.status != RunStatus::Live && run.has_steps_left();
    match store.continues(run) {
        true => Some("continue pipeline"),
        false => ended.then_some(Action::ResumeRun.info().title),
    }
}

/// Runs, presets and spec files.
fn look_again() -> Vec<Request> {
    [Effect::RefreshRuns, Effect::ListPresets].map(Request::Do).into()
}

fn info(words: &str) -> Request {
    Request::Toast(Level::Info, words.into())
}

impl Pane for HomePane {
    fn hints(&self, store: &Store) -> Hints {
        use Action as A;
        if self.filtering {
            return Hints {
                own: vec![(A::Accept, "apply the filter")],
                kept: vec![(A::Cancel, "clear it")],
            };
        }
        let accept = match self.current(store) {
            Some(HomeRow::Run(_)) => "open",
            Some(HomeRow::Unbegun) if self.unbegun_shown => "hide them",
            Some(HomeRow::Unbegun) => "show them",
            Some(HomeRow::Stages(id)) if self.stages_shown.contains(&id) => "hide them",
            Some(HomeRow::Stages(_)) => "show them",
            Some(HomeRow::New) => "ask me",
            Some(HomeRow::Preset(name)) if store.is_template(&name) => "set up",
            _ => "start",
        };
        // What acts on the selected row stands first: on a small screen the rest gives way.
        let rest = [
            A::NewRun,
            A::ExportRun,
            A::Filter,
            A::MarkRun,
            A::MarkSweep,
            A::CompareEvals,
            A::DeleteRun,
            A::Sort,
            A::Refresh,
        ];
        let mut own = vec![(A::Accept, accept)];
        let of_row: &[A] = match self.current(store) {
            Some(HomeRow::Run(path)) => {
                own.extend(resume_word(store, &path).map(|word| (A::ResumeRun, word)));
                &[A::ChatWith, A::CompareRuns]
            }
            Some(HomeRow::Preset(_)) => &[A::EditPreset],
            _ => &[],
        };
        let on_run = matches!(self.current(store), Some(HomeRow::Run(_)));
        let fits = |action: &A| on_run || !matches!(action, A::MarkRun | A::MarkSweep | A::CompareEvals | A::DeleteRun | A::ExportRun);
        let all = of_row.iter().copied().chain(rest.into_iter().filter(fits));
        own.extend(titles(&all.collect::<Vec<A>>()));
        Hints::of_pane(own)
    }

    fn answered(&mut self, about: &str, answer: Answer, context: &mut PaneContext) -> Vec<Request> {
        if [export::FORMAT, export::FOLDER].contains(&about)
            && let Answer::Text(text) = &answer
        {
            return self.on_export(about, text, context.store);
        }
        match (about, answer, self.doomed.take()) {
            (DELETE, Answer::Text(text), Some(run)) if text == YES => {
                vec![Request::Do(Effect::RemoveRun(run))]
            }
            _ => Vec::new(),
        }
    }

    /// True while letters belong to the filter.
    fn typing(&self) -> bool {
        self.filtering
    }

    fn tick(&self, store: &Store) -> Option<Duration> {
        Some(match store.any_live() {
            true => REFRESH,
            false => LOOK,
        })
    }

    fn enter(&mut self, _context: &mut PaneContext) -> Vec<Request> {
        look_again()
    }

    fn act(&mut self, action: Action, context: &mut PaneContext) -> Vec<Request> {
        let store = context.store;
        match action {
            Action::Accept if !self.filtering => self.accept(store),
            Action::NewRun => vec![Request::Do(Effect::OpenWizard)],
            Action::EditPreset => self.edit(store),
            Action::Refresh => look_again(),
            Action::MarkRun => self.mark(store),
            Action::MarkSweep => self.mark_sweep(store, context.keymap),
            Action::CompareRuns => self.compare(store, context.keymap),
            Action::CompareEvals => self.evals(store, context.keymap),
            Action::ChatWith => self.chat(store),
            Action::ChatBeside => self.chat_side_by_side(store),
            Action::ResumeRun => self.resume(store, context.keymap),
            Action::DeleteRun => self.delete(store),
            Action::ExportRun => self.export(store, context.in_front),
            action => {
                self.walk(action, store);
                self.moved(store)
            }
        }
    }

    fn key(&mut self, key: KeyEvent, context: &mut PaneContext) -> Vec<Request> {
        self.filter.key(key);
        self.select_first_hit(context.store);
        self.moved(context.store)
    }

    fn paste(&mut self, text: &str, context: &mut PaneContext) -> Vec<Request> {
        if !self.filtering {
            return Vec::new();
        }
        self.filter.paste(text);
        self.select_first_hit(context.store);
        self.moved(context.store)
    }

    /// A click selects a row, a second one opens it.
    fn click(&mut self, row: usize, context: &mut PaneContext) -> Vec<Request> {
        if self.selected == row {
            return self.act(Action::Accept, context);
        }
        self.selected = row;
        self.moved(context.store)
    }

    fn incoming(&mut self, msg: &Msg, context: &mut PaneContext) -> Vec<Request> {
        let store = context.store;
        match msg {
            Msg::Runs(Ok(_)) => {
                self.replaced(store);
                self.moved(store)
            }
            Msg::Presets(_) | Msg::Stages(_) if self.settled => {
                self.replaced(store);
                self.moved(store)
            }
            Msg::Tick if context.in_front => {
                let mut requests = Vec::new();
                if self.aged(store) {
                    requests.push(Request::Draw(Freshness::DataMoved));
                }
                let since = |at| store.elapsed.saturating_sub(at);
                let stale = since(store.runs_read) >= REFRESH;
                if store.any_live() && stale && !store.reading_runs {
                    requests.push(Request::Do(Effect::RefreshRuns));
                }
                if self.looked_at.is_some_and(|at| since(at) >= LOOK) {
                    self.looked_at = None;
                    requests.push(Request::Do(Effect::LookAtFolders));
                }
                requests
            }
            Msg::RemovalPlanned { run_dir, result } if self.doomed.as_ref() == Some(run_dir) => {
                match result {
                    Ok(lines) => {
                        let mut reasons = lines.clone();
                        reasons.push("What is deleted cannot be brought back.".into());
                        let topic = Topic {
                            pane: &ENTRY,
                            about: DELETE,
                        };
                        let answers = ["delete it", "keep it"];
                        let asked = Question::new("delete the run?", reasons, answers, topic);
                        vec![Request::Open(Box::new(asked))]
                    }
                    Err(why) => {
                        self.doomed = None;
                        vec![Request::Toast(Level::Warn, why.clone())]
                    }
                }
            }
            Msg::RunRemoved { run_dir, result } => {
                let name = run_dir.file_name().unwrap_or_default();
                let name = one_line(&name.to_string_lossy());
                let said = match result {
                    Ok(()) => Request::Toast(Level::Info, format!("deleted {name}")),
                    Err(why) => Request::Toast(Level::Warn, why.clone()),
                };
                self.marked.retain(|run| run != run_dir);
                let mut requests = vec![said];
                requests.extend(look_again());
                requests
            }
            Msg::RunExported { to, result } => vec![export::exported(to, result)],
            Msg::Folders(folders) => {
                self.looked_at = Some(store.elapsed);
                // The first look comes after the lists were read: they may be older.
                match self.folders.replace(*folders) == Some(*folders) {
                    true => Vec::new(),
                    false => look_again(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
        self.draw_all(frame, area, context);
    }
}
