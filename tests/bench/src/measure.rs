//! Rounds and what is made of them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Failure;
use crate::faces::Contender;

/// What one variant cost over all rounds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Wall time as a ratio to the bare socket of the same round.
    pub(crate) ratio: Spread,
    /// Wall time of one pair in microseconds.
    pub(crate) wall_us: f64,
    /// Processor time that this process spent on one pair, all its threads together, in microseconds.
    pub(crate) cpu_us: f64,
}

/// A median and how far the rounds are apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

/// What one pair cost in one turn, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Turn {
    wall_us: f64,
    cpu_us: f64,
}

/// Lets every group's variants take turns, the first of each being its bare socket, and sums up each variant, in the
/// order of the variants. One round goes before that is not counted.
pub(crate) fn run(groups: &mut [Vec<Contender>], rounds: u32, pairs: u32) -> Result<Vec<Figures>, Failure> {
    let mut turns: Vec<Vec<Vec<Turn>>> = groups.iter().map(|group| vec![Vec::new(); group.len()]).collect();
    for group in groups.iter_mut() {
        group.iter_mut().try_for_each(|contender| contender.run(pairs))?;
    }
    for (first, _) in (0..rounds).enumerate() {
        for (group, turns) in groups.iter_mut().zip(&mut turns) {
            let count = group.len();
            for i in 0..count {
                let i = (first + i) % count;
                turns[i].push(turn(&mut group[i], pairs)?);
            }
        }
    }
    Ok(turns.iter().flat_map(|group| group.iter().map(|turns| sum_up(turns, &group[0]))).collect())
}

fn turn(contender: &mut Contender, pairs: u32) -> Result<Turn, Failure> {
    let (wall_us, cpu_us) = (now_us(ClockId::Monotonic)?, now_us(ClockId::ProcessCPUTime)?);
    contender.run(pairs)?;
    let (wall_us, cpu_us) = (now_us(ClockId::Monotonic)? - wall_us, now_us(ClockId::ProcessCPUTime)? - cpu_us);
    Ok(Turn { wall_us: wall_us / f64::from(pairs), cpu_us: cpu_us / f64::from(pairs) })
}

fn now_us(clock: ClockId) -> Result<f64, Failure> {
    Ok(Duration::try_from(clock_gettime(clock))?.as_secs_f64() * 1e6)
}

fn sum_up(turns: &[Turn], bare: &[Turn]) -> Figures {
    let ratios = turns.iter().zip(bare).map(|(turn, bare)| turn.wall_us / bare.wall_us);
    Figures {
        ratio: Spread::of(ratios),
        wall_us: Spread::of(turns.iter().map(|turn| turn.wall_us)).median,
        cpu_us: Spread::of(turns.iter().map(|turn| turn.cpu_us)).median,
    }
}

impl Spread {
    /// The 10th percentile, the median and the 90th percentile.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).saturating_sub(1);
            values.get(rank).copied().unwrap_or(f64::NAN)
        };
        Self { low: at(10), median: at(50), high: at(90) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_made_of_values_that_were_measured() {
        let spread = |values: &[f64]| {
            let Spread { low, median, high } = Spread::of(values.iter().copied());
            [low, median, high].map(|value| format!("{value}")).join(" ")
        };
        assert_eq!(spread(&[3.0]), "3 3 3");
        assert_eq!(spread(&[9.0, 7.0, 5.0, 3.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0]), "1 5 9");
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let turns = |walls: [f64; 3]| walls.map(|wall_us| Turn { wall_us, cpu_us: wall_us / 2.0 });
        // The machine is ten times as slow in the second round; the variant costs twice the bare socket in each.
        let figures = sum_up(&turns([20.0, 200.0, 22.0]), &turns([10.0, 100.0, 11.0]));
        assert_eq!(format!("{} {}", figures.ratio.low, figures.ratio.high), "2 2");
        assert_eq!(format!("{} {}", figures.wall_us, figures.cpu_us), "22 11");
    }
}
