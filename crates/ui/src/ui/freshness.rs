//! Whether the screen is to be drawn, and how soon.

/// Whether the screen shows the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freshness {
    Fresh,
    /// Data moved on: may wait a little, so that a fast run does not flood a slow line.
    DataMoved,
    /// Somebody pressed a key and looks at the screen.
    Asked,
}
