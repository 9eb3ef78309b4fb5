//! Folders in other formats, the layout, and what cannot be tested.

use super::*;
use crate::engine::export::{self, Options, Source};

#[test]
fn a_layout_has_what_belongs_and_its_checksums_hold() {
    let dir = healthy();
    let from = dir.path();
    for name in [
        "optimizer.safetensors",
        "state.json",
        "train.log",
        ".DS_Store",
    ] {
        fs::write(from.join(name), "x").unwrap();
    }
    fs::create_dir(from.join(".git")).unwrap();
    fs::write(from.join(".git/config"), "x").unwrap();
    std::os::unix::fs::symlink(hf::CONFIG, from.join("also.json")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("laid/out");
    let subject = Subject::open(from, &here()).unwrap();
    copy_to(&subject, &to).unwrap();
    let laid = Subject::open(&to, &here()).unwrap();
    let names: Vec<&str> = laid.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names,
        [
            ".gitattributes",
            "README.md",
            "SHA256SUMS",
            "also.json",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
    );
    assert!(
        laid.files.iter().all(|f| f.link == Link::None),
        "copies, no links"
    );
    assert_eq!(troubles(&to), []);
    let sums = findings(&to)
        .into_iter()
        .find(|f| f.id == "checksums")
        .unwrap();
    assert!(sums.evidence.to_string().contains("7 files"), "{sums:?}");
    assert!(matches!(
        copy_to(&subject, &to),
        Err(LayoutError::Occupied(_))
    ));
    assert!(matches!(
        copy_to(&subject, std::path::Path::new("/dev/null")),
        Err(LayoutError::NoFolder(_))
    ));
    assert!(matches!(
        copy_to(&subject, &from.join("x")),
        Err(LayoutError::Within(_))
    ));
    // The card is edited, which is what its placeholders ask for.
    fs::write(to.join(card::NAME), format!("{CARD}.")).unwrap();
    assert_eq!(troubles(&to), []);
    // One letter more, one file less.
    edit(&to, hf::GENERATION, "{", "{ ");
    fs::remove_file(to.join("also.json")).unwrap();
    let found = troubles(&to);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|f| f.1 == Status::Fail), "{found:?}");
    assert!(found[0].2.contains("also.json is not there"), "{found:?}");
    assert!(
        found[1].2.contains("SHA256SUMS:4")
            && found[1].2.contains("generation_config.json does not match"),
        "{found:?}"
    );
    let fixes = findings(&to)
        .into_iter()
        .filter(|f| f.status == Status::Fail);
    assert!(
        fixes
            .map(|f| f.fix)
            .all(|fix| fix.contains("delete SHA256SUMS"))
    );
    // A list that has the card, as others make one, stands in nobody's way either.
    fs::remove_file(to.join(SUMS)).unwrap();
    fs::write(to.join(SUMS), format!("{}  README.md\n", "0".repeat(64))).unwrap();
    let found = troubles(&to);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].1 == Status::Warn && found[0].2.contains("README.md does not match"),
        "{found:?}"
    );
}

#[test]
fn gguf_folders_and_adapters_are_checked_as_such() {
    let dir = healthy();
    // A text ends otherwise than a turn: a GGUF file has a key for each.
    let config = serde_json::json!({"eos_token": "<|endoftext|>", "chat_template": CHATML});
    fs::write(dir.path().join(hf::TOKENIZER_CONFIG), config.to_string()).unwrap();
    let ends = "{\"eos_token_id\": [0, 2]}";
    fs::write(dir.path().join(hf::GENERATION), ends).unwrap();
    let source = Source::open(dir.path()).unwrap();
    let to = dir.path().join("gguf");
    let options = Options {
        dtype: "f16".into(),
        max_shard_bytes: u64::MAX,
    };
    let written = export::export(&source, export::format("gguf").unwrap(), &options, &to).unwrap();
    assert_eq!(Subject::open(&to, &here()).unwrap().form, Form::Gguf);
    // The card that comes with it is about the file, and lacks only what its publisher knows.
    let own = fs::read_to_string(to.join(card::NAME)).unwrap();
    let file = &written[0].name;
    for part in [
        "library_name: gguf\n",
        "| dtype | F16 |",
        &format!("llama-cli -m '{file}'"),
    ] {
        assert!(own.contains(part), "{part}: {own}");
    }
    assert!(
        !own.contains("transformers") && !own.contains("from_pretrained"),
        "{own}"
    );
    let lacks = troubles(&to);
    assert!(
        lacks.iter().all(|f| !f.2.contains("library_name")),
        "{lacks:?}"
    );
    fs::write(to.join(card::NAME), CARD).unwrap();
    let found = troubles(&to);
    assert!(
        found.len() == 1
            && found[0]
                .2
                .contains("transformers, where gguf opens the folder"),
        "{found:?}"
    );
    fs::write(
        to.join(card::NAME),
        CARD.replace("library_name: transformers\n", ""),
    )
    .unwrap();
    assert_eq!(troubles(&to), []);
    let path = to.join(&written[0].name);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let found = troubles(&to);
    assert!(
        found
            .iter()
            .any(|(id, status, _)| id == "description" && *status == Status::Fail),
        "{found:?}"
    );

    let adapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/peft/lora");
    let copy = tempfile::tempdir().unwrap();
    for name in [hf::ADAPTER_CONFIG, hf::ADAPTER_WEIGHTS] {
        fs::copy(adapter.join(name), copy.path().join(name)).unwrap();
    }
    fs::write(
        copy.path().join(card::NAME),
        CARD.replace("transformers", "peft"),
    )
    .unwrap();
    let path = copy.path().join(hf::ADAPTER_CONFIG);
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["base_model_name_or_path"] = "org/base".into();
    fs::write(&path, config.to_string()).unwrap();
    assert_eq!(
        Subject::open(copy.path(), &here()).unwrap().form,
        Form::Adapter
    );
    let found = troubles(copy.path());
    assert!(
        found
            .iter()
            .all(|(_, status, _)| *status == Status::Unknown),
        "{found:?}"
    );
    // With its base in the cache it answers.
    let cache = tempfile::tempdir().unwrap();
    let snapshot = cached_base(cache.path());
    let with_cache = LocalEnv {
        cache: Some(cache.path().into()),
        ..here()
    };
    let subject = Subject::open(copy.path(), &with_cache).unwrap();
    let found = check(&subject, &|_| ());
    let generates = found.iter().find(|f| f.id == "generates").unwrap();
    assert_eq!(generates.status, Status::Pass, "{generates:?}");
    assert!(
        generates.evidence.to_string().starts_with("The → "),
        "{generates:?}"
    );
    assert_eq!(subject.base(), Some(snapshot));
    // The same by its place on this machine, which means nothing elsewhere: the tokenizer stays the base's.
    let near = subject.base().unwrap();
    config["base_model_name_or_path"] = near.to_str().unwrap().into();
    fs::write(&path, config.to_string()).unwrap();
    let found = troubles(copy.path());
    let ids: Vec<&str> = found.iter().map(|(id, ..)| id.as_str()).collect();
    assert!(
        !ids.contains(&"tokenizer") && ids.contains(&"description"),
        "{found:?}"
    );
    config["base_model_name_or_path"] = "/data/base".into();
    fs::write(&path, config.to_string()).unwrap();
    let found = troubles(copy.path());
    assert!(
        found.iter().any(|(id, s, w)| id == "description"
            && *s == Status::Fail
            && w.contains("/data/base")),
        "{found:?}"
    );
}

#[test]
fn a_model_that_does_not_fit_is_unknown_and_not_tried() {
    let dir = healthy();
    let subject = Subject::open(
        dir.path(),
        &LocalEnv {
            room: 1000,
            cache: None,
        },
    )
    .unwrap();
    let found = check(&subject, &|_| ());
    let generates = found.iter().find(|f| f.id == "generates").unwrap();
    assert_eq!(generates.status, Status::Unknown, "{generates:?}");
}

#[test]
fn a_folder_without_a_model_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    let error = Subject::open(dir.path(), &here()).err().unwrap();
    assert!(
        error.to_string().contains("pickle") && !error.hint().is_empty(),
        "{error}"
    );
}

#[test]
fn a_snapshot_of_the_hubs_cache_may_point_to_its_blobs_and_no_further() {
    let cache = tempfile::tempdir().unwrap();
    let repo = cache.path().join("models--org--tiny");
    let snapshot = repo.join("snapshots/0123abc");
    fs::create_dir_all(repo.join("blobs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    let dir = healthy();
    for (at, entry) in fs::read_dir(dir.path()).unwrap().flatten().enumerate() {
        let blob = repo.join(format!("blobs/{at}"));
        fs::copy(entry.path(), &blob).unwrap();
        let link = snapshot.join(entry.file_name());
        std::os::unix::fs::symlink(format!("../../blobs/{at}"), link).unwrap();
    }
    assert_eq!(troubles(&snapshot), []);
    let other = cache.path().join("models--org--other");
    fs::write(&other, "x").unwrap();
    std::os::unix::fs::symlink(&other, snapshot.join("notes.txt")).unwrap();
    assert_eq!(troubles(&snapshot)[0].0, "safe");
}
