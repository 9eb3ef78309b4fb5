//! How a family's tensors map to our flat weight buffer: renamed, transposed, or several of ours fused into one of theirs.

use super::dtype::Dtype;
use super::tensor_file::TensorFileError;
use super::weights::Weights;
use crate::nn::ParamInfo;
use std::collections::BTreeSet;
use std::ops::Range;

/// Name prefixes in files of a language model, and what files have in their place: nothing in those of a bare trunk (the original
/// GPT-2), or the place of the text model in one with vision (Qwen 3.5).
const TRUNKS: [(&str, &str); 4] = [
    ("transformer.", ""),
    ("model.", ""),
    ("model.", "model.language_model."),
    ("gpt_neox.", ""),
];
/// The output head's names: that of most families first, then GPT-NeoX's.
const HEADS: [&str; 2] = ["lm_head.weight", "embed_out.weight"];

/// Where a tensor's values are in the flat weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    /// These ranges of the flat weights, concatenated.
    Own(Vec<Range<usize>>),
    /// One matrix of ours, transposed: theirs is (in, out), ours (out, in). The shape is theirs.
    Turned(Range<usize>),
    /// Matrices of experts, one after another.
    Experts(Experts),
    /// No counterpart: all zeros.
    Zeros,
}

/// Where the matrices of experts are, of which a file has all in one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experts {
    /// Of each expert the matrices whose rows, equally many, are in turns in the file: gate, up, gate, up …
    pub parts: Vec<Vec<Range<usize>>>,
    /// Columns of each of ours; 1 for vectors.
    pub cols: usize,
    /// Theirs are (in, out), ours (out, in).
    pub turned: bool,
}

impl Experts {
    /// The matrix of an expert as a file has it.
    fn gather(&self, parts: &[Range<usize>], weights: &[f32]) -> Vec<f32> {
        let rows = parts.first().map_or(0, |part| part.len() / self.cols);
        let mut values = Vec::with_capacity(rows * parts.len() * self.cols);
        for row in 0..rows {
            for part in parts {
                let from = part.start + row * self.cols;
                values.extend_from_slice(&weights[from..from + self.cols]);
            }
        }
        match self.turned {
            true => transposed(&values, rows * parts.len(), self.cols),
            false => values,
        }
    }

    /// One of `n` matrices of an expert, from its values in a file.
    pub fn matrix(&self, at: usize, n: usize, values: Vec<f32>) -> Vec<f32> {
        let values = match self.turned {
            true => transposed(&values, self.cols, values.len() / self.cols),
            false => values,
        };
        let rows = values.chunks_exact(self.cols).skip(at).step_by(n);
        rows.flatten().copied().collect()
    }

    /// The reverse of [`Experts::gather`].
    fn scatter(&self, parts: &[Range<usize>], values: Vec<f32>, weights: &mut [f32]) {
        let values = match self.turned {
            true => transposed(&values, self.cols, values.len() / self.cols),
            false => values,
        };
        for (at, row) in values.chunks_exact(self.cols).enumerate() {
            let (part, row_of_part) = (&parts[at % parts.len()], at / parts.len());
            let from = part.start + row_of_part * self.cols;
            weights[from..from + self.cols].copy_from_slice(row);
        }
    }
}

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Values,
    /// The file may have more rows; ours are the first (positions beyond our seq_len).
    pub more_rows: bool,
    /// In f32 in files of every dtype: a bias that decides which experts are chosen, rounded, would choose others.
    pub keeps_f32: bool,
}

impl DiskTensor {
    /// A parameter without changes.
    pub fn own(info: &ParamInfo) -> DiskTensor {
        let whole = info.offset..info.offset + info.len;
        DiskTensor {
            name: info.name.clone(),
            shape: info.shape.clone(),
            values: Values::Own(Vec::from([whole])),
            more_rows: false,
            keeps_f32: info.is_balancing_bias(),
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: String) -> DiskTensor {
        DiskTensor { name, ..self }
    }

    /// A matrix (out, in) of ours as (in, out).
    #[must_use]
    pub fn transposed(mut self) -> DiskTensor {
        if let (Values::Own(parts), [_, _]) = (&self.values, &self.shape[..])
            && let [range] = &parts[..]
        {
            self.values = Values::Turned(range.clone());
            self.shape.reverse();
        }
        self
    }

    /// The weights of a convolution of each channel by itself, (channels, taps), as torch has them: (channels, 1, taps).
    #[must_use]
    pub fn depthwise(mut self) -> DiskTensor {
        if self.shape.len() == 2 {
            self.shape.insert(1, 1);
        }
        self
    }

    /// Appends `other`'s rows.
    pub fn append(&mut self, other: DiskTensor) {
        if let (Values::Own(mine), Values::Own(theirs)) = (&mut self.values, other.values) {
            mine.extend(theirs);
            if let (Some(rows), Some(more)) = (self.shape.first_mut(), other.shape.first()) {
                *rows += more;
            }
        }
    }

    /// (n · rows, …) as (n, rows, …): so many matrices one after another.
    #[must_use]
    pub fn stacked(mut self, n: usize) -> DiskTensor {
        if let Some(rows) = self.shape.first_mut() {
            *rows /= n.max(1);
            self.shape.insert(0, n);
        }
        self
    }

    /// The same with the rows of its parts, which have equally many, in turns: of each of `groups` groups the rows of the first part,
    /// then those of the second, …
    #[must_use]
    pub fn interleaved(mut self, groups: usize) -> DiskTensor {
        if let Values::Own(parts) = &self.values {
            let piece = |part: &Range<usize>, group: usize| {
                let len = part.len() / groups;
                let start = part.start + group * len;
                start..start + len
            };
            let in_turns = (0..groups).flat_map(|g| parts.iter().map(move |part| piece(part, g)));
            self.values = Values::Own(in_turns.collect());
        }
        self
    }

    /// Matrices of experts as a file has them that does not transpose them.
    #[must_use]
    pub fn unturned(mut self) -> DiskTensor {
        if let Values::Experts(experts) = &mut self.values
            && experts.turned
        {
            experts.turned = false;
            self.shape.swap(1, 2);
        }
        self
    }

    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Where its values are in the flat weights; nowhere if it is all zeros.
    pub fn places(&self) -> Vec<Range<usize>> {
        match &self.values {
            Values::Own(parts) => parts.clone(),
            Values::Turned(whole) => Vec::from([whole.clone()]),
            Values::Experts(experts) => experts.parts.iter().flatten().cloned().collect(),
            Values::Zeros => Vec::new(),
        }
    }

    /// The same tensor where its values, in the order of [`DiskTensor::places`], are all the weights.
    #[must_use]
    pub fn by_itself(&self) -> DiskTensor {
        let mut end = 0;
        let mut next = |part: &Range<usize>| {
            let from = end;
            end += part.len();
            from..end
        };
        let values = match &self.values {
            Values::Own(parts) => Values::Own(parts.iter().map(next).collect()),
            Values::Turned(whole) => Values::Turned(next(whole)),
            Values::Experts(experts) => {
                let parts = experts.parts.iter();
                let parts = parts.map(|parts| parts.iter().map(&mut next).collect());
                Values::Experts(Experts {
                    parts: parts.collect(),
                    ..experts.clone()
                })
            }
            Values::Zeros => Values::Zeros,
        };
        DiskTensor {
            values,
            ..self.clone()
        }
    }

    /// Its dtype in files of `dtype`.
    pub fn dtype(&self, dtype: Dtype) -> Dtype {
        match self.keeps_f32 {
            true => Dtype::F32,
            false => dtype,
        }
    }

    /// Its size in files of `dtype`, in bytes.
    pub fn bytes(&self, dtype: Dtype) -> usize {
        self.len() * self.dtype(dtype).size()
    }

    /// The values, from the flat weights; `put` receives them in chunks.
    ///
    /// # Errors
    /// Errors of `put`.
    pub fn write<E>(
        &self,
        weights: &[f32],
        put: &mut dyn FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.values {
            Values::Own(parts) => parts
                .iter()
                .try_for_each(|part| put(&weights[part.clone()])),
            Values::Turned(range) => {
                let (cols, rows) = (self.shape[0], self.shape[1]);
                put(&transposed(&weights[range.clone()], rows, cols))
            }
            Values::Experts(experts) => {
                (experts.parts.iter()).try_for_each(|parts| put(&experts.gather(parts, weights)))
            }
            Values::Zeros => put(&vec![0.0; self.len()]),
        }
    }

    /// Reads the values from a file into the flat weights. `name` and `shape` are the file's.
    fn read(
        &self,
        file: &Weights,
        name: &str,
        shape: &[usize],
        weights: &mut [f32],
    ) -> Result<(), TensorFileError> {
        match &self.values {
            Values::Own(parts) => {
                let mut first = 0;
                for part in parts {
                    let into = &mut weights[part.clone()];
                    file.read_part(name, shape, first, into)?;
                    first += into.len();
                }
                Ok(())
            }
            Values::Turned(range) => {
                let (rows, cols) = (self.shape[0], self.shape[1]);
                let values = file.read(name, shape)?;
                weights[range.clone()].copy_from_slice(&transposed(&values, rows, cols));
                Ok(())
            }
            Values::Experts(experts) => {
                let mut first = 0;
                for parts in &experts.parts {
                    let mut values = vec![0.0; parts.iter().map(Range::len).sum()];
                    file.read_part(name, shape, first, &mut values)?;
                    first += values.len();
                    experts.scatter(parts, values, weights);
                }
                Ok(())
            }
            Values::Zeros => Ok(()),
        }
    }
}

/// (rows, cols) → (cols, rows).
pub(super) fn transposed(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    for row in 0..rows {
        for col in 0..cols {
            out[col * rows + row] = values[row * cols + col];
        }
    }
    out
}

/// A tensor mapping matched against the files of a folder.
#[derive(Debug)]
pub struct Reading<'a> {
    file: &'a Weights,
    /// Each tensor with its name and shape in the file.
    found: Vec<(&'a DiskTensor, String, Vec<usize>)>,
}

impl<'a> Reading<'a> {
    /// Finds every tensor with its shape and a supported dtype; rejects extra ones. `ignored` matches buffers that
    /// files contain although they follow from the config. Reads no values.
    ///
    /// # Errors
    /// A tensor that is missing, has another shape or dtype, or does not belong to the model.
    pub fn plan(
        file: &'a Weights,
        tensors: &'a [DiskTensor],
        ignored: &dyn Fn(&str) -> bool,
    ) -> Result<Reading<'a>, TensorFileError> {
        let trunk = other_trunk(file, tensors);
        let mut found = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let renamed = trunk.and_then(|trunk| in_trunk(&tensor.name, trunk));
            let name = renamed.unwrap_or_else(|| tensor.name.clone());
            let shape = match file.shape(&name) {
                Some(shape) if tensor.more_rows && shape.get(1..) == tensor.shape.get(1..) => {
                    let mut shape = shape.to_vec();
                    shape[0] = shape[0].max(tensor.shape[0]);
                    shape
                }
                _ => tensor.shape.clone(),
            };
            file.expect(&name, &shape)?;
            found.push((tensor, name, shape));
        }
        let mut known: BTreeSet<&str> = found.iter().map(|(_, name, _)| name.as_str()).collect();
        known.extend(file.names().filter(|name| ignored(name)));
        let is_head = |name: &str| HEADS.contains(&name);
        let reading_head = found.iter().any(|(tensor, ..)| is_head(&tensor.name));
        if !reading_head {
            known.extend(file.names().filter(|name| is_head(name)));
        }
        file.reject_unknown(&known)?;
        drop(known);
        let reading = Reading { file, found };
        reading.zeros_are_zero()?;
        if !reading_head {
            reading.tied_head_is_the_embedding()?;
        }
        Ok(reading)
    }

    /// Each tensor with its name and shape in the file.
    pub fn found(&self) -> Vec<(DiskTensor, String, Vec<usize>)> {
        let found = self.found.iter();
        let owned = |(tensor, name, shape): &(&DiskTensor, String, Vec<usize>)| {
            ((*tensor).clone(), name.clone(), shape.clone())
        };
        found.map(owned).collect()
    }

    /// Reads all values into the flat weights the mapping was built for.
    ///
    /// # Errors
    /// The file can no longer be read.
    pub fn read(&self, weights: &mut [f32]) -> Result<(), TensorFileError> {
        self.found
            .iter()
            .try_for_each(|(tensor, name, shape)| tensor.read(self.file, name, shape, weights))
    }

    /// A tensor without a counterpart in this model must be zero in the file.
    fn zeros_are_zero(&self) -> Result<(), TensorFileError> {
        for (tensor, name, shape) in &self.found {
            if tensor.values == Values::Zeros
                && self.file.read(name, shape)?.iter().any(|x| *x != 0.0)
            {
                return Err(TensorFileError::Mismatch {
                    path: self.file.path().into(),
                    tensor: name.clone(),
                    found: "values that are not zero".into(),
                    expected: "zeros, because the config says the model has no biases".into(),
                });
            }
        }
        Ok(())
    }

    /// If the config says the head is tied, a head in the file must equal the embedding.
    fn tied_head_is_the_embedding(&self) -> Result<(), TensorFileError> {
        let Some((_, name, shape)) = self.found.first() else {
            return Ok(());
        };
        let heads = HEADS.into_iter().filter(|head| self.file.contains(head));
        for head in heads {
            let same = self.file.shape(head) == Some(shape) && {
                let own = self.file.read(head, shape)?;
                let embedding = self.file.read(name, shape)?;
                own.iter()
                    .map(|x| x.to_bits())
                    .eq(embedding.iter().map(|x| x.to_bits()))
            };
            if !same {
                return Err(TensorFileError::Mismatch {
                    path: self.file.path().into(),
                    tensor: head.into(),
                    found: format!("other values than `{name}`"),
                    expected: "the same values, because config.json has tie_word_embeddings: true; set it to false if the head is separate".into(),
                });
            }
        }
        Ok(())
    }
}

/// The prefix of our names that the file lacks, and the one that it has.
fn other_trunk(file: &Weights, tensors: &[DiskTensor]) -> Option<(&'static str, &'static str)> {
    let first = &tensors.first()?.name;
    let found = |name: String| !file.contains(first) && file.contains(&name);
    TRUNKS
        .into_iter()
        .find(|trunk| in_trunk(first, *trunk).is_some_and(found))
}

/// A name with another prefix, if it has the first of the two.
fn in_trunk(name: &str, (ours, theirs): (&str, &str)) -> Option<String> {
    let bare = name.strip_prefix(ours)?;
    Some(format!("{theirs}{bare}"))
}

#[cfg(test)]
mod tests {
    use super::super::safetensors::{TensorHead, write_to};
    use super::*;
    use crate::nn::{Init, Role};
    use std::path::Path;

    fn info(name: &str, shape: &[usize], offset: usize) -> ParamInfo {
        ParamInfo {
            name: name.into(),
            role: Role::Head,
            layer: None,
            expert: None,
            shape: shape.to_vec(),
            offset,
            len: shape.iter().product(),
            grad: None,
            decay: true,
            lr_scale: 1.0,
            init: Init::Ones,
        }
    }

    fn file(folder: &Path, tensors: &[(&str, &[usize], &[f32])]) -> Weights {
        let heads: Vec<TensorHead> = tensors
            .iter()
            .map(|(name, shape, _)| TensorHead::f32(*name, shape.to_vec()))
            .collect();
        let mut out = std::fs::File::create(folder.join(super::super::WEIGHTS)).unwrap();
        write_to(&mut out, &heads, &mut |sink| {
            tensors
                .iter()
                .try_for_each(|(_, _, values)| sink.put(values))
        })
        .unwrap();
        Weights::open(folder).unwrap()
    }

    fn read(file: &Weights, tensors: &[DiskTensor], len: usize) -> Result<Vec<f32>, String> {
        let mut weights = vec![9.0; len];
        Reading::plan(file, tensors, &|name| name.ends_with(".buffer"))
            .and_then(|reading| reading.read(&mut weights))
            .map_err(|e| e.to_string())?;
        Ok(weights)
    }

    #[test]
    fn fused_and_transposed_tensors_map_to_their_parameters() {
        let dir = tempfile::tempdir().unwrap();
        let all = [
            ("ab", &[3, 2][..], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]),
            ("c", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            ("x.buffer", &[1], &[0.0]),
        ];
        let file = file(dir.path(), &all);
        // b is before a, with a gap between them.
        let mut ab = DiskTensor::own(&info("ab", &[1, 2], 3));
        ab.append(DiskTensor::own(&info("b", &[2, 2], 5)));
        let c = DiskTensor::own(&info("c", &[3, 2], 9)).transposed();
        let tensors = [ab, c];
        let weights = read(&file, &tensors, 15).unwrap();
        assert_eq!(weights[3..9], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(weights[9..], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        // And written again.
        for (tensor, (_, _, values)) in tensors.iter().zip(all) {
            let mut out = Vec::new();
            let put = &mut |part: &[f32]| {
                out.extend_from_slice(part);
                Ok::<(), ()>(())
            };
            tensor.write(&weights, put).unwrap();
            assert_eq!(out, values);
        }
    }

    #[test]
    fn extra_rows_are_dropped_and_missing_ones_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path(), &[("wpe", &[3, 1], &[1.0, 2.0, 3.0])]);
        let table = |rows: usize| {
            let mut tensor = DiskTensor::own(&info("wpe", &[rows, 1], 0));
            tensor.more_rows = true;
            [tensor]
        };
        assert_eq!(read(&file, &table(2), 2).unwrap(), [1.0, 2.0]);
        let error = read(&file, &table(4), 4).unwrap_err();
        assert!(
            error.contains("[3, 1]") && error.contains("[4, 1]"),
            "{error}"
        );
    }

    #[test]
    fn a_scalar_in_place_of_a_table_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path(), &[("wpe", &[], &[1.0])]);
        let mut tensor = DiskTensor::own(&info("wpe", &[2, 1], 0));
        tensor.more_rows = true;
        let error = read(&file, &[tensor], 2).unwrap_err();
        assert!(error.contains("wpe") && error.contains("[2, 1]"), "{error}");
    }

    #[test]
    fn bare_trunks_are_accepted_and_foreign_tensors_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(
            dir.path(),
            &[("wte.weight", &[2], &[1.0, 2.0]), ("other", &[1], &[0.0])],
        );
        let tensors = [DiskTensor::own(&info("transformer.wte.weight", &[2], 0))];
        let error = read(&file, &tensors, 2).unwrap_err();
        assert!(error.contains("`other` does not belong"), "{error}");
    }

    #[test]
    fn a_tied_head_must_be_the_embedding_and_absent_biases_must_be_zero() {
        let dir = tempfile::tempdir().unwrap();
        let (e, other) = ([1.0, 2.0], [1.0, 3.0]);
        let tensors = [DiskTensor::own(&info(
            "model.embed_tokens.weight",
            &[2, 1],
            0,
        ))];
        let name = "model.embed_tokens.weight";
        let same = file(dir.path(), &[(name, &[2, 1], &e), (HEADS[0], &[2, 1], &e)]);
        assert_eq!(read(&same, &tensors, 2).unwrap(), e);
        let differs = file(
            dir.path(),
            &[(name, &[2, 1], &e), (HEADS[0], &[2, 1], &other)],
        );
        let error = read(&differs, &tensors, 2).unwrap_err();
        assert!(error.contains("tie_word_embeddings"), "{error}");
        let zero = DiskTensor {
            values: Values::Zeros,
            ..DiskTensor::own(&info(HEADS[0], &[2, 1], 0))
        };
        let error = read(&differs, &[tensors[0].clone(), zero], 2).unwrap_err();
        assert!(error.contains("not zero"), "{error}");
    }
}
