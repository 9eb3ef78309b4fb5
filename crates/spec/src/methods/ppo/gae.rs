//! From scores and values to advantages and returns of tokens: generalized advantage estimation (Schulman et al. 2015).

use super::super::policy::Kl;
use super::{Config, ENDED, KL_COEF, NON_SCORE};
use super::{OBJECTIVE_ENTROPY, OBJECTIVE_KL, RLHF_REWARD, SCORES};
use crate::metrics::id;

/// One answer, token by token: nats, and values of the critic before each token was drawn.
#[derive(Debug, Clone, Default)]
pub struct Answered {
    /// What its rewards come to.
    pub score: f64,
    /// Whether it ended by itself.
    pub ended: bool,
    pub logp: Vec<f64>,
    /// The reference's log-probabilities; empty without one.
    pub reference: Vec<f64>,
    pub values: Vec<f64>,
}

/// What a rollout teaches.
#[derive(Debug, Clone, Default)]
pub struct GaeOutput {
    /// Of each token of each answer.
    pub advantages: Vec<Vec<f64>>,
    pub returns: Vec<Vec<f64>>,
    pub readings: Vec<(&'static str, f64)>,
    /// Mean distance to the reference in nats per answer.
    pub kl: f64,
}

impl Config {
    /// Rewards of tokens, advantages and returns of a rollout under the KL coefficient `beta`.
    pub fn compute_gae(&self, beta: f64, answers: &[Answered]) -> GaeOutput {
        let n = answers.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Answered) -> f64| answers.iter().map(of).sum::<f64>() / n;
        let score = |a: &Answered| match a.ended {
            true => a.score,
            false => a.score - self.missing_eos_penalty,
        };
        // Answers that are left out of the loss, as truncated ones may be, have no tokens: what is measured of tokens is
        // that of the others.
        let n = answers.iter().filter(|a| !a.logp.is_empty()).count();
        let n = n.max(1) as f64;
        let of_tokens = |of: &dyn Fn(&Answered) -> f64| answers.iter().map(of).sum::<f64>() / n;
        let cost = |a: &Answered| beta * self.distances(a).iter().sum::<f64>();
        let mut rewards: Vec<Vec<f64>> = answers
            .iter()
            .map(|a| self.token_rewards(a, beta, score(a)))
            .collect();
        if self.whiten_rewards {
            whiten(&mut rewards, false);
        }
        let both = rewards.iter().zip(answers);
        let mut advantages: Vec<Vec<f64>> = both
            .map(|(r, a)| self.advantages_of(r, &a.values))
            .collect();
        let returns: Vec<Vec<f64>> = advantages
            .iter()
            .zip(answers)
            .map(|(advantages, a)| {
                advantages
                    .iter()
                    .zip(&a.values)
                    .map(|(a, v)| a + v)
                    .collect()
            })
            .collect();
        let errors = advantages.concat();
        if self.whiten_advantages {
            whiten(&mut advantages, true);
        }
        let kl = of_tokens(&|a| {
            let pairs = a.logp.iter().zip(&a.reference);
            pairs.map(|(own, reference)| own - reference).sum()
        });
        let mut readings = vec![
            (
                OBJECTIVE_ENTROPY,
                of_tokens(&|a| -a.logp.iter().sum::<f64>()),
            ),
            (NON_SCORE, -of_tokens(&cost)),
            (RLHF_REWARD, mean(&score) - of_tokens(&cost)),
            (SCORES, mean(&score)),
            (KL_COEF, beta),
            (ENDED, answers.iter().filter(|a| a.ended).count() as f64),
        ];
        if answers.iter().any(|a| !a.reference.is_empty()) {
            readings.push((OBJECTIVE_KL, kl));
            let tokens: usize = answers.iter().map(|a| a.logp.len()).sum();
            let sum: f64 = answers.iter().flat_map(|a| self.distances(a)).sum();
            readings.push((id::KL, sum / tokens.max(1) as f64));
        }
        let spread = variance(&returns.concat());
        if spread > 1e-12 {
            readings.push((id::EXPLAINED, 1.0 - variance(&errors) / spread));
        }
        GaeOutput {
            advantages,
            returns,
            readings,
            kl,
        }
    }

    /// The estimate of the distance to the reference at each token; nothing without a reference.
    fn distances(&self, answer: &Answered) -> Vec<f64> {
        let pairs = answer.logp.iter().zip(&answer.reference);
        let estimate = |(own, reference): (&f64, &f64)| {
            let d = reference - own;
            match self.kl {
                Kl::K1 => -d,
                Kl::K2 => d * d / 2.0,
                Kl::K3 => d.exp_m1() - d,
            }
        };
        pairs.map(estimate).collect()
    }

    fn token_rewards(&self, answer: &Answered, beta: f64, score: f64) -> Vec<f64> {
        let mut rewards = vec![0.0; answer.logp.len()];
        let distances = self.distances(answer);
        let both = rewards.iter_mut().zip(distances);
        both.for_each(|(reward, kl)| *reward = -beta * kl);
        if let Some(last) = rewards.last_mut() {
            *last += score;
        }
        rewards
    }

    /// δ_t = r_t + γ V_{t+1} − V_t, A_t = δ_t + γ λ A_{t+1}; nothing comes after the last token.
    fn advantages_of(&self, rewards: &[f64], values: &[f64]) -> Vec<f64> {
        let mut advantages = vec![0.0; rewards.len()];
        let (mut next_value, mut next) = (0.0, 0.0);
        for t in (0..rewards.len()).rev() {
            let delta = rewards[t] + self.gamma * next_value - values[t];
            next = delta + self.gamma * self.lambda * next;
            (advantages[t], next_value) = (next, values[t]);
        }
        advantages
    }
}

/// Divides by the standard deviation of all (n − 1 below); takes the mean away, or leaves it.
fn whiten(values: &mut [Vec<f64>], shift: bool) {
    let all = values.concat();
    if all.len() < 2 {
        return;
    }
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let spread = (variance(&all) * n / (n - 1.0) + 1e-8).sqrt();
    let kept = if shift { 0.0 } else { mean };
    let every = values.iter_mut().flatten();
    every.for_each(|x| *x = (*x - mean) / spread + kept);
}

/// Mean squared distance from the mean.
fn variance(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(ours: &[f64], known: &[f64]) {
        assert_eq!(ours.len(), known.len());
        for (a, b) in ours.iter().zip(known) {
            assert!((a - b).abs() < 1e-6, "{ours:?} {known:?}");
        }
    }

    fn answer() -> Answered {
        Answered {
            score: 1.0,
            ended: true,
            logp: vec![-1.0, -0.5, -0.25],
            reference: Vec::new(),
            values: vec![0.5, 0.6, 0.7],
        }
    }

    #[test]
    fn advantages_and_returns_have_their_known_values() {
        let judged = |gamma, lambda, whiten_advantages| {
            let config = Config {
                gamma,
                lambda,
                whiten_advantages,
                ..Config::default()
            };
            config.compute_gae(0.0, &[answer()])
        };
        let plain = judged(1.0, 0.95, false);
        near(&plain.advantages[0], &[0.46575, 0.385, 0.3]);
        near(&plain.returns[0], &[0.96575, 0.985, 1.0]);
        near(
            &judged(0.99, 0.95, false).advantages[0],
            &[0.446829, 0.375150, 0.3],
        );
        near(&judged(1.0, 1.0, false).advantages[0], &[0.5, 0.4, 0.3]);
        near(&judged(1.0, 1.0, false).returns[0], &[1.0; 3]);
        near(&judged(1.0, 0.0, false).advantages[0], &[0.1, 0.1, 0.3]);
        let white = judged(1.0, 0.95, true);
        near(&white.advantages[0], &[0.991344, 0.017092, -1.008436]);
        near(&white.returns[0], &plain.returns[0]);
    }

    #[test]
    fn the_distance_is_charged_at_each_token_and_the_score_at_the_last() {
        let config = Config {
            missing_eos_penalty: 0.5,
            ..Config::default()
        };
        let answer = Answered {
            reference: vec![-1.0, -1.0, -0.5],
            ended: false,
            ..answer()
        };
        near(
            &config.token_rewards(&answer, 0.1, 0.5),
            &[0.0, -0.05, 0.475],
        );
        let judged = config.compute_gae(0.1, std::slice::from_ref(&answer));
        let reading = |id| judged.readings.iter().find(|(i, _)| *i == id).unwrap().1;
        assert!((judged.kl - 0.75).abs() < 1e-12 && reading(SCORES) == 0.5);
        assert!((reading(RLHF_REWARD) - 0.425).abs() < 1e-12);
        assert_eq!(reading(ENDED), 0.0);
        let k3 = Config {
            kl: Kl::K3,
            ..config
        };
        let exact = (-0.5_f64).exp() - 1.0 + 0.5;
        assert!((k3.distances(&answer)[1] - exact).abs() < 1e-12);
    }

    /// A truncated answer that is left out of the loss has no tokens here, and halves nothing.
    #[test]
    fn answers_without_tokens_are_in_no_mean_over_tokens() {
        let config = Config::default();
        let answer = Answered {
            reference: vec![-1.0, -1.0, -0.5],
            ..answer()
        };
        let left_out = Answered {
            score: 1.0,
            ..Answered::default()
        };
        let alone = config.compute_gae(0.1, std::slice::from_ref(&answer));
        let both = config.compute_gae(0.1, &[answer, left_out]);
        let reading = |judged: &GaeOutput, id| {
            let found = judged.readings.iter().find(|(i, _)| *i == id);
            found.unwrap().1
        };
        assert_eq!(both.kl, alone.kl);
        for id in [OBJECTIVE_KL, OBJECTIVE_ENTROPY, NON_SCORE, id::KL] {
            assert_eq!(reading(&both, id), reading(&alone, id), "{id}");
        }
    }

    #[test]
    fn rewards_of_one_size_leave_only_what_the_critic_got_wrong() {
        let config = Config {
            whiten_advantages: false,
            lambda: 1.0,
            ..Config::default()
        };
        let right = Answered {
            values: vec![1.0; 3],
            ..answer()
        };
        near(&config.compute_gae(0.0, &[right]).advantages[0], &[0.0; 3]);
        assert!(config.compute_gae(0.0, &[Answered::default()]).advantages[0].is_empty());
    }

    #[test]
    fn the_coefficient_moves_towards_the_target_and_never_fast() {
        let mut config = Config::default();
        assert_eq!(config.next_beta(0.2, 60.0, 100), 0.2);
        config.kl_target = Some(6.0);
        assert!((config.next_beta(0.2, 60.0, 100) - 0.2 * 1.002).abs() < 1e-12);
        assert!((config.next_beta(0.2, 0.0, 100) - 0.2 * 0.998).abs() < 1e-12);
        assert!((config.next_beta(0.2, 6.6, 100) - 0.2 * 1.001).abs() < 1e-12);
        config.kl_horizon = 50.0;
        let fallen = config.next_beta(0.2, 0.0, 256);
        assert!((fallen - 0.02).abs() < 1e-12, "never below zero: {fallen}");
    }
}
