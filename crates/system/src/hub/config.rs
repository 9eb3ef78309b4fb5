//! Hub endpoint, token and cache folder, from Hugging Face's environment variables.

use crate::base::files::read_plain_text;
use crate::base::paths::Env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A token. It is masked when printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

impl Secret {
    /// `None` for an empty one, and for one that is not valid in a header.
    pub fn new(text: &str) -> Option<Secret> {
        let text = text.trim();
        let plain = text.bytes().all(|b| b.is_ascii_graphic());
        (!text.is_empty() && plain).then(|| Secret(text.to_string()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("•••")
    }
}

/// Access to the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubConfig {
    /// Without a trailing slash.
    pub endpoint: String,
    /// The folder of `models--…` and `datasets--…`. Without one nothing can be downloaded.
    pub cache: Option<PathBuf>,
    pub token: Option<Secret>,
    /// Never use the network.
    pub offline: bool,
    /// Timeout of an idle connection.
    pub timeout: Duration,
    /// The pause before the first retry; it doubles each time.
    pub pause: Duration,
}

impl Default for HubConfig {
    fn default() -> Self {
        HubConfig {
            endpoint: "https://huggingface.co".into(),
            cache: None,
            token: None,
            offline: false,
            timeout: Duration::from_secs(10),
            pause: Duration::from_secs(1),
        }
    }
}

impl HubConfig {
    /// From the environment; a token file is read now.
    pub fn from_env(env: &Env) -> HubConfig {
        let said = &env.hub;
        let standard = HubConfig::default();
        let from_file = |path: &Path| {
            let text = read_plain_text(path).ok()?;
            Secret::new(&text)
        };
        let token_path = said
            .token_path
            .clone()
            .or_else(|| said.home.as_ref().map(|home| home.join("token")));
        HubConfig {
            endpoint: said
                .endpoint
                .as_ref()
                .map_or(standard.endpoint, |e| e.trim_end_matches('/').to_string()),
            cache: said
                .cache
                .clone()
                .or_else(|| said.home.as_ref().map(|home| home.join("hub"))),
            token: said
                .token
                .as_deref()
                .and_then(Secret::new)
                .or_else(|| token_path.as_deref().and_then(from_file)),
            offline: said.offline,
            timeout: said
                .timeout_seconds
                .filter(|s| *s > 0)
                .map_or(standard.timeout, Duration::from_secs),
            pause: standard.pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::paths::HubEnv;

    fn config(hub: HubEnv) -> HubConfig {
        HubConfig::from_env(&Env {
            hub,
            ..Env::default()
        })
    }

    #[test]
    fn the_home_folder_provides_cache_and_token_unless_overridden() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "hf_file\n").unwrap();
        let said = HubEnv {
            home: Some(home.path().to_path_buf()),
            ..HubEnv::default()
        };
        let plain = config(said.clone());
        assert_eq!(plain.cache, Some(home.path().join("hub")));
        assert_eq!(plain.token, Secret::new("hf_file"));
        let other = config(HubEnv {
            cache: Some("/c".into()),
            token: Some("hf_env".into()),
            endpoint: Some("http://mirror/".into()),
            timeout_seconds: Some(3),
            ..said
        });
        assert_eq!(other.cache, Some("/c".into()));
        assert_eq!(other.token, Secret::new("hf_env"));
        assert_eq!(other.endpoint, "http://mirror");
        assert_eq!(other.timeout, Duration::from_secs(3));
    }

    #[test]
    fn a_token_is_never_printed_and_never_breaks_a_header() {
        let secret = Secret::new("hf_abc").unwrap();
        assert_eq!(format!("{secret:?}"), "•••");
        assert!(Secret::new("a\r\nHost: evil").is_none() && Secret::new(" ").is_none());
    }
}
