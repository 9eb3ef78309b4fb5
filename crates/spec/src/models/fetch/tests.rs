//! Models of the hub, from a server that answers as it does.

use super::*;
use crate::hub::HubConfig;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Serves files as the hub does, until the test ends.
fn serve(files: Vec<(String, Vec<u8>)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let _ = reader.read_line(&mut line);
            let path = line.split(' ').nth(1).unwrap_or_default().to_string();
            while line.trim() != "" {
                line.clear();
                let _ = reader.read_line(&mut line);
            }
            let body = if path.starts_with("/api/models/") {
                listing(&files)
            } else {
                let (_, name) = path.split_once("/resolve/").unwrap_or_default();
                let name = name.split_once('/').unwrap_or_default().1;
                let found = files.iter().find(|(n, _)| n == name);
                found.map(|(_, c)| c.clone()).unwrap_or_default()
            };
            let head = format!(
                "HTTP/1.1 200 X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    endpoint
}

fn listing(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let siblings = files.iter().map(|(name, content)| {
        let digest = Sha256::digest(content);
        let sha: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        serde_json::json!({"rfilename": name, "size": content.len(), "blobId": sha[..40],
            "lfs": {"sha256": sha, "size": content.len()}})
    });
    let siblings: Vec<_> = siblings.collect();
    let value = serde_json::json!({"sha": COMMIT, "siblings": siblings});
    value.to_string().into_bytes()
}

/// The files of a folder of fixtures.
fn fixture(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/families");
    let entries = std::fs::read_dir(folder.join(name)).unwrap();
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(entry.path()).unwrap())
    };
    entries.map(|entry| read(entry.unwrap())).collect()
}

fn hub(endpoint: &str, cache: &Path, offline: bool) -> Hub {
    Hub::new(&HubConfig {
        endpoint: endpoint.into(),
        cache: Some(cache.into()),
        timeout: Duration::from_secs(5),
        pause: Duration::from_millis(1),
        offline,
        ..HubConfig::default()
    })
}

#[test]
fn a_sharded_model_comes_whole_and_is_there_without_a_network() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = fixture("llama");
    files.push(("pytorch_model.bin".into(), b"never asked for".to_vec()));
    files.push(("tokenizer.json".into(), b"{}".to_vec()));
    let endpoint = serve(files);
    let online = hub(&endpoint, cache.path(), false);
    let about = place(&online, "org/tiny", Parts::Description).unwrap();
    assert!(about.join("tokenizer.json").is_file() && !about.join(hf::INDEX).exists());
    let folder = place(&online, "org/tiny", Parts::Everything).unwrap();
    assert!(hf::load(&folder).is_ok());
    assert!(!folder.join("pytorch_model.bin").exists());
    assert!(!folder.join("expected.safetensors").exists());
    assert_eq!(cached(cache.path(), "org/tiny"), Some(folder.clone()));
    let offline = hub("http://127.0.0.1:1", cache.path(), true);
    assert_eq!(
        place(&offline, "org/tiny", Parts::Everything).unwrap(),
        folder
    );
}

#[test]
fn repositories_without_a_model_say_what_they_have() {
    let fault = |files: &[&str]| {
        let cache = tempfile::tempdir().unwrap();
        let files = files.iter().map(|n| (n.to_string(), b"{}".to_vec()));
        let endpoint = serve(files.collect());
        let hub = hub(&endpoint, cache.path(), false);
        let error = place(&hub, "org/tiny", Parts::Everything);
        error.unwrap_err().to_string()
    };
    let pickle = fault(&["config.json", "pytorch_model.bin"]);
    assert!(
        pickle.contains("pickle") && pickle.contains("save_pretrained"),
        "{pickle}"
    );
    assert!(fault(&["README.md"]).contains("no config.json"));
    assert!(fault(&["mmproj-f16.gguf"]).contains("no config.json"));
    let index = fault(&["config.json", "model.safetensors.index.json"]);
    assert!(index.contains("weight_map"), "{index}");
}

fn place(hub: &Hub, word: &str, parts: Parts) -> Result<PathBuf, HubError> {
    let model = hub_model(word).unwrap();
    fetch(hub, &model, parts, &|_, _, _| {}).map(|found| found.place)
}

fn gguf(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/gguf");
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn a_gguf_file_comes_alone_and_is_a_model_without_a_network() {
    let cache = tempfile::tempdir().unwrap();
    let endpoint = serve(vec![
        ("README.md".into(), b"# not asked for".to_vec()),
        ("config.json".into(), b"{}".to_vec()),
        ("tiny-Q8_0.gguf".into(), b"never asked for".to_vec()),
        ("sub/tiny-Q4_K_M.gguf".into(), gguf("gpt2.gguf")),
    ]);
    let online = hub(&endpoint, cache.path(), false);
    let file = place(&online, "org/tiny:q4_k_m", Parts::Everything).unwrap();
    let snapshot = cache
        .path()
        .join("models--org--tiny/snapshots")
        .join(COMMIT);
    assert_eq!(file, snapshot.join("sub/tiny-Q4_K_M.gguf"));
    // As Hugging Face's own tools keep it: a link to the blob with the hash as its name.
    let sha: String = Sha256::digest(gguf("gpt2.gguf"))
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let blob = cache.path().join("models--org--tiny/blobs").join(sha);
    assert_eq!(file.canonicalize().unwrap(), blob.canonicalize().unwrap());
    assert_eq!(std::fs::read_dir(&snapshot).unwrap().count(), 1);
    let source = super::super::ModelSource::open_whole(&file).unwrap();
    assert_eq!(
        (source.family(), source.name().as_str()),
        ("gpt2", "tiny-Q4_K_M")
    );
    assert_eq!(hub::id_of_cached(&file).as_deref(), Some("org/tiny"));
    let offline = hub("http://127.0.0.1:1", cache.path(), true);
    for word in [
        "org/tiny:Q4_K_M",
        "org/tiny",
        "org/tiny:tiny-Q4_K_M.gguf",
        "hf.co/org/tiny:Q4_K_M",
    ] {
        assert_eq!(
            place(&offline, word, Parts::Everything).unwrap(),
            file,
            "{word}"
        );
        assert_eq!(cached(cache.path(), word), Some(file.clone()), "{word}");
    }
    let by_commit = format!("org/tiny@{COMMIT}:Q4_K_M");
    assert_eq!(cached(cache.path(), &by_commit), Some(file));
    assert_eq!(
        cached(cache.path(), "org/tiny:Q8_0"),
        None,
        "not downloaded"
    );
    let error = place(&offline, "org/tiny:Q8_0", Parts::Everything).unwrap_err();
    assert!(error.to_string().contains("not in the cache"), "{error}");
}

#[test]
fn a_repository_with_safetensors_is_their_folder_unless_a_file_is_named() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = fixture("gpt2");
    files.push(("m-Q4_K_M.gguf".into(), gguf("gpt2.gguf")));
    let endpoint = serve(files);
    let hub = hub(&endpoint, cache.path(), false);
    let folder = place(&hub, "org/both", Parts::Everything).unwrap();
    assert!(folder.is_dir() && !folder.join("m-Q4_K_M.gguf").exists());
    assert_eq!(cached(cache.path(), "org/both"), Some(folder.clone()));
    let file = place(&hub, "org/both:Q4_K_M", Parts::Everything).unwrap();
    assert_eq!(file, folder.join("m-Q4_K_M.gguf"));
}

#[test]
fn all_parts_of_a_gguf_file_are_downloaded_and_only_then_it_is_there() {
    let cache = tempfile::tempdir().unwrap();
    let part = |n: usize| (format!("m-{n:05}-of-00002.gguf"), vec![n as u8; 10 * n]);
    let endpoint = serve(vec![part(1), part(2)]);
    let hub = hub(&endpoint, cache.path(), false);
    let seen = std::cell::RefCell::new(Vec::new());
    let note = |name: &str, bytes: u64, total: u64| {
        seen.borrow_mut().push((name.to_string(), bytes, total))
    };
    let model = hub_model("org/parts").unwrap();
    let found = fetch(&hub, &model, Parts::Description, &note).unwrap();
    assert!(found.place.ends_with("m-00001-of-00002.gguf") && found.notice.is_none());
    let whole = [(part(1).0, 10, 10), (part(2).0, 20, 20)];
    assert_eq!(seen.into_inner(), whole);
    let second = found.place.with_file_name(part(2).0);
    assert_eq!(std::fs::read(&second).unwrap(), part(2).1);
    assert_eq!(cached(cache.path(), "org/parts"), Some(found.place));
    std::fs::remove_file(second).unwrap();
    assert_eq!(cached(cache.path(), "org/parts"), None);
}

#[test]
fn what_is_chosen_of_several_files_is_told() {
    let cache = tempfile::tempdir().unwrap();
    let file = |name: &str| (name.to_string(), name.as_bytes().to_vec());
    let endpoint = serve(vec![file("m-Q4_K_M.gguf"), file("m-Q8_0.gguf")]);
    let hub = hub(&endpoint, cache.path(), false);
    let quiet = |_: &str, _: u64, _: u64| {};
    let found = |word: &str| fetch(&hub, &hub_model(word).unwrap(), Parts::Everything, &quiet);
    let chosen = found("org/two").unwrap();
    assert!(chosen.place.ends_with("m-Q4_K_M.gguf"));
    assert!(chosen.notice.unwrap().contains("org/two:Q8_0"));
    assert_eq!(found("org/two:Q8_0").unwrap().notice, None);
}

#[test]
fn a_description_without_weights_is_not_to_be_had_of_a_gguf_file() {
    let cache = tempfile::tempdir().unwrap();
    let endpoint = serve(vec![("m.gguf".into(), b"never asked for".to_vec())]);
    let hub = hub(&endpoint, cache.path(), false);
    let error = place(&hub, "org/one", Parts::WithoutWeights).unwrap_err();
    assert!(error.hint().contains("--without-weights"), "{error}");
    assert_eq!(cached(cache.path(), "org/one"), None);
}

#[test]
fn an_architecture_that_is_not_read_is_refused_before_the_download() {
    let cache = tempfile::tempdir().unwrap();
    let mut file = gguf("gpt2.gguf");
    let key = b"general.architecture";
    let at = file.windows(key.len()).position(|part| part == key);
    // Behind the key: the value's type, its length, its text.
    let name = at.unwrap() + key.len() + 4 + 8;
    file[name..name + 4].copy_from_slice(b"odd2");
    let endpoint = serve(vec![("m-Q8_0.gguf".into(), file)]);
    let hub = hub(&endpoint, cache.path(), false);
    let error = place(&hub, "org/odd", Parts::Everything).unwrap_err();
    let error = format!("{error}; {}", error.hint());
    assert!(
        error.contains("m-Q8_0.gguf: ") && error.contains("odd2"),
        "{error}"
    );
    assert!(
        error.contains("docs/models.md lists the architectures"),
        "{error}"
    );
    assert!(!cache.path().join("models--org--odd/blobs").exists());
}

/// A cache as another tool leaves it: some files of a repository, without the list of all.
fn cached_by_another_tool(id: &str, files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let cache = tempfile::tempdir().unwrap();
    let root = cache
        .path()
        .join(format!("models--{}", id.replace('/', "--")));
    let snapshot = root.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(root.join("refs")).unwrap();
    std::fs::write(root.join("refs/main"), COMMIT).unwrap();
    for (name, content) in files {
        std::fs::write(snapshot.join(name), content).unwrap();
    }
    cache
}

#[test]
fn a_cached_gguf_file_is_not_taken_for_a_repository_that_has_safetensors() {
    let content = gguf("gpt2.gguf");
    let cache = cached_by_another_tool("org/both", &[("x-Q4_K_M.gguf", &content)]);
    let mut files = fixture("gpt2");
    files.push(("x-Q4_K_M.gguf".into(), content.clone()));
    let hub = hub(&serve(files), cache.path(), false);
    assert_eq!(cached(cache.path(), "org/both"), None);
    assert_eq!(cached(cache.path(), "org/both:latest"), None);
    let named = cached(cache.path(), "org/both:Q4_K_M");
    assert!(named.is_some_and(|file| file.ends_with("x-Q4_K_M.gguf")));
    let folder = place(&hub, "org/both", Parts::Everything).unwrap();
    assert!(folder.is_dir() && hf::load(&folder).is_ok());
    assert_eq!(cached(cache.path(), "org/both"), Some(folder));
}

#[test]
fn a_lone_cached_quantization_does_not_go_before_the_one_that_is_usually_taken() {
    let cache = cached_by_another_tool("org/two", &[("m-Q2_K.gguf", b"two")]);
    let file = |name: &str, content: &[u8]| (name.to_string(), content.to_vec());
    let files = vec![file("m-Q2_K.gguf", b"two"), file("m-Q4_K_M.gguf", b"four")];
    let hub = hub(&serve(files), cache.path(), false);
    assert_eq!(cached(cache.path(), "org/two"), None);
    let taken = place(&hub, "org/two", Parts::Everything).unwrap();
    assert!(taken.ends_with("m-Q4_K_M.gguf"));
    assert_eq!(cached(cache.path(), "org/two"), Some(taken));
}

#[test]
fn without_a_network_cached_gguf_files_are_listed_and_taken_by_name() {
    let files: [(&str, &[u8]); 2] = [("m-Q2_K.gguf", b"two"), ("m-Q8_0.gguf", b"eight")];
    let cache = cached_by_another_tool("org/some", &files);
    for offline in [true, false] {
        // Nobody listens there.
        let hub = hub("http://127.0.0.1:1", cache.path(), offline);
        let error = place(&hub, "org/some", Parts::Everything).unwrap_err();
        let words = format!("{error}; {}", error.hint());
        assert!(words.contains("m-Q2_K.gguf, m-Q8_0.gguf"), "{words}");
        assert!(words.contains("org/some:m-Q2_K.gguf"), "{words}");
        assert_eq!(words.contains("HF_HUB_OFFLINE is set"), offline, "{words}");
        for word in ["org/some:m-Q2_K.gguf", "org/some:q2_k"] {
            let taken = place(&hub, word, Parts::Everything).unwrap();
            assert!(taken.ends_with("m-Q2_K.gguf"), "{word}");
        }
        let error = place(&hub, "org/some:Q4_K_M", Parts::Everything).unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains("of its files in the cache") && words.contains("`Q4_K_M`"),
            "{words}"
        );
    }
}

#[test]
fn a_cached_config_describes_a_model_beside_a_gguf_file_without_a_network() {
    let files: [(&str, &[u8]); 2] = [("config.json", b"{}"), ("m-Q8_0.gguf", b"eight")];
    let cache = cached_by_another_tool("org/mixed", &files);
    let hub = hub("http://127.0.0.1:1", cache.path(), true);
    let folder = place(&hub, "org/mixed", Parts::Description).unwrap();
    assert!(folder.join("config.json").is_file());
    assert!(place(&hub, "org/mixed", Parts::Everything).is_err());
    assert_eq!(cached(cache.path(), "org/mixed"), None);
}
