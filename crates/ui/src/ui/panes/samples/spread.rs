//! Which samples tell most: the first, the newest, and between them each about as many times further than the one before.
//! Text changes most in the first steps.

/// Indices of at most `n` of the samples at these steps (in order), the newest one last.
pub fn spread(steps: &[u64], n: usize) -> Vec<usize> {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Vec::new();
    };
    let n = n.min(steps.len());
    if n < 2 {
        return vec![steps.len() - 1];
    }
    let (from, to) = ((*first).max(1) as f64, (*last).max(1) as f64);
    let mut places: Vec<usize> = Vec::with_capacity(n);
    for i in 0..n {
        let wanted = from * (to / from).powf(i as f64 / (n - 1) as f64);
        // As many must be left on the right as are still to be placed.
        let low = places.last().map_or(0, |before| before + 1);
        let high = steps.len() - (n - i);
        let distance = |at: &usize| (steps[*at] as f64 - wanted).abs();
        let nearest = (low..=high).min_by(|a, b| distance(a).total_cmp(&distance(b)));
        places.push(nearest.unwrap_or(high));
    }
    places[n - 1] = steps.len() - 1;
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_the_newest_and_what_lies_between_by_ratio() {
        assert_eq!(spread(&[500, 1000, 1500, 2000], 3), [0, 1, 3]);
        let every_fifty: Vec<u64> = (1..=40).map(|i| i * 50).collect();
        let steps: Vec<u64> = spread(&every_fifty, 4).iter().map(|i| every_fifty[*i]).collect();
        assert_eq!(steps, [50, 150, 600, 2000]);
    }

    #[test]
    fn places_are_in_order_and_never_twice_whatever_the_steps() {
        for steps in [vec![0, 0, 0], vec![7], vec![1, 2, 3, 1000], vec![5, 5, 6]] {
            for n in 1..=4 {
                let places = spread(&steps, n);
                assert_eq!(places.len(), n.min(steps.len()));
                assert!(places.windows(2).all(|p| p[0] < p[1]), "{steps:?} {places:?}");
                assert_eq!(places.last(), Some(&(steps.len() - 1)));
            }
        }
        assert!(spread(&[], 3).is_empty());
    }
}
