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
