//! The bodies of replies, in the shapes of OpenAI's API.

use super::request::Endpoint;
use crate::wire::StopReason;
use serde_json::{Value, json};

/// What all parts of a reply share.
#[derive(Debug, Clone)]
pub struct Head {
    pub endpoint: Endpoint,
    /// `chatcmpl-…` or `cmpl-…`.
    pub id: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    pub model: String,
    pub logprobs: bool,
}

impl Head {
    pub fn new(endpoint: Endpoint, created: u64, model: String, logprobs: bool) -> Head {
        let kind = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completions => "cmpl",
        };
        Head {
            endpoint,
            id: format!("{kind}-{:016x}", crate::run::id::random()),
            created,
            model,
            logprobs,
        }
    }

    /// The whole reply.
    pub fn whole(&self, choices: Vec<Choice>, usage: Usage) -> Value {
        let choices: Vec<Value> = choices.into_iter().map(|c| self.choice(c)).collect();
        let mut body = self.around(choices, false);
        body["usage"] = usage.json();
        body
    }

    fn around(&self, choices: Vec<Value>, is_chunk: bool) -> Value {
        let object = match (self.endpoint, is_chunk) {
            (Endpoint::Chat, false) => "chat.completion",
            (Endpoint::Chat, true) => "chat.completion.chunk",
            (Endpoint::Completions, _) => "text_completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn choice(&self, choice: Choice) -> Value {
        let logprobs = self.logprobs_of(&choice.tokens);
        let mut value = match self.endpoint {
            Endpoint::Chat => json!({
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text},
            }),
            Endpoint::Completions => json!({"index": choice.index, "text": choice.text}),
        };
        value["logprobs"] = logprobs;
        value["finish_reason"] = finish_reason(choice.reason).into();
        value
    }

    /// The first chunk of an answer in a stream; completions have none.
    pub fn opening(&self, index: u64) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        (self.endpoint == Endpoint::Chat).then(|| self.around(vec![choice], true))
    }

    /// A token's chunk.
    pub fn piece(&self, index: u64, token: &Token) -> Value {
        let mut choice = match self.endpoint {
            Endpoint::Chat => json!({"index": index, "delta": {"content": token.text}}),
            Endpoint::Completions => json!({"index": index, "text": token.text}),
        };
        choice["logprobs"] = self.logprobs_of(std::slice::from_ref(token));
        choice["finish_reason"] = Value::Null;
        self.around(vec![choice], true)
    }

    /// The chunk that ends an answer.
    pub fn closing(&self, index: u64, reason: StopReason) -> Value {
        let mut choice = match self.endpoint {
            Endpoint::Chat => json!({"index": index, "delta": {}}),
            Endpoint::Completions => json!({"index": index, "text": ""}),
        };
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish_reason(reason).into();
        self.around(vec![choice], true)
    }

    /// The last chunk, where it is asked for.
    pub fn used(&self, usage: Usage) -> Value {
        let mut body = self.around(Vec::new(), true);
        body["usage"] = usage.json();
        body
    }

    fn logprobs_of(&self, tokens: &[Token]) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        // Text without a token of its own has no probability.
        let known = tokens.iter().filter(|token| token.logprob.is_some());
        match self.endpoint {
            Endpoint::Chat => {
                let content = known.map(|token| {
                    json!({
                        "token": token.text,
                        "logprob": token.logprob,
                        "bytes": token.text.as_bytes(),
                        "top_logprobs": [],
                    })
                });
                json!({"content": content.collect::<Vec<_>>()})
            }
            Endpoint::Completions => {
                let known: Vec<&Token> = known.collect();
                json!({
                    "tokens": known.iter().map(|token| &token.text).collect::<Vec<_>>(),
                    "token_logprobs": known.iter().map(|token| token.logprob).collect::<Vec<_>>(),
                    "top_logprobs": null,
                    "text_offset": known.iter().map(|token| token.at).collect::<Vec<_>>(),
                })
            }
        }
    }
}

/// A token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub text: String,
    pub logprob: Option<f64>,
    /// Characters of the answer before it.
    pub at: usize,
}

/// A finished answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub index: u64,
    pub text: String,
    pub tokens: Vec<Token>,
    pub reason: StopReason,
}

/// Tokens of a request and its answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Each prompt counted once, however many answers it has.
    pub prompt: u64,
    pub completion: u64,
}

impl Usage {
    pub fn add(&mut self, other: Usage) {
        self.prompt += other.prompt;
        self.completion += other.completion;
    }

    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        })
    }
}

fn finish_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Stop => "stop",
        // The context's end is a length, too.
        StopReason::Length | StopReason::Context | StopReason::Cancelled | StopReason::Failed => {
            "length"
        }
    }
}

/// The body of an error. `kind` is OpenAI's: `invalid_request_error`, `server_error` …
pub fn error(kind: &str, what: &str, param: Option<&str>) -> Value {
    json!({"error": {"message": what, "type": kind, "param": param, "code": null}})
}

/// The list of models.
pub fn models(names: &[String], created: u64) -> Value {
    let all: Vec<Value> = names.iter().map(|name| model(name, created)).collect();
    json!({"object": "list", "data": all})
}

/// One of them.
pub fn model(name: &str, created: u64) -> Value {
    json!({"id": name, "object": "model", "created": created, "owned_by": "llmtui"})
}
