//! Tables that follow from the config alone and are computed once: RoPE, sinusoidal positions, ALiBi slopes.

use super::position::wave;
use super::{ModelConfig, ModelShape};
use crate::kernels::rotary::{RotaryTable, Rotation};

/// Tables over positions, up to the largest requested so far.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    rotary: Option<RotaryTable>,
    /// In blocks with a window, if they rotate differently.
    local: Option<RotaryTable>,
    /// Fixed position vectors, (positions, d_model); `None` if the model has none.
    waves: Option<Vec<f32>>,
    d_model: usize,
    slopes: Option<Vec<f32>>,
}

/// The rotations in blocks without a window, and in those with one.
pub fn rotations(config: &ModelConfig, shape: &ModelShape) -> [Option<Rotation>; 2] {
    let Some(rope) = config.position.rope() else {
        return [None, None];
    };
    let head_dim = config.rope_head_dim();
    let everywhere = rope.rotation(head_dim, shape.seq_len);
    let local = rope.local_rotation(head_dim);
    let local = local.unwrap_or_else(|| everywhere.clone());
    [Some(everywhere), Some(local)]
}

impl Tables {
    pub fn new(config: &ModelConfig, shape: &ModelShape) -> Tables {
        let [everywhere, local] = rotations(config, shape);
        let table = |rotation| RotaryTable::new(rotation, shape.head_dim, shape.seq_len);
        let local = local.filter(|local| everywhere.as_ref() != Some(local));
        let mut tables = Tables {
            rotary: everywhere.map(table),
            local: local.map(table),
            waves: config.position.adds_position_vectors().then(Vec::new),
            d_model: shape.d_model,
            slopes: config.position.slopes(shape.n_head),
        };
        tables.extend_to(shape.seq_len);
        tables
    }

    /// Extends the tables to positions 0..len.
    pub fn extend_to(&mut self, len: usize) {
        for table in [&mut self.rotary, &mut self.local].into_iter().flatten() {
            table.extend_to(len);
        }
        if let Some(waves) = &mut self.waves {
            for position in waves.len() / self.d_model..len {
                waves.extend(wave(position, self.d_model).map(|x| x as f32));
            }
        }
    }

    /// The rotation of a block with this window, if it rotates.
    pub fn rotary(&self, window: Option<usize>) -> Option<&RotaryTable> {
        let local = self.local.as_ref().filter(|_| window.is_some());
        local.or(self.rotary.as_ref())
    }

    pub fn waves(&self) -> Option<&[f32]> {
        self.waves.as_deref()
    }

    pub fn slopes(&self) -> Option<&[f32]> {
        self.slopes.as_deref()
    }
}
