//! Axolotl's block `trl`: settings that it passes to TRL's trainers. Read like the keys of a TRL file.

use super::{Dialect, Fate, Reader, brief};
use serde_json::{Map, Value};

const BLOCK: &str = "trl";

/// A file with the keys of the block among its own.
pub(super) struct Inlined {
    pub map: Map<String, Value>,
    /// Those of the block.
    pub keys: Vec<String>,
    /// Keys of the file that one of the block hides.
    pub hidden: Vec<(String, Value)>,
}

pub(super) fn inlined(dialect: Dialect, mut map: Map<String, Value>) -> Inlined {
    let mut inlined = Inlined {
        map: Map::new(),
        keys: Vec::new(),
        hidden: Vec::new(),
    };
    let is_map = map.get(BLOCK).is_some_and(Value::is_object);
    if dialect == Dialect::Axolotl
        && is_map
        && let Some(Value::Object(block)) = map.shift_remove(BLOCK)
    {
        for (key, value) in block {
            inlined.keys.push(key.clone());
            if let Some(before) = map.insert(key.clone(), value) {
                inlined.hidden.push((key, before));
            }
        }
    }
    inlined.map = map;
    inlined
}

impl Reader {
    pub(super) fn of_block(&mut self, keys: Vec<String>, hidden: Vec<(String, Value)>) {
        for (key, value) in hidden {
            let words = format!("{BLOCK}.{key} counts");
            let theirs = format!("{key}: {}", brief(&value));
            self.line(Fate::Needless, theirs, "", words);
        }
        self.block = keys;
    }

    /// A key as the file has it.
    pub(super) fn shown_key(&self, key: &str) -> String {
        match self.block.iter().any(|inner| inner == key) {
            true => format!("{BLOCK}.{key}"),
            false => key.to_string(),
        }
    }
}
