//! HumanEval and MBPP on made-up rows of their formats: correct solutions pass, wrong ones do not, whatever they try.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use llmtui::sandbox::{Isolation, Limits, Sandbox, find};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether programs can be run here.
fn can_run() -> bool {
    let isolated = Sandbox {
        program: PathBuf::from(env!("CARGO_BIN_EXE_llmtui")),
        isolation: Isolation::Walls,
        limits: Limits::default(),
    };
    let why = match (find("python3"), isolated.check()) {
        (None, _) => "there is no python3 in PATH".into(),
        (_, Err(error)) => error.to_string(),
        _ => return true,
    };
    eprintln!("skipped: {why}");
    false
}

fn write_lines(path: &Path, rows: &[Value]) {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
}

/// The shipped task with rows of this test in place of those from the hub; returns the scores of each answer.
fn scores(dir: &Path, task: &str, rows: &[Value], answers: &[&str]) -> (Vec<f64>, Value) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("assets/tasks/{task}.yaml"));
    let shipped = std::fs::read_to_string(shipped).unwrap();
    let own = |line: &str| match line.split(':').next() {
        Some("source") => "source: rows.jsonl".to_string(),
        Some("shots") => String::new(),
        _ => line.to_string(),
    };
    let own: Vec<String> = shipped.lines().map(own).collect();
    std::fs::write(dir.join("task.yaml"), own.join("\n")).unwrap();
    write_lines(&dir.join("rows.jsonl"), rows);
    let answers: Vec<Value> = answers.iter().map(|text| json!({"answer": text})).collect();
    write_lines(&dir.join("answers.jsonl"), &answers);
    let output = Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args([
            "eval",
            "--tasks",
            "./task.yaml",
            "--answers",
            "answers.jsonl",
            "--json",
        ])
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let readings = found["models"][0]["tasks"][0]["readings"]
        .as_array()
        .unwrap();
    let pass = readings.iter().filter(|r| r["metric"] == "pass@1");
    (pass.map(|r| r["value"].as_f64().unwrap()).collect(), found)
}

#[test]
fn functions_of_humaneval_pass_by_their_tests() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let row = |name: &str, body: &str, test: &str| {
        json!({
            "task_id": name,
            "prompt": format!("def {name}(xs):\n    \"\"\" Of a list. \"\"\"\n"),
            "canonical_solution": body,
            "test": format!("def check(candidate):\n    {test}\n"),
            "entry_point": name,
        })
    };
    let rows = [
        row(
            "total",
            "    return sum(xs)\n",
            "assert candidate([1, 2]) == 3",
        ),
        row(
            "largest",
            "    return max(xs)\n",
            "assert candidate([1, 5, 2]) == 5",
        ),
        row("count", "    return len(xs)\n", "assert candidate([]) == 0"),
    ];
    let right: Vec<&str> = rows
        .iter()
        .map(|r| r["canonical_solution"].as_str().unwrap())
        .collect();
    assert_eq!(scores(dir.path(), "humaneval", &rows, &right).0, [1.0]);
    // Text after the end of a function does not count.
    let trailing = "    return max(xs)\n\ndef largest(xs):\n    return 0\n";
    let mixed = [right[0], trailing, "    return 1\n"];
    let (share, found) = scores(dir.path(), "humaneval", &rows, &mixed);
    assert!((share[0] - 2.0 / 3.0).abs() < 1e-9, "{found}");
    // Chat models go on in the fence that their turn begins with.
    let fenced = "    return sum(xs)\n```\nDone.";
    let instruct = [fenced, "    return max(xs)", "I cannot."];
    let (share, found) = scores(dir.path(), "humaneval_instruct", &rows, &instruct);
    assert!((share[0] - 2.0 / 3.0).abs() < 1e-9, "{found}");
    let mischief = [
        "    import os\n    os._exit(0)\n",
        "    raise SystemExit(0)\n",
        "    return open('/etc/llmtui-was-here', 'w')\n",
    ];
    assert_eq!(scores(dir.path(), "humaneval", &rows, &mischief).0, [0.0]);
}

#[test]
fn functions_of_mbpp_pass_by_their_lists_of_tests() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let row = |text: &str, code: &str, tests: &[&str]| json!({"text": text, "code": code, "task_id": 1, "test_setup_code": "", "test_list": tests});
    let rows = [
        row(
            "Double a number.",
            "def double(x):\n    return 2 * x",
            &["assert double(2) == 4", "assert double(0) == 0"],
        ),
        row(
            "Round a number up.",
            "import math\ndef up(x):\n    return math.ceil(x)",
            &["assert up(1.2) == 2"],
        ),
    ];
    let right: Vec<String> = rows
        .iter()
        .map(|r| format!("{}\n[DONE]\nmore", r["code"].as_str().unwrap()))
        .collect();
    let right: Vec<&str> = right.iter().map(String::as_str).collect();
    assert_eq!(scores(dir.path(), "mbpp", &rows, &right).0, [1.0]);
    let wrong = ["def double(x):\n    return 4\n[DONE]", "def up(x:\n"];
    assert_eq!(scores(dir.path(), "mbpp", &rows, &wrong).0, [0.0]);
}

/// Answers as chat models write them: the function in a fence, and a script under it. Python's own `exec` of such a program passes.
const SCRIPTS: [&str; 3] = [
    "So:\n```python\ndef double(x):\n    return 2 * x\n\nif __name__ == \"__main__\":\n    print(double(int(input())))\n```\nDone.",
    "```\nfrom __future__ import annotations\nimport sys\nfrom dataclasses import dataclass\n\n@dataclass\nclass Pair:\n    x: int\n\n\
     def double(x):\n    return Pair(2 * x).x\n\nif __name__ == '__main__':\n    sys.exit(1)\n```",
    "```python\nimport unittest\ndef double(x):\n    return 2 * x\nclass T(unittest.TestCase):\n    pass\n\
     if __name__ == '__main__':\n    unittest.main()\n```",
];

#[test]
fn what_an_answer_does_as_a_script_is_not_run() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let row = json!({"ask": "double", "answer": "", "tests": ["assert double(2) == 4"]});
    write_lines(
        &dir.path().join("rows.jsonl"),
        &[row.clone(), row.clone(), row],
    );
    let answers: Vec<Value> = SCRIPTS.iter().map(|text| json!({"answer": text})).collect();
    write_lines(&dir.path().join("answers.jsonl"), &answers);
    let task = "name: doubled\nversion: 1\nsummary: s\nkind: answer\nsource: rows.jsonl\nprompt: '{{ ask }}'\n\
                answer: {until: [], python: {run: \"{{ completion }}\\n{{ tests[0] }}\\n\"}}\n";
    std::fs::write(dir.path().join("task.yaml"), task).unwrap();
    let run = |args: &[&str]| -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_llmtui"))
            .args(args)
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        String::from_utf8(output.stdout).unwrap()
    };
    let of = ["--answers", "answers.jsonl", "--json"];
    let found = run(&[&["eval", "--tasks", "./task.yaml"][..], &of].concat());
    let found: Value = serde_json::from_str(&found).unwrap();
    let passed = &found["models"][0]["tasks"][0]["readings"][0];
    assert_eq!(
        (&passed["metric"], &passed["value"]),
        (&json!("pass@1"), &json!(1.0))
    );

    // The reward runs the row's tests as scripts still.
    let wrong = "assert double(2) == (5 if __name__ == '__main__' else 4)";
    let lines = SCRIPTS.iter().flat_map(|answer| {
        ["assert double(2) == 4", wrong]
            .map(|test| json!({"answer": answer, "metadata": {"tests": test}}))
    });
    write_lines(&dir.path().join("scored.jsonl"), &lines.collect::<Vec<_>>());
    let reward = [
        "reward",
        "test",
        "grpo-sort",
        "scored.jsonl",
        "-s",
        "rewards=[python]",
        "--json",
    ];
    let found = run(&reward);
    // The last line sums up.
    let score = |line: &str| serde_json::from_str::<Value>(line).unwrap()["reward"].as_f64();
    let scores: Vec<f64> = found.lines().filter_map(score).collect();
    assert_eq!(scores, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0], "{found}");
}
