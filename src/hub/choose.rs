//! Which files of a data set make a subset and a split: what its README says, else the hub's conventions for names
//! (huggingface.co/docs/hub/datasets-file-names-and-splits).

use super::{CardConfig, HubError};
use glob::{MatchOptions, Pattern};

/// What is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// A named subset, a folder, or a pattern of file names.
    pub subset: Option<&'a str>,
    pub split: Option<&'a str>,
}

/// What is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// In name order.
    pub files: Vec<String>,
    pub split: String,
}

/// Names of each split in files and folders.
const SPLITS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "dev", "val"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];

/// Files beside the data that a reader of tables could take for it.
const NO_DATA: [&str; 5] = [
    "dataset_infos.json",
    "dataset_info.json",
    "dataset_dict.json",
    "state.json",
    "config.json",
];

/// Chooses among `names`. `is_data` tells which names can be read at all; `card` is what the README says.
///
/// # Errors
/// Nothing fits, or several things do: the message names what there is.
pub fn choose(
    repo: &str,
    names: &[String],
    card: Option<&[CardConfig]>,
    wanted: Wanted<'_>,
    is_data: &dyn Fn(&str) -> bool,
) -> Result<Chosen, HubError> {
    let fault = |what: String, fix: String| HubError::Choice {
        repo: repo.to_string(),
        what,
        fix,
    };
    let data: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|n| is_data(n) && !is_metadata(n))
        .collect();
    if data.is_empty() {
        let script = names.iter().any(|n| n.ends_with(".py"));
        let fix = match script {
            true => {
                "it is made by a Python script; the hub keeps a converted copy: revision: refs/convert/parquet"
            }
            false => "another repository, or another revision",
        };
        return Err(fault(
            "it has no data files that can be read".into(),
            fix.into(),
        ));
    }
    if let Some(pattern) = wanted.subset.filter(|s| s.contains(['*', '?'])) {
        let files = matching(&data, pattern);
        if files.is_empty() {
            return Err(fault(
                format!("no file fits {pattern}"),
                format!("it has: {}", some_of(&data)),
            ));
        }
        return of_split(files, wanted.split, &fault);
    }
    match card {
        Some(configs) => by_card(&data, configs, wanted, &fault),
        None => by_names(&data, wanted, &fault),
    }
}

type Fault<'a> = dyn Fn(String, String) -> HubError + 'a;

fn by_card(
    data: &[&str],
    configs: &[CardConfig],
    wanted: Wanted<'_>,
    fault: &Fault<'_>,
) -> Result<Chosen, HubError> {
    let names: Vec<&str> = configs.iter().map(|c| c.name.as_str()).collect();
    let config = match wanted.subset {
        Some(subset) => configs.iter().find(|c| c.name == subset).ok_or_else(|| {
            fault(
                format!("it has no subset {subset}"),
                format!("one of: {}", names.join(", ")),
            )
        })?,
        None => match configs {
            [only] => only,
            _ => configs.iter().find(|c| c.is_default).ok_or_else(|| {
                fault(
                    format!("it has {} subsets and none is the default", configs.len()),
                    format!("say the subset, one of: {}", names.join(", ")),
                )
            })?,
        },
    };
    let splits: Vec<&str> = config.splits.iter().map(|(s, _)| s.as_str()).collect();
    let split = pick_split(&splits, wanted.split, fault)?;
    let patterns = config.splits.iter().filter(|(s, _)| s == split);
    let mut files: Vec<String> = patterns
        .flat_map(|(_, patterns)| patterns)
        .flat_map(|pattern| matching(data, pattern))
        .map(String::from)
        .collect();
    files.sort();
    files.dedup();
    if files.is_empty() {
        return Err(fault(
            format!(
                "its README names files for {} that are not there",
                config.name
            ),
            "say the files as a pattern instead of the subset: `name | data/train-*.parquet`"
                .into(),
        ));
    }
    Ok(Chosen {
        files,
        split: split.to_string(),
    })
}

fn by_names(data: &[&str], wanted: Wanted<'_>, fault: &Fault<'_>) -> Result<Chosen, HubError> {
    let files: Vec<&str> = match wanted.subset {
        None => data.to_vec(),
        Some(subset) => {
            let inside = |name: &&str| {
                let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
                folders == subset
                    || name.starts_with(&format!("{subset}/"))
                    || name.starts_with(&format!("data/{subset}/"))
            };
            data.iter().copied().filter(inside).collect()
        }
    };
    if files.is_empty() {
        let mut folders: Vec<&str> = data
            .iter()
            .filter_map(|n| n.split_once('/'))
            .map(|(f, _)| f)
            .collect();
        folders.dedup();
        return Err(fault(
            format!("it has no subset {}", wanted.subset.unwrap_or_default()),
            match folders.is_empty() {
                true => "it has no subsets: leave that out".into(),
                false => format!("its folders: {}", some_of(&folders)),
            },
        ));
    }
    of_split(files, wanted.split, fault)
}

/// The files of a split by their names. Files whose names tell no split are the training split, if none says so itself.
fn of_split(files: Vec<&str>, wanted: Option<&str>, fault: &Fault<'_>) -> Result<Chosen, HubError> {
    let told: Vec<(Option<&str>, &str)> = files
        .into_iter()
        .map(|f| (split_of(f, wanted), f))
        .collect();
    let mut splits: Vec<&str> = Vec::new();
    for split in told.iter().filter_map(|(split, _)| *split) {
        if !splits.contains(&split) {
            splits.push(split);
        }
    }
    let untold = splits.is_empty();
    if untold {
        splits.push("train");
    }
    let split = pick_split(&splits, wanted, fault)?;
    let chosen = told.iter().filter(|(s, _)| {
        if untold {
            s.is_none()
        } else {
            *s == Some(split)
        }
    });
    let mut files: Vec<String> = chosen.map(|(_, f)| f.to_string()).collect();
    files.sort();
    one_kind(&files, fault)?;
    Ok(Chosen {
        files,
        split: split.to_string(),
    })
}

fn pick_split<'a>(
    splits: &[&'a str],
    wanted: Option<&str>,
    fault: &Fault<'_>,
) -> Result<&'a str, HubError> {
    let all = || format!("one of: {}", splits.join(", "));
    match (wanted, splits) {
        (Some(wanted), _) => splits
            .iter()
            .copied()
            .find(|s| *s == wanted)
            .ok_or_else(|| fault(format!("it has no split {wanted}"), all())),
        (None, [only]) => Ok(only),
        (None, _) => splits
            .iter()
            .copied()
            .find(|s| *s == "train")
            .ok_or_else(|| {
                fault(
                    "it has several splits and none is called train".into(),
                    format!("say the split, {}", all()),
                )
            }),
    }
}

/// The split that a name tells: a word of the file's name, else of its folders, between anything but letters and digits.
fn split_of<'a>(name: &str, wanted: Option<&'a str>) -> Option<&'a str> {
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    // A split of another name than the usual ones counts when it is asked for.
    if let Some(wanted) = wanted
        && !SPLITS.iter().any(|(s, _)| *s == wanted)
        && (words.contains(&wanted) || name.split(['/', '-', '.']).any(|w| w == wanted))
    {
        return Some(wanted);
    }
    words.iter().rev().find_map(|word| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
        SPLITS
            .iter()
            .find(|(_, words)| words.iter().any(|w| w.eq_ignore_ascii_case(word)))
            .map(|(split, _)| *split)
    })
}

fn one_kind(files: &[String], fault: &Fault<'_>) -> Result<(), HubError> {
    let mut kinds: Vec<&str> = files
        .iter()
        .map(|f| {
            let name = f.trim_end_matches(".gz").trim_end_matches(".zst");
            name.rsplit_once('.').map_or("", |(_, e)| e)
        })
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.as_slice() {
        [_] | ["json", "jsonl"] => Ok(()),
        _ => Err(fault(
            format!("its files are of several kinds: {}", kinds.join(", ")),
            format!("say which as a pattern: `name | **/*.{}`", kinds[0]),
        )),
    }
}

fn is_metadata(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    NO_DATA.contains(&file)
        || file.starts_with('.')
        || file.eq_ignore_ascii_case("readme.txt")
        || file.eq_ignore_ascii_case("license.txt")
}

fn matching<'a>(names: &[&'a str], pattern: &str) -> Vec<&'a str> {
    let options = MatchOptions {
        require_literal_separator: true,
        ..MatchOptions::new()
    };
    // A folder stands for everything in it.
    let folder = format!("{}/", pattern.trim_end_matches('/'));
    let Ok(pattern) = Pattern::new(pattern.trim_start_matches("./")) else {
        return Vec::new();
    };
    let fits = |name: &&str| pattern.matches_with(name, options) || name.starts_with(&folder);
    names.iter().copied().filter(fits).collect()
}

fn some_of(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(8).copied().collect();
    let more = names.len().saturating_sub(shown.len());
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(
        names: &[&str],
        subset: Option<&str>,
        split: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        let is_data =
            |n: &str| n.ends_with(".parquet") || n.ends_with(".jsonl") || n.ends_with(".json");
        choose("o/n", &names, None, Wanted { subset, split }, &is_data)
            .map(|c| c.files)
            .map_err(|e| format!("{e}; {}", e.hint()))
    }

    const SPLIT: [&str; 4] = [
        "README.md",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/validation-00000-of-00001.parquet",
    ];

    #[test]
    fn splits_are_told_by_file_names_and_folders() {
        assert_eq!(pick(&SPLIT, None, None).unwrap().len(), 2);
        assert_eq!(pick(&SPLIT, None, Some("validation")).unwrap().len(), 1);
        let error = pick(&SPLIT, None, Some("test")).unwrap_err();
        assert!(
            error.contains("no split test; one of: train, validation"),
            "{error}"
        );
        let folders = [
            "main/train/0000.parquet",
            "main/test/0000.parquet",
            "other/train/0000.parquet",
        ];
        assert_eq!(
            pick(&folders, Some("main"), None).unwrap(),
            ["main/train/0000.parquet"]
        );
        // A word inside another is no split.
        assert_eq!(
            pick(&["constraint.jsonl", "latest.jsonl"], None, None)
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn subsets_are_folders_or_patterns_and_unknown_ones_are_named() {
        let names = ["en/a.jsonl", "fr/a.jsonl", "dataset_infos.json"];
        assert_eq!(pick(&names, Some("fr"), None).unwrap(), ["fr/a.jsonl"]);
        assert_eq!(pick(&names, Some("*/a.jsonl"), None).unwrap().len(), 2);
        assert!(
            pick(&names, Some("de"), None)
                .unwrap_err()
                .contains("its folders: en, fr")
        );
        assert!(
            pick(&["x.py"], None, None)
                .unwrap_err()
                .contains("refs/convert/parquet")
        );
        assert!(
            pick(&["a.parquet", "a.jsonl"], None, None)
                .unwrap_err()
                .contains("several kinds")
        );
    }

    #[test]
    fn the_readme_decides_where_it_speaks() {
        let card = super::super::card_configs("---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/t*\n- config_name: b\n  data_files:\n  - split: dev\n    path: b/**\n---\n").unwrap().unwrap();
        let names = ["main/t1.jsonl".to_string(), "b/x/y.jsonl".into()];
        let run = |subset, split| {
            choose("o/n", &names, Some(&card), Wanted { subset, split }, &|n| {
                n.ends_with(".jsonl")
            })
            .map_err(|e| format!("{e}; {}", e.hint()))
        };
        assert_eq!(run(Some("main"), None).unwrap().files, ["main/t1.jsonl"]);
        // The only split is taken, whatever its name.
        let chosen = run(Some("b"), None).unwrap();
        assert_eq!(
            (chosen.split.as_str(), chosen.files),
            ("dev", vec!["b/x/y.jsonl".to_string()])
        );
        assert!(
            run(None, None)
                .unwrap_err()
                .contains("say the subset, one of: main, b")
        );
    }
}
