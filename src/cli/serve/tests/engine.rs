//! A scripted engine.

use super::*;

/// Tokens of an answer that only ends when it is cancelled.
pub(super) const ENDLESS: &str = "endless";

/// A prompt that the model cannot compute.
pub(super) const BREAKS: &str = "break";

/// A prompt that ends the engine.
pub(super) const DIES: &str = "die";

/// A prompt that begins so is written as it is: messages, as gpt-oss has them.
pub(super) const CHANNEL: &str = "<|channel|>";

/// So is one with this mark: a thought, which the prompt has begun where the answer does not.
pub(super) const THOUGHT_END: &str = "</think>";

/// An engine that answers with its prompt's letters, reversed; with those in their order where there are tools.
pub(super) fn engine(
    template: Option<&str>,
    adapters: &[&str],
) -> (Link, std_mpsc::Receiver<Command>) {
    let (send, incoming) = mpsc::channel(64);
    let (commands, mut inbox) = mpsc::channel(4);
    let link = Link::new(incoming, Some(commands));
    let loaded = loaded(template, adapters, None);
    let (seen, asked) = std_mpsc::channel();
    std::thread::spawn(move || {
        let say = |event| say(&send, event);
        say(loaded);
        while let Some(request) = inbox.blocking_recv() {
            let _ = seen.send(request.command.clone());
            match request.command {
                Command::UseAdapter { name } => say(Event::AdapterUsed {
                    command: request.id,
                    name,
                }),
                Command::Generate {
                    prompt,
                    sampling,
                    wanted,
                } => {
                    let text = said(&prompt);
                    if text == DIES {
                        let why = Some("llmtui: out of memory".into());
                        let _ = send.blocking_send(Incoming::Closed(why));
                        return;
                    }
                    if text == "refuse" {
                        say(Event::Rejected {
                            id: request.id,
                            why: "it is too long".into(),
                        });
                        continue;
                    }
                    if text == BREAKS {
                        say(broken(
                            request.id,
                            "the model cannot compute: out of memory",
                        ));
                        continue;
                    }
                    let token = |text: String| Event::Token {
                        command: request.id,
                        logprob: Num(-0.5),
                        entropy: None,
                        id: Some(7),
                        bytes: wanted.logprobs.map(|_| text.clone().into_bytes()),
                        top: alternatives(wanted.logprobs.unwrap_or(0)),
                        text,
                    };
                    let mut reason = StopReason::Stop;
                    if text == ENDLESS {
                        reason = StopReason::Cancelled;
                        while inbox.try_recv().is_err() {
                            say(token("x".into()));
                        }
                        let _ = seen.send(Command::Cancel { target: request.id });
                    }
                    if wanted.prompt_logprobs {
                        let token = |(at, c): (usize, char)| PromptToken {
                            id: 5,
                            bytes: c.to_string().into_bytes(),
                            logprob: (at > 0).then_some(Num(-0.25)),
                            top: alternatives(if at > 0 {
                                wanted.logprobs.unwrap_or(0)
                            } else {
                                0
                            }),
                        };
                        say(Event::PromptScored {
                            command: request.id,
                            tokens: text.chars().enumerate().map(token).collect(),
                        });
                    }
                    let mut letters: Vec<char> = text.chars().rev().collect();
                    if text.starts_with(CHANNEL) {
                        letters.reverse();
                        let end = "<|start|>user<|message|>a<|end|><|start|>assistant";
                        say(Event::Prompted {
                            command: request.id,
                            text: end.into(),
                            prompt_tokens: 3,
                            tool_calls: Some("harmony".into()),
                        });
                    } else if text.contains(THOUGHT_END) {
                        letters.reverse();
                        let word = match text.starts_with("<think>") {
                            true => "think+hermes",
                            false => "thinking+hermes",
                        };
                        say(Event::Prompted {
                            command: request.id,
                            text: "rendered".into(),
                            prompt_tokens: 3,
                            tool_calls: Some(word.into()),
                        });
                    } else if matches!(prompt, Prompt::WithTools { .. }) {
                        letters.reverse();
                        say(Event::Prompted {
                            command: request.id,
                            text: text.clone(),
                            prompt_tokens: 3,
                            tool_calls: Some("hermes".into()),
                        });
                    }
                    if letters.len() > sampling.max_new_tokens {
                        letters.truncate(sampling.max_new_tokens);
                        reason = StopReason::Length;
                    }
                    for letter in letters {
                        say(token(letter.to_string()));
                    }
                    say(ended(request.id, text.len() as u64, reason));
                }
                _ => {}
            }
        }
    });
    (link, asked)
}

/// What a link brings of an event.
pub(super) fn say(send: &mpsc::Sender<Incoming>, event: Event) {
    let envelope = Envelope {
        v: VERSION,
        seq: 1,
        t: UnixMillis(0),
        event,
    };
    let _ = send.blocking_send(Incoming::Event(Box::new(envelope)));
}

pub(super) fn ended(command: u64, n_tokens: u64, reason: StopReason) -> Event {
    Event::Generated {
        command,
        n_tokens,
        prompt_tokens: 3,
        kept_tokens: 0,
        seconds: 0.5,
        prefill_seconds: 0.1,
        reason,
        message: String::new(),
        broken: false,
    }
}

pub(super) fn broken(command: u64, why: &str) -> Event {
    let mut event = ended(command, 0, StopReason::Failed);
    if let Event::Generated {
        message, broken, ..
    } = &mut event
    {
        (*message, *broken) = (why.into(), true);
    }
    event
}

pub(super) fn loaded(template: Option<&str>, adapters: &[&str], parallel: Option<u64>) -> Event {
    Event::Loaded {
        architecture: "llama".into(),
        n_params: 1,
        vocab_size: 1,
        context: 64,
        template: template.map(String::from),
        quantized: None,
        kv_cache: None,
        seconds: 0.1,
        notes: Vec::new(),
        adapters: adapters.iter().map(|a| (*a).to_string()).collect(),
        stop: Vec::new(),
        trained_by: None,
        parallel,
    }
}

/// The first is a part of a character, and the second its other part.
pub(super) fn alternatives(n: usize) -> Vec<LikelyToken> {
    let of = |(id, bytes): (u32, &[u8])| LikelyToken {
        id,
        logprob: Num(-0.125 * f64::from(id)),
        bytes: bytes.to_vec(),
    };
    let all: [(u32, &[u8]); 3] = [(1, &[0xc3]), (2, &[0xa4]), (3, b"z")];
    all.into_iter().map(of).take(n).collect()
}

pub(super) fn said(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(ids) => format!("{ids:?}"),
        Prompt::Turns(messages) | Prompt::WithTools { messages, .. } => messages
            .last()
            .map(|turn| turn.content.clone())
            .unwrap_or_default(),
    }
}
