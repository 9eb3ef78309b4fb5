//! Precedence: members, layers with their origins, parents.

use super::*;
use llmtui::base::every::Every;
use llmtui::spec::Origin;

/// Base of the rotary angles.
fn theta(loaded: &spec::Loaded) -> Option<f64> {
    loaded.spec.model.position.rope().map(|rope| rope.theta)
}

#[test]
fn choosing_another_member_replaces_the_lower_one_and_naming_the_same_keeps_it() {
    let (dir, sources) = nowhere();
    fs::write(
        dir.path().join("a.yaml"),
        "model: {position: {rope: {theta: 5}}}\nlr: 0.01\n",
    )
    .unwrap();
    let load = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        spec::load("a.yaml", &words, &sources).unwrap()
    };
    assert_eq!(theta(&load(&[])), Some(5.0));
    let kept = load(&["model.position=rope", "optimizer.adamw.beta1=0.5"]);
    assert_eq!(theta(&kept), Some(5.0));
    assert_eq!(kept.spec.optimizer.lr(), 0.01);
    let replaced = load(&["model.position=learned"]);
    assert_eq!(theta(&replaced), None);
    assert_eq!(
        replaced.origins.get("model.position.rope.theta"),
        Origin::Default
    );
    // A field without its member's name refers to the chosen member.
    let starred = load(&["model.position.theta=7", "optimizer.lr=0.02"]);
    assert_eq!(theta(&starred), Some(7.0));
    assert_eq!(starred.spec.optimizer.lr(), 0.02);
}

#[test]
fn layers_are_merged_and_every_value_knows_its_origin() {
    let (dir, mut sources) = nowhere();
    let user = dir.path().join("user");
    fs::create_dir_all(user.join("presets")).unwrap();
    fs::create_dir_all(dir.path().join("presets")).unwrap();
    fs::write(
        user.join("presets/quickstart.yaml"),
        "seed: 1\nmax_steps: 300\nlog_every: 3\n",
    )
    .unwrap();
    fs::write(
        dir.path().join("presets/quickstart.yaml"),
        "max_steps: 400\neval_every: 9\n",
    )
    .unwrap();
    sources.config_dir = Some(user);
    let loaded = spec::load("quickstart", &["eval_every=11".into()], &sources).unwrap();
    assert_eq!(
        (
            loaded.spec.seed,
            loaded.spec.train.log_every,
            loaded.spec.train.max_steps,
            loaded.spec.eval.every
        ),
        (1, 3, 400, Every::Steps(11))
    );
    assert_eq!(loaded.spec.model.n_layer, 4);
    let origin = |path: &str| loaded.origins.get(path).to_string();
    assert!(origin("seed").ends_with("user/presets/quickstart.yaml:1"));
    assert_eq!(origin("train.max_steps"), "./presets/quickstart.yaml:1");
    assert_eq!(origin("eval.every"), "-s eval_every=11");
    assert!(origin("model.n_layer").starts_with("presets/quickstart.yaml:"));
    assert_eq!(origin("model.init_std"), "default");
}

#[test]
fn a_parent_replaces_lower_namesakes_unless_it_is_the_same_file() {
    let (dir, sources) = nowhere();
    fs::create_dir_all(dir.path().join("presets")).unwrap();
    let own = dir.path().join("presets/quickstart.yaml");
    fs::write(
        dir.path().join("presets/base.yaml"),
        "model: {n_layer: 2}\n",
    )
    .unwrap();
    fs::write(&own, "extends: base\nseed: 5\n").unwrap();
    let loaded = spec::load("quickstart", &[], &sources).unwrap();
    assert_eq!((loaded.spec.model.n_layer, loaded.spec.seed), (2, 5));
    assert_eq!(
        loaded.spec.train.max_steps, 1000,
        "quickstart's 2000 is not below"
    );
    fs::write(&own, "extends: quickstart\nseed: 6\n").unwrap();
    let loaded = spec::load("quickstart", &[], &sources).unwrap();
    assert_eq!((loaded.spec.train.max_steps, loaded.spec.seed), (2000, 6));
    // Relative parents start from their child's folder; a file without a name is named after itself.
    fs::write(
        dir.path().join("presets/child.yaml"),
        "extends: ./base.yaml\n",
    )
    .unwrap();
    let loaded = spec::load("presets/child.yaml", &[], &sources).unwrap();
    assert_eq!(
        (loaded.spec.model.n_layer, loaded.spec.name.as_str()),
        (2, "child")
    );
}

#[test]
fn cycles_of_parents_are_detected() {
    let (dir, sources) = nowhere();
    fs::create_dir_all(dir.path().join("presets")).unwrap();
    fs::write(dir.path().join("presets/a.yaml"), "extends: b\n").unwrap();
    fs::write(dir.path().join("presets/b.yaml"), "extends: a\n").unwrap();
    let error = spec::load("a", &[], &sources).unwrap_err().to_string();
    assert!(error.contains("a → b → a"), "{error}");
}
