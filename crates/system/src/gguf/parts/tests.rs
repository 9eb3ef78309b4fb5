//! Split models, whole and broken.

use super::*;
use crate::gguf::{NewTensor, TensorKind, Value, write};
use std::fs;

/// What is written into a part besides its place.
#[derive(Clone, Copy)]
struct Keys {
    no: u64,
    count: u64,
    tensors: u64,
}

/// A file of these tensors, of four values each, with those keys; the first part has an architecture, too.
fn put(path: &Path, keys: Option<Keys>, tensors: &[&str]) {
    let mut all = Vec::new();
    if keys.is_none_or(|keys| keys.no == 0) {
        let name = Value::String("llama".into());
        all.push(("general.architecture".to_string(), name));
    }
    if let Some(keys) = keys {
        all.push((NO.into(), Value::Unsigned(keys.no)));
        all.push((COUNT.into(), Value::Unsigned(keys.count)));
        // llama.cpp writes it signed.
        all.push((TENSORS.into(), Value::Signed(keys.tensors as i64)));
    }
    let tensors: Vec<NewTensor> = tensors
        .iter()
        .map(|name| NewTensor {
            name: (*name).into(),
            dims: vec![4],
            kind: TensorKind::by_id(0).unwrap(),
        })
        .collect();
    let mut out = fs::File::create(path).unwrap();
    write(&mut out, &all, &tensors, &mut |_, bytes| {
        bytes.resize(16, 1);
        Ok(())
    })
    .unwrap();
}

/// Three parts with the tensors a, b and c: none in the first.
fn three(folder: &Path) -> [PathBuf; 3] {
    let tensors: [&[&str]; 3] = [&[], &["a", "b"], &["c"]];
    let path = |no: u64| folder.join(format!("big-{:05}-of-00003.gguf", no + 1));
    for (no, tensors) in (0..).zip(tensors) {
        let keys = Keys {
            no,
            count: 3,
            tensors: 3,
        };
        put(&path(no), Some(keys), tensors);
    }
    [path(0), path(1), path(2)]
}

fn told(path: &Path) -> String {
    open_parts(path).unwrap_err().to_string()
}

#[test]
fn any_part_leads_to_all_of_them_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    for path in &paths {
        let parts = open_parts(path).unwrap();
        let found: Vec<&Path> = parts.iter().map(|part| part.path.as_path()).collect();
        assert_eq!(found, paths);
        let tensors: Vec<usize> = parts.iter().map(|part| part.head.tensors.len()).collect();
        assert_eq!(tensors, [0, 2, 1]);
        let first = open_first(path).unwrap();
        assert_eq!(first, parts[0]);
        let architecture = first.head.metadata.str("general.architecture");
        assert_eq!(architecture, Some("llama"));
        assert_eq!(files_of(path), paths);
        assert_eq!(
            (first_part(path), first_name(path)),
            (paths[0].clone(), paths[0].clone())
        );
    }
    let whole = dir.path().join("small.gguf");
    put(&whole, None, &["a"]);
    assert_eq!(open_parts(&whole).unwrap().len(), 1);
    assert_eq!(
        (files_of(&whole), first_part(&whole)),
        (vec![whole.clone()], whole.clone())
    );
    let listed = one_per_model(vec![
        paths[2].clone(),
        whole.clone(),
        paths[0].clone(),
        paths[1].clone(),
    ]);
    assert_eq!(listed, [paths[0].clone(), whole]);
}

#[test]
fn whole_models_that_are_called_like_parts_are_models_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [1, 2].map(|n| dir.path().join(format!("a-{n:05}-of-00002.gguf")));
    for path in &paths {
        put(path, None, &["a"]);
    }
    for path in &paths {
        assert_eq!(files_of(path), std::slice::from_ref(path));
        assert_eq!(first_part(path), *path);
        assert_eq!(open_parts(path).unwrap().len(), 1);
        assert_eq!(files_by_name(path), paths, "nothing was opened");
    }
}

#[test]
fn a_missing_part_is_named_with_the_folder_that_lacks_it() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let folder = shown(dir.path());
    fs::remove_file(&paths[1]).unwrap();
    for path in [&paths[0], &paths[2]] {
        let error = told(path);
        let words = format!("part 2 of 3 is missing: no big-00002-of-00003.gguf in {folder};");
        assert!(error.contains(&words), "{error}");
    }
    assert!(open_first(&paths[2]).is_ok(), "its keys are there");
    fs::remove_file(&paths[0]).unwrap();
    let error = told(&paths[2]);
    let words =
        "parts 1 and 2 of 3 are missing: no big-00001-of-00003.gguf, big-00002-of-00003.gguf in";
    assert!(error.contains(words), "{error}");
    let error = open_first(&paths[2]).unwrap_err().to_string();
    assert!(error.contains("part 1 of 3 is missing"), "{error}");
    assert_eq!(first_part(&paths[2]), paths[2]);
    // More than are named.
    let one = dir.path().join("huge-00007-of-00200.gguf");
    let keys = Keys {
        no: 6,
        count: 200,
        tensors: 9,
    };
    put(&one, Some(keys), &["a"]);
    let error = told(&one);
    let words = "parts 1, 2, 3, 4 and 195 more of 200 are missing: no huge-00001-of-00200.gguf";
    assert!(error.contains(words), "{error}");
}

#[test]
fn parts_of_different_models_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let good = fs::read(&paths[1]).unwrap();
    let keys = Keys {
        no: 1,
        count: 3,
        tensors: 3,
    };
    let cases: [(Option<Keys>, &[&str], &str); 6] = [
        (
            Some(Keys { count: 4, ..keys }),
            &["a", "b"],
            "it says that it is part 2 of 4 (split.no, split.count) where part 2 of 3 was expected",
        ),
        (
            Some(Keys { no: 2, ..keys }),
            &["a", "b"],
            "it says that it is part 3 of 3 (split.no, split.count) where part 2 of 3 was expected",
        ),
        (None, &["a", "b"], "it says that it is a whole model"),
        (
            Some(Keys { tensors: 9, ..keys }),
            &["a", "b"],
            "split.tensors.count is 9, but 3 in ",
        ),
        (Some(keys), &["a", "c"], "tensor c is in "),
        (
            Some(keys),
            &["a"],
            "split.tensors.count is 3, but its 3 parts hold 2",
        ),
    ];
    for (keys, tensors, words) in cases {
        put(&paths[1], keys, tensors);
        let error = told(&paths[0]);
        assert!(error.contains(words), "{words}: {error}");
    }
    fs::write(&paths[1], &good[..good.len() - 24]).unwrap();
    let error = told(&paths[0]);
    let cut = error.contains("big-00002-of-00003.gguf: not a valid GGUF file");
    assert!(cut, "{error}");
    fs::write(&paths[1], good).unwrap();
    assert!(open_parts(&paths[0]).is_ok());
}

#[test]
fn a_renamed_part_says_what_its_name_should_be() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let renamed = dir.path().join("model.gguf");
    fs::rename(&paths[1], &renamed).unwrap();
    let error = told(&renamed);
    let is = "it is part 2 of 3 of a model";
    assert!(
        error.contains(is) && error.contains("-00002-of-00003.gguf"),
        "{error}"
    );
    let renamed = dir.path().join("big-00001-of-00002.gguf");
    fs::rename(&paths[2], &renamed).unwrap();
    let error = told(&renamed);
    let is = "it is part 3 of 3 of a model";
    assert!(
        error.contains(is) && error.contains("its name says part 1 of 2"),
        "{error}"
    );
}

#[test]
fn keys_out_of_range_are_errors_and_no_long_search() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys {
        no: 0,
        count: u64::MAX,
        tensors: 1,
    };
    let path = dir.path().join(format!("x-00001-of-{}.gguf", u64::MAX));
    put(&path, Some(keys), &["a"]);
    assert!(told(&path).contains("at most 65535 parts"));
    for found in [files_of(&path), files_by_name(&path)] {
        assert_eq!(found, std::slice::from_ref(&path));
    }
    let path = dir.path().join("x-00001-of-00002.gguf");
    for (no, count) in [(2, 2), (7, 2)] {
        let keys = Keys {
            no,
            count,
            tensors: 1,
        };
        put(&path, Some(keys), &["a"]);
        let words = format!("split.no is {no}, but split.count is {count}");
        assert!(told(&path).contains(&words));
    }
    // One part is the whole, whatever it is called.
    let path = dir.path().join("y.gguf");
    let keys = Keys {
        no: 0,
        count: 1,
        tensors: 1,
    };
    put(&path, Some(keys), &["a"]);
    assert_eq!(open_parts(&path).unwrap().len(), 1);
}

#[test]
fn names_of_parts_are_read_as_llama_cpp_writes_them() {
    let read = |name: &str| {
        let part = PartName::of(Path::new(name))?;
        Some((part.stem().to_string(), part.number, part.count))
    };
    let known = |stem: &str, number, count| Some((stem.to_string(), number, count));
    assert_eq!(
        read("d/Q4/a-b-Q4_K_M-00002-of-00003.gguf"),
        known("a-b-Q4_K_M", 2, 3)
    );
    assert_eq!(read("a-00001-of-00001.GGUF"), known("a", 1, 1));
    for other in [
        "a.gguf",
        "a-1-of-3.gguf",
        "a-00004-of-00003.gguf",
        "a-00000-of-00003.gguf",
        "a-00001-of-00003.safetensors",
        "-00001-of-00003.gguf",
        "a-000001-of-00003.gguf",
        "a-+0001-of-00003.gguf",
        "..",
        "",
    ] {
        assert_eq!(read(other), None, "{other}");
    }
    let part = PartName::of(Path::new("d/a-00002-of-00003.GGUF")).unwrap();
    assert_eq!(part.part(3), Path::new("d/a-00003-of-00003.GGUF"));
}
