//! Every reward against answers whose worth is known, and lists as specs write them.

use super::*;

pub(super) fn answer(text: &str, right: &str) -> Answer {
    Answer {
        prompt: "p".into(),
        text: text.into(),
        tokens: text.split_whitespace().count(),
        ended: true,
        behind: None,
        thinking: None,
        reference: Reference {
            answer: Some(right.into()),
            ..Reference::default()
        },
    }
}

fn reward(yaml: Value) -> WeightedReward {
    serde_json::from_value(yaml).unwrap()
}

fn score(yaml: Value, text: &str, right: &str) -> f64 {
    reward(yaml).reward.score(&answer(text, right)).unwrap()
}

#[test]
fn answers_are_compared_to_the_letter_or_as_numbers() {
    let exact = |text| score(serde_json::json!("exact"), text, "4 8");
    assert_eq!(
        (exact("4 8\n"), exact("48"), exact("4 8 8")),
        (1.0, 0.0, 0.0)
    );
    let after = serde_json::json!({"exact": {"after": "=", "ignore_case": true}});
    assert_eq!(score(after.clone(), "so a = B", "b"), 1.0);
    assert_eq!(score(after, "b", "b"), 0.0);
    for (text, right, worth) in [
        ("It is 1,234.", "#### 1234", 1.0),
        ("so 3-1 and #### 72 apples", "72", 1.0),
        ("\\boxed{ 5 } or 6", "5", 1.0),
        ("x = -3", "-3", 1.0),
        ("5-3", "3", 1.0),
        ("first 7, then 8", "7", 0.0),
        ("nothing", "7", 0.0),
        ("60", "60 km/h", 1.0),
        ("\\boxed{5}", "$5/day", 1.0),
        ("3", "3 p.m.", 1.0),
        ("0.5", ".50", 1.0),
        ("0", "0.001", 0.0),
        ("1/4", "3/4", 0.0),
        ("that is 6/8", "3/4", 1.0),
        ("\\boxed{\\frac{3}{5}}", "\\boxed{\\frac{3}{4}}", 0.0),
        ("\\boxed{\\dfrac{6}{8}}", "\\frac34", 1.0),
        ("\\boxed{-\\frac{3}{4}}", "-0.75", 1.0),
        ("\\boxed{3\\frac{1}{2}}", "3.5", 1.0),
        ("\\boxed{x = 1{,}234}", "1234", 1.0),
        ("\\boxed{\u{2212}7\\text{ (or 3)}}", "-7", 1.0),
        ("\\boxed{50\\%}", "50", 1.0),
        ("\\boxed{5\\sqrt{2}}", "5", 0.0),
        ("\\boxed{3, 4}", "3", 0.0),
        ("\\boxed{3,4}", "34", 0.0),
        ("\\boxed{2^3}", "2", 0.0),
        ("\\boxed{7", "7", 1.0),
        ("from 1,000 to 2,500.75", "2500.75", 1.0),
        ("on 3/4/2020", "2020", 1.0),
        ("1/0", "1", 0.0),
        // Whole numbers are not rounded.
        ("12345670", "12345678", 0.0),
        ("2000001", "2000000", 0.0),
        ("2000000.0", "2000000", 1.0),
        ("9007199254740993", "9007199254740992", 0.0),
        ("0.333333333", "1/3", 1.0),
        // Of two marks the later one counts; headings mark nothing.
        ("#### Step 1: add\n2+2\n\n\\boxed{4}", "4", 1.0),
        ("#### 1. Count\n6 and 7. The answer is 42.", "42", 1.0),
        ("\\boxed{4}\n\n#### 1) Check the sum of 2 and 2", "4", 1.0),
        ("\\boxed{4} is wrong\n#### 5 apples", "5", 1.0),
        ("#### 18.", "18", 1.0),
        ("#### $18", "18", 1.0),
        ("\\boxed{- 5}", "-5", 1.0),
        ("\\boxed{- 5}", "5", 0.0),
        ("it is x = -$5", "-5", 1.0),
        ("from $5-$10", "10", 1.0),
        ("10 - 5", "5", 1.0),
        ("fruits:\n- 5 apples", "5", 1.0),
        ("Hence 3\n\\frac{3}{2}", "1.5", 1.0),
        ("\\boxed{25 \\text{ cm}^2}", "25", 1.0),
        ("\\boxed{\\text{42}}", "42", 1.0),
        ("\\boxed{\\mathbf{42}}", "42", 1.0),
        ("\\boxed{\\mathbf{x}+3}", "3", 0.0),
        ("\\boxed{y+3}", "3", 0.0),
        ("\\boxed{3x}", "3", 0.0),
        ("\\boxed{5 apples}", "5", 1.0),
        // Exponents, in references as serde_json writes them, too.
        ("0.001", "1e-3", 1.0),
        ("-3", "1e-3", 0.0),
        ("\\boxed{0.00001}", "1e-5", 1.0),
        ("25000000000000000000", "2.5e19", 1.0),
        ("2e3", "2000", 1.0),
        ("the code 3e5f", "5", 1.0),
        ("7", "so 3 boxes with 4 each less 5 are 7 in all", 1.0),
        ("7", "12 - 5 = 7", 1.0),
        ("5", "5 cm", 1.0),
    ] {
        assert_eq!(
            score(serde_json::json!("number"), text, right),
            worth,
            "{text:?} for {right}"
        );
    }
    let rough = serde_json::json!({"number": {"tolerance": 0.01}});
    assert_eq!(score(rough, "2000001", "2000000"), 1.0);
    let marked = serde_json::json!({"number": {"marked": true}});
    assert_eq!(score(marked, "7", "7"), 0.0);
    let error = reward(serde_json::json!("number"))
        .reward
        .score(&answer("7", "seven"));
    assert!(error.unwrap_err().contains("holds no number"));
    for right in [
        "\\boxed{5\\sqrt{2}}",
        "\\boxed{(3, 4)}",
        "2^{10}\\pi",
        "2^{10}",
        "(3,4)",
        "x+3",
        "3 or 4",
        "4!",
        "5 - x",
        "a = 1, b = 2",
    ] {
        let error = reward(serde_json::json!("number"))
            .reward
            .score(&answer("5", right));
        assert!(
            error.as_ref().is_err_and(|e| e.contains("one number")),
            "{right}: {error:?}"
        );
    }
}

#[test]
fn patterns_tags_length_and_repetition() {
    let digits = serde_json::json!({"regex": {"pattern": "^[0-9]+$"}});
    assert_eq!(
        (score(digits.clone(), "12\n", ""), score(digits, "1 2", "")),
        (1.0, 0.0)
    );
    let tags = |text| score(serde_json::json!("tags"), text, "");
    assert_eq!(tags("<think>a</think>\n<answer>b</answer>\n"), 1.0);
    for wrong in [
        "<think><answer>a</answer></think><answer>b</answer>",
        "<answer>b</answer><think>a</think>",
        "<think>a</think><answer>b</answer> c",
        "<think>a<answer>b</answer>",
        "<think><think>a</think><answer>b</answer>",
    ] {
        assert_eq!(tags(wrong), 0.0, "{wrong}");
    }
    let length = serde_json::json!({"length": {"free": 2, "limit": 6}});
    assert_eq!(score(length.clone(), "a b", ""), 0.0);
    assert_eq!(score(length.clone(), "a b c", ""), -0.25);
    assert_eq!(score(length, "a b c d e f g", ""), -1.0);
    let again = |text| score(serde_json::json!({"repetition": {"words": 2}}), text, "");
    assert_eq!(
        (again("a b c"), again("a b a b a"), again("a")),
        (0.0, -0.5, 0.0)
    );
}

#[test]
fn a_list_says_names_weights_and_what_is_wrong() {
    let list: Vec<WeightedReward> = serde_json::from_value(serde_json::json!([
        "exact",
        {"length": {"limit": 9}, "weight": 0.5, "name": "short"}
    ]))
    .unwrap();
    assert_eq!((list[0].name.as_str(), list[0].weight), ("exact", 1.0));
    assert_eq!((list[1].name.as_str(), list[1].weight), ("short", 0.5));
    let written = serde_json::to_value(&list).unwrap();
    assert_eq!(
        serde_json::from_value::<Vec<WeightedReward>>(written).unwrap(),
        list
    );
    for (wrong, says) in [
        (serde_json::json!("exat"), "did you mean exact?"),
        (
            serde_json::json!({"exact": {}, "number": {}}),
            "one reward per item",
        ),
        (serde_json::json!({"exact": {"afer": "="}}), "afer"),
        (
            serde_json::json!({"exact": {}, "weight": "x"}),
            "not a number",
        ),
        (serde_json::json!(3), "not a reward"),
    ] {
        let error = serde_json::from_value::<WeightedReward>(wrong).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    for bad in [
        serde_json::json!({"regex": {"pattern": "("}}),
        serde_json::json!({"length": {"free": 9, "limit": 9}}),
        serde_json::json!({"exact": {}, "name": "a b"}),
        serde_json::json!("command"),
    ] {
        assert!(reward(bad.clone()).fault().is_some(), "{bad}");
    }
}

fn judge(command: Value) -> Scorer {
    Scorer::new(&[reward(
        serde_json::json!({ "command": command, "name": "mine" }),
    )])
}

#[test]
fn a_program_scores_line_by_line() {
    let run = r#"while read -r line; do case "$line" in *'"answer":"yes"'*) echo 1;; *) echo '{"score": 0.25}';; esac; done"#;
    let mut judge = judge(serde_json::json!({ "run": run }));
    let scores = judge
        .score(&[answer("yes", "a"), answer("no", "a")])
        .unwrap();
    assert_eq!(
        (scores[0].values.as_slice(), scores[0].n_failed()),
        (&[1.0, 0.25][..], 0)
    );
}

/// It reads four lines before it scores the first: with fewer sent ahead it would wait for ever.
#[test]
fn a_program_may_have_several_answers_at_once() {
    let run = r#"while read -r a && read -r b && read -r c && read -r d; do
        for line in "$a" "$b" "$c" "$d"; do case "$line" in *'"answer":"yes"'*) echo 1;; *) echo 0;; esac; done
    done"#;
    let settings = serde_json::json!({ "run": run, "ahead": 4 });
    let texts = ["yes", "no", "no", "yes", "yes", "yes", "no", "no"];
    let answers: Vec<Answer> = texts.iter().map(|text| answer(text, "a")).collect();
    let mut judge = judge(settings);
    for _ in 0..2 {
        let scores = judge.score(&answers).unwrap();
        assert_eq!(scores[0].values, [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    }
    // Ahead, too, a line that nobody asked for is found where all scores are there.
    let run = "while read -r line; do echo 1; echo 0; done";
    let settings = serde_json::json!({ "run": run, "ahead": 4 });
    let mut judge = self::judge(settings);
    let error = (0..1000).find_map(|_| {
        crate::base::clock::pause(std::time::Duration::from_millis(10));
        judge.score(&answers).err()
    });
    let error = error.unwrap().to_string();
    assert!(error.contains("one line per answer"), "{error}");
}

#[test]
fn a_program_that_hangs_dies_or_writes_rubbish_is_named_with_its_line() {
    for (run, says) in [
        ("echo hello; cat", "it wrote \"hello\""),
        ("read -r line; exit 3", "exit status: 3"),
        ("sleep 60", "no score within 0.2 s"),
        ("exec >&-; sleep 600", "closed its output"),
        ("/no/such/program", "it ended without a score"),
        ("/no/such/program", "; on stderr: "),
        (
            "echo first >&2; echo 'no file' >&2; exit 2",
            "exit status: 2; on stderr: no file",
        ),
    ] {
        let settings = serde_json::json!({ "run": run, "timeout": if run == "sleep 60" { 0.2 } else { 60.0 } });
        let error = judge(settings.clone())
            .score(&[answer("a", "b")])
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(says) && text.contains("restarted"), "{text}");
        assert!(
            text.contains("reward `mine`") && text.contains("answer \"a\""),
            "{text}"
        );
        let mut settings = settings;
        settings["on_failure"] = "zero".into();
        let scores = judge(settings).score(&[answer("a", "b")]).unwrap();
        assert_eq!((scores[0].values[0], scores[0].n_failed()), (0.0, 1));
    }
}

/// A program that reads nothing fills its pipe; what the shell started ends with it.
#[test]
fn a_program_that_reads_nothing_or_writes_twice_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let run = format!(
        "cd / && sh -c 'echo $$ > {0}; exec sleep 600'",
        pid.display()
    );
    let long = "x".repeat(1 << 20);
    let error =
        judge(serde_json::json!({ "run": run, "timeout": 0.5 })).score(&[answer(&long, "b")]);
    assert!(error.unwrap_err().to_string().contains("no score within"));
    let child = std::fs::read_to_string(&pid).unwrap();
    let alive = || {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        state.is_ok_and(|state| !state.contains(") Z"))
    };
    for _ in 0..6000 {
        if !alive() {
            break;
        }
        crate::base::clock::pause(std::time::Duration::from_millis(10));
    }
    assert!(!alive(), "the program's own child was left behind");

    let run = "while read -r line; do echo 1; echo 0; done";
    let answers = vec![answer("a", "b"); 500];
    let error = judge(serde_json::json!({ "run": run }))
        .score(&answers)
        .unwrap_err();
    assert!(error.to_string().contains("one line per answer"), "{error}");
}

#[test]
fn a_program_that_dies_once_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("was-here");
    let run = format!(
        "if [ -e {0} ]; then while read -r line; do echo 1; done; else touch {0}; fi",
        mark.display()
    );
    let scores = judge(serde_json::json!({ "run": run })).score(&[answer("a", "b")]);
    assert_eq!(scores.unwrap()[0].values, [1.0]);
}

#[test]
fn json_is_valid_and_has_the_fields_that_are_asked_for() {
    let any = |text| score(serde_json::json!("json"), text, "");
    assert_eq!(
        [
            any(" {\"a\": [1]}\n"),
            any("3"),
            any("{a: 1}"),
            any("{} {}"),
            any("")
        ],
        [1.0, 1.0, 0.0, 0.0, 0.0]
    );
    let fields =
        serde_json::json!({"json": {"fields": {"n": "integer", "why": "string"}, "only": true}});
    for (text, worth) in [
        (r#"{"n": 3, "why": "so"}"#, 1.0),
        (r#"{"n": 3.0, "why": ""}"#, 1.0),
        (r#"{"n": 3.5, "why": "so"}"#, 0.0),
        (r#"{"n": "3", "why": "so"}"#, 0.0),
        (r#"{"n": 3}"#, 0.0),
        (r#"{"n": 3, "why": "so", "more": 1}"#, 0.0),
        ("[3]", 0.0),
    ] {
        assert_eq!(score(fields.clone(), text, ""), worth, "{text}");
    }
    let wrong = reward(serde_json::json!({"json": {"only": true}})).fault();
    assert!(wrong.unwrap().0.contains("without fields"));
}

#[test]
fn the_folder_of_a_reward_model_is_found_from_any_working_directory() {
    let mut reward: RewardConfig =
        serde_json::from_value(serde_json::json!({"model": {"path": "rm"}})).unwrap();
    reward.fix_paths(&|path| std::path::Path::new("/base").join(path));
    assert_eq!(reward.model(), Some(std::path::Path::new("/base/rm")));
}

#[test]
fn what_an_answer_lacks_is_counted_apart_from_what_is_wrong() {
    let rewards: Vec<WeightedReward> =
        serde_json::from_str(r#"["number", {"json": {}}, "exact"]"#).unwrap();
    let answer = |text: &str| answer(text, "4");
    let answers = ["it is 5", "four", "[1]", "no"].map(answer);
    let scores = Scorer::new(&rewards).score(&answers).unwrap();
    let unread = |scores: &[Scores]| scores.iter().map(Scores::n_unread).collect::<Vec<_>>();
    // "four" and "no" hold no number, only "[1]" is JSON, and any text can be compared.
    assert_eq!(unread(&scores), [Some(2), Some(3), None]);
    // Counts are those of the answers that are there after others were replaced.
    let fresh = Scorer::new(&rewards)
        .score(&["none", "[2]"].map(answer))
        .unwrap();
    let mut replaced = scores;
    for (scores, fresh) in replaced.iter_mut().zip(fresh) {
        scores.replace(&[0, 1], fresh);
    }
    assert_eq!(unread(&replaced), [Some(2), Some(2), None]);
    assert!(replaced[0].values.iter().all(|value| *value == 0.0));
}

#[test]
fn repeated_groups_of_words_are_a_share() {
    use super::repetition::repeated;
    // a b c, b c a, c a b, a b c: one of four stood there before.
    assert_eq!(repeated("a b c a b c", 3), 0.25);
    assert_eq!(repeated("a b", 3), 0.0);
    assert_eq!(repeated("x x x x x", 1), 0.8);
}

/// An answer that was thought about: what rules see of it.
fn thoughtful(thought: &str, text: &str) -> Answer {
    let is_unfinished = text.is_empty();
    let end = if is_unfinished { "" } else { "</think>\n\n" };
    Answer {
        thinking: Some(Thinking {
            thought: thought.into(),
            completion: format!("<think>\n{thought}{end}{text}"),
            is_unfinished,
            alone: format!("<think>\n\n</think>\n\n{text}"),
        }),
        tokens: 20,
        ended: !is_unfinished,
        ..answer(text, "4")
    }
}

#[test]
fn rules_judge_the_final_message_and_formats_all_that_was_written() {
    let worth = |reward_: Value, answer: &Answer| {
        let reward_: WeightedReward = reward(reward_);
        Scorer::new(&[reward_])
            .score(std::slice::from_ref(answer))
            .unwrap()[0]
            .values[0]
    };
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let right = thoughtful("Is it 7? No.", "4");
    let wrong = thoughtful("It is 4.", "7");
    let cut = thoughtful("4", "");
    for (reward, expected) in [
        (r#""exact""#, [1.0, 0.0, 0.0]),
        (r#""number""#, [1.0, 0.0, 0.0]),
        (r#"{"json": {}}"#, [1.0, 1.0, 0.0]),
        (r#"{"regex": {"pattern": "^4$"}}"#, [1.0, 0.0, 0.0]),
        // Silence matches, and is no answer.
        (r#"{"regex": {"pattern": "^[0-9]*$"}}"#, [1.0, 1.0, 0.0]),
        (
            r#"{"regex": {"pattern": "^<think>", "whole": true}}"#,
            [1.0, 1.0, 1.0],
        ),
        (
            r#"{"regex": {"pattern": "</think>", "whole": true}}"#,
            [1.0, 1.0, 0.0],
        ),
        (
            r#"{"length": {"free": 10, "limit": 30}}"#,
            [-0.5, -0.5, -0.5],
        ),
    ] {
        let found = [&right, &wrong, &cut].map(|answer| worth(json(reward), answer));
        assert_eq!(found, expected, "{reward}");
    }
    let tags = r#"{"tags": {"tags": ["think", "answer"]}}"#;
    let mut tagged = thoughtful("so", "<answer>4</answer>");
    assert_eq!(worth(json(tags), &tagged), 1.0);
    // The prompt began the thought, and the model went on in it.
    tagged.prompt = "assistant\n<think>\n".into();
    if let Some(thinking) = &mut tagged.thinking {
        thinking.completion = "so</think><answer>4</answer>".into();
    }
    assert_eq!(worth(json(tags), &tagged), 1.0);
    let loops = thoughtful("a b c a b c", "4");
    assert!(worth(json(r#""repetition""#), &loops) < 0.0);
    let english =
        "First we add the two numbers, and then we divide the sum by the number of people.";
    let language = r#"{"language": {"language": "eng"}}"#;
    assert_eq!(worth(json(language), &thoughtful(english, "4")), 1.0);
    // A message that is not there holds no number.
    let scores = Scorer::new(&[reward(json(r#""number""#))])
        .score(&[right, cut])
        .unwrap();
    assert_eq!(scores[0].n_unread(), Some(1));
}

#[test]
fn a_program_reads_message_thought_and_completion() {
    let run = "python3 -c \"import json,sys\nfor l in sys.stdin:\n r=json.loads(l)\n \
               print(float(r['answer']=='4' and r['thought']=='so' and r['completion'].startswith('<think>')) - r['unfinished'], flush=True)\"";
    let reward: WeightedReward =
        serde_json::from_value(serde_json::json!({"command": {"run": run}})).unwrap();
    let plain = answer("4", "4");
    let answers = [thoughtful("so", "4"), thoughtful("so", ""), plain];
    let scores = Scorer::new(&[reward]).score(&answers).unwrap();
    assert_eq!(scores[0].values, [1.0, -1.0, 0.0]);
}
