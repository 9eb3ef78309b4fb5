//! The settings of a sweep: every combination of the values of `--over`.

use crate::base::text::one_line;
use std::str::FromStr;

/// Most runs of one sweep: a typo in a list is not to start hundreds.
pub const MOST: usize = 64;

/// One `--over`: a setting and the values that are tried of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridAxis {
    pub key: String,
    pub values: Vec<String>,
}

impl FromStr for GridAxis {
    type Err = String;

    fn from_str(word: &str) -> Result<GridAxis, String> {
        let (key, list) = word
            .split_once('=')
            .ok_or("a setting and its values: lr=1e-4,3e-4")?;
        let (key, list) = (key.trim(), list.trim());
        if key.is_empty() {
            return Err("no setting before `=`: lr=1e-4,3e-4".into());
        }
        let values = split(list);
        if values.iter().any(String::is_empty) {
            return Err(format!("a value of {key} is empty: {list:?}"));
        }
        let twice = values
            .iter()
            .enumerate()
            .find(|(i, value)| values[..*i].contains(value));
        if let Some((_, value)) = twice {
            return Err(format!("{key}={value} is there twice"));
        }
        let key = key.to_string();
        Ok(GridAxis { key, values })
    }
}

/// A list at its commas, those within brackets, braces and quotes excepted: `[1,2],[3]` are two values.
fn split(list: &str) -> Vec<String> {
    let (mut values, mut value) = (Vec::new(), String::new());
    let (mut depth, mut quote) = (0_usize, None);
    for c in list.chars() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                values.push(std::mem::take(&mut value));
                continue;
            }
            _ => {}
        }
        value.push(c);
    }
    values.push(value);
    values
        .iter()
        .map(|value| value.trim().to_string())
        .collect()
}

/// Every combination, the last setting's values changing fastest: `key=value` for each of `overs`.
///
/// # Errors
/// There are none or too many, or a setting is named twice or also by `-s`, in words for the user.
pub fn combinations(overs: &[GridAxis], set: &[String]) -> Result<Vec<Vec<String>>, String> {
    for (i, over) in overs.iter().enumerate() {
        let key = one_line(&over.key);
        if overs[..i].iter().any(|before| before.key == over.key) {
            return Err(format!("--over names {key} twice: list its values once"));
        }
        let fixed = |word: &String| word.split('=').next().unwrap_or(word).trim() == over.key;
        if set.iter().any(fixed) {
            return Err(format!("{key} is in --over and in -s: keep one of them"));
        }
    }
    let count = overs
        .iter()
        .try_fold(1_usize, |n, over| n.checked_mul(over.values.len()));
    match count {
        Some(2..=MOST) => {}
        Some(0 | 1) => return Err("one combination is one run: llmtui train".into()),
        _ => {
            let count = count.map_or("more than can be counted".into(), |n| n.to_string());
            return Err(format!("{count} combinations; at most {MOST} in one sweep"));
        }
    }
    let mut all = vec![Vec::new()];
    for over in overs {
        let longer = |chosen: &Vec<String>| {
            let words = over
                .values
                .iter()
                .map(|value| format!("{}={value}", over.key));
            words
                .map(|word| [chosen.as_slice(), &[word]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(word: &str) -> GridAxis {
        word.parse().unwrap()
    }

    /// A key that another program uses was refused where it was copied from here.
    #[test]
    fn settings_of_the_examples_exist() {
        let texts = [
            include_str!("../../../docs/sweeps.md"),
            include_str!("mod.rs"),
        ];
        let mut seen = 0;
        for text in texts {
            let said = text.split("--over ").skip(1);
            let words = said.filter_map(|rest| rest.split([' ', '\n', '`', '"']).next());
            for word in words.filter(|word| word.contains('=') && !word.contains("KEY")) {
                let axis = over(word);
                let set = [format!("{}={}", axis.key, axis.values[0])];
                let loaded = crate::spec::load("sft-lora", &set, &Default::default());
                let said = loaded.err().map(|errors| errors.to_string());
                let unknown = said.is_some_and(|said| said.contains("unknown key"));
                assert!(!unknown, "{word}");
                seen += 1;
            }
        }
        assert!(seen > 6, "{seen}");
    }

    #[test]
    fn lists_are_divided_at_commas_outside_of_brackets_and_quotes() {
        assert_eq!(over("lr=1e-4, 3e-4").values, ["1e-4", "3e-4"]);
        let ends = over(r#"data.sources=[{path: a,weight: 1}],[{path: "b,c"}]"#);
        assert_eq!(ends.values, ["[{path: a,weight: 1}]", r#"[{path: "b,c"}]"#]);
    }

    #[test]
    fn a_list_that_cannot_be_meant_is_refused_with_its_cause() {
        for (word, said) in [
            ("lr", "a setting and its values"),
            ("=1,2", "no setting"),
            ("lr=", "is empty"),
            ("lr=1e-4,,3e-4", "is empty"),
            ("lr=1e-4,1e-4", "lr=1e-4 is there twice"),
        ] {
            let error = word.parse::<GridAxis>().unwrap_err();
            assert!(error.contains(said), "{word}: {error}");
        }
    }

    #[test]
    fn every_combination_is_there_once_and_the_last_setting_changes_fastest() {
        let overs = [over("lr=1,2"), over("seed=7,8")];
        let all = combinations(&overs, &[]).unwrap();
        assert_eq!(
            all,
            [
                ["lr=1", "seed=7"],
                ["lr=1", "seed=8"],
                ["lr=2", "seed=7"],
                ["lr=2", "seed=8"]
            ]
        );
    }

    #[test]
    fn settings_named_twice_and_endless_grids_are_refused() {
        let many = (0..9).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
        let (a, b) = (over(&format!("lr={many}")), over(&format!("seed={many}")));
        for (overs, set, said) in [
            (vec![a.clone(), a.clone()], vec![], "twice"),
            (
                vec![a.clone()],
                vec!["lr=3".to_string()],
                "in --over and in -s",
            ),
            (vec![a, b], vec![], "81 combinations; at most 64"),
            (vec![over("lr=1")], vec![], "llmtui train"),
            (vec![], vec![], "llmtui train"),
        ] {
            let error = combinations(&overs, &set).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
