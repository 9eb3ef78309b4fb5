//! Detects the tool of a config file by its keys.

use super::Dialect;
use crate::spec::{layer, yaml};
use serde_json::{Map, Value};

/// Keys of no other tool, or of Hugging Face's trainer: so many name a tool whatever stands beside them.
const ENOUGH: usize = 3;

/// The dialect whose unique keys occur; the one with the most if several do. Keys such as `learning_rate` are those of every
/// tool, and one key that means something here among many that mean nothing is chance.
pub(super) fn detect(keys: &[&str]) -> Option<Dialect> {
    let score = |d: Dialect| {
        let marks = keys.iter().filter(|k| d.tool().marks().contains(k)).count();
        let known = keys.iter().filter(|k| d.row(k).is_some()).count();
        (marks, known)
    };
    let best = Dialect::ALL.iter().copied().max_by_key(|d| score(*d))?;
    let own = keys.iter().filter(|key| best.owns(key)).count();
    let (_, known) = score(best);
    (own >= ENOUGH || own > 0 && 2 * known >= keys.len()).then_some(best)
}

/// The tool that is not imported whose config this is.
pub(super) fn foreign(map: &Map<String, Value>) -> Option<&'static str> {
    // Its parts are built by name.
    let built = |value: &Value| value.get("_component_").is_some();
    if map.values().any(built) {
        return Some("torchtune");
    }
    let named = |key: &str| map.contains_key(key);
    (named("checkpoint_dir") && (named("out_dir") || named("devices"))).then_some("LitGPT")
}

/// The tool whose config this text is: keys that only it has occur, and no part of a spec of ours.
pub fn tool_of(text: &str) -> Option<Dialect> {
    const OURS: [&str; 5] = ["extends", "data", "model", "train", "method"];
    let Value::Object(map) = yaml::parse(text).ok()? else {
        return None;
    };
    let keys: Vec<&str> = map.keys().map(String::as_str).collect();
    if keys.iter().any(|key| OURS.contains(key)) {
        return None;
    }
    // Some of their keys are ours as well.
    let is_theirs = |d: &Dialect, key: &&str| {
        d.tool().marks().contains(key) && layer::key_is_known(key).is_err()
    };
    detect(&keys).filter(|d| keys.iter().any(|key| is_theirs(d, key)))
}
