//! The endpoints: what a request asks for is read, given to the model, and answered whole or as a stream of events.

use super::access::Access;
use super::model::{Job, Model, NotTaken, Piece};
use super::reply::{self, Choice, Head, Token, Usage};
use super::request::{self, Asked, Endpoint, Wrong};
use crate::base::clock::{Clock, SystemClock};
use crate::base::human;
use crate::base::sampling::Sampling;
use crate::base::text::one_line;
use crate::wire::{Prompt, StopReason};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The largest body, in bytes: a context of a million tokens is less.
const BODY: usize = 16 << 20;
/// Events of a stream that wait for a slow reader.
const EVENTS: usize = 64;

/// What all requests share.
#[derive(Clone)]
pub struct Server {
    pub model: Arc<Model>,
    /// Of requests that leave them out.
    pub defaults: Sampling,
    /// The length of answers was limited on the command line.
    pub limited: bool,
    pub access: Access,
    pub clock: SystemClock,
}

pub fn router(server: Server) -> Router {
    let key = middleware::from_fn_with_state(server.clone(), with_key);
    let v1 = Router::new()
        .route("/v1/models", get(models))
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

async fn chat(State(server): State<Server>, headers: HeaderMap, body: Read) -> Response {
    server.answered(Endpoint::Chat, &headers, body).await
}

async fn completions(State(server): State<Server>, headers: HeaderMap, body: Read) -> Response {
    server.answered(Endpoint::Completions, &headers, body).await
}

/// A body, or why it could not be read.
type Read = Result<Bytes, BytesRejection>;

/// Why a request gets no answer.
enum Failed {
    Wrong(Wrong),
    NoModel(String),
    Busy,
    Refused(String),
    Gone(String),
}

impl Failed {
    fn response(&self) -> Response {
        let (status, body) = self.parts();
        json_of(status, &body)
    }

    fn parts(&self) -> (StatusCode, Value) {
        let invalid = "invalid_request_error";
        match self {
            Failed::Wrong(Wrong { param, what }) => {
                let body = reply::error(invalid, what, param.as_deref());
                (StatusCode::BAD_REQUEST, body)
            }
            Failed::NoModel(what) => {
                let body = reply::error(invalid, what, Some("model"));
                (StatusCode::NOT_FOUND, body)
            }
            Failed::Busy => {
                let what = "too many requests wait for an answer; try again later";
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    reply::error("server_error", what, None),
                )
            }
            Failed::Refused(what) => (StatusCode::BAD_REQUEST, reply::error(invalid, what, None)),
            Failed::Gone(what) => {
                let what = format!("the model's process is gone: {what}; restart llmtui serve");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    reply::error("server_error", &what, None),
                )
            }
        }
    }
}

impl From<NotTaken> for Failed {
    fn from(why: NotTaken) -> Failed {
        match why {
            NotTaken::Busy => Failed::Busy,
            NotTaken::Gone => Failed::Gone("it ended earlier".into()),
        }
    }
}

/// A request that is to be answered: each job gives one answer.
struct Accepted {
    head: Head,
    /// (prompt, sampling) of each answer, in the order of the answers.
    jobs: Vec<(Prompt, Sampling)>,
    /// Answers to each prompt.
    n: u64,
    adapter: Option<String>,
    stream: bool,
    usage_in_stream: bool,
}

impl Server {
    fn seconds(&self) -> u64 {
        self.clock.now().0 / 1000
    }

    async fn answered(&self, endpoint: Endpoint, headers: &HeaderMap, body: Read) -> Response {
        let body = match body {
            Ok(body) => body,
            Err(why) => {
                let what = format!("the body cannot be read: {}", why.body_text());
                return refusal(why.status(), "invalid_request_error", &what, None);
            }
        };
        match self.accept(endpoint, headers, &body) {
            Err(failed) => failed.response(),
            Ok(accepted) if accepted.stream => self.streamed(accepted),
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
        let asked = request::read(endpoint, body, &self.defaults, self.limited);
        let asked = asked.map_err(Failed::Wrong)?;
        let about = self.model.about();
        if endpoint == Endpoint::Chat && !about.template {
            let what = "this model has no chat template: use /v1/completions".to_string();
            return Err(Failed::Wrong(Wrong { param: None, what }));
        }
        let name = asked
            .model
            .clone()
            .unwrap_or_else(|| about.names[0].clone());
        let adapter = self.model.adapter_named(&name).ok_or_else(|| {
            let known = about.names.join(", ");
            Failed::NoModel(format!(
                "model: there is no {}; there is {known}",
                one_line(&name)
            ))
        })?;
        Ok(Accepted {
            head: Head::new(endpoint, self.seconds(), name, asked.logprobs),
            n: asked.n,
            stream: asked.stream,
            usage_in_stream: asked.usage_in_stream,
            jobs: jobs(asked),
            adapter,
        })
    }

    /// All answers, one after the other.
    async fn whole(&self, accepted: &Accepted) -> Result<Value, Failed> {
        let mut choices = Vec::new();
        let mut usage = Usage::default();
        for index in 0..accepted.jobs.len() {
            let mut answer = self.begin(accepted, index)?;
            let (mut text, mut tokens) = (String::new(), Vec::new());
            let reason = loop {
                match answer.next().await? {
                    Step::Token(token) => {
                        text.push_str(&token.text);
                        tokens.push(token);
                    }
                    Step::End(reason) => break reason,
                }
            };
            usage.add(answer.usage);
            choices.push(Choice {
                index: index as u64,
                text,
                tokens,
                reason,
            });
        }
        Ok(accepted.head.whole(choices, usage))
    }

    fn begin<'a>(&self, accepted: &'a Accepted, index: usize) -> Result<Answer<'a>, Failed> {
        let (prompt, sampling) = accepted.jobs[index].clone();
        let pieces = self.model.answer(Job {
            prompt,
            sampling,
            adapter: accepted.adapter.clone(),
        })?;
        Ok(Answer {
            head: &accepted.head,
            is_first: (index as u64).is_multiple_of(accepted.n),
            pieces,
            at: 0,
            usage: Usage::default(),
        })
    }

    /// Server-sent events, written by a task of their own. A reader that goes away ends the answer.
    fn streamed(&self, accepted: Accepted) -> Response {
        let (send, events) = mpsc::channel::<String>(EVENTS);
        let server = self.clone();
        tokio::spawn(async move {
            let last = match server.all_events(&accepted, &send).await {
                Ok(true) => "[DONE]".to_string(),
                Ok(false) => return,
                Err(failed) => failed.parts().1.to_string(),
            };
            let _ = send.send(last).await;
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
        send: &mpsc::Sender<String>,
    ) -> Result<bool, Failed> {
        let head = &accepted.head;
        let put = |value: Value| {
            let sent = send.send(value.to_string());
            async { sent.await.is_ok() }
        };
        let mut usage = Usage::default();
        for index in 0..accepted.jobs.len() {
            let choice = index as u64;
            if let Some(opening) = head.opening(choice)
                && !put(opening).await
            {
                return Ok(false);
            }
            let mut answer = self.begin(accepted, index)?;
            loop {
                match answer.next().await? {
                    Step::Token(token) if put(head.piece(choice, &token)).await => {}
                    Step::End(reason) if put(head.closing(choice, reason)).await => break,
                    _ => return Ok(false),
                }
            }
            usage.add(answer.usage);
        }
        Ok(!accepted.usage_in_stream || put(head.used(usage)).await)
    }
}

/// An answer while it is written. Dropping it ends it.
struct Answer<'a> {
    head: &'a Head,
    /// The first one to its prompt, whose tokens it counts.
    is_first: bool,
    pieces: mpsc::Receiver<Piece>,
    /// Characters so far.
    at: usize,
    /// Of the whole answer, once it has ended.
    usage: Usage,
}

enum Step {
    Token(Token),
    End(StopReason),
}

impl Answer<'_> {
    async fn next(&mut self) -> Result<Step, Failed> {
        match self.pieces.recv().await {
            Some(Piece::Token { text, logprob }) => {
                let at = self.at;
                self.at += text.chars().count();
                Ok(Step::Token(Token { text, logprob, at }))
            }
            Some(Piece::Done {
                reason,
                n_tokens,
                prompt_tokens,
                seconds,
            }) => {
                log(self.head, n_tokens, prompt_tokens, seconds);
                self.usage = Usage {
                    prompt: if self.is_first { prompt_tokens } else { 0 },
                    completion: n_tokens,
                };
                Ok(Step::End(reason))
            }
            Some(Piece::Refused(why)) => Err(Failed::Refused(why)),
            Some(Piece::Gone(why)) => Err(Failed::Gone(why)),
            None => Err(Failed::Gone("it ended during the answer".into())),
        }
    }
}

/// Each prompt `n` times, with seeds one after the other.
fn jobs(asked: Asked) -> Vec<(Prompt, Sampling)> {
    let mut jobs = Vec::new();
    for prompt in asked.prompts {
        for _ in 0..asked.n {
            let seed = asked.sampling.seed.wrapping_add(jobs.len() as u64);
            let sampling = Sampling {
                seed,
                ..asked.sampling.clone()
            };
            jobs.push((prompt.clone(), sampling));
        }
    }
    jobs
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let kind = said.map(|said| said.split(';').next().unwrap_or_default().trim());
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

fn json_of(status: StatusCode, value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, value.to_string()).into_response()
}

fn refusal(status: StatusCode, kind: &str, what: &str, param: Option<&str>) -> Response {
    json_of(status, &reply::error(kind, what, param))
}

/// One line for each answer.
fn log(head: &Head, n_tokens: u64, prompt_tokens: u64, seconds: f64) {
    let speed = match seconds > 0.0 {
        true => format!(" · {} tok/s", human::short(n_tokens as f64 / seconds)),
        false => String::new(),
    };
    errln!(
        "{} · {} · prompt {}{speed}",
        head.id,
        human::counted(n_tokens, "token"),
        human::counted(prompt_tokens, "token")
    );
}
