//! Which blocks have attention, in the two forms of a config.

/// Blocks that a list is made for where a file has none: more are refused, as are far fewer.
pub const MAX_BLOCKS: usize = 1 << 16;

/// How a config says which blocks have attention: (attention_every, attention_blocks), the second where they are not every n-th.
/// Neither if all blocks have it, or none.
pub fn attention_keys(has_attention: &[bool]) -> (Option<usize>, Option<Vec<usize>>) {
    let blocks = || (0..has_attention.len()).filter(|layer| has_attention[*layer]);
    let Some(first) = blocks().next().filter(|_| has_attention.contains(&false)) else {
        return (None, None);
    };
    let every = first + 1;
    let nth = |layer: usize| (layer + 1).is_multiple_of(every);
    match (0..has_attention.len()).all(|layer| has_attention[layer] == nth(layer)) {
        true => (Some(every), None),
        false => (None, Some(blocks().collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nth_block_is_said_so_and_others_are_listed() {
        let of = |has: &str| {
            let has: Vec<bool> = has.chars().map(|c| c == 'a').collect();
            attention_keys(&has)
        };
        assert_eq!(of("---a---a-"), (Some(4), None));
        assert_eq!(of("---a"), (Some(4), None));
        assert_eq!(of("--a--a-a"), (None, Some(vec![2, 5, 7])));
        assert_eq!(of("aa-"), (None, Some(vec![0, 1])));
        assert_eq!(of("-a-aa"), (None, Some(vec![1, 3, 4])));
        assert_eq!(of("aaa"), (None, None));
        assert_eq!(of("---"), (None, None));
    }
}
