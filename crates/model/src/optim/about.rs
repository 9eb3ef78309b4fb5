//! What an update rule declares about its settings, for the review of specs.

/// A term added to a divisor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epsilon {
    /// Its key among the rule's settings.
    pub key: &'static str,
    pub value: f64,
    pub added_to: EpsilonTerm,
}

impl Epsilon {
    /// A term added to roots of mean squares, as in Adam.
    pub(super) fn of_root(key: &'static str, value: f64) -> Epsilon {
        let added_to = EpsilonTerm::SecondMomentRoot;
        Epsilon {
            key,
            value,
            added_to,
        }
    }
}

/// What it is added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsilonTerm {
    /// Roots of mean squares.
    SecondMomentRoot,
    /// The squares themselves.
    SquaredGradient,
}

/// What a rule's learning rate scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateScale {
    /// Single elements, with steps as long as AdamW's: its usual rates apply.
    AdamW,
    /// Single elements, with steps of another length.
    Elements,
    /// The same, at rates that are high for any other rule.
    High,
    /// Whole matrices.
    Matrices,
}
