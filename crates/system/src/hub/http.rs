//! HTTP requests with retries: outages and rate limits are retried with backoff, rejections are returned at once.

use super::{HubConfig, HubError, Repo};
use crate::base::clock;
use crate::base::human;
use std::io::Read;
use std::time::Duration;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

/// Attempts per request.
pub(super) const TRIES: u32 = 5;
/// Redirects of one request; the hub itself needs two or three.
pub(super) const MOST_REDIRECTS: u32 = 10;
/// Longest pause, whatever the server requests.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Largest response held in memory: a listing of a hundred thousand files.
pub(super) const MAX_ANSWER: u64 = 64 << 20;

pub(super) struct Http {
    pub(super) agent: Agent,
    pub(super) token: Option<String>,
    pub endpoint: String,
    pause: Duration,
}

impl Http {
    pub fn new(config: &HubConfig) -> Http {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(config.timeout))
            .timeout_recv_response(Some(config.timeout))
            .timeout_per_read(Some(config.timeout))
            .max_redirects(0)
            .user_agent(concat!("llmtui/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Http {
            agent,
            token: config.token.as_ref().map(|t| format!("Bearer {}", t.0)),
            endpoint: config.endpoint.clone(),
            pause: config.pause,
        }
    }

    /// Performs a request with status 2xx or 416, from byte `from` on.
    pub fn get(&self, repo: &Repo, url: &str, from: u64) -> Result<Response<Body>, HubError> {
        let mut attempt = 0;
        loop {
            let (error, requested) = match self.get_once(url, from) {
                Ok(response) => match self.judge(repo, url, &response) {
                    Ok(()) => return Ok(response),
                    Err(e) => (e, retry_after(&response)),
                },
                Err(e) => (e, None),
            };
            if !error.is_outage() || attempt + 1 == TRIES {
                return Err(error);
            }
            self.wait(attempt, requested);
            attempt += 1;
        }
    }

    /// Follows redirects itself: the token goes to the hub's own scheme, host and port and nowhere else.
    fn get_once(&self, url: &str, from: u64) -> Result<Response<Body>, HubError> {
        let mut place = url.to_string();
        for _ in 0..=MOST_REDIRECTS {
            let mut request = self.agent.get(&place);
            if let Some(token) = &self.token
                && is_same_origin(&place, &self.endpoint)
            {
                request = request.header("authorization", token);
            }
            if from > 0 {
                request = request.header("range", format!("bytes={from}-"));
            }
            // Uncompressed: ranges and sizes count the bytes as stored on the hub.
            request = request.header("accept-encoding", "identity");
            let response = request.call().map_err(|e| HubError::Unreachable {
                url: url.to_string(),
                why: e.to_string(),
            })?;
            match redirect(&response, &place) {
                Some(next) => place = next,
                None => return Ok(response),
            }
        }
        Err(HubError::Answer {
            url: url.to_string(),
            why: format!("more than {MOST_REDIRECTS} redirects"),
        })
    }

    fn judge(&self, repo: &Repo, url: &str, response: &Response<Body>) -> Result<(), HubError> {
        let status = response.status().as_u16();
        match status {
            200..=299 | 416 => Ok(()),
            // The hub also answers 401 for missing repositories, so as not to reveal private ones.
            401 | 403 => Err(HubError::Denied {
                repo: repo.id.clone(),
                status,
                token: self.token.is_some(),
            }),
            404 => Err(HubError::NotFound {
                repo: format!("{} (revision {})", repo.id, repo.revision),
                endpoint: self.endpoint.clone(),
            }),
            status => Err(HubError::Status {
                url: url.to_string(),
                status,
            }),
        }
    }

    /// A pause before the next attempt.
    pub fn wait(&self, attempt: u32, requested: Option<Duration>) {
        let pause = requested.unwrap_or(self.pause * 2u32.saturating_pow(attempt));
        clock::pause(pause.min(LONGEST_PAUSE));
    }

    /// A JSON response.
    pub fn json(&self, repo: &Repo, url: &str) -> Result<serde_json::Value, HubError> {
        let answer = |why: String| HubError::Answer {
            url: url.to_string(),
            why,
        };
        let response = self.get(repo, url, 0)?;
        let mut bytes = Vec::new();
        let mut reader = response.into_body().into_reader().take(MAX_ANSWER + 1);
        reader
            .read_to_end(&mut bytes)
            .map_err(|e| HubError::Unreachable {
                url: url.to_string(),
                why: e.to_string(),
            })?;
        if bytes.len() as u64 > MAX_ANSWER {
            return Err(answer(format!("more than {}", human::bytes(MAX_ANSWER))));
        }
        serde_json::from_slice(&bytes).map_err(|e| answer(e.to_string()))
    }
}

/// The target of a redirect: an absolute URL, or a path on the same origin.
pub(super) fn redirect(response: &Response<Body>, from: &str) -> Option<String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = response.headers().get("location")?.to_str().ok()?;
    let uri: Uri = from.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    Some(match to {
        to if to.starts_with("//") => format!("{scheme}:{to}"),
        to if to.starts_with('/') => format!("{scheme}://{authority}{to}"),
        to => to.to_string(),
    })
}

pub(super) fn is_same_origin(a: &str, b: &str) -> bool {
    let origin = |url: &str| {
        let uri: Uri = url.parse().ok()?;
        let (scheme, host) = (uri.scheme_str()?.to_string(), uri.host()?.to_lowercase());
        let usual = if scheme == "https" { 443 } else { 80 };
        Some((scheme, host, uri.port_u16().unwrap_or(usual)))
    };
    matches!((origin(a), origin(b)), (Some(a), Some(b)) if a == b)
}

pub(super) fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let value = response.headers().get("retry-after")?.to_str().ok()?;
    value.parse().ok().map(Duration::from_secs)
}

/// Percent-encodes everything in a URL segment except the hub's plain characters and, in paths, `/`.
pub(super) fn encoded(text: &str, keep_slashes: bool) -> String {
    text.bytes()
        .map(|b| match b {
            b'/' if keep_slashes => "/".to_string(),
            b if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}
