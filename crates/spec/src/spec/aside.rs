//! Files that list the settings of every optimizer, of which they choose one, as LLM-Lab writes them (`optimizer: adamw` beside
//! `lion_beta1` and `muon_momentum`): those of the others are set aside, and reported.

use super::layer::{Layer, Setting};
use super::schema::root;
use serde_json::Value;

const REGISTRY: &str = "optimizer";
const ANY: &str = "*";
/// What the names of AdamW's settings begin with; alone they are also those of other optimizers with the same settings.
const OF_ADAMW: &str = "adamw_";

/// Takes out of a file's layer what it says of optimizers other than the one that it names; a line that tells their names. A file that
/// names none or several says too little: that stays an error.
pub(super) fn set_aside(layer: &mut Layer) -> Option<String> {
    let chosen = chosen(&layer.settings)?;
    let is_listed = |s: &Setting| is_of_another(s, &chosen) || has_its_name(s, &chosen);
    let lists_others = layer.settings.iter().any(is_listed);
    let of_others = |setting: &Setting| {
        is_of_another(setting, &chosen) || is_of_adamw(setting, &chosen, lists_others)
    };
    let mut gone: Vec<String> = layer
        .settings
        .extract_if(.., |setting| of_others(setting))
        .map(|setting| setting.said)
        .collect();
    gone.sort();
    (!gone.is_empty()).then(|| {
        format!(
            "optimizer {chosen} is chosen: settings of others are set aside: {}",
            gone.join(", ")
        )
    })
}

/// The one optimizer that a layer names.
fn chosen(settings: &[Setting]) -> Option<String> {
    let named = settings
        .iter()
        .filter_map(|setting| match &setting.path[..] {
            [registry, member] if registry == REGISTRY && is_choice(&setting.value) => Some(member),
            _ => None,
        });
    let mut named: Vec<&String> = named.collect();
    named.dedup();
    match named[..] {
        [one] if one != ANY => Some(one.clone()),
        _ => None,
    }
}

fn is_choice(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Whether a setting has a name of its own that means another optimizer's: one that is written below its optimizer chooses that.
fn is_of_another(setting: &Setting, chosen: &str) -> bool {
    match &setting.path[..] {
        [registry, member, _, ..] => {
            registry == REGISTRY && member != ANY && member != chosen && !setting.said.contains('.')
        }
        _ => false,
    }
}

/// Whether a setting is the chosen optimizer's under a name of its own, as `lion_beta1`: a file with such names has those of AdamW for
/// AdamW.
fn has_its_name(setting: &Setting, chosen: &str) -> bool {
    let said = setting.said.replace('-', "_");
    let own = said.strip_prefix(chosen);
    match &setting.path[..] {
        [registry, member, _, ..] => {
            registry == REGISTRY
                && member == chosen
                && own.is_some_and(|field| field.starts_with('_'))
                && !said.contains('.')
        }
        _ => false,
    }
}

/// Whether a setting is AdamW's and not one of the chosen optimizer, which may have settings of AdamW as well.
fn is_of_adamw(setting: &Setting, chosen: &str, lists_others: bool) -> bool {
    let [registry, any, field] = &setting.path[..] else {
        return false;
    };
    let said = setting.said.replace('-', "_");
    if registry != REGISTRY || any != ANY || !said.starts_with(OF_ADAMW) {
        return false;
    }
    let node = root().at(&format!("{REGISTRY}.{chosen}"));
    let has = |name: &str| node.is_some_and(|node| node.child(name).is_some());
    let is_kin = chosen.starts_with("adamw") || has(&said);
    !is_kin && (lists_others || !has(field))
}

#[cfg(test)]
mod tests {
    use crate::spec::{SpecSources, load_text, load_text_with};
    use serde_json::Value;

    /// The training configuration of the LLM-Lab manual, with its values.
    fn lab(optimizer: &str) -> String {
        format!(
            "optimizer: {optimizer}\nadamw_beta1: 0.8\nadamw_beta2: 0.98\nadamw_eps: 1e-7\nlion_beta1: 0.91\nlion_beta2: 0.97\n\
             sophia_beta1: 0.96\nsophia_beta2: 0.985\nsophia_rho: 0.05\nmuon_momentum: 0.9\nmuon_nesterov: false\n\
             lr: 2e-4\nweight_decay: 0.05\nmax_steps: 50\nd_model: 64\nn_heads: 4\nn_layers: 2\n"
        )
    }

    fn read(text: &str) -> (Value, String) {
        let loaded = load_text("lab.yaml", text, &SpecSources::default());
        let loaded = loaded.unwrap_or_else(|e| panic!("{text}: {e}"));
        let notes = loaded.notes().join("\n");
        (loaded.spec.to_value()["optimizer"].clone(), notes)
    }

    #[test]
    fn of_a_file_with_the_settings_of_every_optimizer_those_of_the_chosen_one_are_read() {
        for (optimizer, own, others) in [
            (
                "adamw",
                &[("beta1", 0.8), ("eps", 1e-7)][..],
                &["lion_beta1", "muon_momentum"][..],
            ),
            (
                "lion",
                &[("beta1", 0.91), ("beta2", 0.97)],
                &["adamw_beta1", "sophia_rho"],
            ),
            (
                "sophia",
                &[("rho", 0.05), ("beta1", 0.96)],
                &["adamw_beta1", "lion_beta1"],
            ),
            (
                "muon",
                &[("momentum", 0.9), ("adamw_beta1", 0.8)],
                &["lion_beta1", "sophia_beta1"],
            ),
            (
                "adafactor",
                &[],
                &["adamw_beta1", "lion_beta2", "muon_nesterov"],
            ),
        ] {
            let (read, notes) = read(&lab(optimizer));
            let settings = &read[optimizer];
            for (key, x) in own.iter().chain(&[("lr", 2e-4), ("weight_decay", 0.05)]) {
                let found = settings[*key].as_f64().unwrap_or(f64::NAN);
                assert!((found - x).abs() < 1e-7, "{optimizer}.{key}: {read}");
            }
            for other in others {
                assert!(notes.contains(other), "{optimizer}: {other}: {notes}");
            }
            let own_prefix = format!("{optimizer}_");
            let aside = notes.split("set aside: ").nth(1).unwrap();
            assert!(!aside.contains(&own_prefix), "{optimizer}: {aside}");
        }
    }

    /// One was an error, and the other trained with AdamW's beta1.
    #[test]
    fn beside_names_of_the_chosen_optimizer_those_of_adamw_are_its_own() {
        for (text, own, x) in [
            (
                "optimizer: lion\nadamw_beta1: 0.9\nlion_beta1: 0.95\n",
                "beta1",
                0.95,
            ),
            (
                "optimizer: sophia\nadamw_beta1: 0.8\nsophia_rho: 0.05\n",
                "rho",
                0.05,
            ),
        ] {
            let (read, notes) = read(text);
            let settings = read.as_object().unwrap().values().next().unwrap();
            let found = |key: &str| settings[key].as_f64().unwrap_or(f64::NAN);
            assert!((found(own) - x).abs() < 1e-7, "{text}: {read}");
            assert!((found("beta1") - 0.8).abs() > 1e-7, "{text}: {read}");
            assert!(notes.contains("set aside: adamw_beta1"), "{text}: {notes}");
        }
        // Alone they are those of the chosen one.
        let (read, notes) = read("optimizer: lion\nadamw_beta1: 0.8\n");
        assert!((read["lion"]["beta1"].as_f64().unwrap() - 0.8).abs() < 1e-7);
        assert!(!notes.contains("aside"), "{notes}");
    }

    #[test]
    fn two_optimizers_that_are_both_named_stay_an_error() {
        for text in [
            "optimizer: {adamw: {}, lion: {beta1: 0.9}}\n",
            "lion_beta1: 0.9\nsophia_rho: 0.05\n",
            "optimizer: adamw\noptimizer.lion.beta1: 0.9\n",
        ] {
            let sources = SpecSources::default();
            let said = load_text("x.yaml", text, &sources).unwrap_err().to_string();
            assert!(said.contains("both"), "{text}: {said}");
        }
        // On the command line each word is meant.
        let words = ["optimizer=adamw", "lion_beta1=0.9"].map(String::from);
        let sources = SpecSources::default();
        assert!(load_text_with("x.yaml", "max_steps: 5\n", &words, &sources).is_err());
    }

    #[test]
    fn one_optimizer_under_a_name_of_its_own_is_chosen_by_it() {
        let (read, notes) = read("lion_beta1: 0.91\nmax_steps: 5\n");
        assert!(
            read["lion"].is_object() && !notes.contains("aside"),
            "{read} {notes}"
        );
    }
}
