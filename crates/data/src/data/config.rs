//! The `data` section of a spec: where training text comes from and how it is split into rows.

use super::examples::OnBadRow;
use super::formats::{Columns, FormatChoice};
use super::pack::{PackingChoice, TooLongChoice};
use super::render::TrainOn;
use super::source::{Origin, SourceConfig, is_data_file, is_no_plain_text};
use super::synthetic::{SyntheticConfig, SyntheticSource};
use super::tokenizer::TokenizerConfig;
use super::{DataError, Unit};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// In which order training windows are drawn.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Every window starts at an independent random token, as nanoGPT; the draws follow the number of the micro-batch.
    #[default]
    Random,
    /// Each epoch visits every disjoint window once, in a fresh random order.
    Shuffled,
}

/// What the weights of several sources multiply.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// Shares of the tokens: [2, 1] makes 66.7 % and 33.3 %, whatever the sources' sizes.
    #[default]
    Share,
    /// Epochs: an epoch reads every source once, as if their files were one; one with weight 2 is read twice as often.
    Concatenate,
}

/// Shares for the beginning of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Tokens of the run up to which these weights hold.
    pub until_tokens: u64,
    /// A relative weight for each source, in their order; 0 leaves one out.
    pub weights: Vec<f64>,
}

/// Where training text comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// A file, a folder or a glob: plain text, or rows in JSONL, JSON, CSV, TSV or parquet. Default: the embedded corpus.
    pub path: Option<PathBuf>,
    /// Several sources, mixed by relative weight: `name | subset | weight`, or maps with `path` or `hub`.
    pub sources: Vec<SourceConfig>,
    /// Meaning of the weights: `share` of the tokens, or with `concatenate` passes over each source in an epoch, so that without
    /// weights an epoch reads every row once.
    pub mix: Mix,
    /// Short for one source of synthetic rows: a generator with its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<SyntheticConfig>,
    /// The embedded corpus used when no path is given: `tinyshakespeare`.
    pub corpus: String,
    /// Row format, for sources that do not set their own; `auto` detects it from the rows.
    pub format: FormatChoice,
    /// Which column plays which part (`{text: body}`), for sources that do not say their own.
    #[serde(skip_serializing_if = "Columns::is_empty")]
    pub columns: Columns,
    /// Read only the first rows of each source, validation sets too, e.g. for a trial. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub max_rows: Option<u64>,
    /// What to do with an unusable row.
    pub on_bad_row: OnBadRow,
    /// The tokenizer.
    pub tokenizer: TokenizerConfig,
    /// Chat template: a built-in one such as `chatml`, a `.jinja` file or a model folder. `plain` ends turns with the model's
    /// EOS token. `auto`: the tokenizer's own, or chatml for tokenizers trained
    /// here.
    pub template: String,
    /// Which tokens are supervised; `auto` leaves it to the method.
    pub train_on: TrainOn,
    /// How documents are packed into rows; `auto`: stream for plain text, packed for conversations and completions.
    pub packing: PackingChoice,
    /// What to do with documents longer than a row; `auto`: split for plain text, truncate for conversations.
    /// Losses are counted and reported.
    pub too_long: TooLongChoice,
    /// Source weights by stage for the start of a run; after the last stage the sources' own weights apply.
    pub curriculum: Vec<Stage>,
    /// Where tokens are cached between starts: `auto` (the user's cache), `off` (in memory), or a folder.
    pub cache: String,
    /// Separate validation data: a file, a folder or a glob. Nothing is then held out from the training data.
    pub val_path: Option<PathBuf>,
    /// Fraction held out for validation: the end of a single text, or random rows.
    #[schemars(range(max = 0.9), extend("exclusiveMinimum" = 0.0))]
    pub val_fraction: f64,
    /// Number of rows held out instead of that fraction; for several sources in proportion to their rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub val_rows: Option<u64>,
    /// Order of the training windows of a stream. Default: `shuffled` with `train.epochs`, which then read each window once per
    /// epoch, else `random`. Rows of whole documents are always shuffled. `random` draws per micro-batch: 1 × 8 and 8 × 1 sequences
    /// per step see different text, while `shuffled` gives both the same.
    pub order: Order,
}

/// The word for "decide for me".
const AUTO: &str = "auto";
const OFF: &str = "off";

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            path: None,
            sources: Vec::new(),
            mix: Mix::default(),
            synthetic: None,
            corpus: "tinyshakespeare".into(),
            format: FormatChoice::default(),
            columns: Columns::default(),
            max_rows: None,
            on_bad_row: OnBadRow::default(),
            tokenizer: TokenizerConfig::Char(Default::default()),
            template: AUTO.into(),
            train_on: TrainOn::default(),
            packing: PackingChoice::default(),
            too_long: TooLongChoice::default(),
            curriculum: Vec::new(),
            cache: AUTO.into(),
            val_path: None,
            val_fraction: 0.1,
            val_rows: None,
            order: Order::Random,
        }
    }
}

impl DataConfig {
    /// Whether this is one plain text, read whole and cut by characters: the way of small corpora.
    pub fn is_corpus(&self, base: &Path) -> bool {
        /// What is larger is never held in memory as a whole.
        const MAX_BYTES: u64 = 1 << 30;
        let plainly = self.sources.is_empty()
            && self.synthetic.is_none()
            && self.columns.is_empty()
            && self.max_rows.is_none()
            && self.val_rows.is_none()
            && self.val_path.is_none()
            && matches!(self.format, FormatChoice::Auto | FormatChoice::Text)
            && matches!(self.packing, PackingChoice::Auto | PackingChoice::Stream);
        let Some(path) = self.path.as_ref().filter(|_| plainly) else {
            return plainly;
        };
        let full = base.join(path);
        // Of a folder, as of a glob, each file is a document.
        if full.is_dir() {
            return false;
        }
        let small = std::fs::metadata(&full).map_or(0, |m| m.len()) <= MAX_BYTES;
        let pattern = !full.exists() && path.to_string_lossy().contains(['*', '?', '[']);
        small && !pattern && (is_text(path) || !is_data_file(path)) && !is_no_plain_text(&full)
    }

    /// The share of the training data that is held out; `None` where its rows are counted instead.
    pub fn val_share(&self) -> Option<f64> {
        match (&self.val_path, self.val_rows) {
            (Some(_), _) => Some(0.0),
            (None, Some(_)) => None,
            (None, None) => Some(self.val_fraction),
        }
    }

    /// Whether a method can learn its units from what is named, as far as that is known before anything is read.
    ///
    /// # Errors
    /// The built-in corpus, for a method that learns from rows.
    pub fn serves(&self, unit: Unit) -> Result<(), DataError> {
        match unit != Unit::Text && self.is_built_in() {
            true => Err(DataError::NoRows {
                corpus: self.corpus.clone(),
                needs: unit.needs(),
            }),
            false => Ok(()),
        }
    }

    /// Whether nothing but the built-in corpus is named.
    pub fn is_built_in(&self) -> bool {
        self.path.is_none() && self.sources.is_empty() && self.synthetic.is_none()
    }

    /// The sources to train on: those that are listed, or the one of `path` or `synthetic`.
    pub fn all_sources(&self) -> Vec<SourceConfig> {
        let mut sources = match (&self.path, &self.synthetic) {
            _ if !self.sources.is_empty() => self.sources.clone(),
            (Some(path), _) => vec![SourceConfig::path(path.to_string_lossy())],
            (None, Some(generator)) => {
                let made = SyntheticSource::new(generator.clone());
                vec![SourceConfig::new(Origin::Synthetic(Box::new(made)))]
            }
            (None, None) => Vec::new(),
        };
        self.name_columns(&mut sources);
        sources
    }

    /// Sources of files that say nothing of their columns have those of all.
    fn name_columns(&self, sources: &mut [SourceConfig]) {
        let made = |source: &SourceConfig| matches!(source.origin, Origin::Synthetic(_));
        for source in sources {
            if source.columns.is_empty() && !made(source) {
                source.columns.clone_from(&self.columns);
            }
        }
    }

    /// The source to validate on, where the spec names one.
    pub fn val_source(&self) -> Vec<SourceConfig> {
        let path = self.val_path.iter();
        let mut sources: Vec<_> = path
            .map(|path| SourceConfig::path(path.to_string_lossy()))
            .collect();
        self.name_columns(&mut sources);
        sources
    }

    /// The folder of the cache; `user` is the one that `auto` means.
    pub fn cache_folder(&self, user: Option<&Path>) -> Option<PathBuf> {
        match &*self.cache {
            AUTO => user.map(Path::to_path_buf),
            OFF | "false" => None,
            folder => Some(folder.into()),
        }
    }

    /// Makes what names a file absolute, so that a run can go on from any working directory.
    pub fn fix_paths(&mut self, absolute: &dyn Fn(&Path) -> PathBuf) {
        let fix =
            |text: &mut String| *text = absolute(Path::new(text)).to_string_lossy().into_owned();
        for source in &mut self.sources {
            source.make_absolute(absolute);
        }
        let file = absolute(Path::new(&self.template));
        if file.is_dir() || self.template.ends_with(".jinja") || self.template.ends_with(".j2") {
            fix(&mut self.template);
        }
        if !matches!(&*self.cache, AUTO | OFF | "false") {
            fix(&mut self.cache);
        }
    }

    /// What is wrong between the values: the key, what, and what to do.
    pub fn faults(&self) -> Vec<(&'static str, String, String)> {
        let has_files = self.path.is_some() || !self.sources.is_empty();
        let built_in = self.is_built_in();
        let contradictions = [
            (
                self.path.is_some() && !self.sources.is_empty(),
                "data.sources",
                "data.path and data.sources are both set",
                "move the path into data.sources",
            ),
            (
                self.synthetic.is_some() && has_files,
                "data.synthetic",
                "it has no effect with data.path or data.sources",
                "add it to data.sources: {synthetic: {…}, rows: N, weight: 1}",
            ),
            (
                !self.columns.is_empty() && !has_files,
                "data.columns",
                "there are no files to apply these columns to",
                "set the data: -s data.path=FILE",
            ),
            (
                self.max_rows.is_some() && built_in,
                "data.max_rows",
                "the built-in corpus is a text and has no rows",
                "set the data: -s data.path=FILE",
            ),
            (
                self.val_rows.is_some() && built_in,
                "data.val_rows",
                "the built-in corpus is a text and has no rows",
                "use data.val_fraction, which holds out its end",
            ),
            (
                self.val_rows.is_some() && self.val_path.is_some(),
                "data.val_rows",
                "with data.val_path nothing is held out from the training rows",
                "remove one of them",
            ),
        ];
        let there = contradictions.into_iter().filter(|(holds, ..)| *holds);
        there
            .map(|(_, key, what, fix)| (key, what.to_string(), fix.to_string()))
            .chain(self.curriculum_faults())
            .collect()
    }

    fn curriculum_faults(&self) -> Vec<(&'static str, String, String)> {
        const KEY: &str = "data.curriculum";
        let mut faults = Vec::new();
        let mut before = 0;
        for stage in &self.curriculum {
            let sources = self.all_sources().len();
            if stage.weights.len() != sources {
                faults.push((
                    KEY,
                    format!("{} weights for {sources} sources", stage.weights.len()),
                    "one weight per entry of data.sources, in order".into(),
                ));
            }
            let bad = |w: &f64| !w.is_finite() || *w < 0.0;
            if stage.weights.iter().any(bad) || stage.weights.iter().all(|w| *w == 0.0) {
                faults.push((
                    KEY,
                    format!("the weights {:?}", stage.weights),
                    "weights are relative, 0 or more, and not all 0".into(),
                ));
            }
            if stage.until_tokens <= before {
                faults.push((
                    KEY,
                    format!(
                        "a stage ends at {} tokens but starts at {before}",
                        stage.until_tokens
                    ),
                    "each until_tokens must be larger than the previous one".into(),
                ));
            }
            before = stage.until_tokens;
        }
        faults
    }
}

/// Plain text by its name.
fn is_text(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_rows_are_a_source_and_stand_alone() {
        let config = |json: serde_json::Value| serde_json::from_value::<DataConfig>(json).unwrap();
        let made = config(serde_json::json!({"synthetic": {"sort": {}}}));
        assert_eq!(made.all_sources()[0].to_string(), "synthetic sort");
        assert!(!made.is_corpus(Path::new(".")));
        assert!(made.faults().is_empty());
        let both = config(serde_json::json!({"synthetic": {"sort": {}}, "path": "a.txt"}));
        assert_eq!(both.faults()[0].0, "data.synthetic");
    }

    #[test]
    fn columns_are_those_of_every_source_that_names_none() {
        let config = |json: serde_json::Value| serde_json::from_value::<DataConfig>(json).unwrap();
        let one = config(serde_json::json!({
            "path": "a.csv", "val_path": "b.csv", "columns": {"text": "body"},
        }));
        for source in one.all_sources().iter().chain(&one.val_source()) {
            assert_eq!(source.columns.get("text"), Some("body"));
        }
        let own = serde_json::json!({"path": "b.csv", "columns": {"text": "own"}});
        let two = config(serde_json::json!({
            "sources": ["a.csv", own], "columns": {"text": "body"},
        }));
        let said = two.all_sources();
        let said: Vec<_> = said.iter().map(|s| s.columns.get("text")).collect();
        assert_eq!(said, [Some("body"), Some("own")]);
        let none = config(serde_json::json!({"columns": {"text": "body"}}));
        assert_eq!(none.faults()[0].0, "data.columns");
    }

    #[test]
    fn plain_text_goes_the_old_way_and_rows_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "a.txt",
            "b.jsonl",
            "c.py",
            "texts/a.txt",
            "texts/notes.md",
            "rows/a.jsonl",
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let corpus = |path: &str| {
            let config = DataConfig {
                path: Some(path.into()),
                ..DataConfig::default()
            };
            config.is_corpus(dir.path())
        };
        assert!(DataConfig::default().is_corpus(dir.path()));
        for path in ["a.txt", "c.py", "absent.txt"] {
            assert!(corpus(path), "{path}");
        }
        for path in [
            "b.jsonl",
            "rows",
            "texts",
            "*.txt",
            "absent.jsonl",
            "a.txt.gz",
        ] {
            assert!(!corpus(path), "{path}");
        }
        // More than is held in memory; nothing is written of a sparse file.
        let file = std::fs::File::create(dir.path().join("a.txt")).unwrap();
        file.set_len((1 << 30) + 1).unwrap();
        assert!(!corpus("a.txt"), "read in shards");
        let packed = DataConfig {
            packing: PackingChoice::Packed,
            ..DataConfig::default()
        };
        assert!(!packed.is_corpus(dir.path()));
    }

    #[test]
    fn a_curriculum_must_fit_its_sources() {
        let with = |stages: &[(u64, &[f64])]| {
            let config = DataConfig {
                sources: vec![SourceConfig::path("a"), SourceConfig::path("b")],
                curriculum: stages
                    .iter()
                    .map(|(until_tokens, weights)| Stage {
                        until_tokens: *until_tokens,
                        weights: weights.to_vec(),
                    })
                    .collect(),
                ..DataConfig::default()
            };
            config.faults().into_iter().map(|f| f.1).collect::<Vec<_>>()
        };
        assert!(with(&[(10, &[1.0, 0.0]), (20, &[1.0, 1.0])]).is_empty());
        assert!(with(&[(10, &[1.0])])[0].contains("1 weights for 2 sources"));
        assert!(with(&[(10, &[0.0, 0.0])])[0].contains("the weights"));
        assert!(with(&[(10, &[1.0, 1.0]), (10, &[1.0, 1.0])])[0].contains("ends at 10"));
    }

    #[test]
    fn the_cache_is_the_users_or_none_or_a_folder() {
        let folder = |cache: &str| {
            let config = DataConfig {
                cache: cache.into(),
                ..DataConfig::default()
            };
            config.cache_folder(Some(Path::new("/user")))
        };
        assert_eq!(folder("auto"), Some("/user".into()));
        assert_eq!((folder("off"), folder("false")), (None, None));
        assert_eq!(folder("here"), Some("here".into()));
    }
}
