//! The endpoints: what a request asks for is read, given to the model, and answered whole or as a stream of events.

use super::access::{self, Access};
use super::answer::{Answer, CallsWanted, Echo, Step};
use super::failed::{Failed, json_of, refusal};
use super::model::{Job, Model, Place};
use super::reply::{self, Choice, Head, Usage};
use super::request::{self, Defaults, Endpoint, Wrong};
use crate::base::clock::{Clock, SystemClock};
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::data::chat::tool_calls::Tools;
use crate::wire::{Prompt, Wanted};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, error::SendTimeoutError};

/// The largest body, in bytes: many prompts may come at once. Each of them must fit a line to the model's process
/// ([`crate::wire::MAX_LINE`]), or it is refused.
const BODY: usize = 16 << 20;
/// Time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Events of a stream that wait for a slow reader.
const EVENTS: usize = 64;

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
    let names = &server.model.about().names;
    json_of(StatusCode::OK, &reply::models(names, server.seconds()))
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
struct Accepted {
    head: Head,
    prompts: Vec<Prompt>,
    sampling: Sampling,
    /// Answers to each prompt.
    n: u64,
    adapter: Option<String>,
    stream: bool,
    usage_in_stream: bool,
    /// An answer may call several tools.
    several_calls: bool,
    /// Answers begin with their prompt.
    echo: bool,
    /// Answers are JSON values of this schema.
    json_schema: Option<Value>,
    /// The same request gets the same answer.
    repeatable: bool,
    place: Place,
}

impl Accepted {
    fn answers(&self) -> u64 {
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
            Ok(accepted) => match self.whole(&accepted).await {
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
            let what = "the Content-Type must be application/json".to_string();
            return Err(Failed::Wrong(Wrong { param: None, what }));
        }
        let asked = request::read(endpoint, body, &self.defaults).map_err(Failed::Wrong)?;
        let about = self.model.about();
        if endpoint == Endpoint::Chat && !about.template {
            let what = "this model has no chat template: use /v1/completions".to_string();
            return Err(Failed::Wrong(Wrong { param: None, what }));
        }
        let name = asked.model.unwrap_or_else(|| about.names[0].clone());
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
            several_calls: asked.several_calls,
            echo: asked.echo,
            json_schema: asked.json_schema,
            repeatable: asked.repeatable,
            adapter,
        })
    }

    fn no_model(&self, name: &str) -> Failed {
        let known = self.model.about().names.join(", ");
        Failed::NoModel(format!(
            "model: there is no {}; there is {known}",
            one_line(name)
        ))
    }

    /// All answers, one after the other.
    async fn whole(&self, accepted: &Accepted) -> Result<Value, Failed> {
        let mut choices = Vec::new();
        let mut usage = Usage::default();
        for index in 0..accepted.answers() {
            let mut answer = self.begin(accepted, index);
            let mut choice = Choice::new(index);
            loop {
                match answer.next().await? {
                    Step::Token(token) => choice.push(token),
                    Step::Call(call) => choice.calls.push(call),
                    Step::End(finish) => {
                        choice.finish = finish;
                        break;
                    }
                }
            }
            usage.add(answer.usage);
            choices.push(choice);
        }
        Ok(accepted.head.whole(choices, usage))
    }

    /// The answer of this number: each prompt has `n` of them, with seeds one after the other.
    fn begin(&self, accepted: &Accepted, index: u64) -> Answer {
        let prompt = &accepted.prompts[(index / accepted.n) as usize];
        let echo = Echo {
            wanted: accepted.echo,
            text: match prompt {
                Prompt::Text(text) => Some(text.clone()),
                _ => None,
            },
            scores: Vec::new(),
        };
        let job = Job {
            wanted: Wanted {
                logprobs: accepted.head.logprobs,
                // Of ids the text is known by their tokens alone.
                prompt_logprobs: accepted.echo
                    && (accepted.head.logprobs.is_some() || matches!(prompt, Prompt::Tokens(_))),
                // As OpenAI's completions count it.
                end_token: accepted.head.endpoint == Endpoint::Completions
                    && accepted.head.logprobs.is_some(),
                json_schema: accepted.json_schema.clone(),
                repeatable: accepted.repeatable,
            },
            prompt: prompt.clone(),
            sampling: Sampling {
                seed: accepted.sampling.seed.wrapping_add(index),
                ..accepted.sampling.clone()
            },
            adapter: accepted.adapter.clone(),
        };
        let calls = match &job.prompt {
            Prompt::WithTools { tools, .. } => Some(CallsWanted {
                tools: Tools::new(tools.clone()),
                several: accepted.several_calls,
            }),
            _ => None,
        };
        Answer::begin(
            accepted.head.id.clone(),
            index.is_multiple_of(accepted.n),
            Arc::clone(&self.model),
            self.model.answer(&accepted.place, job),
            calls,
            echo,
        )
    }

    /// Server-sent events, written by a task of their own. What is refused is refused before they begin. A reader that goes away
    /// ends the answer, and so does one that takes nothing for too long.
    async fn streamed(&self, accepted: Accepted) -> Response {
        let mut answer = self.begin(&accepted, 0);
        let first = match answer.next().await {
            Ok(first) => first,
            Err(failed) => return failed.response(),
        };
        let (send, events) = mpsc::channel::<String>(EVENTS);
        let server = self.clone();
        tokio::spawn(async move {
            // There is always room for the last event.
            let Ok(end) = send.clone().reserve_owned().await else {
                return;
            };
            let last = match server.all_events(&accepted, (answer, first), &send).await {
                Ok(true) => "[DONE]".to_string(),
                Ok(false) => return,
                Err(failed) => failed.parts().1.to_string(),
            };
            end.send(last);
        });
        let body = stream::unfold(events, |mut events| async move {
            let event = events.recv().await?;
            Some((Ok::<_, Infallible>(format!("data: {event}\n\n")), events))
        });
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        (headers, Body::from_stream(body)).into_response()
    }

    /// True if all were taken.
    async fn all_events(
        &self,
        accepted: &Accepted,
        (answer, first): (Answer, Step),
        send: &mpsc::Sender<String>,
    ) -> Result<bool, Failed> {
        let head = &accepted.head;
        let put = |value: Value| {
            let sent = send.send_timeout(value.to_string(), self.slow);
            async {
                match sent.await {
                    Ok(()) => Ok(true),
                    Err(SendTimeoutError::Closed(_)) => Ok(false),
                    Err(SendTimeoutError::Timeout(_)) => Err(Failed::Slow),
                }
            }
        };
        let mut usage = Usage::default();
        let mut begun = Some((answer, Some(first)));
        for index in 0..accepted.answers() {
            if let Some(opening) = head.opening(index)
                && !put(opening).await?
            {
                return Ok(false);
            }
            let (mut answer, mut first) = begun
                .take()
                .unwrap_or_else(|| (self.begin(accepted, index), None));
            let mut calls = 0;
            loop {
                let step = match first.take() {
                    Some(step) => step,
                    None => tokio::select! {
                        step = answer.next() => step?,
                        () = send.closed() => return Ok(false),
                    },
                };
                let (event, is_last) = match step {
                    // What may begin a call is held back.
                    Step::Token(token) if token.text.is_empty() && head.logprobs.is_none() => {
                        continue;
                    }
                    Step::Token(token) => (head.piece(index, &token), false),
                    Step::Call(call) => {
                        calls += 1;
                        (head.call(index, calls - 1, &call), false)
                    }
                    Step::End(finish) => (head.closing(index, finish), true),
                };
                if !put(event).await? {
                    return Ok(false);
                }
                if is_last {
                    break;
                }
            }
            usage.add(answer.usage);
        }
        Ok(!accepted.usage_in_stream || put(head.used(usage)).await?)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let kind = said.map(|said| said.split(';').next().unwrap_or_default().trim());
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}
