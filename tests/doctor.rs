//! Every recorded machine yields exactly the expected findings, and no false alarm; `docs/doctor.md` is generated from the
//! list of checks (`LLMTUI_UPDATE_DOCS=1 cargo test --test doctor` regenerates it).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use llmtui::hardware::doctor::{CHECKS, Finding, Status, examine};
use llmtui::hardware::{Provider, Recorded, Recording};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines")
}

fn findings(name: &str) -> Vec<Finding> {
    let recording = Recording::read(&folder().join(format!("{name}.json"))).unwrap();
    examine(&Recorded::new(recording).machine())
}

/// Machine, and the checks that should not pass on it, in the order of the table.
const WANTED: &[(&str, &[&str])] = &[
    ("healthy", &[]),
    ("eight", &["unknown collectives"]),
    ("cpu", &[]),
    ("mig", &[]),
    ("no_driver", &["fail driver"]),
    (
        "no_driver_container",
        &["fail driver", "unknown clock", "unknown clock_skew"],
    ),
    ("mismatch", &["fail driver_match"]),
    ("throttled", &["fail throttle", "warn temperature"]),
    ("ecc", &["fail ecc", "warn xid"]),
    ("lost", &["fail gpu_lost", "fail xid"]),
    ("full_disk", &["fail disk_room"]),
    ("tiny_shm", &["warn shm"]),
    (
        "shared",
        &["warn gpu_memory", "warn power_limit", "warn pcie"],
    ),
];

#[test]
fn every_recorded_machine_has_exactly_its_findings() {
    for (name, wanted) in WANTED {
        let found: Vec<String> = findings(name)
            .iter()
            .filter(|f| f.status < Status::Pass)
            .map(|f| format!("{} {}", f.status.word(), f.id))
            .collect();
        assert_eq!(found, *wanted, "{name}");
    }
    let files = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(
        files,
        WANTED.len(),
        "a recorded machine without expected findings"
    );
}

#[test]
fn every_problem_has_evidence_a_cause_and_a_fix() {
    for finding in WANTED.iter().flat_map(|(name, _)| findings(name)) {
        assert!(!finding.evidence.is_empty(), "{}", finding.id);
        if finding.status <= Status::Warn {
            assert!(
                !finding.cause.is_empty() && !finding.fix.is_empty(),
                "{finding:?}"
            );
        }
    }
}

#[test]
fn evidence_names_the_subject() {
    let evidence = |name: &str, id: &str| {
        let found = findings(name).into_iter().find(|f| f.id == id).unwrap();
        format!("{}; {}", found.evidence, found.fix)
    };
    for (name, id, words) in [
        (
            "shared",
            "gpu_memory",
            "python train.py --config sft.yaml (ana, process 41273)",
        ),
        ("shared", "pcie", "gen 3 x4 of gen 4 x16"),
        (
            "throttled",
            "throttle",
            "too hot (hardware), hardware slowdown",
        ),
        ("mismatch", "driver_match", "570.86.15"),
        ("no_driver_container", "driver", "--gpus all"),
        ("full_disk", "disk_room", "200 MiB of 120 GiB free on /"),
        ("tiny_shm", "shm", "64 MiB"),
        ("tiny_shm", "memory", "13 GiB of 16 GiB"),
        ("mig", "cuda_visible", "1g.10gb on GPU 0"),
        ("lost", "gpu_lost", "GPU 1: the GPU has fallen off the bus"),
        ("ecc", "ecc", "2 uncorrectable errors"),
        (
            "eight",
            "nccl",
            "NCCL 2.27.3; the GPUs communicate over NVLink",
        ),
        (
            "eight",
            "collectives",
            "all_reduce_perf -b 8 -e 1G -f 2 -g 8",
        ),
        ("eight", "numa", "GPU 4, 5, 6, 7: near CPUs 48-95"),
    ] {
        assert!(
            evidence(name, id).contains(words),
            "{name} {id}: {}",
            evidence(name, id)
        );
    }
}

#[test]
fn json_has_the_promised_keys() {
    let json = serde_json::to_value(findings("throttled")).unwrap();
    let first = json[0].as_object().unwrap();
    for key in ["id", "status", "evidence", "cause", "fix"] {
        assert!(first[key].is_string(), "{key}");
    }
    assert_eq!(first["status"], "fail");
}

fn page() -> String {
    let mut page = String::from(
        "# The doctor's checks\n\n\
         Generated from the checks in `crates/system/src/hardware/doctor` by `LLMTUI_UPDATE_DOCS=1 cargo test --test doctor`; do not edit.\n\n\
         `llmtui doctor` checks the machine and reports for each check whether it passes, with evidence, why it matters and\n\
         what to do. It is read-only: it never resets a GPU, ends a process or changes a setting. `--json` prints\n\
         `[{id, title, status, place, evidence, cause, fix, expected, source}]` with the status `pass`, `warn`, `fail`, `unknown` or\n\
         `not_applicable`;\n\
         `--hardware FILE` checks a recorded machine, `--record FILE` records this one, `--measure` also writes 256 MiB to\n\
         measure the disk. The exit code is 0 if nothing fails and 3 if something does.\n\n\
         | id | check | passes |\n|---|---|---|\n",
    );
    for check in CHECKS {
        writeln!(
            page,
            "| `{}` | {} | {} |",
            check.id, check.title, check.rule
        )
        .unwrap();
    }
    page
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a switch of this test, not of the program"
)]
fn the_page_of_checks_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/doctor.md");
    if std::env::var("LLMTUI_UPDATE_DOCS").is_ok() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/doctor.md is stale: LLMTUI_UPDATE_DOCS=1 cargo test --test doctor"
    );
}
