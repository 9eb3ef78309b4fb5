//! What is refused, and what breaks.

use super::*;

#[test]
fn what_cannot_be_answered_says_why() {
    let server = served(None, &[], None);
    let chat = server.chat(&json!({}));
    assert_eq!(
        error(&chat),
        (400, "this model has no chat template: use /v1/completions")
    );
    let refused = server.post("/v1/completions", &json!({"prompt": "refuse"}));
    assert_eq!(error(&refused), (400, "it is too long"));
    let broken = server.post("/v1/completions", &json!({"prompt": BREAKS}));
    assert_eq!(
        error(&broken),
        (500, "the model cannot compute: out of memory")
    );
    assert_eq!(broken.1["error"]["type"], "server_error");
    for (method, path, headers, body, status, part) in [
        (
            "POST",
            "/v1/completions",
            "",
            "{}",
            400,
            "-H 'Content-Type: application/json'",
        ),
        ("POST", "/v1/completions", JSON, "{", 400, "not JSON"),
        ("GET", "/v1/completions", "", "", 405, "does not take GET"),
        (
            "POST",
            "/v1/embeddings",
            JSON,
            "{}",
            404,
            "there is no POST /v1/embeddings",
        ),
    ] {
        let (found, text) = server.ask(method, path, headers, body);
        assert_eq!(found, status, "{text}");
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_stream_that_is_refused_has_the_status_of_the_refusal() {
    let server = served(None, &[], None);
    let asked = json!({"prompt": "refuse", "stream": true});
    let refused = server.post("/v1/completions", &asked);
    assert_eq!(error(&refused), (400, "it is too long"));
    let long = json!({"prompt": "a".repeat(1 << 20), "stream": true});
    let refused = server.post("/v1/completions", &long);
    let (status, what) = error(&refused);
    assert_eq!(status, 400);
    assert!(what.contains("too long to send"), "{what}");
    let (status, _) = server.post("/v1/completions", &json!({"prompt": "next"}));
    assert_eq!(status, 200);
}

#[test]
fn a_model_whose_process_is_gone_is_said_to_be_in_every_reply() {
    let server = served(None, &[], None);
    for _ in 0..2 {
        let reply = server.post("/v1/completions", &json!({"prompt": DIES}));
        let (status, what) = error(&reply);
        assert_eq!(status, 500);
        assert!(
            what.contains("the model's process is gone: out of memory"),
            "{what}"
        );
    }
}
