//! Whole conversations: what is typed, what is said to it, and the answers that come of it.

use super::*;
use crate::advisor::choose::Goal;
use crate::spec::SpecSources;

fn talk(text: &str) -> (Wizard, anyhow::Result<bool>, String) {
    talk_at(&SpecSources::default(), text)
}

fn talk_at(sources: &SpecSources, text: &str) -> (Wizard, anyhow::Result<bool>, String) {
    let context = wizard::Context::gather(sources, None, Machine::default());
    let mut wizard = Wizard::new(context, Answers::default());
    let mut out = Vec::new();
    let done = converse(&mut wizard, &mut text.as_bytes(), &mut out, 80);
    (wizard, done, String::from_utf8(out).unwrap())
}

#[test]
fn empty_lines_take_everything_that_is_marked() {
    let (wizard, done, out) = talk("\n\n\n\n\n\n\n");
    assert!(done.unwrap(), "{out}");
    assert!(wizard.yaml().unwrap().contains("extends: quickstart"));
    assert!(out.contains("[7/7] What it will cost"), "{out}");
}

#[test]
fn values_are_set_by_number_and_by_name_and_faults_are_said() {
    let (wizard, done, out) = talk("\n\n\n\n\nmax_steps=77\n3 fast\n3 2e-3\n?2\n\n\n");
    assert!(done.unwrap(), "{out}");
    let yaml = wizard.yaml().unwrap();
    assert!(
        yaml.contains("max_steps: 77") && yaml.contains("lr: 0.002"),
        "{yaml}"
    );
    assert!(out.contains("! lr: expected a number"), "{out}");
    assert!(out.contains("Means         Optimizer steps."), "{out}");
}

#[test]
fn a_path_is_taken_as_it_stands_where_one_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my poems.txt");
    std::fs::write(
        &path,
        "Shall I compare thee to a summer's day?\n".repeat(400),
    )
    .unwrap();
    let (wizard, _, out) = talk(&format!("1\n2\n{}\n", path.display()));
    assert!(!out.contains("is not an answer"), "{out}");
    assert!(out.contains("  found: plain text"), "{out}");
    assert_eq!(
        wizard.answers().data_path,
        path.display().to_string(),
        "{out}"
    );
    // In one line too, though another row is marked.
    let (wizard, _, out) = talk(&format!("1\n{}\n", path.display()));
    assert_eq!(
        wizard.answers().data_path,
        path.display().to_string(),
        "{out}"
    );
}

/// Asked for a path, people mistype it.
#[test]
fn a_path_that_does_not_exist_is_told_so_and_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("poems");
    std::fs::write(
        &path,
        "Shall I compare thee to a summer's day?\n".repeat(400),
    )
    .unwrap();
    let right = path.display();
    let (wizard, _, out) = talk(&format!("1\n2\nnowhere\n{right}\n"));
    assert!(out.contains("! nowhere does not exist"), "{out}");
    assert!(!out.contains("is not an answer"), "{out}");
    assert_eq!(wizard.step(), Step::Start, "{out}");
    // Whatever row is marked, a path is meant as one.
    let (.., out) = talk("1\n/nope/x.txt\n");
    assert!(out.contains("! /nope/x.txt does not exist"), "{out}");
}

/// The same answer was refused for ever.
#[test]
fn rows_that_cannot_be_read_are_left_out_once_the_file_is_chosen_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pirate.jsonl");
    let good = "{\"instruction\": \"Speak.\", \"input\": \"\", \"output\": \"Arr!\"}\n";
    let bad = "{\"instruction\": 3, \"input\": \"\", \"output\": \"Arr!\"}\n";
    std::fs::write(&path, [&good.repeat(40), bad].concat()).unwrap();
    let path = path.display();
    for again in [format!("2 {path}"), path.to_string(), String::new()] {
        let (wizard, _, out) = talk(&format!("2\n2 {path}\n{again}\n"));
        assert_eq!(
            out.matches("1 of 41 rows cannot be read").count(),
            1,
            "{out}"
        );
        assert_eq!(wizard.step(), Step::Start, "{out}");
    }
}

/// Methods that are no answer stand in a line: with a reason each they pushed the question off a small screen.
#[test]
fn the_question_of_the_method_fits_a_small_screen() {
    let dir = tempfile::tempdir().unwrap();
    let (text, model) = material(dir.path());
    let (wizard, _, out) = talk(&format!("3\n2 {text}\n2 {model}\n?6\n"));
    assert_eq!(wizard.step(), Step::Method, "{out}");
    let question = out.split("[4/7]").nth(1).unwrap();
    let asked = question.split("> ").next().unwrap();
    assert!(asked.lines().count() < 22, "{asked}");
    assert!(
        asked.contains("?N says why") && asked.contains("GRPO"),
        "{asked}"
    );
    // Advice is no row of these.
    assert!(asked.contains("  1  ") || asked.contains("*  1"), "{asked}");
    assert!(out.contains("  Why "), "{out}");
}

/// It is kept, for the other value may be the next to change; then it must not look refused.
#[test]
fn a_value_that_contradicts_another_says_that_it_stands_and_how_to_take_it_back() {
    let (wizard, done, out) = talk("\n\n\n\n\nn_head 3\n\nn_head 4\n\n\n");
    assert!(out.contains("! n_head = 3, but"), "{out}");
    assert!(out.contains("undoes it"), "{out}");
    assert!(done.unwrap(), "{out}");
    assert!(wizard.yaml().is_some());
}

/// A path behind the number of a row without one is not dropped: the row would train something else.
#[test]
fn what_a_row_cannot_take_is_refused_with_the_row_that_can() {
    let (wizard, _, out) = talk("2\n1 chats.jsonl\n");
    assert!(
        out.contains("! 1 takes no text, 2 does: `chats.jsonl`"),
        "{out}"
    );
    assert_eq!(wizard.step(), Step::Data, "{out}");
}

#[test]
fn a_tilde_means_the_users_home_and_stays_in_the_spec() {
    let dir = tempfile::tempdir().unwrap();
    let text = "Shall I compare thee to a summer's day?\n".repeat(400);
    std::fs::write(dir.path().join("poems.txt"), text).unwrap();
    let sources = SpecSources {
        home: Some(dir.path().into()),
        ..SpecSources::default()
    };
    let (wizard, _, out) = talk_at(&sources, "1\n~/poems.txt\n");
    assert_eq!(wizard.answers().data_path, "~/poems.txt", "{out}");
    // The file was read.
    assert_eq!(wizard.step(), Step::Start, "{out}");
    let (.., out) = talk_at(&sources, "1\n2 ~nobody/poems.txt\n");
    assert!(out.contains("`~nobody` is not expanded"), "{out}");
    let (.., out) = talk("1\n2 ~/poems.txt\n");
    assert!(out.contains("HOME is not set"), "{out}");
}

#[test]
fn no_line_of_a_question_is_wider_than_the_terminal() {
    let (_, _, out) = talk("\n\n\n\n\n\n\n");
    assert!(out.contains("[7/7]"), "{out}");
    let lines = out.lines();
    let wide: Vec<&str> = lines.filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn answers_that_cannot_be_trained_lead_back_to_their_question() {
    // Described data: advice, and at the end the question again, not the end of the program.
    let (wizard, done, out) = talk("\n3\n\n\n\n\n\n1\n\n\n\n\n\n");
    assert!(done.unwrap(), "{out}");
    assert!(out.contains("! the data was only described"), "{out}");
    assert_eq!(out.matches("[2/7]").count(), 2, "{out}");
    assert!(wizard.yaml().is_some(), "{out}");
}

/// A text of one's own and a model to start from, both in a folder of their own.
fn material(dir: &Path) -> (String, String) {
    let (text, model) = (dir.join("own.txt"), dir.join("model"));
    std::fs::write(
        &text,
        "To be, or not to be: that is the question.\n".repeat(400),
    )
    .unwrap();
    std::fs::create_dir(&model).unwrap();
    let config = serde_json::json!({"model_type": "gpt2", "llmtui": {"model": {
        "n_layer": 3, "n_head": 2, "d_model": 48, "seq_len": 2048, "vocab_size": 5000}}});
    std::fs::write(model.join("config.json"), config.to_string()).unwrap();
    std::fs::write(model.join("model.safetensors"), vec![0; 4_000]).unwrap();
    std::fs::write(model.join("tokenizer.json"), "{}").unwrap();
    (text.display().to_string(), model.display().to_string())
}

#[test]
fn empty_lines_lead_on_where_training_is_advised_against() {
    let dir = tempfile::tempdir().unwrap();
    let (text, model) = material(dir.path());
    let (wizard, done, out) = talk(&format!("3\n2 {text}\n2 {model}\n\n\n\n\n"));
    assert!(done.unwrap(), "{out}");
    assert!(wizard.yaml().is_some(), "{out}");
    let careful = "  ! training is not the first thing to try";
    assert!(out.contains(careful), "{out}");
}

#[test]
fn a_refused_answer_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (text, model) = material(dir.path());
    // A refused row is not the default of the empty line after it.
    let (wizard, _, out) = talk(&format!("3\n2 {text}\n2 {model}\n1\n\n"));
    assert!(out.contains("! without training"), "{out}");
    assert_eq!(wizard.step(), Step::Model, "{out}");
    // A refused path is nobody's: the row has none again.
    let empty = dir.path().display();
    let (wizard, _, out) = talk(&format!("3\n2 {text}\n2 {empty}\n3\n"));
    assert_eq!(wizard.step(), Step::Method, "{out}");
    assert_eq!(wizard.answers().start_path, "", "{out}");
    // Nor does asking about a row choose it.
    let (wizard, _, out) = talk("?3\n\n");
    assert_eq!(wizard.answers().goal, Some(Goal::NewModel), "{out}");
    // An invalid value leaves the previous one.
    let (wizard, done, out) = talk("\n\n\n\n\n3 2e-3\n3 fast\n\n\n");
    assert!(done.unwrap(), "{out}");
    assert!(wizard.yaml().unwrap().contains("lr: 0.002"), "{out}");
}

#[test]
fn what_is_refused_is_told_in_whole_words() {
    let (.., out) = talk("99\n\n2 /a/long/path/to/a/file/that/nobody/has/written/in/this/place\n");
    // At a terminal the line ends that answered.
    let out = out.replace("> ", "\n");
    let wide = |line: &&str| line.chars().count() > 80;
    let wide: Vec<&str> = out.lines().filter(wide).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    assert!(out.contains("is not an answer") && out.contains("does not exist"));
}

#[test]
fn one_goes_back_leaves_and_is_told_when_the_input_ends() {
    let (wizard, done, _) = talk("2\nb\nb\n1\nq\n");
    assert!(!done.unwrap());
    assert_eq!(wizard.step(), Step::Data);
    let (_, done, _) = talk("\n\n");
    assert!(
        done.unwrap_err()
            .to_string()
            .contains("question 3 of 7 (start)")
    );
    let (_, _, out) = talk("99\nxyz\n");
    assert!(out.contains("`99` is not an answer") && out.contains("`xyz` is not an answer"));
}

/// The name follows from the data: the second spec of a folder ended behind the last question.
#[test]
fn a_name_that_nobody_chose_gets_a_number_where_its_file_exists() {
    let dir = tempfile::tempdir().unwrap();
    let taken = dir.path().join("deep.v1.yaml");
    for next in ["deep.v1-2.yaml", "deep.v1-3.yaml"] {
        let path = crate::spec::free_path(&taken);
        assert_eq!(path, dir.path().join(next));
        std::fs::write(&path, "").unwrap();
    }
}

/// "`mychats` is not an answer", under a hint that named runs first.
#[test]
fn the_name_of_a_run_is_taken_as_it_stands_where_a_model_is_asked_for() {
    use crate::base::clock::ManualClock;
    let dir = tempfile::tempdir().unwrap();
    let run = crate::run::RunDir::create(dir.path(), "mychats", "", "", &ManualClock::at(0));
    let folder = run.unwrap().checkpoint_path(14);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("manifest.json"), "{}").unwrap();
    let sources = SpecSources::default();
    let mut context = wizard::Context::gather(&sources, None, Machine::default());
    context.runs_dir = Some(dir.path().into());
    let mut wizard = Wizard::new(context, Answers::default());
    let mut out = Vec::new();
    let _ = converse(&mut wizard, &mut "1\n\nmychats\n".as_bytes(), &mut out, 80);
    let out = String::from_utf8(out).unwrap();
    assert!(!out.contains("is not an answer"), "{out}");
    // How to answer is said before the first wrong input, once.
    assert_eq!(out.matches("b goes back").count(), 1, "{out}");
}
