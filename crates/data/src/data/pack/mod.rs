//! How documents become rows of a batch. Each packing returns a row by its index, as a function of the seed and the index
//! alone: no state to save, and random access to any row.
//!
//! - [`stream`]: documents concatenated, windows cut anywhere;
//! - [`packed`]: whole documents side by side, best fit, separated by mask and positions;
//! - [`padded`]: one document per row, rows of similar length together.

pub(super) mod packed;
pub(super) mod padded;
pub(super) mod pieces;
pub(super) mod stream;

use serde::{Deserialize, Serialize};

/// Declares a choice of the spec, `auto` among its words, beside the enum of what can be decided.
macro_rules! choice {
    ($(#[$meta:meta])* $choice:ident => $(#[$inner:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$inner])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $choice {
            /// What suits the data.
            #[default]
            Auto,
            $($(#[$doc])* $variant),+
        }

        impl $choice {
            /// What was said, or `auto` decided.
            pub fn or(self, auto: $name) -> $name {
                match self {
                    $choice::Auto => auto,
                    $($choice::$variant => $name::$variant),+
                }
            }
        }
    };
}

choice! {
    /// How documents are laid into rows, as a spec says it.
    PackingChoice =>
    /// How documents are laid into rows.
    Packing {
        /// Documents run together and rows are cut anywhere: no padding, but documents see what stands before them.
        Stream,
        /// Documents side by side in a row as they fit, kept apart by attention mask and positions: hardly any padding.
        Packed,
        /// One document a row, with others of like length: simple, with padding.
        Padded,
    }
}

choice! {
    /// What happens to a document that is longer than a row, as a spec says it.
    TooLongChoice =>
    /// What happens to a document that is longer than a row.
    TooLong {
        /// It goes on in further rows, which know nothing of the ones before.
        Split,
        /// Its beginning is kept.
        Truncate,
        /// Its end is kept.
        TruncateStart,
        /// It is left out.
        Drop,
    }
}
