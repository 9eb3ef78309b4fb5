//! The hub client against a local test server: requests, cache contents, and the outcome of every kind of failure.

use super::*;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How the server answers one request for a file.
#[derive(Debug, Clone, PartialEq)]
enum Trick {
    None,
    /// Announces the whole body, sends half and disconnects.
    Drop,
    Status(u16),
    /// Ignores a range.
    Whole,
    /// Redirects to the same path at this origin; empty: by path alone, on this one.
    Redirect(String),
}

#[derive(Default)]
struct State {
    /// Name and content.
    files: Vec<(String, Vec<u8>)>,
    /// A wrong hash to announce.
    false_hash: bool,
    tricks: Vec<Trick>,
    list_status: Option<u16>,
    needs_token: Option<&'static str>,
    /// Requests with a token.
    tokens: usize,
    /// Request lines with their range.
    log: Vec<String>,
}

struct Server {
    state: Arc<Mutex<State>>,
    endpoint: String,
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

impl Server {
    /// Serves until the test ends; its thread dies with the process.
    fn start(files: &[(&str, &[u8])]) -> Server {
        let state = Arc::new(Mutex::new(State {
            files: files
                .iter()
                .map(|(n, c)| (n.to_string(), c.to_vec()))
                .collect(),
            ..State::default()
        }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Server { state, endpoint }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    fn log(&self) -> Vec<String> {
        self.state.lock().unwrap().log.clone()
    }

    fn config(&self, cache: &Path) -> HubConfig {
        HubConfig {
            endpoint: self.endpoint.clone(),
            cache: Some(cache.to_path_buf()),
            timeout: Duration::from_secs(5),
            pause: Duration::from_millis(1),
            ..HubConfig::default()
        }
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_string());
    }
    let Some(first) = lines.first() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    let header = |name: &str| {
        let found = lines.iter().find_map(|l| {
            let (key, value) = l.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_string())
        });
        found.unwrap_or_default()
    };
    let range = header("range");
    let mut state = state.lock().unwrap();
    state.log.push(format!("{path} {range}").trim().to_string());
    state.tokens += usize::from(!header("authorization").is_empty());
    if state
        .needs_token
        .is_some_and(|t| header("authorization") != format!("Bearer {t}"))
    {
        return send(&mut stream, 401, "", b"no", None);
    }
    if path.starts_with("/api/") {
        let status = state.list_status.unwrap_or(200);
        let body = listing(&state).to_string();
        return send(&mut stream, status, "", body.as_bytes(), None);
    }
    let name = path
        .split_once(&format!("/resolve/{COMMIT}/"))
        .map(|(_, n)| n);
    let content = state.files.iter().find(|(n, _)| Some(n.as_str()) == name);
    let Some(content) = content.map(|(_, c)| c.clone()) else {
        return send(&mut stream, 404, "", b"", None);
    };
    let trick = match state.tricks.is_empty() {
        true => Trick::None,
        false => state.tricks.remove(0),
    };
    drop(state);
    let from: usize = range
        .strip_prefix("bytes=")
        .and_then(|r| r.trim_end_matches('-').parse().ok())
        .unwrap_or(0);
    let extra = format!(
        "Content-Range: bytes {from}-{}/{}\r\n",
        content.len().saturating_sub(1),
        content.len()
    );
    match trick {
        Trick::Status(status) => send(&mut stream, status, "Retry-After: 0\r\n", b"", None),
        Trick::Redirect(origin) => {
            let place = format!("Location: {origin}{path}\r\n");
            send(&mut stream, 302, &place, b"", None);
        }
        Trick::Whole => send(&mut stream, 200, "", &content, None),
        Trick::Drop => {
            let part = &content[from..];
            let status = if from > 0 { 206 } else { 200 };
            send(&mut stream, status, &extra, part, Some(part.len() / 2));
        }
        Trick::None if from > 0 => send(&mut stream, 206, &extra, &content[from..], None),
        Trick::None => send(&mut stream, 200, "", &content, None),
    }
}

fn send(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8], only: Option<usize>) {
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&body[..only.unwrap_or(body.len())]);
    let _ = stream.flush();
}

fn listing(state: &State) -> serde_json::Value {
    let files = state.files.iter().map(|(name, content)| {
        let sha = if state.false_hash { hash(b"something else") } else { hash(content) };
        match name.ends_with(".md") {
            true => serde_json::json!({"rfilename": name, "size": content.len(), "blobId": sha[..40]}),
            false => serde_json::json!({"rfilename": name, "size": content.len(), "blobId": "ab".repeat(20),
                "lfs": {"sha256": sha, "size": content.len()}}),
        }
    });
    serde_json::json!({"sha": COMMIT, "siblings": files.collect::<Vec<_>>()})
}

fn repo() -> Repo {
    Repo::new(RepoKind::Dataset, "org/name", None).unwrap()
}

fn fetch(config: &HubConfig, name: &str) -> Result<PathBuf, HubError> {
    let hub = Hub::new(config);
    let listing = hub.list(&repo())?;
    hub.fetch(&repo(), &listing, name, &|_, _, _| {})
}

#[test]
fn a_file_is_stored_in_the_shared_layout_and_fetched_once() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(&[("data/a b.jsonl", b"content")]);
    server.set(|s| {
        s.files
            .push(("data/a%20b.jsonl".into(), b"content".to_vec()))
    });
    let config = server.config(cache.path());
    let progress = Mutex::new(Vec::new());
    let hub = Hub::new(&config);
    let list = hub.list(&repo()).unwrap();
    let path = hub
        .fetch(&repo(), &list, "data/a b.jsonl", &|name, done, all| {
            progress.lock().unwrap().push((name.to_string(), done, all));
        })
        .unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    let root = cache.path().join("datasets--org--name");
    assert_eq!(
        path,
        root.join("snapshots").join(COMMIT).join("data/a b.jsonl")
    );
    let target = std::fs::read_link(&path).unwrap();
    assert_eq!(
        target.to_str().unwrap(),
        format!("../../../blobs/{}", hash(b"content"))
    );
    assert_eq!(
        std::fs::read_to_string(root.join("refs/main")).unwrap(),
        COMMIT
    );
    assert_eq!(
        progress.lock().unwrap().last(),
        Some(&("data/a b.jsonl".to_string(), 7, 7))
    );
    let asked = server.log().len();
    assert!(fetch(&config, "data/a b.jsonl").is_ok());
    // The listing is requested again, the file is not.
    assert_eq!(server.log().len(), asked + 1);
}

#[test]
fn a_dropped_connection_resumes_where_it_stopped() {
    let cache = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..100_000u32).flat_map(|i| i.to_le_bytes()).collect();
    let server = Server::start(&[("a.bin", &content)]);
    server.set(|s| s.tricks = vec![Trick::Drop, Trick::Status(503), Trick::Drop]);
    let path = fetch(&server.config(cache.path()), "a.bin").unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    let ranges: Vec<String> = server
        .log()
        .into_iter()
        .filter(|l| l.contains("bytes="))
        .collect();
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    assert!(
        ranges[0].ends_with("bytes=200000-") && ranges[2].ends_with("bytes=300000-"),
        "{ranges:?}"
    );
}

#[test]
fn an_interrupted_download_resumes_later_even_if_ranges_are_ignored() {
    for trick in [Trick::None, Trick::Whole] {
        let cache = tempfile::tempdir().unwrap();
        let server = Server::start(&[("a.bin", b"0123456789")]);
        let partial = cache.path().join("datasets--org--name/blobs");
        std::fs::create_dir_all(&partial).unwrap();
        let partial = partial.join(format!("{}.incomplete", hash(b"0123456789")));
        std::fs::write(&partial, b"0123").unwrap();
        server.set(|s| s.tricks = vec![trick]);
        let path = fetch(&server.config(cache.path()), "a.bin").unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"0123456789");
        assert!(server.log().last().unwrap().ends_with("bytes=4-"));
        assert!(!partial.exists());
    }
}

#[test]
fn rate_limits_and_outages_are_retried_and_finally_reported() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(&[("a.bin", b"x")]);
    server.set(|s| s.tricks = vec![Trick::Status(429), Trick::Status(500)]);
    assert!(fetch(&server.config(cache.path()), "a.bin").is_ok());

    let other = tempfile::tempdir().unwrap();
    server.set(|s| s.list_status = Some(503));
    let error = fetch(&server.config(other.path()), "a.bin").unwrap_err();
    assert!(
        matches!(error, HubError::Status { status: 503, .. }),
        "{error}"
    );
    // With the earlier cache the same outage is not an error.
    let list = Hub::new(&server.config(cache.path()))
        .list(&repo())
        .unwrap();
    assert!(list.from_cache.as_deref().unwrap().contains("503"));
    assert!(fetch(&server.config(cache.path()), "a.bin").is_ok());
}

#[test]
fn redirects_are_followed_and_the_token_goes_only_to_the_hub() {
    for to_another in [true, false] {
        let (cache, hub) = (
            tempfile::tempdir().unwrap(),
            Server::start(&[("a.txt", b"content")]),
        );
        // Another port of the same host.
        let other = Server::start(&[("a.txt", b"content")]);
        let origin = if to_another {
            other.endpoint.clone()
        } else {
            String::new()
        };
        hub.set(|s| {
            s.needs_token = Some("hf_right");
            s.tricks = vec![Trick::Redirect(origin)];
        });
        let mut config = hub.config(cache.path());
        config.token = Secret::new("hf_right");
        let path = fetch(&config, "a.txt").unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"content");
        let seen = |server: &Server| (server.log().len(), server.state.lock().unwrap().tokens);
        assert_eq!(seen(&other), (usize::from(to_another), 0));
        let hubs = if to_another { 2 } else { 3 };
        assert_eq!(seen(&hub), (hubs, hubs));
    }
}

#[test]
fn rejections_explain_what_a_token_would_do() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(&[("a.bin", b"x")]);
    server.set(|s| s.needs_token = Some("hf_right"));
    let mut config = server.config(cache.path());
    let error = fetch(&config, "a.bin").unwrap_err();
    assert!(
        error.to_string().contains("401") && error.hint().contains("HF_TOKEN"),
        "{error}"
    );
    config.token = Secret::new("hf_wrong");
    let error = fetch(&config, "a.bin").unwrap_err();
    assert!(error.hint().contains("another token"), "{}", error.hint());
    config.token = Secret::new("hf_right");
    assert!(fetch(&config, "a.bin").is_ok());
}

#[test]
fn missing_repositories_are_reported_at_once() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(&[("a.bin", b"x")]);
    let config = server.config(cache.path());
    assert!(matches!(
        fetch(&config, "b.bin"),
        Err(HubError::NoFile { .. })
    ));
    server.set(|s| s.list_status = Some(404));
    let before = server.log().len();
    assert!(matches!(
        fetch(&config, "a.bin"),
        Err(HubError::NotFound { .. })
    ));
    assert_eq!(server.log().len(), before + 1);
}

#[test]
fn offline_the_cache_is_used_and_missing_files_are_named() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(&[("a.bin", b"x"), ("b.bin", b"y")]);
    let mut config = server.config(cache.path());
    fetch(&config, "a.bin").unwrap();
    config.offline = true;
    let asked = server.log().len();
    assert!(fetch(&config, "a.bin").is_ok());
    // The full listing is known: a partial cache is not mistaken for all of it.
    let error = fetch(&config, "b.bin").unwrap_err();
    assert!(
        error.to_string().contains("b.bin") && error.to_string().contains("HF_HUB_OFFLINE"),
        "{error}"
    );
    let other = Repo::new(RepoKind::Dataset, "org/other", None).unwrap();
    let error = Hub::new(&config).list(&other).unwrap_err();
    assert!(matches!(error, HubError::NotCached { .. }) && error.hint().contains("online"));
    assert_eq!(server.log().len(), asked);
}

#[test]
fn caches_of_other_programs_are_read() {
    let cache = tempfile::tempdir().unwrap();
    let root = cache.path().join("datasets--org--name");
    let snapshot = root.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(snapshot.join("data")).unwrap();
    std::fs::create_dir_all(root.join("refs")).unwrap();
    std::fs::write(root.join("refs/main"), COMMIT).unwrap();
    std::fs::write(snapshot.join("data/a.jsonl"), "{}").unwrap();
    let config = HubConfig {
        cache: Some(cache.path().to_path_buf()),
        offline: true,
        ..HubConfig::default()
    };
    let list = Hub::new(&config).list(&repo()).unwrap();
    assert_eq!(list.names(), ["data/a.jsonl"]);
    assert!(fetch(&config, "data/a.jsonl").is_ok());
}

#[test]
fn names_outside_the_cache_are_rejected() {
    let cache = tempfile::tempdir().unwrap();
    let evil = "../../../../evil.jsonl";
    let server = Server::start(&[(evil, b"x")]);
    let error = fetch(&server.config(cache.path()), evil).unwrap_err();
    assert!(matches!(error, HubError::BadName(_)), "{error}");
    assert!(Repo::new(RepoKind::Model, "a/../b", None).is_err());
    assert!(Repo::new(RepoKind::Model, "a/b", Some("../../x")).is_err());
}

#[test]
fn content_other_than_announced_is_discarded() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(&[("a.bin", b"x")]);
    server.set(|s| s.false_hash = true);
    let error = fetch(&server.config(cache.path()), "a.bin").unwrap_err();
    assert!(matches!(error, HubError::Hash { .. }), "{error}");
    let blobs = cache.path().join("datasets--org--name/blobs");
    assert_eq!(std::fs::read_dir(blobs).unwrap().count(), 0);
}

#[test]
fn an_unreachable_hub_is_an_outage_with_a_hint() {
    let cache = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = HubConfig {
        endpoint: format!("http://{free}"),
        cache: Some(cache.path().to_path_buf()),
        pause: Duration::from_millis(1),
        ..HubConfig::default()
    };
    let error = fetch(&config, "a.bin").unwrap_err();
    assert!(
        error.is_outage() && error.hint().contains("HF_ENDPOINT"),
        "{error}"
    );
}

#[test]
fn files_that_the_disk_has_no_room_for_are_refused_before_a_download() {
    let cache = tempfile::tempdir().unwrap();
    let hub = Hub::new(&HubConfig {
        cache: Some(cache.path().join("hub")),
        ..HubConfig::default()
    });
    let repo = Repo::new(RepoKind::Model, "org/large", None).unwrap();
    let file = |name: &str, size: u64| RemoteFile {
        name: name.into(),
        size: Some(size),
        blob: Some(hash(name.as_bytes())),
        sha256: None,
    };
    let listing = Listing {
        commit: COMMIT.into(),
        files: vec![file("small", 1), file("a", 1 << 60), file("b", 1 << 60)],
        from_cache: None,
        partial: false,
    };
    let check = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        hub.check_room(&repo, &listing, &names)
    };
    assert!(check(&["small"]).is_ok());
    let error = check(&["small", "a", "b"]).unwrap_err();
    assert!(error.is_environment_error(), "{error}");
    let words = error.to_string();
    assert!(words.contains("2 EiB more are to be downloaded"), "{words}");
    assert!(error.hint().contains("HF_HOME"));
}
