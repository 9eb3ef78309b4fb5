//! A run's own `spec.yaml`: written completely, so a missing setting was lost or deleted, and no default may replace it.

use super::issue::SpecErrors;
use super::{RunSpec, load};
use serde_json::Value;

/// Sections that every program version has written.
const ALWAYS: [&str; 6] = ["method", "model", "data", "train", "optimizer", "schedule"];

impl RunSpec {
    /// What a run's spec does not say and reading it would fill in with a default. `logged`: the spec recorded in the run's log, asked
    /// for only where something is missing. Without it, the sections that every run has are looked for; with it, a setting which
    /// the log does not have either is one of a newer program, whose default is meant.
    ///
    /// # Errors
    /// It cannot be read as a spec.
    pub fn missing_settings(
        text: &str,
        logged: impl FnOnce() -> Option<Value>,
    ) -> Result<Vec<String>, SpecErrors> {
        let said = load::as_written(text)?;
        let filled = RunSpec::from_yaml(text)?.to_value();
        let mut missing = Vec::new();
        collect_missing("", &said, &filled, &mut missing);
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let logged = logged();
        let is_lost = |path: &str, default: &Value| match &logged {
            None => ALWAYS.contains(&path),
            Some(spec) => {
                let at = path.split('.').try_fold(spec, |value, key| value.get(key));
                at.is_some_and(|was| !path.contains('.') || was != default)
            }
        };
        missing.retain(|(path, default)| is_lost(path, default));
        Ok(missing.into_iter().map(|(path, _)| path).collect())
    }
}

/// The settings of `filled` that `said` lacks, each by its highest missing key.
fn collect_missing<'a>(
    path: &str,
    said: &Value,
    filled: &'a Value,
    missing: &mut Vec<(String, &'a Value)>,
) {
    let Value::Object(filled) = filled else {
        return;
    };
    for (key, value) in filled {
        let at = match path {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        match said.get(key) {
            None => missing.push((at, value)),
            Some(said) => collect_missing(&at, said, value, missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    #[test]
    fn what_a_whole_spec_has_lost_is_named_and_what_an_older_one_never_had_is_not() {
        let words = ["lr=0.5", "n_layer=3"].map(String::from);
        let spec = load("quickstart", &words, &SpecSources::default()).unwrap();
        let (whole, value) = (spec.spec.to_yaml(), spec.spec.to_value());
        let lost = |text: &str| RunSpec::missing_settings(text, || Some(value.clone())).unwrap();
        let blind = |text: &str| RunSpec::missing_settings(text, || None).unwrap();
        let never = || panic!("a whole spec needs no log");
        assert!(RunSpec::missing_settings(&whole, never).unwrap().is_empty());
        let before = |key: &str| whole.split_once(&format!("\n{key}:")).unwrap().0;
        for text in ["", "# lost\n", "\n"] {
            let sections = value.as_object().unwrap().keys();
            assert!(lost(text).iter().eq(sections), "{:?}", lost(text));
            assert_eq!(blind(text), ALWAYS);
        }
        let cut = before("optimizer");
        assert!(lost(cut).contains(&"optimizer".to_string()), "{cut}");
        assert!(blind(cut).contains(&"optimizer".to_string()), "{cut}");
        // A key deleted in a section: the default is another value.
        let shallow: Vec<&str> = whole.lines().filter(|l| !l.contains("n_layer:")).collect();
        assert_eq!(lost(&shallow.join("\n")), ["model.n_layer"]);
        let edited = whole.replace("n_layer: 3", "n_layer: 2");
        assert_eq!(lost(&edited), [""; 0]);
        // A section that the program of then did not have.
        let mut older = value.clone();
        older.as_object_mut().unwrap().remove("rescue");
        let text = crate::spec::yaml::write(&older);
        let lost = RunSpec::missing_settings(&text, || Some(older)).unwrap();
        assert_eq!(lost, [""; 0]);
    }
}
