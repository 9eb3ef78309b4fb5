//! "Did you mean": the known word that a misspelt one is probably a slip of. One measure (optimal string alignment, without
//! regard to case) and one limit for every list.

/// The candidate most similar to `word`, if similar enough to be a typo: one slip in words of one or two letters, two in those
/// of up to five, three in longer ones.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = match word.chars().count() {
        0..=2 => 1,
        3..=5 => 2,
        _ => 3,
    };
    within(limit, word, candidates)
}

/// [`nearest`] among many dotted paths, where a chance likeness is likely: one slip in three letters of the last segment.
pub fn nearest_path<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let key = word.rsplit('.').next().unwrap_or(word);
    within((key.chars().count() / 3).clamp(1, 3), word, candidates)
}

/// The candidate most similar to `word`, at most so many slips away.
pub fn within<'a>(
    limit: usize,
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::osa_distance(&word, &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= limit && *distance < c.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let words = ["max_steps", "micro_batch_size", "lr"];
        assert_eq!(nearest("max_stpes", words), Some("max_steps"));
        assert_eq!(nearest("MAX_STEPS", words), Some("max_steps"));
        assert_eq!(nearest("lrr", words), Some("lr"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(nearest("xyz", ["up", "down"]), None);
    }
}
