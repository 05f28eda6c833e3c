//! Text for people: tables, paragraphs, and names in one line of plain characters. It is made for 80 columns, and the same
//! on a terminal and in a file.

/// The columns of a page.
pub(crate) const WIDTH: usize = 80;

/// What stands between two columns.
const GAP: &str = "  ";

/// Rows of cells under a heading. Columns are as wide as their widest cell. Those without any cell are left out.
#[derive(Debug)]
pub(crate) struct Table {
    indent: usize,
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table whose lines are indented by so many columns.
    pub(crate) fn new(indent: usize, heading: &[&str]) -> Self {
        Self { indent, heading: heading.iter().map(|cell| (*cell).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row. A row of fewer cells than the heading ends with a text that goes on over the other columns.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// Returns the lines, each with its end.
    pub(crate) fn text(&self) -> String {
        let columns = self.heading.len();
        // A text that goes on takes no room of its own.
        let is_cell =
            |row: &[String], column: usize| column < row.len() && (row.len() == columns || column + 1 < row.len());
        let width = |column: usize| {
            let cells = self.rows.iter().filter(|row| is_cell(row, column)).map(|row| width_of(&row[column]));
            let widest = cells.max().unwrap_or(0);
            let is_shown = widest > 0 || self.rows.is_empty();
            if is_shown { width_of(&self.heading[column]).max(widest) } else { 0 }
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = " ".repeat(self.indent);
            for (column, cell) in row.iter().enumerate() {
                if !is_cell(row, column) {
                    line += cell;
                } else if widths[column] > 0 {
                    line.extend([cell, &" ".repeat(widths[column] - width_of(cell)), GAP]);
                }
            }
            line.truncate(line.trim_end().len());
            line + "\n"
        };
        std::iter::once(&self.heading).chain(&self.rows).map(line).collect()
    }
}

/// Returns the columns that a text takes, if each character takes one.
pub(crate) fn width_of(text: &str) -> usize {
    text.chars().count()
}

/// Returns the text with everything escaped that is not for the eye: names and labels are made by others, and must not
/// move the cursor, or turn the direction of the text around.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' => shown.push(c),
            // A backslash would look like one of the escapes.
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// Returns the words of `text` in lines of at most `width` columns, all but the first of them indented by `indent`. A
/// longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let word = plain(word);
        if column > 0 && column + 1 + width_of(&word) > width {
            wrapped.push('\n');
            wrapped += &" ".repeat(indent);
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        column += width_of(&word);
        wrapped += &word;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(2, &["NODE", "STATE", "LEFT"]);
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        table.row(row(&["größer", "held", "8.2 s"]));
        table.row(row(&["b", "free", ""]));
        table.row(row(&["c", "a text that goes on over the other columns"]));
        let lines = [
            "  NODE    STATE  LEFT",
            "  größer  held   8.2 s",
            "  b       free",
            "  c       a text that goes on over the other columns",
        ];
        assert_eq!(table.text(), lines.join("\n") + "\n");
    }

    #[test]
    fn columns_without_a_cell_are_left_out() {
        let mut table = Table::new(0, &["NODE", "STATE", "LEFT", "HOLDER"]);
        assert_eq!(table.text(), "NODE  STATE  LEFT  HOLDER\n");
        table.row(["a", "free", "", ""].map(str::to_owned));
        table.row(["b", "no answer within 2s"].map(str::to_owned));
        table.row(["c", "held", "", "web-3"].map(str::to_owned));
        let lines = ["NODE  STATE  HOLDER", "a     free", "b     no answer within 2s", "c     held   web-3"];
        assert_eq!(table.text(), lines.join("\n") + "\n");
    }

    #[test]
    fn cells_stay_in_their_line() {
        assert_eq!(plain("it's \"größer\""), "it's \"größer\"");
        assert_eq!(plain("a\n\x1b[2J\u{202e}b\\"), r"a\n\u{1b}[2J\u{202e}b\\");
    }

    #[test]
    fn paragraphs_are_wrapped_at_words() {
        assert_eq!(wrapped("one two  three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrapped("much-longer-than-that no", 9, 0), "much-longer-than-that\nno");
        assert_eq!(wrapped("", 9, 2), "");
    }
}
