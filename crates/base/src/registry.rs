//! Registries of interchangeable members: one file per member, one line in its list.
//!
//! `registry!` turns the list into an externally tagged serde enum (`optimizer: {adamw: {lr: 0.001}}`), a table of
//! [`Entry`] for help, docs and the wizard, and a dereference to the trait that every member's `Config` implements.

/// Description of one member for lists, help and docs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its name in a spec.
    pub id: &'static str,
    /// Its display name.
    pub title: &'static str,
    /// One sentence on its purpose.
    pub summary: &'static str,
    /// Its source: paper with its arXiv number, or the code that set the convention.
    pub source: &'static str,
}

/// Declares a registry. Each member module exports `Config` and `ENTRY`; `Config` implements the named trait. The name in
/// a spec is the variant in lower case, or the given string (`leaky_relu: LeakyRelu = "leaky_relu"`); it must equal
/// the module's name and `ENTRY.id` (`tests/registry.rs` checks).
///
/// ```ignore
/// mod layernorm;
/// mod rmsnorm;
/// registry! {
///     /// Normalization before each sub-layer.
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
            /// Every member, in list order.
            pub const ENTRIES: &'static [$crate::registry::Entry] = &[$($id::ENTRY),+];

            /// This member's description.
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

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self { $(Self::$variant(config) => config,)+ }
            }
        }
    };
}
