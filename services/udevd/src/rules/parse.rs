//! Turns lines into rules and resolves jumps. No I/O.

use super::lexer::{self, Operator, Word};
use super::rule::{Assign, Rule, Source, Subject};
use super::word::{Parser, Part};
use super::{Position, Problem, Severity};
use std::sync::Arc;

/// An unresolved `GOTO`.
struct Jump {
    from: usize,
    label: String,
    at: Position,
}

/// Appends the rules and the problems of one file.
pub fn file(name: &Arc<str>, bytes: &[u8], rules: &mut Vec<Rule>, problems: &mut Vec<Problem>) {
    let mut labels: Vec<(String, usize)> = Vec::new();
    let mut jumps = Vec::new();
    for words in lexer::lines(name, bytes) {
        match words.and_then(|words| line(words, rules.len(), problems)) {
            Ok(line) => {
                labels.extend(line.labels.into_iter().map(|label| (label, rules.len())));
                jumps.extend(line.jump);
                rules.extend(line.rule);
            }
            Err(problem) => problems.push(problem),
        }
    }
    for jump in jumps {
        // Jumps go forward only, so that every event terminates.
        let target = labels
            .iter()
            .find(|(label, index)| *label == jump.label && *index > jump.from);
        match (target, rules.get_mut(jump.from)) {
            (Some((_, index)), Some(rule)) => rule.next = Some(*index),
            _ => problems.push(Problem {
                at: jump.at,
                severity: Severity::Broken,
                text: format!(
                    "no line after this one has LABEL=\"{}\": the GOTO is skipped",
                    jump.label
                ),
            }),
        }
    }
}

/// The parsed form of one line.
struct Line {
    /// `None` for a line of labels only.
    rule: Option<Rule>,
    labels: Vec<String>,
    jump: Option<Jump>,
}

fn line(words: Vec<Word>, index: usize, problems: &mut Vec<Problem>) -> Result<Line, Problem> {
    let mut rule = Rule::default();
    let (mut labels, mut jump, mut other) = (Vec::new(), None, false);
    // Kept apart: problems of a line that is skipped anyway would confuse.
    let mut unsupported = Vec::new();
    for word in words {
        let at = word.at.clone();
        let mut parser = Parser {
            word: &word,
            unsupported: &mut unsupported,
        };
        match parser.part()? {
            Part::Label => {
                labels.push(word.value);
                continue;
            }
            Part::Goto => {
                jump = Some(Jump {
                    from: index,
                    label: word.value,
                    at,
                });
            }
            Part::Test(test) => rule.tests.push(test),
            Part::Parent(test) => rule.parents.push(test),
            Part::Source(kind) => rule.sources.push(Source {
                negated: word.operator == Operator::NoMatch,
                kind,
            }),
            Part::Assign(target) => rule.assigns.push(Assign {
                at,
                operator: word.operator,
                target,
            }),
            Part::Nothing => {}
        }
        other = true;
    }
    problems.append(&mut unsupported);
    rule.tests.sort_by_key(|test| cost(&test.subject));
    rule.parents.sort_by_key(|test| cost(&test.subject));
    rule.sources.sort_by_key(|source| source.kind.rank());
    rule.assigns.sort_by_key(|assign| assign.target.rank());
    let rule = other.then_some(rule);
    Ok(Line { rule, labels, jump })
}

/// Order of comparisons. They have no side effects, so those that read files come last.
fn cost(subject: &Subject) -> u8 {
    match subject {
        Subject::Attribute(_) | Subject::Sysctl(_) => 2,
        Subject::Driver | Subject::Const(_) => 1,
        _ => 0,
    }
}
