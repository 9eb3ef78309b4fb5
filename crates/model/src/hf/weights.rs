//! The weights of a model folder: one safetensors file, or shards with their index. Other weight formats are rejected
//! with instructions for conversion.

use super::packed::{self, Format, MXFP4, Scales};
use super::tensor_file::{TensorFile, TensorFileError};
use crate::base::files::read_plain;
use crate::base::text::one_line;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The single file.
pub const WEIGHTS: &str = "model.safetensors";
/// The index of shards.
pub const INDEX: &str = "model.safetensors.index.json";

/// Largest accepted index: that of a mixture of experts with a hundred thousand tensors has 12 MB.
const MAX_INDEX_BYTES: u64 = 64 << 20;
const MAX_SHARDS: usize = 4096;

/// The name of shard `number` (from 1) of `count`.
pub fn shard_name(number: usize, count: usize) -> String {
    format!("model-{number:05}-of-{count:05}.safetensors")
}

/// All tensors of a folder.
#[derive(Debug)]
pub struct Weights {
    /// For messages: the file, or the index.
    path: PathBuf,
    files: Vec<TensorFile>,
    /// Name → index of the file.
    index: BTreeMap<String, usize>,
    format: Format,
    /// Name → what a tensor of few bits consists of, which is not in `index` by its own names.
    packed: BTreeMap<String, Packed>,
}

/// A tensor of few bits.
#[derive(Debug)]
enum Packed {
    /// FP8, by its name, and the scales with their file.
    Scaled { scales: (usize, String) },
    /// MXFP4: bytes and scales, each with its file, and the shape of the tensor.
    Mxfp4 {
        parts: [(usize, String); 2],
        shape: Vec<usize>,
    },
}

impl Weights {
    /// Opens the weights of a folder. Those of few bits, which its config.json describes, appear as the tensors that they stand for.
    ///
    /// # Errors
    /// No weights, an unsupported format, or an index that does not match its shards.
    pub fn open(folder: &Path) -> Result<Weights, TensorFileError> {
        let format = super::format_in(folder).map_err(|what| TensorFileError::Folder {
            path: folder.into(),
            what,
        })?;
        Ok(Weights::open_plain(folder)?.in_format(format))
    }

    /// The tensors as they are in the files.
    fn open_plain(folder: &Path) -> Result<Weights, TensorFileError> {
        let (one, index) = (folder.join(WEIGHTS), folder.join(INDEX));
        if one.is_file() {
            let file = TensorFile::open(&one)?;
            let index = file.names().map(|name| (name.to_string(), 0)).collect();
            return Ok(Weights {
                path: one,
                files: vec![file],
                index,
                format: Format::Plain,
                packed: BTreeMap::new(),
            });
        }
        if index.is_file() {
            return sharded(folder, &index);
        }
        Err(TensorFileError::Folder {
            path: folder.into(),
            what: absent(folder),
        })
    }

    /// Joins the parts of tensors of few bits.
    fn in_format(mut self, format: Format) -> Weights {
        self.format = format;
        match format {
            Format::Plain => {}
            Format::Fp8 { .. } => {
                let names: Vec<String> = self.index.keys().cloned().collect();
                for name in names {
                    if packed::is_of_activations(&name) {
                        self.index.remove(&name);
                    }
                    let base = packed::scaled_by(&name).map(str::to_string);
                    // A second scale of one tensor stays what it is: a tensor that no parameter reads, which is refused.
                    let base = base
                        .filter(|base| self.needs_scales(base) && !self.packed.contains_key(base));
                    if let Some((base, file)) = base.zip(self.index.get(&name).copied()) {
                        self.index.remove(&name);
                        let scales = (file, name);
                        self.packed.insert(base, Packed::Scaled { scales });
                    }
                }
            }
            Format::Mxfp4 => {
                let bases = self
                    .index
                    .keys()
                    .filter_map(|name| name.strip_suffix(MXFP4[0]));
                let bases: Vec<String> = bases.map(str::to_string).collect();
                for base in bases {
                    let names = MXFP4.map(|end| format!("{base}{end}"));
                    let files = names.each_ref().map(|name| self.index.get(name).copied());
                    let shapes = names.each_ref().map(|name| self.shape(name));
                    let ([Some(a), Some(b)], [Some(blocks), Some(scales)]) = (files, shapes) else {
                        continue;
                    };
                    let Some(shape) = packed::mxfp4_shape(blocks, scales) else {
                        continue;
                    };
                    names.iter().for_each(|name| {
                        self.index.remove(name);
                    });
                    let [blocks, scales] = names;
                    let parts = [(a, blocks), (b, scales)];
                    self.index.insert(base.clone(), a);
                    self.packed.insert(base, Packed::Mxfp4 { parts, shape });
                }
            }
        }
        self
    }

    fn needs_scales(&self, name: &str) -> bool {
        let file = self.index.get(name).and_then(|at| self.files.get(*at));
        let stored = file.and_then(|file| file.stored(name));
        stored.is_some_and(packed::needs_scales)
    }

    /// Whether a tensor is in MXFP4.
    pub fn is_mxfp4(&self, name: &str) -> bool {
        matches!(self.packed.get(name), Some(Packed::Mxfp4 { .. }))
    }

    /// The rows and columns of a tensor that share a scale.
    fn scale_block(
        &self,
        (name, expected): (&str, &[usize]),
        scales: &(usize, String),
    ) -> Result<[usize; 2], TensorFileError> {
        let block = match self.format {
            Format::Fp8 { block } => block,
            _ => None,
        };
        let file = &self.files[scales.0];
        let shape = file.shape(&scales.1).unwrap_or_default();
        file.expect_stored(&scales.1, shape)?;
        Scales::block(expected, shape, block).ok_or_else(|| {
            let blocks = match block {
                Some([rows, cols]) => format!("each block of {rows} × {cols}, "),
                None => String::new(),
            };
            let wanted = format!("a scale for {blocks}each row, or all of `{name}` {expected:?}");
            file.mismatch(&scales.1, format!("shape {shape:?}"), wanted)
        })
    }

    /// The file, or the index of shards.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// The file that holds a tensor.
    ///
    /// # Errors
    /// No file does.
    fn file(&self, name: &str, expected: &[usize]) -> Result<&TensorFile, TensorFileError> {
        let file = self.index.get(name).and_then(|at| self.files.get(*at));
        file.ok_or_else(|| {
            self.unpaired(name)
                .unwrap_or_else(|| TensorFileError::Missing {
                    path: self.path.clone(),
                    tensor: name.into(),
                    expected: expected.to_vec(),
                })
        })
    }

    /// What is wrong with the two tensors of one in MXFP4 that did not become it.
    fn unpaired(&self, name: &str) -> Option<TensorFileError> {
        let [blocks, scales] = MXFP4.map(|end| format!("{name}{end}"));
        let file = self.files.get(*self.index.get(&blocks)?)?;
        let shape = self.shape(&blocks).unwrap_or_default();
        let found = match (self.format, self.shape(&scales)) {
            (Format::Mxfp4, Some(of)) => format!("shape {shape:?} with `{scales}` {of:?}"),
            (Format::Mxfp4, None) => format!("shape {shape:?} and no `{scales}`"),
            _ => "its blocks, and no quantization_config in config.json that says mxfp4".into(),
        };
        let wanted = "MXFP4: blocks (…, groups, 16) and scales (…, groups)";
        Some(file.mismatch(&blocks, found, wanted.into()))
    }

    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        if let Some(Packed::Mxfp4 { shape, .. }) = self.packed.get(name) {
            return Some(shape);
        }
        self.files.get(*self.index.get(name)?)?.shape(name)
    }

    /// Checks a tensor's shape and dtype.
    ///
    /// # Errors
    /// A tensor that is absent, has another shape or an unknown number format, or needs scales and has none that fit.
    pub fn expect(&self, name: &str, expected: &[usize]) -> Result<(), TensorFileError> {
        let file = self.file(name, expected)?;
        match self.packed.get(name) {
            None => file.expect(name, expected),
            Some(Packed::Scaled { scales }) => {
                file.expect_stored(name, expected)?;
                self.scale_block((name, expected), scales).map(|_| ())
            }
            Some(Packed::Mxfp4 { parts, shape }) => {
                if shape != expected {
                    let found = format!("shape {shape:?}");
                    let wanted = format!("{expected:?} according to the model's config");
                    return Err(file.mismatch(name, found, wanted));
                }
                parts.iter().try_for_each(|(at, part)| {
                    let file = &self.files[*at];
                    file.expect_bytes(part, file.shape(part).unwrap_or_default())
                })
            }
        }
    }

    /// One tensor as f32.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or an unknown number format; a file that cannot be read.
    pub fn read(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, TensorFileError> {
        self.expect(name, expected)?;
        let mut values = vec![0.0; expected.iter().product()];
        self.read_part(name, expected, 0, &mut values)?;
        Ok(values)
    }

    /// The values from number `first` on. Besides them in memory are the scales of a tensor in FP8, and the bytes of a part in MXFP4.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or an unknown number format; fewer values than that; a file that
    /// cannot be read.
    pub fn read_part(
        &self,
        name: &str,
        expected: &[usize],
        first: usize,
        into: &mut [f32],
    ) -> Result<(), TensorFileError> {
        let file = self.file(name, expected)?;
        match self.packed.get(name) {
            None => file.read_part(name, expected, first, into),
            Some(Packed::Scaled { scales }) => {
                let block = self.scale_block((name, expected), scales)?;
                file.read_stored(name, expected, first, into)?;
                let (file, name) = (&self.files[scales.0], &scales.1);
                let shape = file.shape(name).unwrap_or_default();
                let mut values = vec![0.0; shape.iter().product()];
                file.read_stored(name, shape, 0, &mut values)?;
                Scales::new(expected, block, values).apply(first, into);
                Ok(())
            }
            Some(Packed::Mxfp4 { parts, .. }) => {
                self.expect(name, expected)?;
                let blocks = packed::mxfp4_blocks(first, into.len());
                let [mut bytes, mut scales] =
                    [packed::BLOCK_BYTES, 1].map(|size| vec![0; blocks.len() * size]);
                let buffers = [
                    (&mut bytes, packed::BLOCK_BYTES * blocks.start),
                    (&mut scales, blocks.start),
                ];
                for ((at, part), (buffer, from)) in parts.iter().zip(buffers) {
                    let file = &self.files[*at];
                    let shape = file.shape(part).unwrap_or_default();
                    file.read_bytes((part.as_str(), shape), from, buffer)?;
                }
                packed::mxfp4(&bytes, &scales, first - packed::first_of(&blocks), into);
                Ok(())
            }
        }
    }

    /// Rejects tensors the model does not have.
    ///
    /// # Errors
    /// There is one; names it and counts the others.
    pub fn reject_unknown(&self, known: &BTreeSet<&str>) -> Result<(), TensorFileError> {
        let extra: Vec<String> = self
            .names()
            .filter(|name| !known.contains(name))
            .map(one_line)
            .collect();
        let (Some(first), n) = (extra.first(), extra.len()) else {
            return Ok(());
        };
        let others = match n {
            1 => String::new(),
            n => format!(" and {} others", n - 1),
        };
        Err(TensorFileError::Folder {
            path: self.path.clone(),
            what: format!(
                "tensor `{first}`{others} does not belong to the model in config.json: the two files are from different models"
            ),
        })
    }
}

/// The files of an index in order of first occurrence; and for each tensor the index of its file.
fn contents(path: &Path) -> Result<(Vec<String>, BTreeMap<String, usize>), TensorFileError> {
    let malformed = |what: String| TensorFileError::Folder {
        path: path.into(),
        what,
    };
    let io = |source| TensorFileError::Io {
        path: path.into(),
        source,
    };
    if std::fs::metadata(path).map_err(io)?.len() > MAX_INDEX_BYTES {
        return Err(malformed(format!("larger than {MAX_INDEX_BYTES} bytes")));
    }
    let text = read_plain(path).map_err(io)?;
    let value: Value = serde_json::from_slice(&text).map_err(|e| {
        malformed(format!(
            "not an index of shards: {}",
            one_line(&e.to_string())
        ))
    })?;
    let map = value["weight_map"]
        .as_object()
        .ok_or_else(|| malformed("not an index of shards: it has no table `weight_map`".into()))?;
    let mut names: Vec<String> = Vec::new();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut index = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().filter(|name| plain(name)).ok_or_else(|| {
            let (tensor, file) = (one_line(tensor), one_line(&file.to_string()));
            malformed(format!(
                "`{tensor}` is assigned to {file}, which is not a valid safetensors file name in this folder"
            ))
        })?;
        let number = *numbers.entry(file).or_insert_with(|| {
            names.push(file.to_string());
            names.len() - 1
        });
        index.insert(tensor.clone(), number);
    }
    if names.len() > MAX_SHARDS {
        return Err(malformed(format!("more than {MAX_SHARDS} shards")));
    }
    Ok((names, index))
}

/// The files an index refers to.
///
/// # Errors
/// It is not an index, or refers to files outside the folder.
pub fn shards_of(index: &Path) -> Result<Vec<String>, TensorFileError> {
    Ok(contents(index)?.0)
}

fn sharded(folder: &Path, path: &Path) -> Result<Weights, TensorFileError> {
    let (names, index) = contents(path)?;
    let files = names
        .iter()
        .map(|name| TensorFile::open(&folder.join(name)))
        .collect::<Result<Vec<_>, _>>()?;
    for (number, file) in files.iter().enumerate() {
        if let Some(stray) = file.names().find(|name| index.get(*name) != Some(&number)) {
            let (file, stray) = (file.path().display(), one_line(stray));
            return Err(TensorFileError::Folder {
                path: path.into(),
                what: format!("does not say that `{stray}` is in {file}"),
            });
        }
    }
    Ok(Weights {
        path: path.into(),
        files,
        index,
        format: Format::Plain,
        packed: BTreeMap::new(),
    })
}

/// A file name next to the index with the right extension: indices are untrusted.
fn plain(name: &str) -> bool {
    Path::new(name).file_name() == Some(name.as_ref())
        && name.ends_with(".safetensors")
        && !name.contains(|c: char| c == '\\' || c.is_control())
}

/// Why there are no readable weights.
fn absent(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    absence(&names)
}

/// The same for the file names of a repository.
pub fn absence(names: &[String]) -> String {
    let with = |ends: &[&str]| {
        let found = names
            .iter()
            .find(|name| ends.iter().any(|end| name.ends_with(end)));
        found.map(|name| one_line(name))
    };
    if let Some(name) = with(&[".bin", ".pt", ".pth", ".ckpt"]) {
        return format!(
            "{name} is a pickle: a program that runs when it is read, so llmtui never opens one. Convert it once where you trust it: \
             in Python, `from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"FOLDER\").save_pretrained(\"OUT\")` \
             writes {WEIGHTS}; many repositories of the hub have a branch with it (refs/pr/…)"
        );
    }
    if let Some(name) = with(&[".gguf"]) {
        return format!("no {WEIGHTS}, but {name}: pass that file itself");
    }
    if let Some(name) = with(&["adapter_model.safetensors"]) {
        return format!("{name} is an adapter, not a model: merge it into its base first");
    }
    if let Some(name) = with(&[".safetensors"]) {
        return format!(
            "no {WEIGHTS} and no {INDEX}; {name} is not in transformers' layout: look for the model's transformers version"
        );
    }
    if let Some(name) = with(&[".h5", ".msgpack", ".onnx", ".tflite"]) {
        return format!(
            "no {WEIGHTS}; {name} is in another framework's format: convert it with transformers' save_pretrained"
        );
    }
    format!("no {WEIGHTS} and no {INDEX}: this folder has no weights")
}

#[cfg(test)]
mod tests {
    use super::super::safetensors::{TensorHead, write_to};
    use super::*;

    fn file(folder: &Path, name: &str, tensors: &[&str]) {
        let heads: Vec<TensorHead> = tensors
            .iter()
            .map(|t| TensorHead::f32(*t, vec![2]))
            .collect();
        let mut out = std::fs::File::create(folder.join(name)).unwrap();
        write_to(&mut out, &heads, &mut |sink| {
            (0..heads.len()).try_for_each(|i| sink.put(&[i as f32, 7.0]))
        })
        .unwrap();
    }

    fn index(folder: &Path, map: &[(&str, &str)]) {
        let map: serde_json::Map<String, Value> = map
            .iter()
            .map(|(t, f)| ((*t).into(), (*f).into()))
            .collect();
        let text = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
        std::fs::write(folder.join(INDEX), text).unwrap();
    }

    fn fault(folder: &Path) -> String {
        Weights::open(folder).unwrap_err().to_string()
    }

    #[test]
    fn shards_form_one_table() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "a.safetensors", &["x", "y"]);
        file(dir.path(), "b.safetensors", &["z"]);
        let all = [
            ("x", "a.safetensors"),
            ("y", "a.safetensors"),
            ("z", "b.safetensors"),
        ];
        index(dir.path(), &all);
        let weights = Weights::open(dir.path()).unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["x", "y", "z"]);
        assert_eq!(weights.read("y", &[2]).unwrap(), [1.0, 7.0]);
        let missing = weights.read("w", &[3]).unwrap_err().to_string();
        assert!(
            missing.contains("index.json") && missing.contains("`w`"),
            "{missing}"
        );
        let known: BTreeSet<&str> = ["x", "z"].into();
        let extra = weights.reject_unknown(&known).unwrap_err().to_string();
        assert!(extra.contains("`y` does not belong"), "{extra}");
    }

    #[test]
    fn an_inconsistent_index_is_rejected_and_never_points_outside_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "a.safetensors", &["x", "y"]);
        index(dir.path(), &[("x", "a.safetensors")]);
        assert!(fault(dir.path()).contains("`y`"));
        index(
            dir.path(),
            &[("x", "a.safetensors"), ("y", "gone.safetensors")],
        );
        assert!(fault(dir.path()).contains("gone.safetensors"));
        for name in [
            "../a.safetensors",
            "/etc/a.safetensors",
            "a\0.safetensors",
            "",
            "weights.bin",
        ] {
            index(dir.path(), &[("x", name)]);
            assert!(
                fault(dir.path()).contains("not a valid safetensors file name"),
                "{name}"
            );
        }
        std::fs::write(dir.path().join(INDEX), "[]").unwrap();
        assert!(fault(dir.path()).contains("weight_map"));
    }

    #[test]
    fn folders_without_safetensors_report_what_they_have_and_what_to_do() {
        for (name, part) in [
            ("pytorch_model.bin", "pickle"),
            ("model.pt", "save_pretrained"),
            ("m-Q4_0.gguf", "m-Q4_0.gguf"),
            ("adapter_model.safetensors", "merge"),
            ("consolidated.safetensors", "transformers version"),
            ("tf_model.h5", "another framework"),
            ("notes.txt", "no weights"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(name), "x").unwrap();
            let said = fault(dir.path());
            assert!(said.contains(part), "{name}: {said}");
        }
    }
}
