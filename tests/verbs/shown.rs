//! Expected tables of a node, cell by cell: exact values where they are the same on every machine,
//! otherwise a form.

use tests::client::Table;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The form of a column's cells.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    /// The node's address, as the test calls it
    Node,
    /// A word without blanks
    Word,
    /// Any text, not empty
    Text,
    /// Any text
    Any,
    /// An integer
    Whole,
    /// A number with two decimals
    Decimal,
    /// A number with two decimals and a percent sign
    Percent,
    /// A size for people, such as `9.4 MB` or `7.0MiB`
    Size,
    /// The bits of a file, such as `-rw-r--r--`
    Mode,
    /// A digest of SHA-256
    Digest,
    /// RFC 3339
    Moment,
    /// One of these
    Of(&'static [&'static str]),
    /// A value of a cgroup file, or the ratio of two: a size, a share, or none
    Limit,
}

/// A verb's table.
#[derive(Debug)]
pub struct Shown {
    /// Arguments of the call.
    pub verb: &'static [&'static str],
    /// The columns: headers, and the form of their cells.
    pub columns: &'static [(&'static str, Cell)],
    /// Cells of a row that exists on every node; empty if the table may be empty.
    pub row: &'static [(&'static str, &'static str)],
}

impl Cell {
    fn fits(self, text: &str) -> bool {
        let number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let decimal = |text: &str| {
            text.split_once('.')
                .is_some_and(|(whole, part)| number(whole) && number(part) && part.len() == 2)
        };
        match self {
            Cell::Node => text == "127.0.0.1",
            Cell::Word => !text.is_empty() && !text.contains(' '),
            Cell::Text => !text.is_empty(),
            Cell::Any => true,
            Cell::Whole => number(text),
            Cell::Decimal => decimal(text),
            Cell::Percent => text
                .strip_suffix('%')
                .is_some_and(|part| decimal(part) || number(part)),
            Cell::Size => {
                let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                let amount = text.strip_suffix(unit).unwrap_or_default();
                let units = ["B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"];
                number(&amount.replace('.', "")) && units.contains(&unit.trim_start())
            }
            Cell::Mode => {
                let kinds = text.chars().all(|c| "-dLlDcbpSugtrwxsTa".contains(c));
                kinds && (10..=12).contains(&text.len())
            }
            Cell::Digest => text.strip_prefix("sha256:").is_some_and(|hex| {
                hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
            }),
            Cell::Moment => OffsetDateTime::parse(text, &Rfc3339).is_ok(),
            Cell::Of(words) => words.contains(&text),
            Cell::Limit => {
                let none = ["unset", "max", "-"].contains(&text);
                none || Cell::Size.fits(text) || Cell::Percent.fits(text)
            }
        }
    }
}

impl Shown {
    /// The differences between the verb's output and this table.
    pub fn problems(&self, text: &str) -> Vec<String> {
        let table = Table::parse(text);
        let headers: Vec<&str> = self.columns.iter().map(|(header, _)| *header).collect();
        if table.headers != headers {
            return vec![format!(
                "headers {:?} instead of {headers:?}",
                table.headers
            )];
        }
        let mut problems = Vec::new();
        let mut is_there = self.row.is_empty();
        for row in table.rows {
            for ((header, cell), text) in self.columns.iter().zip(&row) {
                if !cell.fits(text) {
                    problems.push(format!("{header}: {text:?} is not a {cell:?}"));
                }
            }
            let has = |(header, wanted): &(&str, &str)| {
                let mut cells = headers.iter().zip(&row);
                cells.any(|(other, text)| other == header && text == wanted)
            };
            is_there |= self.row.iter().all(has);
        }
        if !is_there {
            problems.push(format!("no row has {:?}", self.row));
        }
        problems
    }
}

#[test]
fn problems_of_a_table_are_reported() {
    let shown = Shown {
        verb: &["list"],
        columns: &[
            ("NODE", Cell::Node),
            ("LABEL", Cell::Any),
            ("OF ALL", Cell::Size),
        ],
        row: &[("LABEL", ""), ("OF ALL", "9 B")],
    };
    let good = "NODE        LABEL   OF ALL\n127.0.0.1           9 B\n127.0.0.1   a b     1.5 kB\n";
    assert_eq!(shown.problems(good), Vec::<String>::new());
    for (bad, word) in [
        ("", "headers"),
        ("NODE   LABEL\n", "headers"),
        ("NODE        LABEL   OF ALL\n", "no row"),
        (
            "NODE        LABEL   OF ALL\n127.0.0.1           9\n",
            "is not a Size",
        ),
        (
            "NODE   LABEL   OF ALL\nn1             9 B\n",
            "is not a Node",
        ),
    ] {
        let problems = shown.problems(bad).join("\n");
        assert!(problems.contains(word), "{bad}: {problems}");
    }
}

#[test]
fn table_cells_are_checked_by_their_form() {
    let cases: [(Cell, &[&str], &[&str]); 8] = [
        (Cell::Word, &["a"], &["", "a b"]),
        (Cell::Whole, &["0", "12"], &["", "-1", "1.5"]),
        (Cell::Decimal, &["0.00", "12.34"], &["1", "1.2", ".12"]),
        (Cell::Percent, &["7%", "75.00%"], &["7", "%"]),
        (
            Cell::Size,
            &["0 B", "1.9 GB", "7.0MiB"],
            &["1.9", "GB", "1 b"],
        ),
        (Cell::Mode, &["-rw-r--r--", "dtrwxrwxrwx"], &["rw", ""]),
        (Cell::Moment, &["2026-01-01T00:00:00Z"], &["2026", ""]),
        (
            Cell::Limit,
            &["unset", "max", "-", "50 MB", "50.00%"],
            &["", "50"],
        ),
    ];
    for (cell, good, bad) in cases {
        for text in good {
            assert!(cell.fits(text), "{text:?} is a {cell:?}");
        }
        for text in bad {
            assert!(!cell.fits(text), "{text:?} is not a {cell:?}");
        }
    }
    let digest = format!("sha256:{}", "0a".repeat(32));
    assert!(Cell::Digest.fits(&digest) && !Cell::Digest.fits("sha256:0a"));
}
