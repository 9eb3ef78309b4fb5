//! `llmtui fleet` against "machines" behind a fake `ssh`: a script that drops its options and runs the command locally, with
//! another home.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may fail loudly, and keeps the PATH"
)]

use llmtui::fleet::FleetMessage;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");

/// `lab` is another home, `rude` prints something else, `down` refuses.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case $host in
    me@lab) cd "$FAKE_ROOT/lab" && HOME=$PWD XDG_RUNTIME_DIR=$PWD exec sh -c "$*" ;;
    rude) yes 'this is no llmtui' | head -n 500 ;;
    *) echo 'ssh: connect to host down port 22: Connection refused' >&2; exit 255 ;;
esac
"#;

/// A home with hosts, and another machine next to it.
fn world() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["bin", "here/.config/llmtui", "lab"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let ssh = root.path().join("bin/ssh");
    std::fs::write(&ssh, SSH).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = format!(
        "hosts:\n  - {{name: lab, ssh: me@lab, program: {PROGRAM}, runs_dir: ~/runs}}\n  - down\n  - rude\n  - {{name: here, local: true}}\n"
    );
    std::fs::write(root.path().join("here/.config/llmtui/hosts.yaml"), hosts).unwrap();
    root
}

fn command(root: &Path, home: &str, args: &[&str]) -> Command {
    let home = root.join(home);
    let path = format!(
        "{}:{}",
        root.join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = Command::new(PROGRAM);
    command
        .args(args)
        .current_dir(&home)
        .env_clear()
        .env("HOME", &home)
        .env("XDG_RUNTIME_DIR", &home)
        .env("PATH", path)
        .env("FAKE_ROOT", root)
        .stdin(Stdio::null());
    command
}

fn go(root: &Path, home: &str, args: &[&str]) -> Output {
    command(root, home, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn runs_of_all_machines_are_listed_and_unreachable_ones_are_named() {
    let root = world();
    for home in ["here", "lab"] {
        let made = go(
            root.path(),
            home,
            &[
                "train",
                "smoke",
                "-s",
                &format!("name={home}"),
                "--headless",
            ],
        );
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    let listed = go(root.path(), "here", &["fleet", "--json"]);
    let errors = text(&listed.stderr);
    assert!(
        errors.contains("down: ssh: connect to host down"),
        "{errors}"
    );
    assert!(
        errors.contains("rude: it says something else: \"this is no llmtui\""),
        "{errors}"
    );
    assert_eq!(listed.status.code(), Some(3), "two machines did not answer");
    let rows: Vec<Value> = text(&listed.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut found: Vec<(String, String)> = rows
        .iter()
        .map(|row| {
            (
                row["host"].as_str().unwrap().into(),
                row["name"].as_str().unwrap().into(),
            )
        })
        .collect();
    found.sort();
    assert_eq!(
        found,
        [("here".into(), "here".into()), ("lab".into(), "lab".into())]
    );
    assert!(
        rows.iter()
            .all(|row| row["status"] == "finished" && row["step"] == 20),
        "{rows:?}"
    );
    let table = text(&go(root.path(), "here", &["fleet", "--once"]).stdout);
    assert!(
        table.starts_with("HOST") && table.contains("20/20"),
        "{table}"
    );
}

#[test]
fn a_missing_or_invalid_file_gets_instructions() {
    let root = world();
    let absent = go(root.path(), "lab", &["fleet"]);
    assert_eq!(absent.status.code(), Some(2));
    let errors = text(&absent.stderr);
    assert!(
        errors.contains("hosts.yaml does not exist") && errors.contains("me@gpu-box"),
        "{errors}"
    );
    std::fs::write(
        root.path().join("lab/odd.yaml"),
        "hosts: ['-oProxyCommand=x']",
    )
    .unwrap();
    let odd = go(root.path(), "lab", &["fleet", "--hosts", "odd.yaml"]);
    assert_eq!(odd.status.code(), Some(2));
    assert!(
        text(&odd.stderr).contains("odd.yaml: hosts[0]: ssh:"),
        "{}",
        text(&odd.stderr)
    );
}

#[test]
fn changes_are_printed_line_by_line_until_the_reader_leaves() {
    let root = world();
    let mut child = command(root.path(), "lab", &["runs", "--json", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next =
        || -> FleetMessage { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert!(matches!(next(), FleetMessage::Begin { version: 1, .. }));
    assert!(
        matches!(next(), FleetMessage::Beat { .. }),
        "no run is there yet"
    );
    let made = go(root.path(), "lab", &["train", "smoke", "--headless"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let run = loop {
        match next() {
            FleetMessage::Run { run } if run.status == "finished" => break run,
            FleetMessage::Run { .. } | FleetMessage::Beat { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((run.step, run.max_steps), (20, 20));
    let removed = go(root.path(), "lab", &["rm", "--yes", &run.id]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    loop {
        match next() {
            FleetMessage::Gone { id } => {
                assert_eq!(id, run.id);
                break;
            }
            FleetMessage::Run { .. } | FleetMessage::Beat { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    // The next beat detects that the reader is gone.
    drop(lines);
    assert!(child.wait().unwrap().success(), "a closed pipe is no error");
}
