//! Deserializes a JSON value into a typed one, for every room: by reference, with the path of the invalid part. Sharing one
//! function means one deserializer per type in the binary, and these are a large part of the build time.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The mismatch with the type, and its path.
pub type Misfit = serde_path_to_error::Error<serde_json::Error>;

/// Reads a value as `T`.
///
/// # Errors
/// A missing or unknown key, or a value of another type.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Misfit> {
    serde_path_to_error::deserialize(value)
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
