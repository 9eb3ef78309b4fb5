//! The answers to one request, as many at once as the model writes: whole, or as a stream of events.

use super::answer::{Answer, CallsRead, Echo, Step};
use super::failed::Failed;
use super::model::Job;
use super::reply::{Choice, Finish, Usage};
use super::request::Endpoint;
use super::routes::{Accepted, Server};
use crate::base::sampling::Sampling;
use crate::data::chat::tool_calls::Tools;
use crate::wire::{Prompt, Wanted};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::Value;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc::{self, error::SendTimeoutError};

/// Events of a stream that wait for a slow reader.
const EVENTS: usize = 64;

/// A part of the answer of this number, and what that has used so far.
type Part = (u64, Result<Step, Failed>, Usage);

impl Server {
    /// All answers as one value.
    pub async fn whole(&self, accepted: Accepted) -> Result<Value, Failed> {
        let mut choices: Vec<Choice> = (0..accepted.answers()).map(Choice::new).collect();
        let mut usage = Usage::default();
        let accepted = Arc::new(accepted);
        let mut parts = self.parts(&accepted);
        while let Some((index, step, used)) = parts.next().await {
            let choice = &mut choices[index as usize];
            match step? {
                Step::Token(token) => choice.push(token),
                Step::Call(call) => choice.calls.push(call),
                Step::End(finish) => {
                    choice.finish = finish;
                    usage.add(used);
                }
            }
        }
        Ok(accepted.head.whole(choices, usage))
    }

    /// Parts of all answers as they come. Others begin as answers end, so that a request of many does not stand before all others;
    /// dropping the stream ends those that have begun.
    fn parts(&self, accepted: &Arc<Accepted>) -> BoxStream<'static, Part> {
        let (server, accepted) = (self.clone(), Arc::clone(accepted));
        let parallel = server.model.about().parallel;
        let answers = stream::iter(0..accepted.answers()).map(move |index| {
            let answer = server.begin(&accepted, index);
            let parts = stream::unfold(Some(answer), move |answer| async move {
                let mut answer = answer?;
                let step = answer.next().await;
                let is_last = !matches!(step, Ok(Step::Token(_) | Step::Call(_)));
                let part = (index, step, answer.usage);
                Some((part, (!is_last).then_some(answer)))
            });
            parts.boxed()
        });
        answers.flatten_unordered(parallel).boxed()
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
                json_schema: accepted.json_schema.clone().map(Box::new),
                calls: accepted.calls.held.clone(),
                template: Box::new(accepted.template.clone()),
                repeatable: accepted.repeatable,
            },
            prompt: prompt.clone(),
            sampling: Sampling {
                seed: accepted.sampling.seed.wrapping_add(index),
                ..accepted.sampling.clone()
            },
            adapter: accepted.adapter.clone(),
        };
        let tools = match &job.prompt {
            Prompt::WithTools { tools, .. } => Some(Tools::new(tools.clone())),
            _ => None,
        };
        let calls =
            matches!(job.prompt, Prompt::WithTools { .. } | Prompt::Turns(_)).then(|| CallsRead {
                tools,
                several: accepted.calls.several,
                end: match accepted.calls.is_named {
                    true => Finish::Stop,
                    false => Finish::ToolCalls,
                },
            });
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
    /// ends the answers, and so does one that takes nothing for too long.
    pub async fn streamed(&self, accepted: Accepted) -> Response {
        let accepted = Arc::new(accepted);
        let mut parts = self.parts(&accepted);
        let first = match parts.next().await {
            Some((_, Err(failed), _)) => return failed.response(),
            Some(first) => first,
            None => return Failed::Slow.response(),
        };
        let parts = stream::iter([first]).chain(parts).boxed();
        let (send, events) = mpsc::channel::<String>(EVENTS);
        let server = self.clone();
        tokio::spawn(async move {
            // There is always room for the last event.
            let Ok(end) = send.clone().reserve_owned().await else {
                return;
            };
            let last = match server.all_events(&accepted, parts, &send).await {
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
        mut parts: BoxStream<'static, Part>,
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
        // Calls of each answer that has begun.
        let mut calls: HashMap<u64, usize> = HashMap::new();
        loop {
            let part = tokio::select! {
                part = parts.next() => part,
                () = send.closed() => return Ok(false),
            };
            let Some((index, step, used)) = part else {
                break;
            };
            let is_new = !calls.contains_key(&index);
            let calls = calls.entry(index).or_default();
            if let Some(opening) = head.opening(index).filter(|_| is_new)
                && !put(opening).await?
            {
                return Ok(false);
            }
            let event = match step? {
                // What may begin a call is held back.
                Step::Token(token) if token.text.is_empty() && head.logprobs.is_none() => continue,
                Step::Token(token) => head.piece(index, &token),
                Step::Call(call) => {
                    *calls += 1;
                    head.call(index, *calls - 1, &call)
                }
                Step::End(finish) => {
                    usage.add(used);
                    head.closing(index, finish)
                }
            };
            if !put(event).await? {
                return Ok(false);
            }
        }
        Ok(!accepted.usage_in_stream || put(head.used(usage)).await?)
    }
}
