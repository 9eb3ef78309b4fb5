//! Untrusted names: they must not point outside their folder.

use super::HubError;

/// Accepts relative names with `/` that stay inside a folder.
///
/// # Errors
/// `..`, absolute names, empty parts, backslashes, control characters.
pub fn confined(name: &str) -> Result<&str, HubError> {
    let part_is_good = |part: &str| !matches!(part, "" | "." | "..");
    let good = name.len() <= 1024
        && name.split('/').all(part_is_good)
        && !name.chars().any(|c| c == '\\' || c.is_control());
    match good {
        true => Ok(name),
        false => Err(HubError::BadName(crate::base::text::one_line(name))),
    }
}

/// `name` or `org/name` in the hub's alphabet.
pub fn is_repo_id(id: &str) -> bool {
    let part_is_good = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            && !part.starts_with(['.', '-'])
            && !part.ends_with(['.', '-'])
    };
    id.len() <= 193
        && id.split('/').count() <= 2
        && id.split('/').all(part_is_good)
        && !id.contains("--")
        && !id.contains("..")
}

/// A commit or blob name: it also becomes a file name.
pub(super) fn is_hex(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_folder() {
        for good in [
            "a.parquet",
            "data/train-00000-of-00001.parquet",
            "..a/b..",
            "refs/convert/parquet",
        ] {
            assert!(confined(good).is_ok(), "{good}");
        }
        for bad in [
            "../x",
            "a/../../x",
            "/etc/passwd",
            "a//b",
            "",
            ".",
            "a\\..\\b",
            "a\0b",
            "a/",
        ] {
            assert!(confined(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_use_only_the_hubs_alphabet() {
        assert!(is_repo_id("HuggingFaceFW/fineweb-edu") && is_repo_id("imdb"));
        for bad in [
            "a/b/c", "../x", "a b", "", "/x", "x/", "a--b/c", ".git/x", "http://x",
        ] {
            assert!(!is_repo_id(bad), "{bad}");
        }
    }
}
