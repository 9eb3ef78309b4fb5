//! A file → a model: quantized weights as they are, or everything in f32 for training.

use super::ModelFileError;
use super::arch::{self, Architecture, Seen};
use super::keys::Keys;
use super::latents::{Half, Latents};
use super::names::{Place, Rows, Stands, Tiles, earlier, place};
use super::tensors::Tensors;
use crate::base::files::open_plain;
use crate::gguf::{MAGIC, Metadata, TensorInfo, open_parts};
use crate::kernels::quant::{Kind, encode_rows};
use crate::nn::{Model, ModelConfig, ModelShape, ParamInfo, StoredTensor};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Whether a file starts with the GGUF magic.
pub fn is_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    open_plain(path)
        .and_then(|mut file| file.read_exact(&mut magic))
        .is_ok_and(|()| magic == MAGIC)
}

/// A model in a file, or in several, with metadata read and tensors validated against the config.
pub struct GgufModel {
    /// Of the first part.
    path: PathBuf,
    metadata: Metadata,
    architecture: &'static dyn Architecture,
    config: ModelConfig,
    shape: ModelShape,
    /// The location of each parameter.
    places: BTreeMap<String, Place>,
    tensors: Tensors,
}

/// Special token ids in the metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    pub bos: Option<u32>,
    /// End of text, of turn and of message: each ends an answer.
    pub ends: Vec<u32>,
    pub pad: Option<u32>,
}

/// Tokens at which llama.cpp ends an answer for their text alone (src/llama-vocab.cpp, `special_eog_ids`): its converter names one
/// stop token of several. Left out are those that it takes back for some models, which the keys name where they end a text.
const ENDS_BY_TEXT: [&str; 13] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<end_of_utterance>",
];

/// Tensors that are derived from the metadata, or repeat it.
const NOT_WEIGHTS: [&str; 1] = ["rope_freqs.weight"];
const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

impl GgufModel {
    /// Reads the metadata and locates all parameters of the model it describes. Of a model in several parts any one may be named.
    /// Weights are read later, through the memory maps: the files must not change during this value's lifetime.
    ///
    /// # Errors
    /// A file is invalid, has an unsupported architecture or number format, or a tensor is missing, extra or
    /// misshapen; parts are missing or are of different models.
    pub fn open(path: &Path) -> Result<GgufModel, ModelFileError> {
        let parts = open_parts(path).map_err(|e| ModelFileError::file(&e.path, e.what))?;
        let mut tensors = Tensors::default();
        let mut first = None;
        for part in parts {
            let metadata = tensors.add(&part.path, part.head)?;
            first.get_or_insert((part.path, metadata));
        }
        // There is one part at least.
        let (path, metadata) = first.unwrap_or_default();
        let wrong = |what: String| ModelFileError::file(&path, what);
        let name = metadata.str("general.architecture");
        let name = name.ok_or_else(|| wrong("general.architecture is missing".into()))?;
        let architecture = arch::named(name).map_err(wrong)?;
        let seen = seen(&tensors, &path, architecture)?;
        let keys = Keys {
            metadata: &metadata,
            architecture: architecture.name(),
        };
        let config = architecture.read(keys, &seen).map_err(wrong)?;
        // Every block has a tensor: larger counts are rejected before its parameters are listed.
        if config.n_layer > tensors.len() {
            let (name, n) = (architecture.name(), tensors.len());
            return Err(wrong(format!(
                "{name}.block_count {} exceeds the file's {n} tensors",
                config.n_layer
            )));
        }
        let limits = config.within_limits();
        limits.map_err(|e| wrong(format!("it does not describe a valid model: {e}")))?;
        let shape = config.shape(seen.vocab_size);
        let mut model = GgufModel {
            path,
            metadata,
            architecture,
            config,
            shape,
            places: BTreeMap::new(),
            tensors,
        };
        model.find()?;
        Ok(model)
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The file, of several the first.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of `general.architecture`.
    pub fn architecture(&self) -> &'static str {
        self.architecture.name()
    }

    /// What of the file is not read, as a sentence.
    pub fn left_out(&self) -> Option<String> {
        let n_layer = self.config.n_layer;
        let mut tensors = self.tensors.list();
        let is_left = tensors.any(|tensor| self.architecture.leaves_out(&tensor.name, n_layer));
        is_left.then(|| {
            "it is read without the blocks that predict tokens further ahead (nextn), and written without them".into()
        })
    }

    /// Its keys, which of several parts the first has.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Ids of special tokens, from the tokenizer's keys.
    pub fn special_tokens(&self) -> SpecialTokens {
        let id = |key: &str| {
            let id = self
                .metadata
                .u64(&format!("tokenizer.ggml.{key}_token_id"))?;
            u32::try_from(id).ok()
        };
        SpecialTokens {
            bos: id("bos"),
            ends: ["eos", "eot", "eom"].into_iter().filter_map(id).collect(),
            pad: id("padding"),
        }
    }

    /// Tokens that end an answer: those of the keys, and those that llama.cpp knows by their text.
    pub fn answer_ends(&self) -> Vec<u32> {
        let mut ends = self.special_tokens().ends;
        let tokens = self.metadata.strings("tokenizer.ggml.tokens");
        let known = tokens.unwrap_or_default().iter().zip(0..);
        for (_, id) in known.filter(|(token, _)| ENDS_BY_TEXT.contains(&token.as_str())) {
            if !ends.contains(&id) {
                ends.push(id);
            }
        }
        ends
    }

    /// The parameters of the model, in its order.
    ///
    /// # Errors
    /// None that [`GgufModel::open`] has not found.
    pub fn parameters(&self) -> Result<Vec<ParamInfo>, ModelFileError> {
        Ok(Model::parameters(&self.config, self.shape.vocab_size)?)
    }

    /// The number format of a parameter's tensor.
    pub fn format_of(&self, info: &ParamInfo) -> Option<&'static str> {
        let place = self.places.get(&info.name)?;
        let halves = || self.tensors.get(&Latents::name(&place.tensor, Half::Keys));
        let tensor = self.tensors.get(&place.tensor).or_else(halves)?;
        Some(tensor.kind.name)
    }

    /// The values of one parameter in f32, also such that are not finite.
    ///
    /// # Errors
    /// It is not a parameter of this model.
    pub fn read_values(&self, info: &ParamInfo) -> Result<Vec<f32>, ModelFileError> {
        let mut values = vec![0.0; info.len];
        self.decode(info, &mut values)?;
        Ok(values)
    }

    /// The same, of finite values alone.
    ///
    /// # Errors
    /// It is not a parameter of this model; a value is not finite.
    pub fn read_finite(&self, info: &ParamInfo) -> Result<Vec<f32>, ModelFileError> {
        let mut values = vec![0.0; info.len];
        self.values(info, &mut values)?;
        Ok(values)
    }

    /// Bytes of weights by number format, largest first.
    pub fn formats(&self) -> Vec<(&'static str, u64)> {
        let mut sums = BTreeMap::new();
        for tensor in self.tensors.list() {
            *sums.entry(tensor.kind.name).or_insert(0) += tensor.bytes;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        sums
    }

    /// The model with its weights in the file's formats, for inference only; plain f32 is copied to one buffer on huge pages,
    /// which is a tenth faster to read.
    ///
    /// # Errors
    /// A tensor has a non-finite value, or there is not enough memory.
    pub fn quantized(&self) -> Result<Model, ModelFileError> {
        if !self.is_packed() {
            return self.dequantized();
        }
        Model::stored(&self.config, self.shape.vocab_size, |info| {
            self.stored(info)
        })
    }

    /// Whether the file stores weights in a format other than f32.
    pub fn is_packed(&self) -> bool {
        let is_f32 = |tensor: &TensorInfo| Kind::by_ggml_id(tensor.kind.id) == Some(Kind::F32);
        !self.tensors.list().all(is_f32)
    }

    /// Whether any weights are quantized: f32, f16 and bf16 are plain numbers, blocks with a scale are not.
    pub fn is_quantized(&self) -> bool {
        self.tensors.list().any(|tensor| tensor.kind.block > 1)
    }

    /// Bytes of all weights, in all parts.
    pub fn weight_bytes(&self) -> u64 {
        self.tensors.list().map(|tensor| tensor.bytes).sum()
    }

    /// The same for a model of another config with the same parameters: a base with adapters.
    ///
    /// # Errors
    /// As for [`GgufModel::quantized`]; the config has other parameters.
    pub fn quantized_as(&self, config: &ModelConfig) -> Result<Model, ModelFileError> {
        let vocab_size = self.shape.vocab_size;
        self.check_parameters(&Model::parameters(config, vocab_size)?)?;
        Model::stored(config, vocab_size, |info| self.stored(info))
    }

    /// The model in f32, which can be trained.
    ///
    /// # Errors
    /// As for [`GgufModel::quantized`].
    pub fn dequantized(&self) -> Result<Model, ModelFileError> {
        let cpu = candle_core::Device::Cpu;
        let mut model = Model::new(&self.config, self.shape.vocab_size, &cpu)?;
        self.fill(&mut model)?;
        Ok(model)
    }

    /// Fills the weights of an existing model, in f32.
    ///
    /// # Errors
    /// The model's parameters differ from the file's; as for [`GgufModel::quantized`].
    pub fn fill(&self, model: &mut Model) -> Result<(), ModelFileError> {
        let infos = model.params().base().to_vec();
        self.fill_parts(model, &infos)
    }

    /// The same for these parameters of the model: see [`Model::base_of_vocabulary`].
    ///
    /// # Errors
    /// As [`GgufModel::fill`].
    pub fn fill_parts(&self, model: &mut Model, infos: &[ParamInfo]) -> Result<(), ModelFileError> {
        self.check_parameters(infos)?;
        model.params_mut().write_weights(|weights| {
            infos.iter().try_for_each(|info| {
                let to = &mut weights[info.offset..info.offset + info.len];
                self.values(info, to)
            })
        })?
    }

    fn check_parameters(&self, infos: &[ParamInfo]) -> Result<(), ModelFileError> {
        let theirs = Model::parameters(&self.config, self.shape.vocab_size)?;
        let same = |(a, b): (&ParamInfo, &ParamInfo)| a.name == b.name && a.shape == b.shape;
        if let Some((ours, theirs)) = infos.iter().zip(&theirs).find(|pair| !same(*pair)) {
            let what = format!(
                "its parameter {} has shape {:?}; expected {} of {:?}",
                theirs.name, theirs.shape, ours.name, ours.shape
            );
            return Err(ModelFileError::file(&self.path, what));
        }
        if infos.len() != theirs.len() {
            let (n, all) = (theirs.len(), infos.len());
            let what = format!("it has {n} parameters; expected {all}");
            return Err(ModelFileError::file(&self.path, what));
        }
        Ok(())
    }

    /// Locates every parameter, and checks that no tensor is left over.
    ///
    /// # Errors
    /// Of a tensor at fault with the part that holds it; of one that is missing, and of the keys, with the first part.
    fn find(&mut self) -> Result<(), ModelFileError> {
        let wrong = |what: String| ModelFileError::file(&self.path, what);
        let at_fault = |name: &str, what: String| of_tensor(&self.tensors, &self.path, name, what);
        let infos = Model::parameters(&self.config, self.shape.vocab_size)
            .map_err(ModelFileError::from)
            .map_err(|e| wrong(format!("it does not describe a valid model: {e}")))?;
        let mut used: BTreeSet<&str> = NOT_WEIGHTS.into();
        if self.architecture.needs_head() && self.config.ties_head() {
            used.insert(HEAD);
        }
        for info in &infos {
            let mut place =
                place(self.architecture, &self.config, &self.shape, info).map_err(wrong)?;
            if let Some(earlier) = earlier(self.architecture, &self.config, &place)
                && self.tensors.get(&earlier.tensor).is_some()
            {
                place = earlier;
            }
            if let Some(latents) = Latents::of(&self.config, info)
                && self.tensors.get(&place.tensor).is_none()
            {
                for half in [Half::Keys, Half::Values] {
                    let name = Latents::name(&place.tensor, half);
                    let Some(tensor) = self.tensors.get(&name) else {
                        return Err(wrong(format!("tensor {name} is missing")));
                    };
                    let expected = latents.dims(half);
                    if tensor.dims != expected {
                        let what = misshapen(tensor, &expected);
                        return Err(at_fault(&tensor.name, what));
                    }
                    used.insert(&tensor.name);
                }
                self.places.insert(info.name.clone(), place);
                continue;
            }
            let Some(tensor) = self.tensors.get(&place.tensor) else {
                return Err(wrong(format!("tensor {} is missing", place.tensor)));
            };
            check(tensor, info, &place).map_err(|what| at_fault(&tensor.name, what))?;
            used.insert(&tensor.name);
            self.places.insert(info.name.clone(), place);
        }
        let n_layer = self.config.n_layer;
        let extra = |tensor: &&TensorInfo| {
            let name = tensor.name.as_str();
            !used.contains(name) && !self.architecture.leaves_out(name, n_layer)
        };
        match self.tensors.list().find(extra) {
            Some(tensor) => {
                let what = format!(
                    "tensor {} does not belong to any parameter of the {} in the metadata",
                    tensor.name,
                    self.architecture.name()
                );
                Err(at_fault(&tensor.name, what))
            }
            None => Ok(()),
        }
    }

    /// Format and bytes of one parameter, rows in our order.
    fn bytes(&self, info: &ParamInfo) -> Result<(Kind, Vec<u8>), ModelFileError> {
        let missing = || ModelFileError::Model(format!("{} has no tensor", info.name));
        let place = self.places.get(&info.name).ok_or_else(missing)?;
        let Some(tensor) = self.tensors.get(&place.tensor) else {
            return self.halves(info, place).ok_or_else(missing);
        };
        let kind = Kind::by_ggml_id(tensor.kind.id).ok_or_else(missing)?;
        let all = self.tensors.bytes(&place.tensor);
        // A vector is a single row; a permuted one is a column of single values.
        let (rows, cols) = match info.shape[..] {
            [rows, cols] => (rows, cols),
            _ if place.rows != Rows::From(0) || place.total != info.len => (info.len, 1),
            _ => (1, info.len),
        };
        let row_bytes = kind.row_bytes(cols).ok_or_else(missing)?;
        let first = place.expert.map_or(0, |(expert, _)| expert * rows);
        let row = |row| {
            let row = first + place.rows.at(row);
            &all[row * row_bytes..][..row_bytes]
        };
        let bytes = match place.rows {
            Rows::From(from) => all[(first + from) * row_bytes..][..rows * row_bytes].to_vec(),
            _ => (0..rows).flat_map(row).copied().collect(),
        };
        match place.columns {
            Some(tiles) => Ok(in_our_columns(kind, bytes, cols, tiles)),
            None => Ok((kind, bytes)),
        }
    }

    /// The matrix that two tensors hold. One of them is transposed, so blocks of values cannot move as they are: plain numbers keep
    /// their format, others are rounded once more, as in [`rounded`].
    fn halves(&self, info: &ParamInfo, place: &Place) -> Option<(Kind, Vec<u8>)> {
        let latents = Latents::of(&self.config, info)?;
        let half = |half| {
            let name = Latents::name(&place.tensor, half);
            let kind = Kind::by_ggml_id(self.tensors.get(&name)?.kind.id)?;
            let n: u64 = latents.dims(half).iter().product();
            let mut values = vec![0.0; n as usize];
            kind.decode(self.tensors.bytes(&name), &mut values);
            Some((kind, values))
        };
        let ((kind, keys), (other, values)) = (half(Half::Keys)?, half(Half::Values)?);
        let whole = latents.join(&keys, &values);
        let is_plain = kind == other && kind.format().values == 1;
        Some(rounded(is_plain.then_some(kind), &whole, info.shape[1]))
    }

    fn stored(&self, info: &ParamInfo) -> Result<StoredTensor, ModelFileError> {
        if info.shape.len() == 1 {
            let mut values = vec![0.0; info.len];
            self.values(info, &mut values)?;
            return Ok(StoredTensor::Dense(values));
        }
        let (kind, bytes) = self.bytes(info)?;
        Ok(StoredTensor::Packed(kind, bytes))
    }

    fn values(&self, info: &ParamInfo, to: &mut [f32]) -> Result<(), ModelFileError> {
        self.decode(info, to)?;
        if to.iter().all(|x| x.is_finite()) {
            return Ok(());
        }
        let tensor = self.places.get(&info.name);
        let tensor = tensor.map_or("", |place| &place.tensor);
        let what = format!("tensor {tensor} has a non-finite value");
        Err(of_tensor(&self.tensors, &self.path, tensor, what))
    }

    fn decode(&self, info: &ParamInfo, to: &mut [f32]) -> Result<(), ModelFileError> {
        let (kind, bytes) = self.bytes(info)?;
        kind.decode(&bytes, to);
        let value = self.places.get(&info.name).map(|place| place.value);
        let value = value.unwrap_or(Stands::Itself);
        if value != Stands::Itself {
            to.iter_mut().for_each(|x| *x = value.ours(*x));
        }
        Ok(())
    }
}

/// Rows whose columns are tiled, with our columns. Blocks of values move as they are where a head is a whole number of them;
/// otherwise the rows are rounded once more, to eight bits in blocks of 32, or kept in f32 where such blocks do not fit either.
fn in_our_columns(kind: Kind, bytes: Vec<u8>, cols: usize, tiles: Tiles) -> (Kind, Vec<u8>) {
    let format = kind.format();
    if tiles.head.is_multiple_of(format.values) {
        let row_bytes = cols / format.values * format.bytes;
        let block = |at: usize| tiles.at(at * format.values) / format.values * format.bytes;
        let mut ours = Vec::with_capacity(bytes.len());
        for row in bytes.chunks_exact(row_bytes) {
            for at in 0..cols / format.values {
                ours.extend_from_slice(&row[block(at)..][..format.bytes]);
            }
        }
        return (kind, ours);
    }
    let mut theirs = vec![0.0; bytes.len() / format.bytes * format.values];
    kind.decode(&bytes, &mut theirs);
    let rows = theirs.chunks_exact(cols);
    let values: Vec<f32> = rows
        .flat_map(|row| (0..cols).map(|at| row[tiles.at(at)]))
        .collect();
    rounded(None, &values, cols)
}

/// Rows of values in a format; where none is given in eight bits in blocks of 32, or in f32 where such blocks do not fit.
fn rounded(kind: Option<Kind>, values: &[f32], cols: usize) -> (Kind, Vec<u8>) {
    let eight = match cols.is_multiple_of(Kind::Q8_0.format().values) {
        true => Kind::Q8_0,
        false => Kind::F32,
    };
    let kind = kind.unwrap_or(eight);
    let to = kind.format();
    let mut ours = vec![0; values.len() / to.values * to.bytes];
    // Values of a file are within the range of eight bits and a scale, or not finite, which is found where they are read.
    let _ = encode_rows(kind, values, cols, &mut ours);
    (kind, ours)
}

/// A fault of a tensor, with the file that holds it; `first` is the first part.
fn of_tensor(tensors: &Tensors, first: &Path, name: &str, what: String) -> ModelFileError {
    ModelFileError::file(tensors.file(name).unwrap_or(first), what)
}

/// Facts from the tensor list of a model; `first` is its first part.
fn seen(
    tensors: &Tensors,
    first: &Path,
    architecture: &dyn Architecture,
) -> Result<Seen, ModelFileError> {
    let at_fault = |name: &str, what: String| Err(of_tensor(tensors, first, name, what));
    for tensor in tensors.list() {
        if Kind::by_ggml_id(tensor.kind.id).is_none() {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            let what = format!(
                "tensor {} is in {}, which is not supported; {} are",
                tensor.name,
                tensor.kind.name,
                known.join(", ")
            );
            return at_fault(&tensor.name, what);
        }
    }
    let vocab_size = match tensors.get(EMBEDDING).map(|t| &t.dims[..]) {
        Some([_, vocab]) => usize::try_from(*vocab).unwrap_or(0),
        Some(dims) => return at_fault(EMBEDDING, format!("{EMBEDDING} has shape {dims:?}")),
        None => {
            let what = format!("tensor {EMBEDDING} is missing");
            return Err(ModelFileError::file(first, what));
        }
    };
    let has = |name: &str| tensors.get(name).is_some();
    // Of a hybrid some blocks alone have attention.
    let in_blocks = |end: &str| {
        let mut blocks = tensors.list().map(|tensor| &tensor.name);
        blocks.any(|name| name.starts_with("blk.") && name.ends_with(end))
    };
    let rope_factors = tensors.get("rope_freqs.weight").map(|tensor| {
        let values = tensor.dims.iter().product::<u64>() as usize;
        let mut factors = vec![0.0; values];
        if let Some(kind) = Kind::by_ggml_id(tensor.kind.id) {
            kind.decode(tensors.bytes(&tensor.name), &mut factors);
        }
        factors
    });
    Ok(Seen {
        vocab_size,
        has_head: has(HEAD) && !(architecture.needs_head() && tensors.are_same(HEAD, EMBEDDING)),
        has_qkv_bias: in_blocks(".attn_q.bias") || in_blocks(".attn_qkv.bias"),
        has_out_bias: in_blocks(".attn_output.bias"),
        has_mlp_bias: has("blk.0.ffn_down.bias"),
        has_conv_bias: in_blocks(".ssm_conv1d.bias"),
        rope_factors,
    })
}

/// Whether a tensor has the size the parameter needs.
fn check(tensor: &TensorInfo, info: &ParamInfo, place: &Place) -> Result<(), String> {
    let expected = place.dims(info);
    // A vector may be a matrix of one row in other writers' files.
    let is_row = tensor.dims.len() == 2 && tensor.dims[1] == 1 && tensor.dims[..1] == expected;
    if tensor.dims == expected || is_row {
        return Ok(());
    }
    Err(misshapen(tensor, &expected))
}

fn misshapen(tensor: &TensorInfo, expected: &[u64]) -> String {
    format!(
        "tensor {} has shape {:?}; expected {expected:?}",
        tensor.name, tensor.dims
    )
}
