//! Text streams from one or several nodes, printed line by line.

use std::collections::BTreeMap;
use std::io::{self, Write};

use corten_client::table::printable;

/// Bytes of a line after which it is printed in parts, so that a node cannot exhaust our memory.
const MAX_LINE: usize = 1024 * 1024;

/// Assembles lines from byte frames.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Whether lines start with the name of their node.
    prefix: bool,
    /// Whether the output is a terminal, which control characters from a node must not reach.
    terminal: bool,
    partial: BTreeMap<String, Vec<u8>>,
}

impl Lines {
    pub(crate) fn new(prefix: bool, terminal: bool) -> Lines {
        Lines {
            prefix,
            terminal,
            partial: BTreeMap::new(),
        }
    }

    /// Takes a frame and writes the completed lines.
    pub(crate) fn push(
        &mut self,
        node: &str,
        bytes: &[u8],
        out: &mut impl Write,
    ) -> io::Result<()> {
        if !self.prefix && !self.terminal {
            out.write_all(bytes)?;
            return out.flush();
        }
        let mut buffer = self.partial.remove(node).unwrap_or_default();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            buffer.extend_from_slice(piece);
            if buffer.ends_with(b"\n") || buffer.len() >= MAX_LINE {
                self.line(node, &buffer, out)?;
                buffer.clear();
            }
        }
        if !buffer.is_empty() {
            self.partial.insert(node.to_owned(), buffer);
        }
        out.flush()
    }

    /// Writes the rest without a final newline.
    pub(crate) fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        for (node, rest) in std::mem::take(&mut self.partial) {
            self.line(&node, &rest, out)?;
        }
        out.flush()
    }

    fn line(&self, node: &str, line: &[u8], out: &mut impl Write) -> io::Result<()> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.prefix {
            write!(out, "{}: ", printable(node))?;
        }
        if self.terminal {
            let visible = |c: char| if c.is_control() && c != '\t' { '?' } else { c };
            let text: String = String::from_utf8_lossy(line).chars().map(visible).collect();
            out.write_all(text.as_bytes())?;
        } else {
            out.write_all(line)?;
        }
        out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(prefix: bool, terminal: bool, frames: &[(&str, &str)]) -> String {
        let mut lines = Lines::new(prefix, terminal);
        let mut out = Vec::new();
        for (node, text) in frames {
            lines.push(node, text.as_bytes(), &mut out).unwrap();
        }
        lines.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_of_several_nodes_are_not_mixed() {
        let frames = [("a", "one\ntw"), ("b", "x"), ("a", "o\n"), ("b", "y\nend")];
        assert_eq!(
            printed(true, false, &frames),
            "a: one\na: two\nb: xy\nb: end\n"
        );
    }

    #[test]
    fn node_name_with_control_characters_does_not_steer_the_terminal() {
        assert_eq!(printed(true, false, &[("a\u{1b}[2J", "x\n")]), "a?[2J: x\n");
    }

    #[test]
    fn bytes_of_a_single_node_pass_unchanged_into_a_file() {
        let frames = [("a", "one\x1b[31m\r\ntwo")];
        assert_eq!(printed(false, false, &frames), "one\x1b[31m\r\ntwo");
        assert_eq!(printed(false, true, &frames), "one?[31m\ntwo\n");
    }

    #[test]
    fn a_line_without_end_is_printed_in_parts() {
        let long = "x".repeat(MAX_LINE + 1);
        let text = printed(true, false, &[("a", &long), ("a", "yz")]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("\na: yz\n"));
    }
}
