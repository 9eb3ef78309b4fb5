//! Which metrics are meant: ids with `*` and `?`.

/// A pattern for ids of metrics: `*` is any text, `?` one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<char>);

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        Pattern(text.chars().collect())
    }

    /// Whether the whole id fits.
    pub fn matches(&self, id: &str) -> bool {
        let id: Vec<char> = id.chars().collect();
        let (mut at, mut read) = (0, 0);
        // Where the newest `*` stands, and up to where it reaches: the only place to go back to.
        let mut star = None;
        while read < id.len() {
            match self.0.get(at) {
                Some('*') => {
                    star = Some((at, read));
                    at += 1;
                }
                Some(c) if *c == '?' || *c == id[read] => {
                    at += 1;
                    read += 1;
                }
                _ => {
                    let Some((begin, reach)) = star else {
                        return false;
                    };
                    star = Some((begin, reach + 1));
                    (at, read) = (begin + 1, reach + 1);
                }
            }
        }
        self.0[at..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_what_shells_say() {
        let matches = |pattern: &str, id: &str| Pattern::new(pattern).matches(id);
        for (pattern, id) in [
            ("val/loss", "val/loss"),
            ("val/*", "val/rewards/accuracies"),
            ("*loss", "train/loss"),
            ("*/layer/*", "grad_norm/layer/11"),
            ("*a*ab", "aaaab"),
            ("*/layer/?", "act_rms/layer/3"),
            ("*", ""),
        ] {
            assert!(matches(pattern, id), "{pattern} {id}");
        }
        for (pattern, id) in [
            ("loss", "train/loss"),
            ("val/*", "train/loss"),
            ("lr?", "lr"),
            ("", "lr"),
            ("*/layer/?", "act_rms/layer/13"),
        ] {
            assert!(!matches(pattern, id), "{pattern} {id}");
        }
    }
}
