//! Keys of other tools with their equivalents here.

use super::shared::TARGETS;
use super::{Dialect, To};
use crate::spec::schema::{Kind, root};

/// What to say to somebody who knows this key from another tool; `None` of a key that none has.
pub(in crate::spec) fn of(key: &str) -> Option<String> {
    // Of PEFT's own configuration, which is no file that is imported.
    match key {
        "target_modules" => return Some(TARGETS.into()),
        "r" | "rank" => return Some(here("adapter.lora.rank")),
        _ => {}
    }
    let known = Dialect::ALL.iter().find_map(|dialect| dialect.row(key))?;
    Some(match known.to {
        To::Key(path)
        | To::Near(path, _)
        | To::Limit(path, _)
        | To::Word(path, _)
        | To::Choice(path, _)
        | To::PerEpoch(path)
        | To::Strategy(path) => here(path),
        To::Flag(path, value) | To::Either(path, value, ..) | To::NearlyOff(path, value, _) => {
            format!("it is called {path} here; true is -s {path}={value}")
        }
        To::OneOf(paths) => {
            let all: Vec<String> = paths.iter().flat_map(|path| members(path)).collect();
            called(&all)
        }
        To::Generation(_) => here("rollout.steps"),
        To::WarmUp => "-s warmup_steps=N, or -s warmup_ratio=SHARE".into(),
        To::Kept => here("checkpoint.keep_last"),
        To::Epochs => here("train.epochs"),
        To::Method(_) => here("method"),
        To::Loss => "the loss is the method here, or a setting of it: method=ipo is -s method=dpo -s method.dpo.loss=ipo; orpo, simpo, \
                     cpo and kto are methods"
            .into(),
        To::Data(_) => "data.path names one source, data.sources several".into(),
        To::Mixer | To::OfMixer | To::Mixture => {
            "data.sources lists several, each with its split, and with `fraction: 0.5` for the first half of its rows".into()
        }
        To::OfData(_) => "it is a setting of a source: data.sources".into(),
        To::Template(_) => here("data.template"),
        To::Tuning => "adapter=lora trains adapters; without it all weights train".into(),
        To::Unfrozen | To::OfFrozen => {
            "-s train.freeze=[…] names what does not train: parts (embeddings, mlp) or modules (layers.0.*)".into()
        }
        To::Targets => TARGETS.into(),
        To::AllLinear => "-s adapter.lora.targets=all".into(),
        To::Whole => here("adapter.lora.modules_to_save"),
        To::Parameters => "-s adapter.lora.targets=all_and_experts, or experts in adapter.lora.custom".into(),
        To::HeldOut => "it is called data.val_fraction here for a share, and data.val_rows for a number of rows".into(),
        To::ScheduleSettings => here("schedule"),
        To::Floor => here("schedule.*.min_lr"),
        To::NoEqual(words) => words.into(),
        To::Needless(words) => format!("it is not needed here: {words}"),
    })
}

/// A path; of members that have such a setting the first ones.
fn here(path: &str) -> String {
    called(&members(path))
}

/// A path, or that of each member that has such a setting.
fn members(path: &str) -> Vec<String> {
    let Some((registry, setting)) = path.split_once(".*.") else {
        return vec![path.to_string()];
    };
    let members = match root().at(registry).map(|node| &node.kind) {
        Some(Kind::Registry(members)) => members.as_slice(),
        _ => &[],
    };
    let have = members
        .iter()
        .filter(|(_, node)| node.at(setting).is_some());
    have.map(|(name, _)| format!("{registry}.{name}.{setting}"))
        .collect()
}

fn called(paths: &[String]) -> String {
    let (shown, more) = match paths.len() {
        0..=3 => (paths, ""),
        _ => (&paths[..3], ", …"),
    };
    format!("it is called {}{more} here", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_know_from_other_tools_leads_to_a_setting_that_is_there() {
        for (key, part) in [
            ("lora_target", "adapter.lora.targets"),
            ("target_modules", "adapter.lora.targets"),
            ("train_on_inputs", "true is -s data.train_on=all"),
            ("use_dora", "-s adapter.lora.dora=true"),
            ("neftune_noise_alpha", "method.sft.neftune_alpha"),
            ("num_generations", "rollout.group_size"),
            ("loss_type", "method.dpo.loss"),
            ("load_in_4bit", "llmtui quantize"),
        ] {
            let said = of(key).unwrap_or_else(|| panic!("{key} is not known"));
            assert!(said.contains(part), "{key}: {said}");
        }
        assert_eq!(of("frobnicate"), None);
    }
}
