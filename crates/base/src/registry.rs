//! Lists of interchangeable members: one file a member, one word in its list.
//!
//! `registry!` turns the list into an externally tagged serde enum (`optimizer: {adamw: {lr: 0.001}}`), a table of
//! [`Entry`] for help, docs and the wizard, and a dereference to the trait that every member's `Config` implements.

/// What a list, a help page and the docs say of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The word used in a spec.
    pub id: &'static str,
    /// The name as people write it.
    pub title: &'static str,
    /// One sentence on what it is for.
    pub summary: &'static str,
    /// Where it comes from: paper with its arXiv number, or the code that set the convention.
    pub source: &'static str,
}

/// Declares a registry. Each member module exports `Config` and `ENTRY`; `Config` implements the named trait. The word in
/// a spec is the variant in lower case, or what is said behind it (`leaky_relu: LeakyRelu = "leaky_relu"`); it must equal
/// the module's name and `ENTRY.id` (`tests/registry.rs` checks).
///
/// ```ignore
/// mod layernorm;
/// mod rmsnorm;
/// registry! {
///     /// Normalisation in front of each sub-layer.
///     pub enum NormConfig: dyn Norm { layernorm: LayerNorm, rmsnorm: RmsNorm }
/// }
/// ```
#[macro_export]
macro_rules! registry {
    ($(#[$meta:meta])* pub enum $name:ident : dyn $member_trait:path { $($id:ident : $variant:ident $(= $word:tt)?),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum $name {
            $($(#[serde(rename = $word)])? $variant($id::Config),)+
        }

        impl $name {
            /// Every member, in the order of the list.
            pub const ENTRIES: &'static [$crate::registry::Entry] = &[$($id::ENTRY),+];

            /// What help and docs say of this member.
            pub fn entry(&self) -> &'static $crate::registry::Entry {
                match self { $(Self::$variant(_) => &$id::ENTRY,)+ }
            }
        }

        impl std::ops::Deref for $name {
            type Target = dyn $member_trait;
            fn deref(&self) -> &Self::Target {
                match self { $(Self::$variant(config) => config,)+ }
            }
        }
    };
}
