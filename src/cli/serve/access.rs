//! Who may use the server: anyone who can reach it, or requests with a key.

use crate::base::files;
use crate::base::text::shown;
use crate::cli::exit::Failure;
use std::net::IpAddr;
use std::path::Path;

/// The largest file of a key, in bytes.
const KEY_BYTES: u64 = 4096;

/// The key that requests must have; none: all may.
#[derive(Clone)]
pub struct Access(Option<String>);

impl Access {
    /// The key of a file, else of the environment.
    ///
    /// # Errors
    /// The file cannot be read, or a key is empty.
    pub fn of(file: Option<&Path>, environment: Option<&str>) -> anyhow::Result<Access> {
        let (key, from) = match (file, environment) {
            (Some(path), _) => {
                let text = files::read_small_text(path, KEY_BYTES).map_err(|e| {
                    Failure::user_error(
                        format!("the key in {} cannot be read: {e}", shown(path)),
                        "--api-key-file takes a text file with the key alone",
                    )
                })?;
                (text.trim().to_string(), shown(path).to_string())
            }
            (None, Some(key)) => (key.trim().to_string(), "LLMTUI_API_KEY".to_string()),
            (None, None) => return Ok(Access(None)),
        };
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_graphic()) {
            let what =
                format!("the key in {from} is empty, or has characters that no header can carry");
            return Err(Failure::user_error(what, "use letters, digits and -_. alone").into());
        }
        Ok(Access(Some(key)))
    }

    pub fn needs_key(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a request with this `Authorization` header may be answered.
    pub fn allows(&self, authorization: Option<&str>) -> bool {
        let Some(key) = &self.0 else {
            return true;
        };
        let given = authorization.and_then(|said| said.split_once(' '));
        given.is_some_and(|(kind, given)| {
            kind.eq_ignore_ascii_case("bearer") && same(given.trim().as_bytes(), key.as_bytes())
        })
    }
}

/// Whether `host` or `host:port` is this machine by its own names, which no other site can have.
pub fn is_here(authority: &str) -> bool {
    let (host, behind) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or((rest, "")),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    if !behind.is_empty() && !behind.strip_prefix(':').is_some_and(is_port) {
        return false;
    }
    let host = host.to_ascii_lowercase();
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    host == "localhost" || host.ends_with(".localhost") || host.parse().is_ok_and(is_loopback)
}

/// Compares all bytes whatever the first difference, so that the time does not say where it is.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.len() == b.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_asked_for_only_where_there_is_one() {
        let open = Access::of(None, None).unwrap();
        assert!(!open.needs_key() && open.allows(None) && open.allows(Some("Bearer x")));
        let key = Access::of(None, Some("abc\n")).unwrap();
        assert!(key.needs_key() && key.allows(Some("Bearer abc")));
        assert!(key.allows(Some("bearer  abc")));
        for wrong in [
            None,
            Some("abc"),
            Some("Bearer ab"),
            Some("Bearer abcd"),
            Some("Basic abc"),
        ] {
            assert!(!key.allows(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_own_names_alone() {
        for here in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:8080",
            "127.3.2.1",
            "[::1]:80",
            "a.localhost:1",
        ] {
            assert!(is_here(here), "{here}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:8080.evil.example",
            "[::1]evil.example",
            "192.168.1.2:80",
            "[::2]",
        ] {
            assert!(!is_here(other), "{other}");
        }
    }

    #[test]
    fn a_file_comes_before_the_environment_and_an_empty_key_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "from-file\n").unwrap();
        let key = Access::of(Some(&file), Some("other")).unwrap();
        assert!(key.allows(Some("Bearer from-file")) && !key.allows(Some("Bearer other")));
        for text in ["", " \n", "two words"] {
            std::fs::write(&file, text).unwrap();
            assert!(Access::of(Some(&file), None).is_err(), "{text:?}");
        }
        assert!(Access::of(None, Some("")).is_err());
        assert!(Access::of(Some(&dir.path().join("none")), None).is_err());
    }
}
