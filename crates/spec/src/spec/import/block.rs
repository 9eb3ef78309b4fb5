//! A block of settings that a tool hands on to another one (Axolotl's `trl`), read as that tool's own keys are.

use super::{Dialect, KeyOutcome, Reader, brief};
use serde_json::{Map, Value};

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
    let name = dialect
        .tool()
        .block()
        .filter(|name| map.get(*name).is_some_and(Value::is_object));
    if let Some(name) = name
        && let Some(Value::Object(block)) = map.shift_remove(name)
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
        self.block = keys;
        for (key, value) in hidden {
            let words = format!("{} counts", self.shown_key(&key));
            let theirs = format!("{key}: {}", brief(&value));
            self.line(KeyOutcome::Needless, theirs, "", words);
        }
    }

    /// A key as the file has it.
    pub(super) fn shown_key(&self, key: &str) -> String {
        match self.dialect.tool().block() {
            Some(block) if self.block.iter().any(|inner| inner == key) => format!("{block}.{key}"),
            _ => key.to_string(),
        }
    }
}
