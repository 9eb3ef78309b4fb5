//! Problems of a spec, and the origin of each value. All issues are collected before any is shown.

use crate::embed;
use std::collections::BTreeMap;
use std::fmt;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Not set anywhere.
    Default,
    /// A preset or spec file, with the line of its key (or of the nearest key above it).
    File { name: String, line: Option<usize> },
    /// `-s KEY=VALUE`, as typed.
    Set(String),
    /// The base model of `train.from`.
    Model(String),
    /// Derived from other values.
    Derived,
    /// Changed because a higher layer changed another value; says how.
    Implied(String),
}

impl Origin {
    /// A preset that comes with the program.
    pub(super) fn is_shipped(&self) -> bool {
        matches!(self, Origin::File { name, .. } if embed::text(name).is_some())
    }

    /// How far a value is the user's own: `-s` before their files, and these before presets.
    pub(super) fn closeness(&self) -> u8 {
        match self {
            Origin::Set(_) => 3,
            Origin::File { .. } if !self.is_shipped() => 2,
            Origin::Default => 0,
            _ => 1,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File {
                name,
                line: Some(line),
            } => write!(f, "{name}:{line}"),
            Origin::File { name, line: None } => f.write_str(name),
            Origin::Set(text) => write!(f, "-s {text}"),
            Origin::Model(folder) => write!(f, "from {folder}"),
            Origin::Derived => f.write_str("derived"),
            Origin::Implied(how) => f.write_str(how),
        }
    }
}

/// One problem to correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub origin: Origin,
    /// The dotted path as far as known; empty for the whole file.
    pub path: String,
    pub what: String,
    /// How to fix it; may be empty.
    pub hint: String,
}

impl Issue {
    /// For one line of a screen: `model.n_head: 5 does not divide 128; try: 4`.
    pub fn line(&self) -> String {
        let place = match self.path.as_str() {
            "" => String::new(),
            path => format!("{path}: "),
        };
        let hint = match self.hint.as_str() {
            "" => String::new(),
            hint => format!("; try: {hint}"),
        };
        format!("{place}{}{hint}", self.what)
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.origin)?;
        if !self.path.is_empty() {
            write!(f, "  {}", self.path)?;
        }
        write!(f, "\n      {}", self.what)?;
        if !self.hint.is_empty() {
            write!(f, "\n      try: {}", self.hint)?;
        }
        Ok(())
    }
}

/// Every issue of a spec; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecErrors(Vec<Issue>);

impl SpecErrors {
    /// `Ok` if there are no issues.
    pub(super) fn check(issues: Vec<Issue>) -> Result<(), SpecErrors> {
        if issues.is_empty() {
            Ok(())
        } else {
            Err(SpecErrors(issues))
        }
    }

    pub(super) fn one(issue: Issue) -> SpecErrors {
        SpecErrors(vec![issue])
    }

    pub fn issues(&self) -> &[Issue] {
        &self.0
    }

    /// With other origins, where `of` has one.
    #[must_use]
    pub fn placed(mut self, of: &dyn Fn(&Issue) -> Option<Origin>) -> SpecErrors {
        for issue in &mut self.0 {
            issue.origin = of(issue).unwrap_or_else(|| issue.origin.clone());
        }
        self
    }
}

impl fmt::Display for SpecErrors {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("one problem in the spec:")?,
            n => write!(f, "{n} problems in the spec:")?,
        }
        for issue in &self.0 {
            write!(f, "\n  {issue}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SpecErrors {}

/// The origin of every value that was set, by dotted path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// The origin of the value at `path`; [`Origin::Default`] if it was not set.
    pub fn get(&self, path: &str) -> Origin {
        self.0.get(path).cloned().unwrap_or(Origin::Default)
    }

    /// The origin of the value at `path`, or of the nearest value around it that was set: of `a.list[0].x` that of `a.list`.
    pub(super) fn nearest(&self, path: &str) -> Origin {
        let mut path = path;
        loop {
            match (self.0.get(path), path.rfind(['.', '['])) {
                (Some(origin), _) => return origin.clone(),
                (None, Some(end)) => path = &path[..end],
                (None, None) => return Origin::Default,
            }
        }
    }

    /// Set values with their origins, in path order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.0.iter().map(|(path, origin)| (path.as_str(), origin))
    }

    pub(super) fn set(&mut self, path: &str, origin: Origin) {
        self.0.insert(path.to_string(), origin);
    }

    /// Removes everything at and under `path`.
    pub(super) fn forget(&mut self, path: &str) {
        let under = format!("{path}.");
        self.0.retain(|p, _| p != path && !p.starts_with(&under));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_place_path_cause_and_remedy() {
        let errors = SpecErrors::one(Issue {
            origin: Origin::File {
                name: "my.yaml".into(),
                line: Some(3),
            },
            path: "train.max_steps".into(),
            what: "0 is too small".into(),
            hint: "1 or more".into(),
        });
        assert_eq!(
            errors.to_string(),
            "one problem in the spec:\n  my.yaml:3  train.max_steps\n      0 is too small\n      try: 1 or more"
        );
    }

    #[test]
    fn forgetting_a_branch_leaves_its_neighbours() {
        let mut origins = Origins::default();
        for path in ["a.b", "a.b.c", "a.bc"] {
            origins.set(path, Origin::Set("x".into()));
        }
        origins.forget("a.b");
        assert_eq!(origins.iter().map(|(p, _)| p).collect::<Vec<_>>(), ["a.bc"]);
        assert_eq!(origins.get("a.b"), Origin::Default);
    }
}
