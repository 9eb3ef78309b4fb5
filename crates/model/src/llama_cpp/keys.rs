//! Keys of one architecture, with errors that name them.

use crate::gguf::{Array, Metadata, Value};

/// A file's metadata within its architecture's namespace: `block_count` is `llama.block_count`.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub metadata: &'a Metadata,
    pub architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(&self.name(key))
    }

    /// An integer, if the key is present. A list counts as its value if all are equal.
    ///
    /// # Errors
    /// The key has another type, or a list of different numbers.
    pub fn count_if(&self, key: &str) -> Result<Option<usize>, String> {
        let number = match self.get(key) {
            None => return Ok(None),
            Some(Value::Unsigned(n)) => Some(*n),
            Some(Value::Signed(n)) => u64::try_from(*n).ok(),
            Some(Value::Array(array)) => alike(array),
            Some(_) => None,
        };
        let number = number.and_then(|n| usize::try_from(n).ok());
        let wrong = || format!("{} is not a single integer", self.name(key));
        number.filter(|n| *n < 1 << 31).map(Some).ok_or_else(wrong)
    }

    /// An integer per block, if the key is such a list.
    ///
    /// # Errors
    /// A list with a number below 0.
    pub fn counts_if(&self, key: &str) -> Result<Option<Vec<usize>>, String> {
        let Some(Value::Array(array)) = self.get(key) else {
            return Ok(None);
        };
        let counts = numbers(array).map(|all| {
            let fitting = all.into_iter().map(usize::try_from);
            fitting.collect::<Result<Vec<_>, _>>().ok()
        });
        match counts.flatten() {
            Some(counts) => Ok(Some(counts)),
            None => Err(format!("{} is not a list of integers", self.name(key))),
        }
    }

    pub fn count(&self, key: &str) -> Result<usize, String> {
        let missing = || format!("{} is missing", self.name(key));
        self.count_if(key)?.ok_or_else(missing)
    }

    /// A positive number, if the key is present.
    ///
    /// # Errors
    /// The key is not a positive number.
    pub fn number_if(&self, key: &str) -> Result<Option<f64>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(x)) if x.is_finite() && *x > 0.0 => Ok(Some(*x)),
            Some(_) => Err(format!("{} is not a positive number", self.name(key))),
        }
    }

    pub fn number(&self, key: &str) -> Result<f64, String> {
        let missing = || format!("{} is missing", self.name(key));
        self.number_if(key)?.ok_or_else(missing)
    }

    /// A required boolean.
    ///
    /// # Errors
    /// It is missing or has another type.
    pub fn flag(&self, key: &str) -> Result<bool, String> {
        match self.get(key) {
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("{} is not true or false", self.name(key))),
            None => Err(format!("{} is missing", self.name(key))),
        }
    }

    /// A boolean per block, if the key is such a list.
    pub fn flags_if(&self, key: &str) -> Option<&[bool]> {
        match self.get(key)? {
            Value::Array(Array::Bool(flags)) => Some(flags),
            _ => None,
        }
    }

    pub fn flag_if(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn word_if(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(word) => Some(word),
            _ => None,
        }
    }
}

fn alike(array: &Array) -> Option<u64> {
    let numbers = numbers(array)?;
    let first = *numbers.first()?;
    numbers.iter().all(|n| *n == first).then_some(first)
}

fn numbers(array: &Array) -> Option<Vec<u64>> {
    match array {
        Array::I32(v) => v.iter().map(|n| u64::try_from(*n).ok()).collect(),
        Array::Unsigned(v) => Some(v.clone()),
        _ => None,
    }
}
