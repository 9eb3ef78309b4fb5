//! Requests with a body: retried like downloads, and with the same rule for the token: it goes only to the hub's own scheme,
//! host and port; a body follows no redirect to another server.

use super::http::{Http, MAX_ANSWER, MOST_REDIRECTS, TRIES, is_same_origin, redirect, retry_after};
use super::{HubError, Repo};
use crate::base::text::one_line;
use serde_json::Value;
use std::io::{self, Read};
use std::time::Duration;
use ureq::http::Response;
use ureq::{Body, SendBody};

/// Timeout of a response: a store assembles gigabytes before it answers.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum bytes read of a rejection's body.
const MAX_REFUSAL: u64 = 4096;
/// Reopens a body for each attempt.
pub(super) type Open<'a> = dyn FnMut() -> io::Result<Box<dyn Read + 'a>> + 'a;

/// Whether to retry.
enum Fault {
    Now(HubError),
    Later(HubError, Option<Duration>),
}

impl Http {
    /// Posts a short body to the hub and returns its answer as JSON; null for an empty one. Statuses in `fine` are not
    /// errors.
    pub fn post(
        &self,
        repo: &Repo,
        url: &str,
        kind: &str,
        fine: &[u16],
        body: &[u8],
    ) -> Result<Value, HubError> {
        self.with_retries(&mut || {
            let mut place = url.to_string();
            for _ in 0..=MOST_REDIRECTS {
                let request = self.agent.post(&place).header("content-type", kind);
                let mut request = request
                    .config()
                    .timeout_recv_response(Some(RESPONSE_TIMEOUT))
                    .build();
                // Stores on other origins authenticate by the URL.
                if let Some(token) = self.token_for(&place) {
                    request = request.header("authorization", token);
                }
                if kind.contains("lfs") {
                    request = request.header("accept", kind);
                }
                let response = request.send(body).map_err(|e| unreachable(&place, &e))?;
                match redirect(&response, &place) {
                    None => return self.answer(repo, &place, fine, response),
                    Some(next) if is_same_origin(&next, &place) => place = next,
                    Some(_) => return Err(Fault::Now(HubError::Elsewhere { url: place })),
                }
            }
            Err(Fault::Now(HubError::Answer {
                url: url.to_string(),
                why: format!("more than {MOST_REDIRECTS} redirects"),
            }))
        })
    }

    /// Puts `length` bytes to the URL that the hub named, in a separate store; returns the store's ETag.
    pub fn put(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        length: u64,
        open: &mut Open<'_>,
    ) -> Result<Option<String>, HubError> {
        self.with_retries(&mut || {
            let disk = |source| {
                Fault::Now(HubError::Disk {
                    path: "the file that is being sent".into(),
                    source,
                })
            };
            let mut body = open().map_err(disk)?;
            // Without it the body would be sent chunked, which stores reject.
            let request = self
                .agent
                .put(url)
                .header("content-length", length.to_string());
            let mut request = request
                .config()
                .timeout_recv_response(Some(RESPONSE_TIMEOUT))
                .build();
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(token) = self.token_for(url)
                && !headers
                    .iter()
                    .any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            {
                request = request.header("authorization", token);
            }
            let response = request
                .send(SendBody::from_reader(&mut body))
                .map_err(|e| unreachable(url, &e))?;
            let status = response.status().as_u16();
            if (200..300).contains(&status) {
                let tag = response
                    .headers()
                    .get("etag")
                    .and_then(|tag| tag.to_str().ok());
                return Ok(tag.map(String::from));
            }
            let url = without_signature(url);
            Err(Fault::of(HubError::Status { url, status }, &response))
        })
    }

    fn token_for(&self, url: &str) -> Option<&str> {
        let token = self.token.as_deref()?;
        is_same_origin(url, &self.endpoint).then_some(token)
    }

    fn answer(
        &self,
        repo: &Repo,
        url: &str,
        fine: &[u16],
        response: Response<Body>,
    ) -> Result<Value, Fault> {
        let status = response.status().as_u16();
        match status {
            _ if fine.contains(&status) => Ok(Value::Null),
            200..=299 => read(url, response),
            401 | 403 if is_same_origin(url, &self.endpoint) => {
                Err(Fault::Now(HubError::NoWrite {
                    repo: repo.id.clone(),
                }))
            }
            404 => Err(Fault::Now(HubError::NotFound {
                repo: repo.id.clone(),
                endpoint: self.endpoint.clone(),
            })),
            429 | 500.. => {
                let url = without_signature(url);
                Err(Fault::of(HubError::Status { url, status }, &response))
            }
            _ => Err(Fault::Now(HubError::Refused {
                what: format!("the upload to {}", repo.id),
                why: format!("{} ({status})", refusal(response)),
            })),
        }
    }

    fn with_retries<T>(&self, once: &mut dyn FnMut() -> Result<T, Fault>) -> Result<T, HubError> {
        let mut attempt = 0;
        loop {
            match once() {
                Ok(done) => return Ok(done),
                Err(Fault::Now(error)) => return Err(error),
                Err(Fault::Later(error, _)) if attempt + 1 == TRIES => return Err(error),
                Err(Fault::Later(_, requested)) => self.wait(attempt, requested),
            }
            attempt += 1;
        }
    }
}

impl Fault {
    fn of(error: HubError, response: &Response<Body>) -> Fault {
        match error.is_outage() {
            true => Fault::Later(error, retry_after(response)),
            false => Fault::Now(error),
        }
    }
}

/// URLs of stores contain signatures, which must not be logged.
fn without_signature(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or(url).to_string()
}

fn unreachable(url: &str, error: &ureq::Error) -> Fault {
    let error = HubError::Unreachable {
        url: without_signature(url),
        why: error.to_string(),
    };
    Fault::Later(error, None)
}

fn read(url: &str, response: Response<Body>) -> Result<Value, Fault> {
    let mut bytes = Vec::new();
    let mut reader = response.into_body().into_reader().take(MAX_ANSWER);
    let read = reader.read_to_end(&mut bytes);
    read.map_err(|e| {
        Fault::Later(
            HubError::Unreachable {
                url: url.to_string(),
                why: e.to_string(),
            },
            None,
        )
    })?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    // A completion may be answered in the store's own format: only the hub's answers are interpreted, by the caller.
    Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// The hub's error message.
fn refusal(response: Response<Body>) -> String {
    let mut bytes = Vec::new();
    let _ = response
        .into_body()
        .into_reader()
        .take(MAX_REFUSAL)
        .read_to_end(&mut bytes);
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let words = ["error", "message"]
        .into_iter()
        .find_map(|key| value[key].as_str());
    match words {
        Some(words) => one_line(words),
        None => one_line(&String::from_utf8_lossy(&bytes)),
    }
}
