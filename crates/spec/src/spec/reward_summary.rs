//! What the rewards of a run require of a completion, in one line, from its resolved spec.

use crate::rewards::RewardConfig;
use serde_json::Value;

/// `references are written last digit first; reward exact: 1 where …`. Nothing where a run has no rewards.
pub fn reward_summary(spec: &Value) -> Option<String> {
    let rewards = spec.get("rewards")?.as_array()?;
    let entry = |reward: &Value| {
        let mut entries = RewardConfig::ENTRIES.iter();
        entries.find(|entry| reward.get(entry.id).is_some())
    };
    let words = rewards.iter().filter_map(|reward| {
        let entry = entry(reward)?;
        Some(format!("reward {}: {}", entry.id, entry.summary))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() {
        return None;
    }
    let sources = spec.pointer("/data/sources").and_then(Value::as_array);
    let sources = sources
        .into_iter()
        .flatten()
        .map(|source| &source["synthetic"]);
    let alone = &spec["data"]["synthetic"];
    let mut rows = sources.chain([alone]);
    let reversed = rows.any(|rows| rows["arithmetic"]["reverse"] == Value::Bool(true));
    let reversed = match reversed {
        true => "references are written last digit first; ",
        false => "",
    };
    Some(format!("{reversed}{}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    #[test]
    fn what_an_answer_is_rewarded_for_is_one_line() {
        let of = |name: &str, set: &[&str]| {
            let set: Vec<String> = set.iter().map(|word| word.to_string()).collect();
            let spec = load(name, &set, &SpecSources::default()).unwrap().spec;
            reward_summary(&crate::spec::yaml::parse(&spec.to_yaml()).unwrap())
        };
        let words = of("ppo-demo", &[]).unwrap();
        let begins =
            "references are written last digit first; reward exact: 1 if the answer equals";
        assert!(words.starts_with(begins), "{words}");
        let words = of("grpo-sort", &[]).unwrap();
        assert!(words.starts_with("reward "), "{words}");
        assert_eq!(of("quickstart", &[]), None);
    }
}
