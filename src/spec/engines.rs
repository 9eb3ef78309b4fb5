//! What the engines say of a spec that names another one.

use super::RunSpec;
use crate::workers::EngineConfig;

impl RunSpec {
    /// Why this spec cannot have `engine: torch`; `None` if it can. The rules are those of any spec that names it.
    pub fn refused_by_torch(&self) -> Option<String> {
        if self.engine.torch().is_some() {
            return None;
        }
        let torch = EngineConfig::Torch(Default::default());
        let there = self.clone().on_engine(torch);
        let errors = RunSpec::from_yaml(&there.to_yaml()).err()?;
        // What is wrong besides is wrong on any engine, and told elsewhere.
        let own = RunSpec::from_yaml(&self.to_yaml()).err();
        let known = |what: &str| {
            let issues = own.iter().flat_map(|errors| errors.issues());
            issues.into_iter().any(|issue| issue.what == what)
        };
        let issue = errors.issues().iter().find(|issue| !known(&issue.what))?;
        Some(issue.what.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::{SpecSources, load};

    #[test]
    fn the_first_reason_is_told_and_a_spec_without_one_has_none() {
        let refused = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let spec = load("quickstart", &words, &SpecSources::default())
                .unwrap()
                .spec;
            spec.refused_by_torch()
        };
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&["engine=torch"]), None);
        let words = refused(&["optimizer=lion"]).unwrap();
        assert!(words.contains("adamw alone"), "{words}");
    }
}
