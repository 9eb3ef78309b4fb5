//! Uploads to a local server that keeps what it gets: what is sent, what is not sent twice, and where the token goes.

use super::*;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOKEN: &str = "hf_test";

#[derive(Default)]
struct State {
    /// LFS objects by hash.
    objects: BTreeMap<String, Vec<u8>>,
    /// Parts of the current multipart upload.
    parts: BTreeMap<u64, Vec<u8>>,
    /// Lines of the last commit.
    commit: Vec<Value>,
    /// `METHOD path`, with a `+` after requests with a token.
    log: Vec<String>,
    /// Bytes per part; `None`: in one piece.
    part_bytes: Option<usize>,
    /// Statuses of the next requests to the store.
    store_statuses: Vec<u16>,
    /// Status and body of the hub's next answer to a path that ends so.
    refusal: Option<(&'static str, u16, &'static str)>,
    /// Redirects the commit elsewhere.
    redirect: Option<String>,
    /// The hub's own address, and that of the store.
    endpoint: String,
    store: String,
}

type Shared = Arc<Mutex<State>>;

/// Serves until the test ends. `is_store`: the second server, on its own port.
fn serve(state: &Shared, is_store: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let shared = state.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = shared.clone();
            std::thread::spawn(move || answer(stream, &shared, is_store));
        }
    });
    endpoint
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

fn answer(mut stream: TcpStream, state: &Shared, is_store: bool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap();
        headers.insert(name.to_lowercase(), value.trim().to_string());
    }
    // A chunked body has no length: stores reject it, and so does this one.
    let length: usize = headers
        .get("content-length")
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    std::io::Read::read_exact(&mut reader, &mut body).unwrap();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().to_string());
    let mut state = state.lock().unwrap();
    let token = headers.get("authorization");
    let mark = if token.is_some() { " +" } else { "" };
    let server = if is_store { "store " } else { "" };
    state.log.push(format!("{server}{method} {path}{mark}"));
    let (status, extra, text) = match is_store {
        true => store(&mut state, &path, body),
        false if token.map(String::as_str) != Some("Bearer hf_test") => {
            (401, String::new(), String::new())
        }
        false => hub(&mut state, method, &path, &body),
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{extra}\r\n",
        text.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(text.as_bytes());
}

fn store(state: &mut State, path: &str, body: Vec<u8>) -> (u16, String, String) {
    if !state.store_statuses.is_empty() {
        let status = state.store_statuses.remove(0);
        if status != 200 {
            return (status, "Retry-After: 0\r\n".into(), String::new());
        }
    }
    let (place, _) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<&str> = place.trim_start_matches('/').split('/').collect();
    match parts[..] {
        ["whole", oid] => {
            assert_eq!(hash(&body), oid);
            state.objects.insert(oid.into(), body);
        }
        ["part", _, number] => {
            let tag = format!("ETag: \"tag{number}\"\r\n");
            state.parts.insert(number.parse().unwrap(), body);
            return (200, tag, String::new());
        }
        ["done", oid] => {
            let request: Value = serde_json::from_slice(&body).unwrap();
            let tags: Vec<&str> = request["parts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| p["etag"].as_str().unwrap())
                .collect();
            assert_eq!(tags.len(), state.parts.len());
            assert!(
                tags.iter()
                    .enumerate()
                    .all(|(i, tag)| *tag == format!("\"tag{}\"", i + 1)),
                "{tags:?}"
            );
            let whole: Vec<u8> = std::mem::take(&mut state.parts)
                .into_values()
                .flatten()
                .collect();
            assert_eq!(hash(&whole), oid);
            state.objects.insert(oid.into(), whole);
        }
        _ => panic!("{path}"),
    }
    (200, String::new(), String::new())
}

fn hub(state: &mut State, method: &str, path: &str, body: &[u8]) -> (u16, String, String) {
    if let Some((_, status, text)) = state.refusal.filter(|(end, ..)| path.ends_with(end)) {
        state.refusal = None;
        return (status, "Retry-After: 0\r\n".into(), text.into());
    }
    let json = |value: Value| (200, String::new(), value.to_string());
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    match (method, path) {
        ("POST", "/api/repos/create") => {
            assert_eq!(
                (request["organization"].as_str(), request["name"].as_str()),
                (Some("me"), Some("model"))
            );
            (409, String::new(), "{\"error\":\"exists\"}".into())
        }
        ("POST", "/api/models/me/model/preupload/main") => {
            let files = request["files"].as_array().unwrap().iter().map(|file| {
                let name = file["path"].as_str().unwrap();
                let mode = if name.ends_with(".safetensors") {
                    "lfs"
                } else {
                    "regular"
                };
                json!({"path": name, "uploadMode": mode, "shouldIgnore": false, "oid": null})
            });
            json(json!({"files": files.collect::<Vec<_>>()}))
        }
        ("POST", "/me/model.git/info/lfs/objects/batch") => {
            let objects = request["objects"].as_array().unwrap().iter().map(|object| {
                let oid = object["oid"].as_str().unwrap();
                let size = object["size"].as_u64().unwrap();
                match state.objects.contains_key(oid) {
                    true => json!({"oid": oid, "size": size}),
                    false => {
                        json!({"oid": oid, "size": size, "actions": actions(state, oid, size)})
                    }
                }
            });
            let objects: Vec<Value> = objects.collect();
            json(json!({"transfer": "basic", "objects": objects}))
        }
        ("POST", "/verify") => {
            assert!(state.objects.contains_key(request["oid"].as_str().unwrap()));
            json(json!({}))
        }
        ("POST", "/api/models/me/model/commit/main") => {
            if let Some(to) = &state.redirect {
                return (307, format!("Location: {to}{path}\r\n"), String::new());
            }
            let lines = std::str::from_utf8(body).unwrap().lines();
            state.commit = lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            json(
                json!({"success": true, "commitOid": "abc", "commitUrl": "http://hub/me/model/commit/abc"}),
            )
        }
        _ => panic!("{method} {path}"),
    }
}

fn actions(state: &State, oid: &str, size: u64) -> Value {
    let store = &state.store;
    let hub_verify = json!({"href": format!("{}/verify", state.endpoint)});
    match state.part_bytes {
        None => json!({
            "upload": {"href": format!("{store}/whole/{oid}?signature=s3cret"), "header": {"x-amz-y": "1"}},
            "verify": hub_verify,
        }),
        Some(bytes) => {
            let n = (size as usize).div_ceil(bytes);
            let mut header = json!({"chunk_size": bytes.to_string()});
            for number in 1..=n {
                header[format!("{number:05}")] =
                    format!("{store}/part/{oid}/{number}?signature=s3cret").into();
            }
            json!({"upload": {"href": format!("{store}/done/{oid}?signature=s3cret"), "header": header}})
        }
    }
}

struct Bench {
    state: Shared,
    config: HubConfig,
    dir: tempfile::TempDir,
    files: Vec<Outgoing>,
}

impl Bench {
    fn new() -> Bench {
        let state = Shared::default();
        let endpoint = serve(&state, false);
        let store = serve(&state, true);
        let mut locked = state.lock().unwrap();
        locked.store = store;
        locked.endpoint = endpoint.clone();
        drop(locked);
        let dir = tempfile::tempdir().unwrap();
        let weights: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
        let files = vec![
            file(dir.path(), "README.md", b"# hello\n"),
            file(dir.path(), "model.safetensors", &weights),
            file(dir.path(), "sub/other.safetensors", b"another"),
        ];
        Bench {
            config: HubConfig {
                endpoint,
                token: crate::hub::Secret::new(TOKEN),
                timeout: Duration::from_secs(5),
                pause: Duration::from_millis(1),
                ..HubConfig::default()
            },
            state,
            dir,
            files,
        }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    fn upload(&self) -> Result<Uploaded, HubError> {
        let order = Upload {
            repo: Repo::new(crate::hub::RepoKind::Model, "me/model", None).unwrap(),
            files: self.files.clone(),
            message: "Upload tiny".into(),
            private: true,
        };
        upload(&self.config, &order, &|_| ())
    }
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> Outgoing {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    Outgoing {
        name: name.into(),
        path,
        bytes: bytes.len() as u64,
        sha256: hash(bytes),
    }
}

#[test]
fn everything_arrives_in_one_commit_and_the_token_goes_only_to_the_hub() {
    let bench = Bench::new();
    let done = bench.upload().unwrap();
    assert_eq!((done.sent, done.there, done.commit.as_str()), (2, 0, "abc"));
    let log = bench.log();
    for line in &log {
        // Requests to the hub have the token, those to the store on its other port do not.
        assert_eq!(line.ends_with(" +"), !line.starts_with("store"), "{line}");
    }
    assert_eq!(
        log.iter().filter(|line| line.contains("/verify")).count(),
        2
    );
    let state = bench.state.lock().unwrap();
    assert_eq!(
        state.objects[&bench.files[1].sha256],
        std::fs::read(&bench.files[1].path).unwrap()
    );
    let keys: Vec<&str> = state
        .commit
        .iter()
        .map(|line| line["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["header", "file", "lfsFile", "lfsFile"]);
    assert_eq!(state.commit[0]["value"]["summary"], "Upload tiny");
    let readme = &state.commit[1]["value"];
    assert_eq!(
        (readme["path"].as_str(), readme["content"].as_str()),
        (Some("README.md"), Some("IyBoZWxsbwo="))
    );
    let weights = &state.commit[2]["value"];
    assert_eq!(weights["oid"], bench.files[1].sha256.as_str());
    assert_eq!(
        (weights["size"].as_u64(), weights["algo"].as_str()),
        (Some(200_000), Some("sha256"))
    );
}

#[test]
fn existing_files_are_not_sent_again_and_an_interrupted_upload_resumes() {
    let bench = Bench::new();
    // The second file fails for good.
    bench.set(|s| s.store_statuses = vec![200, 403]);
    let error = bench.upload().unwrap_err();
    assert!(
        error.to_string().contains("403") && !error.to_string().contains("s3cret"),
        "{error}"
    );
    assert!(
        bench.state.lock().unwrap().commit.is_empty(),
        "nobody sees half of it"
    );
    bench.log();
    let done = bench.upload().unwrap();
    assert_eq!((done.sent, done.there), (1, 1));
    let puts = |log: &[String]| {
        log.iter()
            .filter(|line| line.starts_with("store PUT"))
            .count()
    };
    assert_eq!(puts(&bench.log()), 1);
    let done = bench.upload().unwrap();
    assert_eq!((done.sent, done.there, puts(&bench.log())), (0, 2, 0));
}

#[test]
fn large_files_are_sent_in_parts_and_outages_are_retried() {
    let bench = Bench::new();
    bench.set(|s| {
        s.part_bytes = Some(64_000);
        s.store_statuses = vec![200, 503, 200, 500];
        s.refusal = Some(("/commit/main", 502, ""));
    });
    let done = bench.upload().unwrap();
    assert_eq!(done.sent, 2);
    let state = bench.state.lock().unwrap();
    assert_eq!(state.objects.len(), 2);
    assert_eq!(state.commit.len(), 4);
}

#[test]
fn rejections_contain_the_hubs_message() {
    let bench = Bench::new();
    bench.set(|s| {
        s.refusal = Some((
            "/commit/main",
            400,
            "{\"error\":\"\\\"license\\\" must be one of\"}",
        ))
    });
    let error = bench.upload().unwrap_err();
    assert!(
        error.to_string().contains("must be one of") && !error.is_outage(),
        "{error}"
    );
    bench.set(|s| s.refusal = Some(("/preupload/main", 403, "")));
    assert!(matches!(bench.upload(), Err(HubError::NoWrite { .. })));
    bench.set(|s| s.refusal = Some(("/preupload/main", 404, "")));
    assert!(matches!(bench.upload(), Err(HubError::NotFound { .. })));
}

#[test]
fn without_a_token_or_offline_nothing_is_sent_and_redirects_are_not_followed() {
    let mut bench = Bench::new();
    let elsewhere = bench.state.lock().unwrap().store.clone();
    bench.set(|s| s.redirect = Some(elsewhere));
    assert!(matches!(bench.upload(), Err(HubError::Elsewhere { .. })));
    let log = bench.log();
    assert!(
        !log.iter().any(|line| line.starts_with("store POST")),
        "{log:?}"
    );
    bench.config.offline = true;
    assert!(matches!(bench.upload(), Err(HubError::NotCached { .. })));
    bench.config.offline = false;
    bench.config.token = None;
    let error = bench.upload().unwrap_err();
    assert!(
        matches!(error, HubError::NoToken) && error.hint().contains("write access"),
        "{error}"
    );
    bench.config.token = crate::hub::Secret::new("hf_other");
    assert!(matches!(bench.upload(), Err(HubError::NoWrite { .. })));
    bench.files[0].name = "../README.md".into();
    bench.config.token = crate::hub::Secret::new(TOKEN);
    assert!(matches!(bench.upload(), Err(HubError::BadName(_))));
    assert!(bench.dir.path().exists());
}
