//! Routing, gathering and combining, forward and backward.

use super::*;
use crate::check::{assert_close, leaf, normal};
use candle_core::Device;

const SOFTMAX: Router = Router {
    n_expert: 8,
    top_k: 2,
    scoring: Scoring::Softmax,
    norm_topk: true,
    scale: 1.0,
    groups: None,
};
const ROUTERS: [Router; 9] = [
    SOFTMAX,
    Router {
        n_expert: 5,
        top_k: 3,
        norm_topk: false,
        ..SOFTMAX
    },
    Router {
        n_expert: 4,
        top_k: 4,
        ..SOFTMAX
    },
    Router {
        n_expert: 3,
        top_k: 1,
        norm_topk: false,
        ..SOFTMAX
    },
    Router {
        scale: 2.5,
        ..SOFTMAX
    },
    Router {
        scoring: Scoring::Sigmoid,
        ..SOFTMAX
    },
    Router {
        n_expert: 5,
        top_k: 3,
        scoring: Scoring::Sigmoid,
        norm_topk: false,
        scale: 0.7,
        groups: None,
    },
    Router {
        top_k: 3,
        groups: Some(Groups { n: 4, top: 2 }),
        ..SOFTMAX
    },
    Router {
        scoring: Scoring::Sigmoid,
        groups: Some(Groups { n: 2, top: 1 }),
        ..SOFTMAX
    },
];

/// Each expert multiplies by its own number: y = Σ gate_e · a_e · x. `first`: the logits of the first token.
fn check(router: Router, with_bias: bool, first: Option<f32>) {
    let (n, d, e) = (33, 6, router.n_expert);
    let (mut logits, x) = (normal(n * e, 0), normal(n * d, 1));
    if let Some(first) = first {
        logits[..e].fill(first);
    }
    let (dy, factors, bias) = (normal(n * d, 2), normal(e, 3), normal(e, 4));
    let bias = with_bias.then_some(bias.as_slice());
    // The oracle: all experts on all tokens, and a balancing loss of Σ w share + c Σ lse².
    let (ll, lx) = (leaf(&logits, &[n, e]), leaf(&x, &[n, d]));
    let up = |v: &[f32], shape: (usize, usize)| {
        let t = Tensor::from_slice(v, shape, &Device::Cpu).unwrap();
        t.to_dtype(DType::F64).unwrap()
    };
    let lb = bias.map(|b| up(b, (1, e)).squeeze(0).unwrap());
    let [gates, shares, mask, lse] = composite(router, &ll, lb.as_ref()).unwrap();
    let a = up(&factors, (1, e));
    let weights = gates.broadcast_mul(&a).unwrap().sum_keepdim(1).unwrap();
    let y = lx.broadcast_mul(&weights).unwrap();
    let balance = shares.broadcast_mul(&a).unwrap().sum_all().unwrap();
    let z = (lse.sqr().unwrap().sum_all().unwrap() * 0.1).unwrap();
    let loss = ((&y * up(&dy, (n, d))).unwrap().sum_all().unwrap() + balance).unwrap();
    let grads = (loss + z).unwrap().backward().unwrap();
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();

    let mut routing = vec![9.0; n * router.width()];
    route(router, &logits, bias, &mut routing);
    let mut order = Order::default();
    order.arrange(router, &routing);
    let places = n * router.top_k;
    let (mut gathered, mut got) = (vec![0.0; places * d], vec![0.0; n * d]);
    gather(&order, d, &x, &mut gathered);
    let scale = |rows: &mut [f32]| {
        for (e, factor) in factors.iter().enumerate() {
            let of = order.of(e);
            rows[of.start * d..of.end * d]
                .iter_mut()
                .for_each(|v| *v *= factor);
        }
    };
    let mut outs = gathered.clone();
    scale(&mut outs);
    combine(router, &order, &routing, &outs, None, &mut got);
    assert_close("y", &got, &flat(&y), 2e-6);
    let mut tally = Tally::default();
    tally.clear(e);
    tally.add(router, &routing, Counted::default());
    let counts: Vec<f64> = flat(&mask.sum(0).unwrap());
    assert_eq!(tally.counts, counts);
    let sums: Vec<f32> = tally.shares.iter().map(|sum| *sum as f32).collect();
    assert_close("shares", &sums, &flat(&shares.sum(0).unwrap()), 2e-6);

    let mut dgates = vec![9.0; places];
    combine_backward(router, &order, &routing, &dy, &mut outs, &mut dgates);
    scale(&mut outs);
    let mut dx = vec![9.0; n * d];
    gather_backward(&order, router.top_k, &outs, &mut dx, false);
    assert_close("dx", &dx, &flat(grads.get(&lx).unwrap()), 5e-6);
    let balance = Balance {
        by_share: &factors,
        by_lse: 0.1,
        counted: Counted::default(),
    };
    let mut dlogits = vec![9.0; n * e];
    route_backward(router, &routing, &dgates, balance, &mut dlogits);
    assert_close("dlogits", &dlogits, &flat(grads.get(&ll).unwrap()), 5e-6);
}

#[test]
fn gradients_agree_with_candle_in_f64() {
    for router in ROUTERS {
        check(router, false, None);
        check(router, true, None);
    }
}

/// The sum of such scores is 0 in f32, or nearly so.
#[test]
fn sigmoid_scores_that_are_all_zero_have_shares_and_gradients() {
    let is_sigmoid = |router: &Router| router.scoring == Scoring::Sigmoid;
    for router in ROUTERS.into_iter().filter(is_sigmoid) {
        for first in [-90.0, -800.0] {
            check(router, false, Some(first));
            check(router, true, Some(first));
        }
    }
}

#[test]
fn balanced_load_has_an_auxiliary_loss_of_top_k_and_one_busy_expert_the_most() {
    let router = ROUTERS[0];
    // Each token prefers its own two experts, in turn: the load is equal.
    let mut logits = vec![0.0; 8 * 8];
    for token in 0..8 {
        logits[token * 8 + token] = 3.0;
        logits[token * 8 + (token + 1) % 8] = 3.0;
    }
    let aux = |logits: &[f32]| {
        let mut routing = vec![0.0; logits.len() / 8 * router.width()];
        route(router, logits, None, &mut routing);
        let mut tally = Tally::default();
        tally.clear(8);
        tally.add(router, &routing, Counted::default());
        tally.aux()
    };
    assert!((aux(&logits) - 2.0).abs() < 1e-6);
    let alike: Vec<f32> = logits[..8].repeat(8);
    assert!(aux(&alike) > 6.0);
}

#[test]
fn a_token_reaches_the_experts_of_the_best_groups() {
    let chosen = |scoring, logits: &[f32]| {
        let router = Router {
            scoring,
            groups: Some(Groups { n: 4, top: 1 }),
            ..SOFTMAX
        };
        let mut routing = vec![0.0; router.width()];
        route(router, logits, None, &mut routing);
        router.chosen(&routing).to_vec()
    };
    let logits = [3.0, -2.0, 0.0, 0.0, 2.0, 2.5, 1.0, 2.6];
    // The best expert of all, and with sigmoid scores the best pair.
    assert_eq!(chosen(Scoring::Softmax, &logits), [0.0, 1.0]);
    assert_eq!(chosen(Scoring::Sigmoid, &logits), [5.0, 4.0]);
}

#[test]
fn a_bias_changes_the_selection_but_not_the_gates() {
    let router = ROUTERS[3];
    let mut routing = vec![0.0; router.width()];
    route(
        router,
        &[2.0, 1.0, 0.0],
        Some(&[0.0, 5.0, 0.0]),
        &mut routing,
    );
    assert_eq!(router.chosen(&routing), [1.0]);
    let gate = router.gates(&routing).next().unwrap();
    assert_eq!(gate, routing[1]);
    // Ties go to the earlier one.
    route(router, &[1.0, 1.0, 1.0], None, &mut routing);
    assert_eq!(router.chosen(&routing), [0.0]);
}
