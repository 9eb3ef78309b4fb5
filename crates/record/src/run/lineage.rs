//! Which run was started from which: branches, and runs that began with another one's weights, as a tree. Only order and
//! depth; what a row shows is up to the lists.

use super::index::{RunStatus, RunSummary};
use super::{Parent, RunDir};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One row of a tree: a run by its place in the list, and how it hangs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub index: usize,
    /// For each generation above it, and for itself: whether a sibling follows below. Empty for a root.
    pub follows: Vec<bool>,
}

impl Node {
    /// `│  └─ `: what stands in front of its name.
    pub fn branch(&self, ascii: bool) -> String {
        let [bar, tee, end] = match ascii {
            true => ["|  ", "+- ", "`- "],
            false => ["│  ", "├─ ", "└─ "],
        };
        let Some((own, above)) = self.follows.split_last() else {
            return String::new();
        };
        // The root's own siblings are not connected.
        let lead = above.iter().map(|more| if *more { bar } else { "   " });
        lead.chain([if *own { tee } else { end }]).collect()
    }
}

/// Whether two runs were made from the same preset or spec file with the same data, as those of a sweep are. A branch has no
/// preset of its own. `full` is the path of a key that a request may have by another name.
pub fn same_origin(a: &RunSummary, b: &RunSummary, full: impl Fn(&str) -> String) -> bool {
    let data = |run: &RunSummary| -> BTreeSet<(String, String)> {
        let words = run.changed.iter().filter_map(|word| word.split_once('='));
        let paths = words.map(|(key, value)| (full(key.trim()), value.trim().to_string()));
        paths.filter(|(path, _)| path.starts_with("data")).collect()
    };
    !a.preset.is_empty() && a.preset == b.preset && data(a) == data(b)
}

/// The runs as a tree. Roots and the children of a run keep the order of the list; a family stands where its first member
/// would, families with a live member first. A parent that is not in the list, and a circle, make roots.
pub fn tree(runs: &[&RunSummary]) -> Vec<Node> {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        let known = by_name.entry(&run.created_as).or_insert(at);
        if has_original_name(run) {
            *known = at;
        }
    }
    let parent = |at: usize| {
        let of = runs[at].parent.as_ref()?;
        by_name.get(of.run.as_str()).copied().filter(|p| *p != at)
    };
    let root = |at: usize| {
        let mut root = at;
        for _ in 0..runs.len() {
            match parent(root) {
                Some(above) => root = above,
                None => return root,
            }
        }
        // A circle: every one of it is a root of its own.
        at
    };
    let mut families: Vec<(usize, bool)> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let (root, live) = (root(at), run.status == RunStatus::Live);
        match families.iter_mut().find(|family| family.0 == root) {
            Some(family) => family.1 |= live,
            None => families.push((root, live)),
        }
    }
    families.sort_by_key(|(_, live)| !live);
    let mut nodes = Vec::with_capacity(runs.len());
    let mut placed = vec![false; runs.len()];
    for (root, _) in families {
        let mut open = vec![Node {
            index: root,
            follows: Vec::new(),
        }];
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut placed[node.index], true) {
                continue;
            }
            let children =
                || (0..runs.len()).filter(|at| parent(*at) == Some(node.index) && !placed[*at]);
            let last = children().next_back();
            let below: Vec<Node> = children()
                .map(|index| Node {
                    index,
                    follows: [&node.follows[..], &[Some(index) != last]].concat(),
                })
                .collect();
            open.extend(below.into_iter().rev());
            nodes.push(node);
        }
    }
    nodes
}

/// The run in a list that a child means by its parent's name: of a run and its copies the one that has not been renamed.
pub fn find_parent<'a>(
    parent: &Parent,
    runs: impl IntoIterator<Item = &'a RunSummary>,
) -> Option<&'a RunSummary> {
    let same = runs.into_iter().filter(|run| run.created_as == parent.run);
    // Of equal keys the first one is meant.
    same.min_by_key(|run| !has_original_name(run))
}

fn has_original_name(run: &RunSummary) -> bool {
    run.id == run.created_as
}

/// The run and the step that a model folder is a checkpoint of: `runs/a/checkpoints/step-000500`, or `runs/a` for its newest.
pub fn parent_of(model: &Path) -> Option<Parent> {
    let (run, step) = match RunDir::open(model) {
        Ok(run) => {
            let step = run.checkpoints().last()?.step;
            (run, step)
        }
        Err(_) => {
            let real = std::path::absolute(model).ok()?;
            let run = RunDir::open(real.parent()?.parent()?).ok()?;
            let step = run.checkpoints().into_iter().find(|c| c.path == real)?.step;
            (run, step)
        }
    };
    Some(Parent {
        run: run.id().into(),
        step,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    fn run(id: &str, parent: Option<&str>, status: RunStatus) -> RunSummary {
        RunSummary {
            id: id.into(),
            created_as: id.into(),
            name: id.into(),
            path: id.into(),
            status,
            parent: parent.map(|run| Parent {
                run: run.into(),
                step: 5,
            }),
            ..RunSummary::default()
        }
    }

    fn drawn(runs: &[RunSummary]) -> Vec<String> {
        let runs: Vec<&RunSummary> = runs.iter().collect();
        tree(&runs)
            .iter()
            .map(|node| format!("{}{}", node.branch(true), runs[node.index].id))
            .collect()
    }

    #[test]
    fn children_hang_under_their_parents_and_live_families_come_first() {
        use RunStatus::{Finished, Live};
        let runs = [
            run("other", None, Finished),
            run("dpo", Some("sft"), Live),
            run("sft-2", Some("base"), Finished),
            run("sft", Some("base"), Finished),
            run("orphan", Some("gone"), Finished),
            run("base", None, Finished),
        ];
        let expected = ["base", "+- sft-2", "`- sft", "   `- dpo", "other", "orphan"];
        assert_eq!(drawn(&runs), expected);
    }

    #[test]
    fn children_find_a_renamed_parent_and_of_copies_the_one_that_has_its_first_name() {
        let finished = RunStatus::Finished;
        let mut renamed = run("base", None, finished);
        renamed.id = "my-base".into();
        let child = run("child", Some("base"), finished);
        let runs = [child.clone(), renamed.clone()];
        assert_eq!(drawn(&runs), ["my-base", "`- child"]);
        let parent = child.parent.clone().unwrap();
        let found = |runs: &[RunSummary]| find_parent(&parent, runs).map(|run| run.id.clone());
        assert_eq!(found(&runs).as_deref(), Some("my-base"));
        let runs = [
            renamed.clone(),
            run("base", None, finished),
            child.clone(),
            renamed,
        ];
        assert_eq!(drawn(&runs), ["my-base", "base", "`- child", "my-base"]);
        assert_eq!(found(&runs).as_deref(), Some("base"));
        assert_eq!(found(&[child]), None);
    }

    #[test]
    fn circles_and_runs_that_are_their_own_parents_are_shown_once() {
        let finished = RunStatus::Finished;
        let runs = [
            run("a", Some("b"), finished),
            run("b", Some("a"), finished),
            run("c", Some("c"), finished),
            run("d", Some("b"), finished),
        ];
        let mut rows = drawn(&runs);
        assert_eq!(rows.len(), 4, "{rows:?}");
        rows.retain(|row| row.ends_with('d'));
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn a_checkpoint_knows_its_run() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "x", "", "", &SystemClock::new()).unwrap();
        assert_eq!(parent_of(run.path()), None, "no checkpoint");
        let step = run.checkpoints_path().join("step-000040");
        std::fs::create_dir(&step).unwrap();
        std::fs::write(step.join("manifest.json"), "{}").unwrap();
        let expected = Parent {
            run: run.id().into(),
            step: 40,
        };
        assert_eq!(parent_of(&step), Some(expected.clone()));
        assert_eq!(parent_of(run.path()), Some(expected));
        assert_eq!(parent_of(dir.path()), None);
        assert_eq!(parent_of(Path::new("gone/model")), None);
    }

    #[test]
    fn runs_of_one_spec_and_its_data_have_one_origin() {
        let of = |preset: &str, changed: &[&str]| RunSummary {
            preset: preset.into(),
            changed: changed.iter().map(ToString::to_string).collect(),
            ..run("a", None, RunStatus::Finished)
        };
        let full = |key: &str| match key {
            "max_rows" => "data.max_rows".to_string(),
            key => key.to_string(),
        };
        let same_origin = |a: &RunSummary, b: &RunSummary| super::same_origin(a, b, full);
        let one = of("my.yaml", &["lr=1e-3", "data.path=a.jsonl"]);
        assert!(same_origin(
            &one,
            &of("my.yaml", &["data.path=a.jsonl", "lr=1", "seed=2"])
        ));
        assert!(!same_origin(&one, &of("my.yaml", &["lr=1e-3"])));
        let fewer = of("my.yaml", &["data.path=a.jsonl", "max_rows=9"]);
        assert!(!same_origin(&one, &fewer));
        let said_in_full = of("my.yaml", &["data.max_rows=9", "data.path=a.jsonl"]);
        assert!(same_origin(&fewer, &said_in_full));
        assert!(!same_origin(
            &one,
            &of("other.yaml", &["data.path=a.jsonl"])
        ));
        assert!(!same_origin(&of("", &[]), &of("", &[])), "two branches");
    }
}
