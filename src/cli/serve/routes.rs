//! The endpoints: what a request asks for is read, given to the model, and answered whole or as a stream of events.

use super::access::{self, Access};
use super::failed::{Failed, json_of, refusal};
use super::model::{Model, Place};
use super::reply::{self, Head};
use super::request::{self, Calls, Defaults, Endpoint, Wrong};
use crate::base::clock::{Clock, SystemClock};
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::wire::Prompt;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The largest body, in bytes: many prompts may come at once. Each of them must fit a line to the model's process
/// ([`crate::wire::MAX_LINE`]), or it is refused.
const BODY: usize = 16 << 20;
/// Time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);

/// What all requests share.
#[derive(Clone)]
pub struct Server {
    pub model: Arc<Model>,
    pub defaults: Defaults,
    pub access: Access,
    pub clock: SystemClock,
    /// How long a stream waits for a reader that takes nothing.
    pub slow: Duration,
}

pub fn router(server: Server) -> Router {
    let key = middleware::from_fn_with_state(server.clone(), with_key);
    let v1 = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(one_model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route_layer(key);
    Router::new()
        .merge(v1)
        .route(
            "/health",
            get(|| async { json_of(StatusCode::OK, &json!({"status": "ok"})) }),
        )
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(server.clone(), from_here))
        .with_state(server)
}

async fn with_key(State(server): State<Server>, request: Request, next: Next) -> Response {
    let said = request.headers().get(header::AUTHORIZATION);
    match server
        .access
        .allows(said.and_then(|said| said.to_str().ok()))
    {
        true => next.run(request).await,
        false => refusal(
            StatusCode::UNAUTHORIZED,
            "authentication_error",
            "this server needs its key: Authorization: Bearer KEY",
            None,
        ),
    }
}

/// Without a key only programs of this machine are answered: not pages of other sites in its browser, also where their name was
/// made to lead here (DNS rebinding).
async fn from_here(State(server): State<Server>, request: Request, next: Next) -> Response {
    match server.access.needs_key() || is_from_here(request.headers()) {
        true => next.run(request).await,
        false => refusal(
            StatusCode::FORBIDDEN,
            "permission_error",
            "a server without a key answers only requests to localhost by programs of this machine",
            None,
        ),
    }
}

fn is_from_here(headers: &HeaderMap) -> bool {
    let said = |name| {
        headers
            .get(name)
            .map(|said| said.to_str().unwrap_or_default())
    };
    let origin = said(header::ORIGIN).is_none_or(|origin| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.is_some_and(access::is_here)
    });
    origin && said(header::HOST).is_none_or(access::is_here)
}

async fn unknown(method: Method, uri: Uri) -> Response {
    let what = format!(
        "there is no {method} {}; POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health",
        one_line(uri.path())
    );
    refusal(StatusCode::NOT_FOUND, "invalid_request_error", &what, None)
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let what = format!("{} does not take {method}", one_line(uri.path()));
    refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid_request_error",
        &what,
        None,
    )
}

async fn models(State(server): State<Server>) -> Response {
    let names: Vec<&str> = server.model.about().names().collect();
    json_of(StatusCode::OK, &reply::models(&names, server.seconds()))
}

async fn one_model(State(server): State<Server>, Path(name): Path<String>) -> Response {
    match server.model.adapter_named(&name) {
        Some(_) => json_of(StatusCode::OK, &reply::model(&name, server.seconds())),
        None => server.no_model(&name).response(),
    }
}

async fn chat(State(server): State<Server>, headers: HeaderMap, body: Read) -> Response {
    server.answered(Endpoint::Chat, &headers, body).await
}

async fn completions(State(server): State<Server>, headers: HeaderMap, body: Read) -> Response {
    server.answered(Endpoint::Completions, &headers, body).await
}

/// A body, or why it could not be read.
struct Read(Result<Bytes, (StatusCode, String)>);

impl<S: Send + Sync> FromRequest<S> for Read {
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Read, Infallible> {
        let body = tokio::time::timeout(BODY_TIME, Bytes::from_request(request, state)).await;
        Ok(Read(match body {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(why)) => Err((why.status(), why.body_text())),
            Err(_) => {
                let what = format!("not all of it came within {} s", BODY_TIME.as_secs());
                Err((StatusCode::REQUEST_TIMEOUT, what))
            }
        }))
    }
}

/// A request that is to be answered.
pub struct Accepted {
    pub head: Head,
    pub prompts: Vec<Prompt>,
    pub sampling: Sampling,
    /// Answers to each prompt.
    pub n: u64,
    pub adapter: Option<String>,
    pub stream: bool,
    pub usage_in_stream: bool,
    /// What answers may call, and what they must.
    pub calls: Calls,
    /// Answers begin with their prompt.
    pub echo: bool,
    /// Answers are JSON values of this schema.
    pub json_schema: Option<Value>,
    /// Variables of the chat template.
    pub template: Map<String, Value>,
    /// The same request gets the same answer.
    pub repeatable: bool,
    pub place: Place,
}

impl Accepted {
    pub fn answers(&self) -> u64 {
        self.prompts.len() as u64 * self.n
    }
}

impl Server {
    fn seconds(&self) -> u64 {
        self.clock.now().0 / 1000
    }

    async fn answered(&self, endpoint: Endpoint, headers: &HeaderMap, body: Read) -> Response {
        let body = match body.0 {
            Ok(body) => body,
            Err((status, why)) => {
                let what = format!("the body cannot be read: {why}");
                return refusal(status, "invalid_request_error", &what, None);
            }
        };
        match self.accept(endpoint, headers, &body) {
            Err(failed) => failed.response(),
            Ok(accepted) if accepted.stream => self.streamed(accepted).await,
            Ok(accepted) => match self.whole(accepted).await {
                Ok(value) => json_of(StatusCode::OK, &value),
                Err(failed) => failed.response(),
            },
        }
    }

    fn accept(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Accepted, Failed> {
        // A page of another site cannot send this type without asking first, which is not granted.
        if !is_json(headers) {
            let what = "the Content-Type must be application/json: with curl, -H 'Content-Type: application/json'".to_string();
            return Err(Failed::Wrong(Wrong { param: None, what }));
        }
        let asked = request::read(endpoint, body, &self.defaults).map_err(Failed::Wrong)?;
        let about = self.model.about();
        if endpoint == Endpoint::Chat && !about.template {
            let what = "this model has no chat template: use /v1/completions".to_string();
            return Err(Failed::Wrong(Wrong { param: None, what }));
        }
        let name = asked.model.unwrap_or_else(|| about.served[0].0.clone());
        let adapter = self.model.adapter_named(&name);
        let adapter = adapter.ok_or_else(|| self.no_model(&name))?;
        Ok(Accepted {
            place: self.model.place()?,
            head: Head::new(endpoint, self.seconds(), name, asked.logprobs),
            prompts: asked.prompts,
            sampling: asked.sampling,
            n: asked.n,
            stream: asked.stream,
            usage_in_stream: asked.usage_in_stream,
            calls: asked.calls,
            echo: asked.echo,
            json_schema: asked.json_schema,
            template: asked.template,
            repeatable: asked.repeatable,
            adapter,
        })
    }

    fn no_model(&self, name: &str) -> Failed {
        let names: Vec<&str> = self.model.about().names().collect();
        let known = names.join(", ");
        Failed::NoModel(format!(
            "unknown model {}; available: {known}",
            one_line(name)
        ))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let kind = said.map(|said| said.split(';').next().unwrap_or_default().trim());
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}
