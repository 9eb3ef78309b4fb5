//! Requests that get no answer: why, and the reply that says so.

use super::model::NotTaken;
use super::reply;
use super::request::Wrong;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// Why a request gets no answer.
pub enum Failed {
    Wrong(Wrong),
    NoModel(String),
    Busy,
    Refused(String),
    /// The model could not compute.
    Broken(String),
    /// The client did not read for too long.
    Slow,
    Gone(String),
}

impl Failed {
    pub fn response(&self) -> Response {
        let (status, body) = self.parts();
        json_of(status, &body)
    }

    pub fn parts(&self) -> (StatusCode, Value) {
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
            Failed::Broken(what) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                reply::error("server_error", what, None),
            ),
            Failed::Slow => {
                let what = "the answer was ended: the reader was too slow";
                (
                    StatusCode::REQUEST_TIMEOUT,
                    reply::error("timeout_error", what, None),
                )
            }
            Failed::Gone(what) => {
                let what = format!("the model's process is gone: {what}");
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
            NotTaken::Gone(why) => Failed::Gone(why),
        }
    }
}

pub fn json_of(status: StatusCode, value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, value.to_string()).into_response()
}

pub fn refusal(status: StatusCode, kind: &str, what: &str, param: Option<&str>) -> Response {
    json_of(status, &reply::error(kind, what, param))
}
