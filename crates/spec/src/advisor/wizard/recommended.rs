//! A value that a draft gets besides its preset, with its reason.

/// One value that follows from an answer.
pub struct Recommended {
    pub path: String,
    pub text: String,
    pub why: String,
}

pub fn rec(path: &str, text: impl Into<String>, why: impl Into<String>) -> Recommended {
    Recommended {
        path: path.into(),
        text: text.into(),
        why: why.into(),
    }
}

/// Two significant digits.
pub fn round_steps(steps: u64) -> u64 {
    let mut unit = 1;
    while steps / unit >= 100 {
        unit *= 10;
    }
    steps / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_rounded_to_what_people_would_write() {
        assert_eq!([99, 1_234, 56_789].map(round_steps), [99, 1_200, 56_000]);
    }
}
