//! Runs that start from another one: from its weights, or as its branch.

use super::{Place, code, err, events, out};
use llmtui::run::RunDir;
use llmtui::wire::{Envelope, Event};

#[test]
fn a_run_starts_from_another_by_its_name_or_folder() {
    let place = Place::new();
    let output = place.train(&["name=first"], &["--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let parent = place.run();
    let folder = parent.path().display().to_string();
    let best = parent.best_checkpoint().unwrap().path;
    for (word, name) in [("first", "by-name"), (folder.as_str(), "by-folder")] {
        let from = format!("train.from={word}");
        let name = format!("name={name}");
        let output = place.train(&[&from, &name, "max_steps=2"], &["--no-start"]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let run = RunDir::open(std::path::Path::new(out(&output).trim())).unwrap();
        let spec = std::fs::read_to_string(run.path().join("spec.yaml")).unwrap();
        assert!(spec.contains(&best.display().to_string()), "{spec}");
    }
    for arguments in [
        &["model", "show", "smoke"][..],
        &["plan", "smoke"],
        &["ladder", "shakespeare", "--dry-run"],
    ] {
        let output = place.go(&[arguments, &["-s", "train.from=first"]].concat());
        assert_eq!(code(&output), 0, "{arguments:?}: {}", err(&output));
    }
    // The size of a start model is not to be scaled.
    let size = ["ladder", "shakespeare", "--axis", "size", "--dry-run"];
    let refused = place.go(&[&size[..], &["-s", "train.from=first"]].concat());
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let said = err(&refused);
    assert!(
        said.contains("train.from fixes its size") && said.contains("--axis tokens"),
        "{said}"
    );
}

#[test]
fn a_branch_continues_from_a_checkpoint_of_its_parent_with_other_settings() {
    let place = Place::new();
    let output = place.train(&["save_every=5", "keep_last=9"], &["--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let parent = events(&out(&output));
    let run = place.run();
    let from = |step: u64| format!("{}@{step}", run.id());
    let losses = |reported: &[Envelope]| -> Vec<(u64, f64)> {
        let of = |e: &Envelope| match &e.event {
            Event::Stepped { step, values, .. } => {
                Some((*step, values["train/loss"].0)).filter(|(step, _)| *step > 10)
            }
            _ => None,
        };
        reported.iter().filter_map(of).collect()
    };
    // From the start: nothing that its parent learned, and another model if needed.
    let anew = place.go(&["train", "--branch", &from(0), "-s", "n_layer=1", "--json"]);
    assert_eq!(code(&anew), 0, "{}", err(&anew));
    assert!(
        err(&anew).contains("again, from the start"),
        "{}",
        err(&anew)
    );
    let anew = events(&out(&anew));
    let first = |e: &Envelope| matches!(e.event, Event::Stepped { step: 1, .. });
    assert!(anew.iter().any(first));
    // Without a change it equals its parent bit for bit. The curve that its parent measures against is its own from then on.
    let curve = "reference_curve.json";
    std::fs::write(run.path().join(curve), "{}").unwrap();
    let same = place.go(&["train", "--branch", &from(10), "--json"]);
    assert_eq!(code(&same), 0, "{}", err(&same));
    let same = events(&out(&same));
    assert_eq!(losses(&same), losses(&parent));
    let id = same.iter().find_map(|e| match &e.event {
        Event::Hello { run, .. } => Some(run.clone()),
        _ => None,
    });
    let folder = place.dir.path().join("runs").join(id.unwrap());
    assert!(folder.join(curve).exists());
    let started = |e: &Envelope| {
        matches!(
            e.event,
            Event::Started {
                resumed_from: Some(10),
                ..
            }
        )
    };
    assert!(same.iter().any(started));
    // With a change it differs from its parent after the affected step.
    let other = place.go(&["train", "--branch", &from(10), "-s", "lr=0.02", "--json"]);
    assert_eq!(code(&other), 0, "{}", err(&other));
    assert!(
        err(&other).contains("optimizer.adamw.lr"),
        "{}",
        err(&other)
    );
    let (ours, theirs) = (losses(&events(&out(&other))), losses(&parent));
    assert_eq!(ours[0], theirs[0]);
    assert_ne!(ours.last(), theirs.last());
    let listed = out(&place.go(&["runs"]));
    assert_eq!(
        listed.matches(&format!("from {}", from(10))).count(),
        2,
        "{listed}"
    );
    assert!(listed.contains("lr=0.02"), "{listed}");
    // Another optimizer begins with moments of its own, at the same weights, where that is asked for.
    let lion = ["-s", "optimizer=lion", "--dry-run"];
    let refused = place.go(&[&["train", "--branch", &from(10)][..], &lion].concat());
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let said = err(&refused);
    assert!(
        said.contains("change optimizer: its checkpoint fixes adamw, not lion")
            && said.contains("--fresh-optimizer"),
        "{said}"
    );
    let afresh = ["-s", "optimizer=lion", "--fresh-optimizer", "--json"];
    let afresh = place.go(&[&["train", "--branch", &from(10)][..], &afresh].concat());
    assert_eq!(code(&afresh), 0, "{}", err(&afresh));
    let ours = losses(&events(&out(&afresh)));
    assert_eq!(ours[0], theirs[0]);
    assert_ne!(ours.last(), theirs.last());
    // Other data are rejected before a run is created.
    let text = place.dir.path().join("other.txt");
    std::fs::write(&text, "another text, line by line\n".repeat(400)).unwrap();
    let path = format!("data.path={}", text.display());
    let runs = || out(&place.go(&["runs", "--json"])).lines().count();
    let before = runs();
    let refused = place.go(&["train", "--branch", &from(10), "-s", &path]);
    assert_eq!(code(&refused), 2, "{}", err(&refused));
    for words in ["its checkpoint", "-s train.from=", "--force"] {
        assert!(err(&refused).contains(words), "{}", err(&refused));
    }
    assert_eq!(runs(), before);
    // Its parent may be deleted.
    assert_eq!(code(&place.go(&["rm", "--yes", run.id()])), 0);
    let json = out(&place.go(&["runs", "--json"]));
    let newest: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(newest["parent"]["step"], 10, "{newest}");
    for (arguments, why) in [
        (vec!["-s", "n_layer=3"], "its checkpoint fixes"),
        (
            vec!["-s", "train.freeze=[embeddings]"],
            "change train.freeze",
        ),
        (vec!["-s", "max_steps=8"], "nothing is left"),
        (vec!["quickstart"], "its parent's spec"),
    ] {
        let id = newest["id"].as_str().unwrap();
        let place_of = format!("{id}@10");
        let output = place.go(&[&["train", "--branch", &place_of][..], &arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(err(&output).contains(why), "{}", err(&output));
    }
    let gone = place.go(&["train", "--branch", &from(10)]);
    assert_eq!(code(&gone), 2);
}
