//! Another tool's config: what becomes of its keys, and the model that it starts from.

use super::ModelFacts;
use crate::base::files::open_plain;
use crate::base::paths::{expand_home, not_found_hint};
use crate::base::text::one_line;
use crate::spec::import::{self, DatasetInfo, Dialect, KeyOutcome};
use crate::spec::{Draft, SpecSources, base_folder};
use std::io::Read;
use std::path::Path;

/// Another tool's config, read and converted as far as possible.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigFacts {
    /// The tool: `llama-factory`.
    pub tool: &'static str,
    /// What became of each key.
    pub lines: Vec<import::Line>,
    /// The model that it starts from; where it is not here, what to do.
    pub base: Option<Result<ModelFacts, String>>,
    /// The method that it is read for.
    pub method: String,
    /// That is a guess: what was taken, and why.
    pub doubt: Option<String>,
    /// The method as the user said it.
    pub said: Option<String>,
    /// The run's name if the file has none, and the file's text.
    stem: String,
    text: String,
    info: Option<DatasetInfo>,
    /// The config of its start model, by which it is read.
    model: Option<import::StartModel>,
}

impl ConfigFacts {
    /// The resulting spec, with the architecture of its base model.
    pub fn draft(&self) -> Option<Draft> {
        let known = import::Known {
            info: self.info.as_ref(),
            method: self.said.as_deref(),
            columns: import::columns_of(&self.text),
            model: self.model.clone(),
            ..import::Known::default()
        };
        let imported = import::import_with(&self.stem, &self.text, &known);
        let mut draft = imported.ok()?.draft;
        if let Some(Ok(model)) = &self.base {
            // Also what the file says as the default has it: the base model does not overrule it.
            let said: Vec<String> = draft.edited().map(String::from).collect();
            let left = model
                .settings
                .iter()
                .filter(|(path, _)| !said.contains(path));
            for (path, text) in left {
                // What the schema rejects is reported when the spec is loaded.
                let _ = draft.set(path, text, "");
            }
        }
        Some(draft)
    }

    /// Whether its tool leaves the method to a command line, so that another one can be said.
    pub fn takes_a_method(&self) -> bool {
        Dialect::by_id(self.tool).is_some_and(Dialect::takes_a_method)
    }

    /// Why there is no plan: its base model is not on this machine, or cannot be trained.
    pub fn absent_base(&self) -> Option<&str> {
        self.base.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// `9 mapped; 3 mapped, with a difference; 4 no equivalent`
    pub fn summary(&self) -> String {
        let count =
            |outcome: KeyOutcome| self.lines.iter().filter(|l| l.outcome == outcome).count();
        let counts: Vec<String> = KeyOutcome::ALL
            .into_iter()
            .filter(|outcome| count(*outcome) > 0)
            .map(|outcome| format!("{} {}", count(outcome), outcome.title()))
            .collect();
        counts.join("; ")
    }
}

/// Largest accepted config file, in bytes.
const CONFIG_BYTES: u64 = 1 << 20;

/// Reads a LLaMA-Factory, Axolotl or TRL config, for `method` where one is said. Models of the hub are looked for in `hub_cache`,
/// those of `~` in `home`.
///
/// # Errors
/// Why it is not one.
pub fn config(
    path: &Path,
    method: Option<&str>,
    hub_cache: Option<&Path>,
    home: Option<&Path>,
) -> Result<ConfigFacts, String> {
    let shown = path.display();
    let mut text = String::new();
    open_plain(path)
        .and_then(|file| file.take(CONFIG_BYTES).read_to_string(&mut text))
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{shown} does not exist; {}", not_found_hint(path, path))
            }
            _ => format!("{shown} cannot be read as text: {e}"),
        })?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let info = DatasetInfo::of(path, &text);
    let sources = SpecSources {
        hub_cache: hub_cache.map(Path::to_path_buf),
        home: home.map(Path::to_path_buf),
        ..SpecSources::default()
    };
    let known = import::Known {
        info: info.as_ref(),
        method,
        columns: import::columns_of(&text),
        model: import::start_model(&text, &sources),
        ..import::Known::default()
    };
    let imported = import::import_with(&stem, &text, &known).map_err(|e| match e {
        import::ImportError::NoDialect => {
            format!("{shown} is not a config of LLaMA-Factory, Axolotl or TRL")
        }
        e => format!("{shown}: {e}"),
    })?;
    let from = imported.draft.value("train.from");
    let taken = imported.draft.value("method");
    Ok(ConfigFacts {
        tool: imported.dialect.id(),
        lines: imported.lines,
        base: from.as_str().map(|word| base(word, hub_cache, home)),
        method: taken.as_str().unwrap_or_default().to_string(),
        doubt: imported.doubt,
        said: method.map(String::from),
        stem: stem.into_owned(),
        model: known.model,
        text,
        info,
    })
}

fn base(word: &str, hub_cache: Option<&Path>, home: Option<&Path>) -> Result<ModelFacts, String> {
    let here = Path::new("");
    let full =
        expand_home(Path::new(word), here, home).map_err(|(what, fix)| format!("{what}; {fix}"))?;
    let Some(folder) = base_folder(&full.to_string_lossy(), here, hub_cache) else {
        let word = one_line(word);
        return Err(format!(
            "{word} is not on this machine: `llmtui model pull {word}`; no plan without it"
        ));
    };
    let facts = match here.join(&full).exists() {
        true => super::model(&folder, &Default::default())?,
        false => super::model_of_hub(&folder, &Default::default())?,
    };
    match facts.unfit.as_str() {
        "" => Ok(facts),
        why => Err(format!("this build cannot train {}: {why}", one_line(word))),
    }
}
