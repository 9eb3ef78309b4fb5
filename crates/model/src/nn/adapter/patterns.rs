//! Per-module values by patterns for module names: rank_pattern and alpha_pattern. The rules are those of `get_pattern_key`
//! of PEFT 0.21; its patterns are Python regular expressions, of which those are accepted that mean the same here.

use crate::base::text::one_line;
use crate::nn::Fault;
use regex::{RegexSet, RegexSetBuilder};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Limit on the bytes of compiled patterns; a key for each of 1,000 modules takes about a tenth of it.
pub(crate) const MAX_COMPILED: usize = 64 << 20;
/// Python syntax with another meaning here: possessive quantifiers, and sets in sets.
const OTHERWISE: [&str; 9] = ["*+", "++", "?+", "}+", "[[", "[^[", "&&", "--", "~~"];

/// Values of modules by patterns, tried in order: the first match counts.
#[derive(Debug, Clone)]
pub struct ByPattern<T> {
    entries: Vec<(String, T)>,
    /// Compiled on first use; or the reason why it cannot be.
    set: OnceLock<Result<RegexSet, String>>,
}

impl<T> ByPattern<T> {
    pub fn new(entries: Vec<(String, T)>) -> ByPattern<T> {
        ByPattern {
            entries,
            set: OnceLock::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Patterns with their values, in their order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &T)> {
        self.entries.iter().map(|(name, value)| (&**name, value))
    }

    /// Why a pattern is unsupported, if one is.
    pub fn unread(&self) -> Option<&str> {
        self.set().as_ref().err().map(String::as_str)
    }

    /// Indices of the patterns that match a module's name, in order.
    pub fn matches(&self, module: &str) -> Vec<usize> {
        match self.set() {
            Ok(set) if !self.is_empty() => set.matches(module).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Problems of the patterns for `modules`, all adapted ones; the patterns are the value of the key `of`.
    pub(super) fn faults(&self, of: &'static [&'static str], modules: &[String]) -> Vec<Fault> {
        let fault = |what: String, hint: &str| Fault {
            keys: of,
            what,
            hint: hint.into(),
        };
        if let Some(why) = self.unread() {
            let why: String = why.chars().take(200).collect();
            let what = format!("unsupported pattern: {why}");
            return vec![fault(what, "write names, or the ends of names: q_proj")];
        }
        let matches: Vec<Vec<usize>> = modules.iter().map(|name| self.matches(name)).collect();
        let idle = self.entries.iter().enumerate().filter_map(|(at, (pattern, _))| {
            if matches.iter().any(|found| found.first() == Some(&at)) {
                return None;
            }
            let pattern = one_line(pattern);
            Some(match matches.iter().find(|found| found.contains(&at)) {
                None => fault(
                    format!("`{pattern}` is the end of no module's name that has an adapter"),
                    "llmtui model show MODEL lists the names; a pattern is for the end of one (q_proj, layers.0.*), \
                     and targets says which modules have adapters",
                ),
                Some(found) => {
                    let before = found.first().and_then(|first| self.entries.get(*first));
                    let before = before.map_or(String::new(), |(before, _)| one_line(before));
                    fault(
                        format!("`{before}` precedes `{pattern}` and matches everything it does"),
                        "the first match counts: put the narrower pattern first",
                    )
                }
            })
        });
        idle.collect()
    }

    fn set(&self) -> &Result<RegexSet, String> {
        self.set.get_or_init(|| {
            let patterns = self.entries.iter().map(|(pattern, _)| &**pattern);
            if let Some(pattern) = patterns.clone().find(|p| differs_in_python(p)) {
                return Err(one_line(pattern));
            }
            // The whole in one group: a pattern may contain a top-level bar.
            let whole = patterns.map(|pattern| format!(r"^(?:(.*\.)?({pattern})$)"));
            let mut builder = RegexSetBuilder::new(whole);
            let set = builder.size_limit(MAX_COMPILED).build();
            set.map_err(|e| one_line(&e.to_string()))
        })
    }
}

impl<T: Copy> ByPattern<T> {
    /// The value of a module, by its full name.
    pub fn get(&self, module: &str) -> Option<T> {
        let first = *self.matches(module).first()?;
        self.entries.get(first).map(|(_, value)| *value)
    }
}

/// Whether a pattern means something else in Python than here.
pub(crate) fn differs_in_python(pattern: &str) -> bool {
    OTHERWISE.iter().any(|mark| pattern.contains(mark))
}

impl<T> Default for ByPattern<T> {
    fn default() -> Self {
        ByPattern::new(Vec::new())
    }
}

impl<T: PartialEq> PartialEq for ByPattern<T> {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl<T: Serialize> Serialize for ByPattern<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.entries())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByPattern<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = ByPattern<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from patterns to numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(ByPattern::new(entries))
            }
        }

        from.deserialize_map(InOrder(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_counts_and_the_order_is_kept() {
        let text = r#"{"layers.0.*":2,"q_proj":3,"(?:k|v)_proj":4}"#;
        let ranks: ByPattern<usize> = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&ranks).unwrap(), text);
        let of = |module: &str| ranks.get(module);
        assert_eq!(of("model.layers.0.self_attn.q_proj"), Some(2));
        assert_eq!(of("model.layers.1.self_attn.q_proj"), Some(3));
        assert_eq!(of("model.layers.1.self_attn.v_proj"), Some(4));
        assert_eq!(of("model.layers.1.self_attn.o_proj"), None);
        assert_eq!(ranks.matches("model.layers.0.self_attn.q_proj"), [0, 1]);
        assert_eq!(ranks.clone(), ranks);
    }

    #[test]
    fn unsupported_patterns_match_nothing_and_have_a_reason() {
        for pattern in ["(q_proj", "(?<!x)q_proj", "[a-z&&b]", "q.*+"] {
            let found = ByPattern::new(vec![(pattern.to_string(), 2_usize)]);
            assert!(found.unread().is_some(), "{pattern}");
            assert_eq!(found.get("model.layers.0.self_attn.q_proj"), None);
        }
        assert_eq!(ByPattern::<usize>::default().unread(), None);
    }
}
