//! The files embedded in the binary: presets, themes, keymap, corpora. Paths are relative to the repository root.

static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The bytes of one embedded file, e.g. `presets/quickstart.yaml`.
pub fn bytes(path: &str) -> Option<&'static [u8]> {
    FILES
        .iter()
        .find(|(name, _)| *name == path)
        .map(|(_, bytes)| *bytes)
}

/// One embedded file as text; `None` if it is absent or not UTF-8.
pub fn text(path: &str) -> Option<&'static str> {
    bytes(path).and_then(|b| std::str::from_utf8(b).ok())
}

/// Paths of the embedded files directly or indirectly under `folder`, in name order.
pub fn list(folder: &str) -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name).filter(move |name| {
        name.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_and_the_presets_are_inside() {
        assert_eq!(
            super::text("assets/corpora/tinyshakespeare.txt").map(str::len),
            Some(1_115_394)
        );
        assert!(super::list("presets").any(|p| p == "presets/quickstart.yaml"));
        assert_eq!(super::text("presets/absent.yaml"), None);
    }
}
