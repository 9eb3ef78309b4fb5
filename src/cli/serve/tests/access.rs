//! Who may ask.

use super::*;

#[test]
fn pages_of_other_sites_get_no_answer() {
    let server = served(None, &[], None);
    for (headers, status) in [
        ("Origin: http://localhost:3000\r\n", 200),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        let (found, _) = server.ask("GET", "/v1/models", headers, "");
        assert_eq!(found, status, "{headers}");
    }
    let mut stream = TcpStream::connect(server.at).unwrap();
    let asked = "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    stream.write_all(asked.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
}

#[test]
fn a_server_with_a_key_answers_nobody_without_it() {
    let server = served(Some("t"), &[], Some("secret"));
    let asked = body(&json!({})).to_string();
    for headers in ["", "Authorization: Bearer wrong\r\n"] {
        let headers = format!("{JSON}{headers}");
        let (status, text) = server.ask("POST", "/v1/chat/completions", &headers, &asked);
        assert_eq!(status, 401, "{text}");
    }
    assert_eq!(server.ask("GET", "/v1/models", "", "").0, 401);
    assert_eq!(
        server.ask("GET", "/health", "", "").0,
        200,
        "it says nothing about the model"
    );
    let headers = format!("{JSON}Authorization: Bearer secret\r\n");
    let (status, _) = server.ask("POST", "/v1/chat/completions", &headers, &asked);
    assert_eq!(status, 200);
}
