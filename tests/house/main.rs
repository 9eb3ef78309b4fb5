//! The house rules, checked: allowed imports, owners of heavy crates, file sizes.
//! A rule that is only written down is a wish.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

mod arrows;
mod files;
mod ids;
mod manifests;
mod owners;
mod sources;
mod words;
