//! One JSON object per line. Lines are bounded: a peer cannot make us buffer more than [`MAX_LINE`] bytes.

use super::event::Values;
use super::{Envelope, Event, Request, VERSION};
use crate::base::clock::UnixMillis;
use crate::base::text::quiet_json;
use serde::Deserialize;

/// Longest accepted line in bytes, without the newline.
pub const MAX_LINE: usize = 1 << 20;

/// Why a line is not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("the line has {0} bytes, more than the limit of {MAX_LINE}")]
    TooLong(usize),
    #[error(
        "the peer uses wire version {0}, this program supports up to {VERSION}; update llmtui on this machine"
    )]
    Version(u32),
    #[error("not a wire message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// One line, newline included. Shown raw, with `cat` or `--json`, it cannot control the terminal.
pub fn encode<T: serde::Serialize>(message: &T) -> String {
    match serde_json::to_string(message) {
        Ok(line) => {
            let mut line = quiet_json(line);
            line.push('\n');
            line
        }
        // Only maps with non-string keys can fail, and the wire has none; readers skip empty lines.
        Err(_) => String::from("\n"),
    }
}

/// Reads one event line.
///
/// # Errors
/// A line that is not a JSON envelope, or of a newer version.
pub fn decode_envelope(line: &str) -> Result<Envelope, DecodeError> {
    let envelope = match step(line) {
        Some(envelope) => envelope,
        None => decode(line)?,
    };
    if envelope.v > VERSION {
        return Err(DecodeError::Version(envelope.v));
    }
    Ok(envelope)
}

/// Reads one command line.
///
/// # Errors
/// A line that is not a JSON command.
pub fn decode_command(line: &str) -> Result<Request, DecodeError> {
    decode(line)
}

/// The line of a step, parsed in one pass: nearly all lines of a log are steps, and for the generic path an event of unknown kind
/// is copied before it is parsed. `None` for any other line, and for one that differs from what [`encode`] writes.
fn step(line: &str) -> Option<Envelope> {
    const IS: &str = "\"event\":{\"type\":\"Stepped\",";
    #[derive(Deserialize)]
    struct Line {
        v: u32,
        seq: u64,
        t: UnixMillis,
        event: Stepped,
    }
    #[derive(Deserialize)]
    struct Stepped {
        step: u64,
        tokens: u64,
        values: Values,
    }
    // `v`, `seq` and `t` precede it, in about 60 bytes.
    let head = line.as_bytes().get(..line.len().min(128))?;
    let is_step = head.windows(IS.len()).any(|w| w == IS.as_bytes());
    if !is_step || line.len() > MAX_LINE {
        return None;
    }
    let line: Line = serde_json::from_str(line).ok()?;
    let Stepped {
        step,
        tokens,
        values,
    } = line.event;
    Some(Envelope {
        v: line.v,
        seq: line.seq,
        t: line.t,
        event: Event::Stepped {
            step,
            tokens,
            values,
        },
    })
}

fn decode<T: serde::de::DeserializeOwned>(line: &str) -> Result<T, DecodeError> {
    if line.len() > MAX_LINE {
        return Err(DecodeError::TooLong(line.len()));
    }
    Ok(serde_json::from_str(line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::base::finding::{Finding, Signal, Status};
    use crate::wire::{Command, Event, Num, StopReason};

    #[test]
    fn answers_of_older_programs_did_not_fail_to_compute() {
        let line = |broken: bool| {
            encode(&Envelope {
                v: VERSION,
                seq: 1,
                t: UnixMillis(5),
                event: Event::Generated {
                    command: 1,
                    n_tokens: 2,
                    prompt_tokens: 3,
                    kept_tokens: 0,
                    seconds: 0.5,
                    prefill_seconds: 0.25,
                    reason: StopReason::Failed,
                    message: "too long".into(),
                    broken,
                },
            })
        };
        assert!(!line(false).contains("broken"), "{}", line(false));
        for expected in [false, true] {
            let read = decode_envelope(line(expected).trim_end()).unwrap();
            assert!(matches!(read.event, Event::Generated { broken, .. } if broken == expected));
        }
    }

    #[test]
    fn non_finite_numbers_survive() {
        let event = Event::Stepped {
            step: 3,
            tokens: 9,
            values: [
                ("train/loss".to_string(), Num(f64::INFINITY)),
                ("grad_norm".to_string(), Num(f64::NAN)),
            ]
            .into(),
        };
        let line = encode(&Envelope {
            v: VERSION,
            seq: 1,
            t: UnixMillis(5),
            event,
        });
        assert!(
            line.contains("\"inf\"") && line.contains("\"NaN\""),
            "{line}"
        );
        let Event::Stepped { values, .. } = decode_envelope(&line).unwrap().event else {
            panic!("{line}")
        };
        assert!(values["grad_norm"].0.is_nan());
    }

    #[test]
    fn one_pass_and_generic_decoding_of_a_step_agree() {
        let values = [("train/loss".to_string(), Num(0.1 + 0.2))];
        let line = encode(&Envelope {
            v: VERSION,
            seq: 1 << 40,
            t: UnixMillis(5),
            event: Event::Stepped {
                step: 3,
                tokens: 9,
                values: values.into(),
            },
        });
        assert_eq!(step(&line), decode(&line).ok());
        // Other orders and other kinds use the generic path.
        let turned = line.replace(
            "\"type\":\"Stepped\",\"step\":3",
            "\"step\":3,\"type\":\"Stepped\"",
        );
        assert_eq!(step(&turned), None);
        assert_eq!(decode_envelope(&turned).ok(), decode_envelope(&line).ok());
        let note = r#"{"v":1,"seq":4,"t":7,"event":{"type":"Noted","step":1,"text":"\"event\":{\"type\":\"Stepped\","}}"#;
        assert!(matches!(
            decode_envelope(note).unwrap().event,
            Event::Noted { .. }
        ));
    }

    #[test]
    fn unknown_events_are_kept_verbatim_and_unknown_commands_rejected() {
        let line = r#"{"v":1,"seq":4,"t":7,"event":{"type":"Levitated","height":3}}"#;
        let Event::Unknown(value) = decode_envelope(line).unwrap().event else {
            panic!("known?")
        };
        assert_eq!(value["height"], 3);
        assert!(decode_command(r#"{"id":1,"command":"levitate"}"#).is_err());
    }

    #[test]
    fn findings_round_trip_in_both_events_and_checks_of_old_logs_are_read() {
        let signals = vec![Signal::of("train/loss", f64::INFINITY, "train loss inf").at(7)];
        let finding: Box<Finding> = Finding::fail(signals, "why", "do")
            .named("diverged", "divergence")
            .into();
        for event in [
            Event::Diagnosed {
                step: 7,
                finding: finding.clone(),
            },
            Event::Checked {
                finding,
                seconds: 0.5,
                next: None,
            },
        ] {
            let line = encode(&Envelope {
                v: VERSION,
                seq: 1,
                t: UnixMillis(5),
                event: event.clone(),
            });
            assert_eq!(decode_envelope(&line).unwrap().event, event, "{line}");
        }
        let old = r#"{"v":1,"seq":4,"t":7,"event":{"type":"Checked","id":"disk","title":"room","status":"pass",
            "evidence":"much","hint":"","seconds":0.09}}"#;
        let Event::Checked { finding, .. } = decode_envelope(old).unwrap().event else {
            panic!("unknown?")
        };
        assert_eq!(
            (finding.id.as_str(), finding.status),
            ("disk", Status::Pass)
        );
    }

    #[test]
    fn newer_versions_and_long_lines_are_rejected() {
        let line = r#"{"v":99,"seq":4,"t":7,"event":{"type":"Noted","step":1,"text":"x"}}"#;
        assert!(matches!(
            decode_envelope(line),
            Err(DecodeError::Version(99))
        ));
        assert!(matches!(
            decode_command(&" ".repeat(MAX_LINE + 1)),
            Err(DecodeError::TooLong(_))
        ));
    }

    #[test]
    fn requests_flatten_their_command() {
        let request = Request {
            id: 8,
            command: Command::Adjust {
                key: "lr".into(),
                value: 1e-4,
            },
        };
        let line = encode(&request);
        assert_eq!(
            line.trim(),
            r#"{"id":8,"command":"adjust","key":"lr","value":0.0001}"#
        );
        assert_eq!(decode_command(&line).unwrap(), request);
    }

    #[test]
    fn prompts_of_any_kind_and_what_is_wanted_go_over_the_wire_and_old_lines_are_read() {
        use crate::wire::{LikelyToken, Prompt, Turn, Wanted};
        let line = |prompt: Prompt, wanted: Wanted| {
            let sampling = Default::default();
            let command = Command::Generate {
                prompt,
                sampling,
                wanted,
            };
            let request = Request { id: 1, command };
            let line = encode(&request);
            assert_eq!(decode_command(&line).unwrap(), request, "{line}");
            line
        };
        let plain = line("a".into(), Wanted::default());
        assert!(!plain.contains("wanted"), "{plain}");
        line(Prompt::Tokens(vec![5, 7]), Wanted::default());
        line(
            Prompt::Turns(vec![Turn::new("user", "hi")]),
            Wanted::default(),
        );
        let wanted = Wanted {
            logprobs: Some(3),
            prompt_logprobs: true,
            end_token: true,
            json_schema: Some(Box::new(serde_json::json!({"type": "object"}))),
            calls: Some(crate::wire::Calling {
                required: true,
                function: Some("add".into()),
                one: true,
            }),
            repeatable: true,
            template: Box::new(serde_json::Map::from_iter([(
                "reasoning_effort".to_string(),
                "high".into(),
            )])),
        };
        line("a".into(), wanted);
        let old = r#"{"v":1,"seq":4,"t":7,"event":{"type":"Token","command":1,"text":"x","logprob":-1.0}}"#;
        let mut envelope = decode_envelope(old).unwrap();
        let Event::Token { bytes, top, .. } = &mut envelope.event else {
            panic!("{envelope:?}")
        };
        assert_eq!((bytes.as_ref(), top.len()), (None, 0));
        *bytes = Some(vec![0xf0]);
        top.push(LikelyToken {
            id: 3,
            logprob: Num(f64::NEG_INFINITY),
            bytes: vec![0x9f],
        });
        assert_eq!(decode_envelope(&encode(&envelope)).unwrap(), envelope);
    }
}
