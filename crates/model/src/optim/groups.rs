//! Parameter groups with the same settings, and the view of them that a fused update gets.

use crate::kernels::update::Part;
use crate::nn::{ParamInfo, Params};
use candle_core::{Result, bail};

/// Parameters that share a learning rate and a weight decay.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Their indices in [`Params::infos`].
    pub params: Vec<usize>,
    /// Their learning rate relative to that of the update.
    pub lr_scale: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// The default groups of the trainable set: matrices and embeddings, which decay, and vectors, which do not; those with their own
/// learning rate are separate.
pub fn by_decay(params: &Params, weight_decay: f64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for decays in [true, false] {
        let weight_decay = if decays { weight_decay } else { 0.0 };
        let begun = groups.len();
        for (index, info) in params.infos().iter().enumerate() {
            if !info.trains() || info.decay != decays {
                continue;
            }
            let mut known = groups[begun..].iter_mut();
            match known.find(|group| group.lr_scale == info.lr_scale) {
                Some(group) => group.params.push(index),
                None => groups.push(Group {
                    params: vec![index],
                    lr_scale: info.lr_scale,
                    weight_decay,
                }),
            }
        }
    }
    groups
}

/// The trainable parameters in the order of their gradients, each with its group's settings.
///
/// # Errors
/// A trainable parameter in no group or in two, a frozen one in a group, an invalid index.
pub(super) fn parts(params: &Params, groups: &[Group]) -> Result<Vec<Part>> {
    let infos = params.infos();
    let mut of: Vec<Option<&Group>> = vec![None; infos.len()];
    for group in groups {
        for &index in &group.params {
            match of.get_mut(index) {
                None => bail!("optimizer: there is no parameter number {index}"),
                Some(Some(_)) => bail!("optimizer: {} is in two groups", infos[index].name),
                Some(slot) => *slot = Some(group),
            }
        }
    }
    let mut parts = Vec::new();
    for (info, group) in infos.iter().zip(of) {
        match (info.grad, group) {
            (None, None) => {}
            (None, Some(_)) => bail!("optimizer: {} is frozen but in a group", info.name),
            (Some(_), None) => bail!("optimizer: {} trains but is in no group", info.name),
            (Some(grads), Some(group)) => parts.push(Part {
                weights: info.offset - params.first_held(),
                grads,
                len: info.len,
                lr_scale: group.lr_scale,
                weight_decay: group.weight_decay,
            }),
        }
    }
    Ok(parts)
}

/// Bytes of one f32 per trainable weight.
pub(super) fn trained_bytes(infos: &[ParamInfo]) -> u64 {
    let trained = infos.iter().filter(|info| info.trains());
    trained
        .map(|info| (info.len * size_of::<f32>()) as u64)
        .sum()
}

/// Rejects parameters with another number of trainable elements than the rule was built for.
pub(super) fn check_len(rule: &str, params: &Params, built_for: usize) -> Result<()> {
    let found = params.n_trainable();
    if found != built_for {
        bail!("{rule}: built for {built_for} trainable parameters, got {found}")
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Model, ModelConfig, Role};
    use candle_core::Device;

    fn model() -> Model {
        let config = ModelConfig {
            n_layer: 1,
            n_head: 2,
            d_model: 8,
            seq_len: 4,
            bias: true,
            ..Default::default()
        };
        Model::new(&config, 5, &Device::Cpu).unwrap()
    }

    #[test]
    fn every_trainable_parameter_is_in_one_group() {
        let mut model = model();
        model
            .train_only(|info| info.role != Role::Embedding)
            .unwrap();
        let params = model.params();
        let groups = by_decay(params, 0.1);
        let parts = parts(params, &groups).unwrap();
        let mut end = 0;
        for (part, info) in parts.iter().zip(params.trainable()) {
            assert_eq!((part.weights, part.len), (info.offset, info.len));
            assert_eq!(part.grads, end, "{}", info.name);
            assert_eq!(part.weight_decay, if info.decay { 0.1 } else { 0.0 });
            end += part.len;
        }
        assert_eq!(end, params.n_trainable());
        assert!(end < params.len());
    }

    #[test]
    fn groups_that_miss_repeat_or_unfreeze_are_rejected_by_name() {
        let mut model = model();
        let said = |model: &Model, groups: &[Group]| {
            parts(model.params(), groups).unwrap_err().to_string()
        };
        let whole = by_decay(model.params(), 0.1);
        let missing = said(&model, &whole[..1]);
        assert!(
            missing.contains("in no group") && missing.contains("ln_1"),
            "{missing}"
        );
        let twice = [whole.clone(), whole.clone()].concat();
        assert!(said(&model, &twice).contains("two groups"));
        model
            .train_only(|info| info.role != Role::Embedding)
            .unwrap();
        assert!(said(&model, &whole).contains("wte.weight is frozen"));
    }
}
