//! The troubleshooting entries under `assets/guide/trouble`: a file for each area; of each entry the symptom, its cause, how to
//! check for it, and what to do.

use std::sync::LazyLock;

/// What belongs together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Its file's name.
    pub id: &'static str,
    pub title: &'static str,
    pub entries: Vec<Entry>,
}

/// One symptom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: &'static str,
    /// The title of its area.
    pub area: &'static str,
    /// The symptom.
    pub title: &'static str,
    /// Words that lead here.
    pub(super) ask: &'static str,
    /// Rules of `diagnosis` whose findings it explains.
    pub rules: Vec<&'static str>,
    pub cause: &'static str,
    pub check: &'static str,
    pub fix: &'static str,
}

impl Entry {
    /// `None` where it is not in its form; a test reads all of them.
    fn read(area: &'static str, text: &'static str) -> Option<Entry> {
        let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
        let title = lines.next()?;
        let mut list = |key: &str| {
            let found = lines.peek()?.strip_prefix(key)?.strip_prefix(':')?.trim();
            lines.next();
            Some(found)
        };
        let entry = Entry {
            id: list("id")?,
            area,
            title,
            ask: list("ask")?,
            rules: list("rules")
                .unwrap_or_default()
                .split_whitespace()
                .collect(),
            cause: list("Cause")?,
            check: list("Check")?,
            fix: list("Fix")?,
        };
        lines.next().is_none().then_some(entry)
    }

    /// Markdown.
    pub fn text(&self) -> String {
        format!(
            "- Cause: {}\n- Check: {}\n- Fix: {}",
            self.cause, self.check, self.fix
        )
    }
}

/// Every area, in the order of the contents.
pub fn areas() -> &'static [Area] {
    const ORDER: [&str; 8] = [
        "data",
        "optimization",
        "memory",
        "distributed",
        "adapters",
        "alignment",
        "evaluation",
        "inference",
    ];
    static AREAS: LazyLock<Vec<Area>> = LazyLock::new(|| {
        let place = |area: &Area| ORDER.iter().position(|id| *id == area.id);
        let mut areas: Vec<Area> = crate::embed::list(FOLDER).filter_map(area).collect();
        areas.sort_by_key(|area| (place(area).unwrap_or(ORDER.len()), area.id));
        areas
    });
    &AREAS
}

pub(super) const FOLDER: &str = "assets/guide/trouble";

fn area(path: &'static str) -> Option<Area> {
    let id = path.rsplit('/').next()?.strip_suffix(".md")?;
    let mut parts = crate::embed::text(path)?.split("\n## ");
    let title = parts.next()?.strip_prefix("# ")?.trim();
    let entries = parts.filter_map(|text| Entry::read(title, text)).collect();
    Some(Area { id, title, entries })
}

/// Every entry, area by area.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    areas().iter().flat_map(|area| &area.entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::RULES;

    #[test]
    fn every_entry_is_read_and_has_an_id_of_its_own() {
        let written: usize = crate::embed::list(FOLDER)
            .filter_map(crate::embed::text)
            .map(|text| text.matches("\n## ").count())
            .sum();
        let mut ids: Vec<&str> = entries().map(|entry| entry.id).collect();
        assert_eq!(ids.len(), written);
        assert!(written >= 95, "{written}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), written);
        let pages = super::super::pages();
        for entry in entries() {
            for rule in &entry.rules {
                let known = RULES.iter().any(|r| r.entry.id == *rule);
                assert!(known, "{}: {rule}", entry.id);
            }
            assert!(pages.iter().all(|page| page.id != entry.id), "{}", entry.id);
        }
    }
}
