//! Prints what was measured.

use crate::SIZES;
use crate::faces::{Contender, Face, Route};
use crate::measure::Figures;

/// One run: TCP in front, because that is how servers are reached, and the unix socket beside it.
pub(crate) fn one(contenders: &[&Contender], figures: &[Figures]) -> String {
    let cells = |i: Option<usize>| match i.map(|i| figures[i]) {
        None => vec!["-".to_owned(); 5],
        Some(Figures { ratio, wall_us, cpu_us }) => vec![
            format!("{:.2}", ratio.median),
            format!("{:.2}", ratio.low),
            format!("{:.2}", ratio.high),
            format!("{wall_us:.1}"),
            format!("{cpu_us:.1}"),
        ],
    };
    let mut head = vec!["nodes".to_owned(), "variant".to_owned()];
    for route in Route::ALL {
        head.extend([route.name(), "10 %", "90 %", "us", "CPU us"].map(str::to_owned));
    }
    let text = aligned(head, contenders, cells);
    text + "\nUnder TCP and unix: wall time of one acquire and release divided by that of a bare socket in the same round, median\n\
            of all rounds (1.00 is the limit), then its 10th and 90th percentile, then the median wall time and processor\n\
            time of this process per pair. Compare the ratios; microseconds belong to this machine and this minute.\n"
}

/// Several runs: only the median ratio of each.
pub(crate) fn many(contenders: &[&Contender], runs: &[Vec<Figures>]) -> String {
    let cells = |i: Option<usize>| match i {
        None => vec!["-".to_owned(); runs.len() + 1],
        Some(i) => {
            let ratios: Vec<f64> = runs.iter().map(|run| run[i].ratio.median).collect();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            ratios.into_iter().chain([most - least]).map(|figure| format!("{figure:.2}")).collect()
        }
    };
    let mut head = vec!["nodes".to_owned(), "variant".to_owned()];
    for route in Route::ALL {
        head.extend((1..=runs.len()).map(|run| format!("{} {run}", route.name())));
        head.push("spread".to_owned());
    }
    let text = aligned(head, contenders, cells);
    text + "\nEach column is a whole run: wall time of one acquire and release divided by that of a bare socket in the same\n\
            round, median of all rounds (1.00 is the limit). The spread is the largest minus the smallest: a difference\n\
            below it is noise.\n"
}

/// One line for each number of nodes and face, with the cells of every route side by side; text to the left, figures to
/// the right.
fn aligned(head: Vec<String>, contenders: &[&Contender], cells: impl Fn(Option<usize>) -> Vec<String>) -> String {
    let mut lines = vec![head];
    for nodes in SIZES {
        for face in Face::ALL {
            let place =
                |route: Route| contenders.iter().position(|it| (it.nodes, it.face, it.route) == (nodes, face, route));
            if Route::ALL.into_iter().any(|route| place(route).is_some()) {
                let mut line = vec![nodes.to_string(), face.name().to_owned()];
                line.extend(Route::ALL.into_iter().flat_map(|route| cells(place(route))));
                lines.push(line);
            }
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += &cells.collect::<Vec<_>>().join("  ");
        text.push('\n');
    }
    text
}
