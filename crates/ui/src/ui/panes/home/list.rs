//! The list of runs on Home: filtered, in order, as a tree; runs that failed before their first step are one line at its end.

use super::{HomePane, HomeRow};
use crate::run::index::{RunStatus, RunSummary};
use crate::run::lineage::{Node, tree};
use crate::run::state::phase_word;
use crate::ui::msg::StageOf;
use crate::ui::rows::PresetRow;
use crate::ui::store::{Store, short_run};
use std::collections::BTreeMap;
use unicode_width::UnicodeWidthStr;

/// The order of runs; live ones stand first in every order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// As a tree: a run hangs under the one that it came from.
    Newest,
    ValidationLoss,
    Name,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Newest => Sort::ValidationLoss,
            Sort::ValidationLoss => Sort::Name,
            Sort::Name => Sort::Newest,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Sort::Newest => "newest first",
            Sort::ValidationLoss => "lowest validation loss first",
            Sort::Name => "by name",
        }
    }
}

/// A row of the list.
#[derive(Debug)]
pub(super) enum Listed<'a> {
    /// A run, and how it hangs in the tree.
    Run(&'a RunSummary, Node),
    /// So many runs failed before their first step; they follow where the line is open.
    Unbegun(usize),
    /// So many earlier stages of the pipeline whose newest run stands above it; they are listed where the line is open.
    Stages { of: &'a StageOf, n: usize },
}

impl Listed<'_> {
    /// Columns of a whole name, with what hangs it in the tree.
    pub(super) fn name_columns(&self, store: &Store) -> usize {
        match self {
            Listed::Run(run, node) => {
                let name = short_run(&run.id).width() + stage_mark(run, store).len();
                node.branch(false).width() + name
            }
            Listed::Unbegun(_) | Listed::Stages { .. } => 0,
        }
    }

    pub(super) fn row(&self) -> HomeRow {
        match self {
            Listed::Run(run, _) => HomeRow::Run(run.path.clone()),
            Listed::Unbegun(_) => HomeRow::Unbegun,
            Listed::Stages { of, .. } => HomeRow::Stages(of.id.clone()),
        }
    }
}

impl HomePane {
    /// The presets that the filter lets through.
    pub(super) fn presets<'a>(&self, store: &'a Store) -> Vec<&'a PresetRow> {
        let fits = |row: &&PresetRow| self.matches_filter(&format!("{} {}", row.title(), row.about));
        store.presets.iter().filter(fits).collect()
    }

    /// Who filters looks for something that is there.
    pub(super) fn offers_wizard(&self) -> bool {
        self.filter.is_empty()
    }

    /// Rows above the runs: the presets and the wizard.
    pub(super) fn offset(&self, store: &Store) -> usize {
        self.presets(store).len() + usize::from(self.offers_wizard())
    }

    /// Whether a row with this text has all words of the filter.
    fn matches_filter(&self, text: &str) -> bool {
        let (wanted, text) = (self.filter.text().to_lowercase(), text.to_lowercase());
        wanted.split_whitespace().all(|word| text.contains(word))
    }

    /// The runs that the filter lets through, in the chosen order. Who filters looks for something: then every run is a row.
    pub(super) fn listed<'a>(&self, store: &'a Store) -> Vec<Listed<'a>> {
        let (unbegun, begun): (Vec<_>, Vec<_>) = self
            .sorted(store)
            .into_iter()
            .partition(|run| run.failed_before_its_first_step());
        if !self.filter.is_empty() {
            return self.as_tree(self.sorted(store));
        }
        if unbegun.len() < 2 {
            return self.staged(self.sorted(store), store);
        }
        let mut rows = self.staged(begun, store);
        rows.push(Listed::Unbegun(unbegun.len()));
        if self.unbegun_shown {
            rows.extend(flat(unbegun));
        }
        rows
    }

    fn sorted<'a>(&self, store: &'a Store) -> Vec<&'a RunSummary> {
        let fits = |run: &&RunSummary| {
            let (phase, verdict) = (run.phase.map(phase_word), run.verdict.as_deref());
            let stage = store.stages.get(&run.created_as);
            let text = format!(
                "{} {} {} {} {} {} {} {}",
                run.id,
                run.name,
                run.preset,
                run.method,
                run.status.word(),
                phase.unwrap_or_default(),
                verdict.unwrap_or_default(),
                stage.map_or(String::new(), StageOf::words),
            );
            self.matches_filter(&text)
        };
        let mut runs: Vec<&RunSummary> = store.runs().iter().filter(fits).collect();
        // By what the list shows.
        let loss = |run: &RunSummary| {
            let shown = run.val_loss.or(run.best_val_loss);
            shown.filter(|x| x.is_finite()).unwrap_or(f64::MAX)
        };
        match self.sort {
            Sort::Newest => runs.sort_by_key(|run| std::cmp::Reverse(run.created)),
            Sort::ValidationLoss => runs.sort_by(|a, b| loss(a).total_cmp(&loss(b))),
            Sort::Name => runs.sort_by(|a, b| short_run(&a.id).cmp(short_run(&b.id))),
        }
        runs.sort_by_key(|run| run.status != RunStatus::Live);
        runs
    }

    /// The runs of a pipeline as one: the stage that trains, or trained last, and a line for those before it. In another order than by
    /// age each stage stands for itself.
    fn staged<'a>(&self, runs: Vec<&'a RunSummary>, store: &'a Store) -> Vec<Listed<'a>> {
        if self.sort != Sort::Newest {
            return self.as_tree(runs);
        }
        let stage_of = |run: &RunSummary| store.stages.get(&run.created_as);
        let mut newest: BTreeMap<&str, (&StageOf, usize)> = BTreeMap::new();
        for stage in runs.iter().filter_map(|run| stage_of(run)) {
            let (last, n) = newest.entry(&stage.id).or_insert((stage, 0));
            *n += 1;
            if stage.number > last.number {
                *last = stage;
            }
        }
        let is_earlier = |run: &RunSummary| {
            let stage = stage_of(run)?;
            let (last, _) = newest.get(&*stage.id)?;
            Some(stage.number < last.number)
        };
        let folded = |run: &RunSummary| {
            let open = stage_of(run).is_some_and(|stage| self.stages_shown.contains(&stage.id));
            !open && is_earlier(run) == Some(true)
        };
        let rows = self.as_tree(runs.into_iter().filter(|run| !folded(run)).collect());
        let mut listed = Vec::with_capacity(rows.len());
        for row in rows {
            let line = match &row {
                Listed::Run(run, _) if is_earlier(run) == Some(false) => stage_of(run),
                _ => None,
            };
            listed.push(row);
            let n = |of: &StageOf| newest.get(&*of.id).map_or(0, |(_, n)| n - 1);
            let line = line.map(|of| (of, n(of))).filter(|(_, n)| *n > 0);
            listed.extend(line.map(|(of, n)| Listed::Stages { of, n }));
        }
        listed
    }

    fn as_tree<'a>(&self, runs: Vec<&'a RunSummary>) -> Vec<Listed<'a>> {
        match self.sort {
            Sort::Newest => tree(&runs)
                .into_iter()
                .map(|node| Listed::Run(runs[node.index], node))
                .collect(),
            Sort::ValidationLoss | Sort::Name => flat(runs).collect(),
        }
    }
}

fn flat<'a>(runs: Vec<&'a RunSummary>) -> impl Iterator<Item = Listed<'a>> {
    let root = |index| Node {
        index,
        follows: Vec::new(),
    };
    (0..).zip(runs).map(move |(at, run)| Listed::Run(run, root(at)))
}

/// ` 2/5` behind the name of a run of a pipeline's stage.
pub(super) fn stage_mark(run: &RunSummary, store: &Store) -> String {
    let stage = store.stages.get(&run.created_as);
    stage.map_or(String::new(), |stage| {
        format!(" {}/{}", stage.number, stage.n_stages)
    })
}
