//! A reward model of one stage that judges the answers of another.

use super::{Place, code, err, out};

const JUDGED: &str = "name: judged
stages:
  - {name: base, train: grpo-sort, set: {max_steps: 2, rollout.cold_start_steps: 1, rollout.group_size: 2, micro_batch_size: 4,
      rollout.side_by_side: 4, eval.every: 2, eval.batches: 1, checkpoint.every: 2, sample.every: 0, train.threads: 1}}
  - {name: rm, train: reward-demo, from: scratch, set: {max_steps: 2, micro_batch_size: 4, eval.every: 2, eval.batches: 1,
      checkpoint.every: 2, schedule.cosine.warmup_steps: 1, train.threads: 1}}
  - {name: grpo, train: grpo-sort, from: base, set: {max_steps: 2, rollout.cold_start_steps: 0, rollout.group_size: 2,
      micro_batch_size: 4, rollout.side_by_side: 4, eval.every: 2, eval.batches: 1, checkpoint.every: 2, sample.every: 0,
      train.threads: 1, rewards: [{model: {path: rm}, name: judge}]}}
";

#[test]
fn a_reward_model_of_one_stage_judges_the_answers_of_another() {
    let place = Place::new(JUDGED);
    let planned = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&planned), 0, "{}{}", out(&planned), err(&planned));
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 3]);
    let spec = |place: &Place| {
        let run = place.state()["stages"][2]["run"]
            .as_str()
            .unwrap()
            .to_string();
        let folder = place.dir.path().join("runs").join(run);
        let events = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
        assert!(events.contains("rewards/judge"), "it judged");
        std::fs::read_to_string(folder.join("spec.yaml")).unwrap()
    };
    let made = |place: &Place| {
        place.state()["stages"][1]["made"]
            .as_str()
            .unwrap()
            .to_string()
    };
    let first = made(&place);
    assert!(spec(&place).contains(&first), "{}", spec(&place));
    // If retrained, it is a new run; when the next stage is redone, it uses that one too.
    let redone = place.go(&[
        "train",
        "--resume",
        "judged",
        "--headless",
        "--redo",
        "rm",
        "--redo",
        "grpo",
    ]);
    assert_eq!(code(&redone), 0, "{}{}", out(&redone), err(&redone));
    let second = made(&place);
    assert_ne!(first, second);
    assert!(spec(&place).contains(&second) && !spec(&place).contains(&first));
}

#[test]
fn a_reward_model_out_of_order_is_rejected_before_anything_starts() {
    let place = Place::new(JUDGED);
    let write = |from: &str, to: &str| {
        assert!(JUDGED.contains(from), "{from}");
        std::fs::write(place.dir.path().join("mine.yaml"), JUDGED.replace(from, to)).unwrap();
    };
    let refused = |arguments: &[&str], says: &str| {
        let output = place.go(&[&["train", "mine.yaml", "--headless"], arguments].concat());
        assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
        assert!(err(&output).contains(says), "{says}: {}", err(&output));
        assert!(!place.dir.path().join("runs").exists(), "{says}");
    };
    refused(&["--skip", "rm"], "needs the reward model of rm");
    refused(
        &["-s", "base.rewards=[{model: {path: rm}}]"],
        "stage rm comes after it",
    );
    write("path: rm", "path: mr");
    refused(&[], "\"mr\" is neither an earlier training stage");
    write("path: rm", "path: base");
    refused(&[], "stage base trains a language model");
    write("train: grpo-sort, from: base", "train: grpo-sort");
    refused(&[], "it starts from rm, a reward model");
}
