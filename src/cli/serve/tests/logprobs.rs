//! Log-probabilities of tokens, also of a prompt's.

use super::*;

#[test]
fn tokens_have_alternatives_with_the_bytes_of_parts_of_characters() {
    let server = served(Some("t"), &[], None);
    let (_, reply) = server.chat(&json!({"logprobs": true, "top_logprobs": 2}));
    let first = &reply["choices"][0]["logprobs"]["content"][0];
    assert_eq!(
        (&first["token"], &first["bytes"]),
        (&json!("c"), &json!([99]))
    );
    let top = json!([
        {"token": "bytes:\\xc3", "logprob": -0.125, "bytes": [0xc3]},
        {"token": "bytes:\\xa4", "logprob": -0.25, "bytes": [0xa4]},
    ]);
    assert_eq!(first["top_logprobs"], top);
    let asked = json!({"prompt": "abz", "logprobs": 3});
    let (_, reply) = server.post("/v1/completions", &asked);
    let logprobs = &reply["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["z", "b", "a"]));
    let with_itself = json!({"bytes:\\xc3": -0.125, "bytes:\\xa4": -0.25, "z": -0.375, "b": -0.5});
    assert_eq!(logprobs["top_logprobs"][1], with_itself);
    let once = &logprobs["top_logprobs"][0];
    assert_eq!(once["z"], -0.375, "of two of the same text the likelier");
}

/// As lm-evaluation-harness asks for the log-likelihood of an answer, and reads it.
#[test]
fn an_echo_has_the_log_probabilities_of_the_prompt() {
    let server = served(None, &[], None);
    let asked = json!({"prompt": ["xä", [1, 2]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true});
    let (status, reply) = server.post("/v1/completions", &asked);
    assert_eq!(status, 200, "{reply}");
    let choice = &reply["choices"][0];
    assert_eq!(choice["text"], "xää", "the prompt, and one token");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["x", "ä", "ä"]));
    assert_eq!(logprobs["token_logprobs"], json!([null, -0.25, -0.5]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    assert_eq!(logprobs["top_logprobs"][0], Value::Null);
    assert_eq!(
        logprobs["top_logprobs"][1],
        json!({"bytes:\\xc3": -0.125, "ä": -0.25})
    );
    // The scripted engine's text for token ids is their list.
    assert_eq!(reply["choices"][1]["text"], "[1, 2]]");
    let Command::Generate { prompt, wanted, .. } = server.commands.try_iter().nth(1).unwrap()
    else {
        panic!("the engine was asked for something else");
    };
    assert_eq!(
        (prompt, wanted.logprobs, wanted.prompt_logprobs),
        (Prompt::Tokens(vec![1, 2]), Some(1), true)
    );
    let nothing_new = json!({"prompt": "ab", "max_tokens": 0, "logprobs": 0, "echo": true});
    let (_, reply) = server.post("/v1/completions", &nothing_new);
    let choice = &reply["choices"][0];
    assert_eq!(
        (&choice["text"], &choice["finish_reason"]),
        (&json!("ab"), &json!("length"))
    );
    assert_eq!(choice["logprobs"]["token_logprobs"], json!([null, -0.25]));
    assert_eq!(choice["logprobs"]["top_logprobs"], Value::Null);
    let without = json!({"prompt": "ab", "max_tokens": 1, "echo": true});
    let (_, reply) = server.post("/v1/completions", &without);
    assert_eq!(reply["choices"][0]["text"], "abb");
}
