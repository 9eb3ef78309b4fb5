//! Models in several files.

use super::broken::{changed, same_tensor};
use super::*;
use crate::gguf::{Gguf, NewTensor, TensorKind, Value};
use std::fs::File;

/// Writes the model of a file as `NAME-00001-of-00003.gguf` and so on, as llama-gguf-split does; `shares` are the numbers of tensors
/// of the parts.
fn split(path: &Path, shares: &[usize]) -> Vec<PathBuf> {
    let (head, bytes) = (Gguf::open(path).unwrap(), std::fs::read(path).unwrap());
    assert_eq!(shares.iter().sum::<usize>(), head.tensors.len());
    let (mut at, mut paths) = (0, Vec::new());
    for (no, share) in shares.iter().enumerate() {
        let mine = &head.tensors[at..at + share];
        at += share;
        let all = head.metadata.iter().filter(|_| no == 0);
        let mut keys: Vec<(String, Value)> = all.map(|(k, v)| (k.into(), v.clone())).collect();
        for (key, n) in [
            ("split.no", no),
            ("split.count", shares.len()),
            ("split.tensors.count", head.tensors.len()),
        ] {
            keys.push((key.into(), Value::Unsigned(n as u64)));
        }
        let tensors: Vec<NewTensor> = mine.iter().map(same_tensor).collect();
        let to = path.with_file_name(format!("big-{:05}-of-{:05}.gguf", no + 1, shares.len()));
        let mut out = File::create(&to).unwrap();
        crate::gguf::write(&mut out, &keys, &tensors, &mut |i, filled| {
            let start = (head.data_start + mine[i].offset) as usize;
            filled.extend(&bytes[start..start + mine[i].bytes as usize]);
            Ok(())
        })
        .unwrap();
        paths.push(to);
    }
    paths
}

#[test]
fn a_split_model_is_the_model_of_the_whole_file() {
    let scaled = with_rope(|rope| rope.scaling = Some(ScalingConfig::Llama3(Default::default())));
    for (config, kind) in [(scaled, Kind::F32), (gemma3(), Kind::Q8_0)] {
        let (_dir, path, _) = saved(&random(&config), kind);
        let whole = GgufModel::open(&path).unwrap();
        let n = Gguf::open(&path).unwrap().tensors.len();
        // The first part may have keys alone.
        for shares in [&[0, n][..], &[1, 0, n - 1], &[n - 8, 3, 5]] {
            let paths = split(&path, shares);
            for named in &paths {
                let parts = GgufModel::open(named).unwrap();
                assert_eq!(parts.path(), paths[0]);
                assert_eq!(parts.config(), whole.config());
                assert_eq!(parts.architecture(), whole.architecture());
                assert_eq!(parts.weight_bytes(), whole.weight_bytes());
                assert_eq!(parts.formats(), whole.formats());
                let all = [&parts, &whole].map(|file| {
                    let mut stored = file.quantized().unwrap();
                    let mut dense = file.dequantized().unwrap();
                    (logits(&mut stored), logits(&mut dense))
                });
                assert_eq!(all[0], all[1], "{shares:?}");
            }
        }
    }
}

#[test]
fn faults_of_a_split_model_are_those_of_its_parts() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::F32);
    let n = Gguf::open(&path).unwrap().tensors.len();
    let paths = split(&path, &[2, n - 3, 1]);
    let good = std::fs::read(&paths[2]).unwrap();
    let told = || GgufModel::open(&paths[0]).err().unwrap().to_string();
    // The last tensor is NaN: its part is named.
    let head = Gguf::open(&paths[2]).unwrap();
    let mut bytes = good.clone();
    let at = head.data_start as usize;
    bytes[at..at + 4].copy_from_slice(&[0xff; 4]);
    std::fs::write(&paths[2], bytes).unwrap();
    let file = GgufModel::open(&paths[0]).unwrap();
    let error = file.dequantized().err().unwrap().to_string();
    let words = [
        "big-00003-of-00003.gguf",
        head.tensors[0].name.as_str(),
        "finite",
    ];
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    std::fs::remove_file(&paths[2]).unwrap();
    let error = told();
    assert!(error.contains("part 3 of 3 is missing"), "{error}");
    // A part of another model, whose tensors are others.
    let (_other, other, _) = saved(&random(&gpt2(true)), Kind::F32);
    let theirs = Gguf::open(&other).unwrap().tensors.len();
    let others = split(&other, &[theirs - 2, 1, 1]);
    std::fs::copy(&others[2], &paths[2]).unwrap();
    let error = told();
    let words = ["big-00003-of-00003.gguf", "parts of different models"];
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    std::fs::write(&paths[2], &good[..good.len() / 2]).unwrap();
    let error = told();
    assert!(error.contains("big-00003-of-00003.gguf"), "{error}");
}

#[test]
fn a_tensor_at_fault_is_told_with_the_part_that_holds_it() {
    let (_dir, path, _) = saved(&random(&llama()), Kind::F32);
    // All tensors but the last are in the second part; the first has keys alone.
    let told = |change: &dyn Fn(&mut Vec<NewTensor>)| {
        assert!(changed(&path, |_| {}, change).is_err());
        let whole = path.with_extension("changed");
        let n = Gguf::open(&whole).unwrap().tensors.len();
        let paths = split(&whole, &[0, n - 1, 1]);
        GgufModel::open(&paths[0]).err().unwrap().to_string()
    };
    let holds = |error: &str, part: usize, words: &str| {
        let file = format!("big-{part:05}-of-00003.gguf: ");
        assert!(error.contains(&file) && error.contains(words), "{error}");
    };
    // F64 is none that we read.
    let kind = told(&|t| t.last_mut().unwrap().kind = TensorKind::by_id(28).unwrap());
    holds(&kind, 3, "is in F64");
    let shape = told(&|t| *t.last_mut().unwrap().dims.last_mut().unwrap() *= 2);
    holds(&shape, 3, "; expected [");
    let extra = told(&|t| {
        let mut one = t[1].clone();
        one.name = "blk.0.attn_sinks.weight".into();
        t.push(one);
    });
    holds(&extra, 3, "attn_sinks.weight does not belong");
    let embedding = told(&|t| {
        let found = t.iter_mut().find(|t| t.name == "token_embd.weight");
        found.unwrap().dims.pop();
    });
    holds(&embedding, 2, "token_embd.weight has shape [64]");
    let missing = told(&|t| t.retain(|t| t.name != "blk.1.ffn_up.weight"));
    holds(&missing, 1, "blk.1.ffn_up.weight is missing");
}
