//! The tools whose configs are read: a file each, and a word in the list here.

use super::defaults::{self, DefaultSetting};
use super::freeze::Frozen;
use super::shared;
use super::table::Row;
use super::{Known, Reader, axolotl, llama_factory, trl};
use crate::nn::ModelConfig;
use serde_json::{Map, Value};
use std::fmt;

/// A tool: its keys, how it tells the method, and what it does where its file is silent.
pub(super) trait Tool: Sync {
    /// Its name on the command line.
    fn id(&self) -> &'static str;

    /// Its name in sentences.
    fn title(&self) -> &'static str;

    /// Its keys: its own first, then those that it shares.
    fn tables(&self) -> &'static [&'static [Row]];

    /// Keys unique to it.
    fn marks(&self) -> &'static [&'static str];

    /// Whether keys of Hugging Face's trainer are signs of it as well.
    fn accepts_trainer_keys(&self) -> bool {
        true
    }

    /// Whether it trains adapters by this file, rather than all weights.
    fn adapts(&self, map: &Map<String, Value>) -> bool;

    /// What `train.freeze` names by this file, on this start model; `None` where all weights or adapters train.
    fn frozen(&self, _map: &Map<String, Value>, _model: Option<&ModelConfig>) -> Option<Frozen> {
        None
    }

    /// Whether its files name the method; where they do not, a command line does.
    fn names_its_method(&self) -> bool {
        true
    }

    /// Settles the method of a file that is called `name`, where no row does.
    fn method(
        &self,
        _reader: &mut Reader,
        _name: &str,
        _map: &Map<String, Value>,
        _known: &Known<'_>,
    ) {
    }

    /// The block of keys that it hands on to another tool, by that tool's id: they are read as its own.
    fn block(&self) -> Option<&'static str> {
        None
    }

    /// Whether the steps of this method are rollouts, several updates each.
    fn counts_rollouts(&self, _method: &str) -> bool {
        false
    }

    /// Default choices, which come before the settings below them.
    fn choices(&self) -> [DefaultSetting; 2] {
        [
            (&["lr_scheduler_type"], "schedule", "linear"),
            (&["optim"], "optimizer", "adamw"),
        ]
    }

    /// Further choices of its own.
    fn default_choices(&self, _reader: &mut Reader, _map: &Map<String, Value>) {}

    /// The default learning rate of a method; none where the tool wants it in the file.
    fn learning_rate(&self, method: &str, map: &Map<String, Value>) -> Option<&'static str>;

    /// The default length of rows, where prompts and completions have no limits of their own.
    fn length(&self, on_policy: bool, map: &Map<String, Value>) -> Option<DefaultSetting>;

    /// Default passes over the data.
    fn epochs(&self) -> DefaultSetting {
        (&["num_train_epochs"], "train.epochs", "3")
    }

    /// Default batch and warm-up.
    fn default_batch(&self, reader: &mut Reader, map: &Map<String, Value>) {
        for default in defaults::BATCH_AND_WARM_UP {
            reader.apply_default(map, default);
        }
    }

    /// Defaults of a method.
    fn of_method(&self, _method: &str) -> &'static [DefaultSetting] {
        &[]
    }

    /// What else it does where its file is silent.
    fn default_settings(&self, _reader: &mut Reader, _map: &Map<String, Value>) {}

    /// Defaults of adapters.
    fn of_adapters(&self) -> &'static [DefaultSetting];

    /// What else it does for adapters.
    fn default_adapters(&self, _reader: &mut Reader, _map: &Map<String, Value>) {}
}

/// A supported tool.
#[derive(Clone, Copy)]
pub struct Dialect(&'static dyn Tool);

macro_rules! tools {
    ($($tool:ident)+) => {
        impl Dialect {
            pub const ALL: &[Dialect] = &[$(Dialect(&$tool::TOOL)),+];
        }
    };
}

tools! { llama_factory axolotl trl }

impl PartialEq for Dialect {
    fn eq(&self, other: &Dialect) -> bool {
        self.id() == other.id()
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Dialect {
    /// Its name on the command line.
    pub fn id(self) -> &'static str {
        self.0.id()
    }

    pub fn by_id(id: &str) -> Option<Dialect> {
        Dialect::ALL.iter().copied().find(|d| d.id() == id)
    }

    /// Whether its files leave the method to a command line, so that another one can be said.
    pub fn takes_a_method(self) -> bool {
        !self.0.names_its_method()
    }

    pub(super) fn tool(self) -> &'static dyn Tool {
        self.0
    }

    pub(super) fn row(self, key: &str) -> Option<&'static Row> {
        let mut rows = self.0.tables().iter().copied().flatten();
        rows.find(|row| row.key == key)
    }

    /// The same of its own keys alone, without those that it shares.
    pub(super) fn own_row(self, key: &str) -> Option<&'static Row> {
        let own = self.0.tables().first()?;
        own.iter().find(|row| row.key == key)
    }

    /// Whether a key says that a file is of this tool.
    pub(super) fn owns(self, key: &str) -> bool {
        let of_trainer = || shared::TRAINER.iter().any(|row| row.key == key);
        self.0.marks().contains(&key) || (self.0.accepts_trainer_keys() && of_trainer())
    }
}

/// All of them in a sentence, by this word of each: `a, b or c`.
pub(super) fn listed(word: fn(&dyn Tool) -> &'static str, last: &str) -> String {
    let words: Vec<&str> = Dialect::ALL.iter().map(|d| word(d.0)).collect();
    match words.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => words.concat(),
    }
}
