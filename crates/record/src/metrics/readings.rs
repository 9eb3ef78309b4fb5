//! Readings between measurement and event: weighted sums, which become means.

/// Sums of readings. Means over micro-steps, batches or ranks are exact because sums and weights are stored separately.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings(Vec<Reading>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    id: &'static str,
    sum: f64,
    weight: f64,
}

impl Readings {
    /// Adds `sum` over `weight` observations (tokens, pairs, micro-steps) to the reading of this id.
    pub fn add(&mut self, id: &'static str, sum: f64, weight: f64) {
        match self.0.iter_mut().find(|reading| reading.id == id) {
            Some(reading) => {
                reading.sum += sum;
                reading.weight += weight;
            }
            None => self.0.push(Reading { id, sum, weight }),
        }
    }

    /// Σ sum / Σ weight; `None` without a measurement, or with zero weight.
    pub fn mean(&self, id: &str) -> Option<f64> {
        let reading = self.0.iter().find(|reading| reading.id == id)?;
        (reading.weight > 0.0).then(|| reading.sum / reading.weight)
    }

    /// Every mean, in the order in which readings were first added.
    pub fn means(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        let measured = self.0.iter().filter(|reading| reading.weight > 0.0);
        measured.map(|reading| (reading.id, reading.sum / reading.weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_all_observations_however_they_are_grouped() {
        let mut readings = Readings::default();
        readings.add("a", 3.0, 1.0);
        readings.add("a", 1.0, 3.0);
        readings.add("b", 0.0, 0.0);
        assert_eq!((readings.mean("a"), readings.mean("b")), (Some(1.0), None));
        assert_eq!(readings.means().collect::<Vec<_>>(), [("a", 1.0)]);
        assert_eq!(readings.mean("c"), None);
    }
}
