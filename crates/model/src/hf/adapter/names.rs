//! How an adapter_config.json names modules so that PEFT finds them: by suffix if it matches exactly the adapted modules,
//! else by full name.

use crate::nn::adapter::RankAlpha;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The adapted modules by full name, with their sizes.
pub(super) type Sizes = BTreeMap<String, RankAlpha>;

/// `self_attn.q_proj` if all modules of the base with this suffix have adapters, full names otherwise.
pub(super) fn targets<'a>(sizes: &Sizes, base: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let ends: BTreeSet<&str> = sizes.keys().filter_map(|name| end(name)).collect();
    let mut with_ends = base.filter(|name| end(name).is_some_and(|end| ends.contains(end)));
    match with_ends.all(|name| sizes.contains_key(name)) {
        true => ends.into_iter().map(String::from).collect(),
        false => sizes.keys().cloned().collect(),
    }
}

/// rank_pattern and alpha_pattern: the values that differ from `common`.
pub(super) fn patterns(sizes: &Sizes, common: RankAlpha) -> (Value, Value) {
    let (mut ranks, mut alphas) = (Map::new(), Map::new());
    for (name, size) in sizes {
        let end = end(name).unwrap_or(name);
        let mut alike = sizes
            .iter()
            .filter(|(other, _)| self::end(other) == Some(end));
        let key = match alike.all(|(_, other)| other == size) {
            true => end,
            false => name,
        };
        if size.rank != common.rank {
            ranks.insert(key.into(), json!(size.rank));
        }
        if size.alpha != common.alpha {
            alphas.insert(key.into(), json!(size.alpha));
        }
    }
    (ranks.into(), alphas.into())
}

/// `attn.c_proj` for `transformer.h.0.attn.c_proj`; `c_proj` alone is in both halves of a block.
fn end(name: &str) -> Option<&str> {
    let (before, _) = name.rsplit_once('.')?;
    let at = before.rfind('.')?;
    Some(&name[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_if_all_modules_match_and_full_names_otherwise() {
        let size = |rank, alpha| RankAlpha { rank, alpha };
        let sizes: Sizes = [
            ("m.0.self_attn.q_proj", size(4, 8.0)),
            ("m.1.self_attn.q_proj", size(4, 8.0)),
            ("m.0.mlp.up_proj", size(2, 8.0)),
            ("m.1.mlp.up_proj", size(2, 3.0)),
            ("m.0.mlp.down_proj", size(3, 16.0)),
        ]
        .into_iter()
        .map(|(name, size)| (name.to_string(), size))
        .collect();
        let (ranks, alphas) = patterns(&sizes, size(4, 16.0));
        let ups = [("m.0.mlp.up_proj", 2), ("m.1.mlp.up_proj", 2)];
        assert_eq!(ranks, json!({"mlp.down_proj": 3, ups[0].0: 2, ups[1].0: 2}));
        assert_eq!(
            alphas,
            json!({"self_attn.q_proj": 8.0, ups[0].0: 8.0, ups[1].0: 3.0})
        );
        let base = [
            "m.0.self_attn.q_proj",
            "m.1.self_attn.q_proj",
            "m.0.mlp.up_proj",
            "m.1.mlp.up_proj",
        ];
        let all = base.into_iter().chain(["m.0.mlp.down_proj", "head"]);
        assert_eq!(targets(&sizes, all).len(), 3);
        let more = base
            .into_iter()
            .chain(["m.0.mlp.down_proj", "m.1.mlp.down_proj"]);
        assert_eq!(targets(&sizes, more).len(), 5, "one has none");
    }
}
