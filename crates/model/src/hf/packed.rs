//! Weights of few bits in model folders, as `quantization_config` describes them: FP8 with scales, and MXFP4. They become numbers
//! as they are read, a part at a time; matmuls on them are not here.

use super::dtype::{Stored, e8m0};
use crate::base::text::one_line;
use serde_json::Value;
use std::ops::Range;

pub const QUANTIZATION: &str = "quantization_config";

/// What folders may have besides FP8 weights and their scales: scales of activations and of a KV cache, which are computed in the
/// model's own dtype here.
const OF_ACTIVATIONS: [&str; 8] = [
    ".input_scale",
    ".activation_scale",
    ".output_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".kv_scale",
    ".prob_output_scale",
];
/// The ends of the two tensors of one in MXFP4.
pub const MXFP4: [&str; 2] = ["_blocks", "_scales"];
/// Values of a block of MXFP4, which share a scale, and the bytes that hold them.
const BLOCK: usize = 32;
pub const BLOCK_BYTES: usize = BLOCK / 2;
/// The values of FP4 E2M1 (OCP Microscaling Formats v1.0, table 5): the sign is bit 3.
const E2M1: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// How a folder's matrices are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// As numbers.
    #[default]
    Plain,
    /// In eight bits, times a scale for each block of so many rows and columns; without blocks for each row, or one for all.
    Fp8 { block: Option<[usize; 2]> },
    /// Experts in four bits, a power of two for 32 values (OCP Microscaling Formats v1.0).
    Mxfp4,
}

impl Format {
    /// The format that a folder's config.json describes.
    ///
    /// # Errors
    /// One that is not read.
    pub fn of(config: &Value) -> Result<Format, String> {
        let says = match &config[QUANTIZATION] {
            Value::Null => return Ok(Format::Plain),
            says => says,
        };
        match says["quant_method"].as_str() {
            Some("fp8") => fine_grained(says),
            Some("compressed-tensors") => compressed(says),
            Some("mxfp4") => Ok(Format::Mxfp4),
            other => Err(refused(&format!(
                "quant_method {}",
                other.map_or("is missing".into(), |word| format!("`{}`", one_line(word)))
            ))),
        }
    }
}

/// The reason, and what to do.
fn refused(what: &str) -> String {
    format!(
        "{QUANTIZATION}: {what}: this quantization is not supported; read are fp8 (also compressed-tensors in float-quantized) and mxfp4. \
         Use the original model, or a GGUF file of it"
    )
}

/// transformers' FP8: scales of blocks, or one for each matrix.
fn fine_grained(says: &Value) -> Result<Format, String> {
    if let Some(format) = says["fmt"].as_str().filter(|format| *format != "e4m3") {
        return Err(refused(&format!("fmt `{}`", one_line(format))));
    }
    let block = sizes(&says["weight_block_size"], "weight_block_size")?;
    Ok(Format::Fp8 { block })
}

/// The FP8 of compressed-tensors (llm-compressor): weights in one format, whatever their activations are in.
fn compressed(says: &Value) -> Result<Format, String> {
    match says["format"].as_str() {
        Some("float-quantized") => {}
        other => {
            let other = one_line(other.unwrap_or("none"));
            return Err(refused(&format!("compressed-tensors in format `{other}`")));
        }
    }
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::String(word) => word != "dense",
        _ => true,
    };
    if is_set(&says["transform_config"]) {
        return Err(refused("transform_config, which changes activations"));
    }
    let sparsity = &says["sparsity_config"];
    if is_set(sparsity) && is_set(&sparsity["format"]) {
        return Err(refused("sparsity_config"));
    }
    let groups = says["config_groups"].as_object().filter(|g| !g.is_empty());
    let Some(groups) = groups else {
        return Err(refused("no config_groups"));
    };
    let mut block = None;
    for (name, group) in groups {
        let weights = &group["weights"];
        let at = format!("config_groups.{}.weights", one_line(name));
        if weights["type"] != "float" || weights["num_bits"] != 8 {
            return Err(refused(&format!("{at} that are not floats of 8 bits")));
        }
        let of_group = match weights["strategy"].as_str() {
            Some("tensor" | "channel") => None,
            Some("block") => sizes(&weights["block_structure"], "block_structure")?,
            Some("group") => {
                let size = weights["group_size"].as_u64().filter(|n| *n > 0);
                let size = size.ok_or_else(|| refused(&format!("{at}.group_size")))?;
                Some([1, size as usize])
            }
            other => {
                let other = one_line(other.unwrap_or("none"));
                return Err(refused(&format!("{at}.strategy `{other}`")));
            }
        };
        if block.is_some_and(|block| Some(block) != of_group) && of_group.is_some() {
            return Err(refused("groups with blocks of several sizes"));
        }
        block = block.or(of_group);
    }
    Ok(Format::Fp8 { block })
}

/// Rows and columns of a block; none in place of null.
fn sizes(value: &Value, key: &str) -> Result<Option<[usize; 2]>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let number = |at: usize| value[at].as_u64().filter(|n| *n > 0).map(|n| n as usize);
    match (value.as_array().map(Vec::len), number(0), number(1)) {
        (Some(2), Some(rows), Some(cols)) => Ok(Some([rows, cols])),
        _ => Err(format!(
            "{QUANTIZATION}.{key}: expected two sizes such as [128, 128], found {}",
            one_line(&value.to_string())
        )),
    }
}

/// The name of the tensor that a tensor named `name` has the scales of.
pub fn scaled_by(name: &str) -> Option<&str> {
    let ends = ["_scale_inv", "_scale"];
    ends.into_iter().find_map(|end| name.strip_suffix(end))
}

/// Whether a tensor is a scale of activations, which is not read.
pub fn is_of_activations(name: &str) -> bool {
    OF_ACTIVATIONS.iter().any(|end| name.ends_with(end))
}

/// Scales of a tensor (rows, cols), or of several of them behind each other.
#[derive(Debug)]
pub struct Scales {
    values: Vec<f32>,
    /// Rows and columns of a matrix of the tensor.
    matrix: [usize; 2],
    /// Rows and columns that share a scale.
    block: [usize; 2],
}

impl Scales {
    /// The rows and columns of a tensor of `shape` that share a scale, where scales are of shape `scales`; `None` where the two do
    /// not go together. `block` is what the config says.
    pub fn block(
        shape: &[usize],
        scales: &[usize],
        block: Option<[usize; 2]>,
    ) -> Option<[usize; 2]> {
        let [before @ .., rows, cols] = shape else {
            return None;
        };
        let n: usize = before.iter().product();
        let (rows, cols) = ((*rows).max(1), (*cols).max(1));
        if let Some([r, c]) = block {
            let mut expected = before.to_vec();
            expected.extend([rows.div_ceil(r), cols.div_ceil(c)]);
            if scales == expected {
                return Some([r, c]);
            }
        }
        let len: usize = scales.iter().product();
        let of_rows = scales.strip_suffix(&[1]).unwrap_or(scales);
        if len == n {
            Some([rows, cols])
        } else {
            (of_rows == &shape[..shape.len() - 1]).then_some([1, cols])
        }
    }

    /// Of a tensor of `shape`, whose blocks are those of [`Scales::block`].
    pub fn new(shape: &[usize], block: [usize; 2], values: Vec<f32>) -> Scales {
        let matrix = match shape {
            [.., rows, cols] => [*rows, *cols],
            _ => [1, shape.iter().product()],
        };
        Scales {
            values,
            matrix,
            block,
        }
    }

    /// Multiplies numbers of the tensor, from number `first` on, in f32.
    pub fn apply(&self, first: usize, numbers: &mut [f32]) {
        let ([rows, cols], [r, c]) = (self.matrix, self.block);
        let [down, across] = [rows.div_ceil(r), cols.div_ceil(c)];
        let mut at = first;
        let mut rest = numbers;
        while !rest.is_empty() {
            let (row, col) = (at / cols, at % cols);
            // Up to the end of the block, or of the row.
            let n = (c - col % c).min(cols - col).min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            let place = (row / rows * down + row % rows / r) * across + col / c;
            let scale = self.values[place];
            now.iter_mut().for_each(|x| *x *= scale);
            at += n;
            rest = later;
        }
    }
}

/// The shape of a tensor in MXFP4 whose blocks (…, groups, 16) have scales (…, groups): (…, 32 · groups).
pub fn mxfp4_shape(blocks: &[usize], scales: &[usize]) -> Option<Vec<usize>> {
    let [before @ .., BLOCK_BYTES] = blocks else {
        return None;
    };
    let [of_rows @ .., groups] = scales else {
        return None;
    };
    let mut shape = of_rows.to_vec();
    shape.push(groups.checked_mul(BLOCK)?);
    (before == scales && shape.len() > 1).then_some(shape)
}

/// Blocks of values that hold numbers first.., as a range of blocks.
pub fn mxfp4_blocks(first: usize, len: usize) -> Range<usize> {
    first / BLOCK..(first + len).div_ceil(BLOCK)
}

/// The number of the first value of blocks.
pub fn first_of(blocks: &Range<usize>) -> usize {
    blocks.start * BLOCK
}

/// Fills `into` with numbers of MXFP4, of which the first is number `skip` of the first block: in each byte the lower four bits come
/// first. A scale of 0xFF is not a number.
pub fn mxfp4(blocks: &[u8], scales: &[u8], skip: usize, into: &mut [f32]) {
    for (i, x) in into.iter_mut().enumerate() {
        let at = skip + i;
        let byte = blocks[at / 2];
        let code = if at.is_multiple_of(2) {
            byte
        } else {
            byte >> 4
        };
        *x = E2M1[usize::from(code & 15)] * e8m0(scales[at / BLOCK]);
    }
}

/// Whether a tensor of this kind needs scales to be numbers.
pub fn needs_scales(stored: Stored) -> bool {
    matches!(stored, Stored::E4m3 | Stored::E5m2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_at_the_edges_of_each_matrix_have_their_scales() {
        let shape = [2, 3, 5];
        assert_eq!(
            Scales::block(&shape, &[2, 2, 3], Some([2, 2])),
            Some([2, 2])
        );
        let scales = Scales::new(&shape, [2, 2], (1..=12_u8).map(f32::from).collect());
        let mut whole = vec![1.0; 30];
        scales.apply(0, &mut whole);
        for (at, x) in whole.iter().enumerate() {
            let (matrix, row, col) = (at / 15, at / 5 % 3, at % 5);
            let place = (matrix * 2 + row / 2) * 3 + col / 2;
            assert_eq!(*x, 1.0 + place as f32, "{at}");
        }
        let mut part = vec![1.0; 11];
        scales.apply(7, &mut part);
        assert_eq!(part, whole[7..18]);
    }

    #[test]
    fn scales_are_of_blocks_rows_or_all() {
        let of = |scales: &[usize], block| Scales::block(&[3, 5], scales, block);
        assert_eq!(of(&[1, 1], Some([128, 128])), Some([128, 128]));
        for rows in [&[3, 1][..], &[3]] {
            assert_eq!(of(rows, None), Some([1, 5]));
            assert_eq!(of(rows, Some([128, 128])), Some([1, 5]));
        }
        for one in [&[][..], &[1], &[1, 1]] {
            assert_eq!(of(one, None), Some([3, 5]));
        }
        assert_eq!(of(&[5], None), None);
        assert_eq!(of(&[2, 3], Some([2, 4])), None);
    }

    #[test]
    fn the_lower_half_of_a_byte_comes_first() {
        let mut values = [0.0; 3];
        // 0.5 and 1 in turns, times 2.
        mxfp4(&[0x21; 16], &[128], 1, &mut values);
        assert_eq!(values, [2.0, 1.0, 2.0]);
        assert_eq!(
            mxfp4_shape(&[2, 3, 4, 16], &[2, 3, 4]),
            Some(vec![2, 3, 128])
        );
        assert_eq!(mxfp4_shape(&[2, 3, 4, 8], &[2, 3, 4]), None);
        assert_eq!(mxfp4_shape(&[2, 3, 4, 16], &[2, 3, 5]), None);
    }

    #[test]
    fn groups_of_columns_and_matrices_of_several_blocks_are_told_apart() {
        let group = |strategy: serde_json::Value| {
            let mut weights = json!({"num_bits": 8, "type": "float"});
            weights
                .as_object_mut()
                .unwrap()
                .extend(strategy.as_object().unwrap().clone());
            json!({ "weights": weights })
        };
        let of = |groups: serde_json::Value| {
            Format::of(
                &json!({QUANTIZATION: {"quant_method": "compressed-tensors", "format": "float-quantized",
                "config_groups": groups}}),
            )
        };
        let blocks = |r: usize| group(json!({"strategy": "block", "block_structure": [r, 128]}));
        assert_eq!(
            of(json!({"a": blocks(64), "b": group(json!({"strategy": "channel"}))})),
            Ok(Format::Fp8 {
                block: Some([64, 128])
            })
        );
        assert_eq!(
            of(json!({"a": group(json!({"strategy": "group", "group_size": 32}))})),
            Ok(Format::Fp8 {
                block: Some([1, 32])
            })
        );
        let error = of(json!({"a": blocks(64), "b": blocks(128)})).unwrap_err();
        assert!(error.contains("several sizes"), "{error}");
        let error = of(json!({"a": group(json!({"strategy": "token"}))})).unwrap_err();
        assert!(error.contains("strategy `token`"), "{error}");
    }
}
