//! Splits rule files into words: `KEY{attribute} operator "value"`. No I/O.

use super::{Position, Problem, Severity};
use std::sync::Arc;

/// Length limit of a line in bytes, continuation lines included. It is udev's own limit.
const MAX_LINE: usize = 16384;

/// Operator between a key and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `==`
    Match,
    /// `!=`
    NoMatch,
    /// `=`
    Assign,
    /// `+=`
    Add,
    /// `-=`
    Remove,
    /// `:=`
    Final,
}

impl Operator {
    /// Whether the operator compares rather than assigns.
    pub fn is_match(self) -> bool {
        matches!(self, Self::Match | Self::NoMatch)
    }

    /// The operator's spelling.
    pub fn text(self) -> &'static str {
        match self {
            Self::Match => "==",
            Self::NoMatch => "!=",
            Self::Assign => "=",
            Self::Add => "+=",
            Self::Remove => "-=",
            Self::Final => ":=",
        }
    }
}

/// One condition or assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Start position.
    pub at: Position,
    /// The key.
    pub key: String,
    /// The text in braces after the key.
    pub attribute: Option<String>,
    /// The operator.
    pub operator: Operator,
    /// The value without quotes and escapes.
    pub value: String,
    /// `i"..."`: the comparison ignores case.
    pub fold: bool,
}

/// A line with its continuation lines.
#[derive(Debug)]
struct Line {
    file: Arc<str>,
    text: Vec<u8>,
    /// Offset in `text`, line and column of each joined line.
    pieces: Vec<(usize, u32, usize)>,
}

impl Line {
    fn position(&self, offset: usize) -> Position {
        let piece = self
            .pieces
            .iter()
            .rev()
            .find(|(start, ..)| *start <= offset);
        let (start, line, column) = piece.copied().unwrap_or_default();
        Position {
            file: self.file.clone(),
            line,
            column: u32::try_from(column + offset - start).unwrap_or(u32::MAX),
        }
    }

    fn broken(&self, offset: usize, text: impl Into<String>) -> Problem {
        Problem {
            at: self.position(offset),
            severity: Severity::Broken,
            text: text.into(),
        }
    }
}

/// The lines of a file as words, without empty lines and comments.
pub fn lines(file: &Arc<str>, bytes: &[u8]) -> Vec<Result<Vec<Word>, Problem>> {
    let mut found = Vec::new();
    let mut current: Option<Line> = None;
    for (number, raw) in (1..).zip(bytes.split(|b| *b == b'\n')) {
        let text = raw.trim_ascii_start();
        // A comment may stand between a line and its continuation.
        if text.starts_with(b"#") {
            continue;
        }
        let column = raw.len() - text.len() + 1;
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let (text, continued) = match text.strip_suffix(b"\\") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let line = current.get_or_insert_with(|| Line {
            file: file.clone(),
            text: Vec::new(),
            pieces: Vec::new(),
        });
        line.pieces.push((line.text.len(), number, column));
        line.text.extend_from_slice(text);
        if !continued && let Some(line) = current.take() {
            found.extend(words(&line).transpose());
        }
    }
    // The last line may end in a backslash.
    if let Some(line) = current {
        found.extend(words(&line).transpose());
    }
    found
}

/// Splits a line into words; `None` for an empty line.
fn words(line: &Line) -> Result<Option<Vec<Word>>, Problem> {
    if line.text.len() > MAX_LINE {
        return Err(line.broken(0, format!("the line is longer than {MAX_LINE} bytes")));
    }
    let text = std::str::from_utf8(&line.text)
        .map_err(|error| line.broken(error.valid_up_to(), "this is not UTF-8"))?;
    let mut cursor = Cursor { line, text, at: 0 };
    let mut words = Vec::new();
    loop {
        cursor.skip(|c| c.is_ascii_whitespace() || c == ',');
        if cursor.rest().is_empty() {
            return Ok((!words.is_empty()).then_some(words));
        }
        words.push(cursor.word()?);
    }
}

struct Cursor<'a> {
    line: &'a Line,
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool) {
        self.at += self.rest().len() - self.rest().trim_start_matches(skipped).len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn broken(&self, text: impl Into<String>) -> Problem {
        self.line.broken(self.at, text)
    }

    fn word(&mut self) -> Result<Word, Problem> {
        let at = self.line.position(self.at);
        let start = self.at;
        self.skip(|c| c.is_ascii_alphanumeric() || c == '_');
        let key = self.text.get(start..self.at).unwrap_or_default().to_owned();
        if key.is_empty() {
            return Err(self.broken("a key is expected here, such as KERNEL"));
        }
        let attribute = match self.take("{") {
            false => None,
            true => {
                let Some((attribute, _)) = self.rest().split_once('}') else {
                    return Err(self.broken(format!("{key}{{ has no closing brace")));
                };
                self.at += attribute.len() + 1;
                Some(attribute.to_owned())
            }
        };
        self.skip(|c| c.is_ascii_whitespace());
        let operator = self.operator(&key)?;
        self.skip(|c| c.is_ascii_whitespace());
        let (value, fold) = self.value(&key)?;
        Ok(Word {
            at,
            key,
            attribute,
            operator,
            value,
            fold,
        })
    }

    fn operator(&mut self, key: &str) -> Result<Operator, Problem> {
        use Operator::{Add, Assign, Final, Match, NoMatch, Remove};
        [Match, NoMatch, Add, Remove, Final, Assign]
            .into_iter()
            .find(|operator| self.take(operator.text()))
            .ok_or_else(|| {
                self.broken(format!(
                    "an operator (== != = += -= :=) is expected after {key}"
                ))
            })
    }

    /// Parses `"..."` with the prefixes `e` for C escapes and `i` for ignoring case.
    fn value(&mut self, key: &str) -> Result<(String, bool), Problem> {
        let (mut escapes, mut fold) = (false, false);
        loop {
            if self.take("e") {
                escapes = true;
            } else if self.take("i") {
                fold = true;
            } else {
                break;
            }
        }
        if !self.take("\"") {
            return Err(self.broken(format!("the value of {key} is not in double quotes")));
        }
        let start = self.at;
        let mut value = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + offset + 1;
                    return Ok((value, fold));
                }
                '\\' if escapes => {
                    let unescaped = escape(&mut chars);
                    let wrong = || {
                        self.line
                            .broken(start + offset, "this is not a C escape sequence")
                    };
                    value.push(unescaped.ok_or_else(wrong)?);
                }
                '\\' if chars.as_str().starts_with('"') => {
                    chars.next();
                    value.push('"');
                }
                c => value.push(c),
            }
        }
        Err(self.line.broken(
            start - 1,
            format!("the value of {key} has no closing quote"),
        ))
    }
}

/// Parses the escape after a backslash. A number is one character, not one byte of a longer one, and never NUL.
fn escape(chars: &mut std::str::CharIndices<'_>) -> Option<char> {
    let (_, first) = chars.next()?;
    let mut number = |radix, start: &str, count: usize| {
        let digits = chars.as_str().get(..count)?.to_owned();
        chars.nth(count.checked_sub(1)?);
        let number = u32::from_str_radix(&format!("{start}{digits}"), radix).ok()?;
        char::from_u32(number).filter(|c| *c != '\0')
    };
    Some(match first {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        's' => ' ',
        '\\' | '"' | '\'' => first,
        'x' => number(16, "", 2).filter(char::is_ascii)?,
        '0'..='3' => number(8, first.to_string().as_str(), 2).filter(char::is_ascii)?,
        'u' => number(16, "", 4)?,
        'U' => number(16, "", 8)?,
        _ => return None,
    })
}
