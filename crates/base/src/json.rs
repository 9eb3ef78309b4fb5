//! Deserializes a JSON value into a typed one, for every room: by reference, with the path of the invalid part. Sharing one
//! function means one deserializer per type in the binary, and these are a large part of the build time. Paths in JSON.

use serde::Serializer;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The mismatch with the type, and its path.
pub type Misfit = serde_path_to_error::Error<serde_json::Error>;

/// Reads a value as `T`.
///
/// # Errors
/// A missing or unknown key, or a value of another type.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Misfit> {
    serde_path_to_error::deserialize(value)
}

/// A path for JSON to be shown, where bytes outside UTF-8 become the replacement character: serde refuses such a path, and
/// `json!` of one panics.
pub fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The same as a field of a struct: `serialize_with`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize_path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// The same of a path that may be missing.
///
/// # Errors
/// Those of the serializer.
pub fn serialize_path_if_any<S: Serializer>(
    path: &Option<PathBuf>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => to.serialize_some(&path.to_string_lossy()),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_misfit_has_its_path() {
        let value = serde_json::json!({"a": [1, "x"]});
        let misfit = read::<BTreeMap<String, Vec<u8>>>(&value).unwrap_err();
        assert_eq!(misfit.path().to_string(), "a[1]");
        assert!(
            misfit.to_string().starts_with("a[1]: invalid type"),
            "{misfit}"
        );
        assert_eq!(
            read::<Vec<u8>>(&value["b"]).unwrap_err().path().to_string(),
            "."
        );
    }
}
