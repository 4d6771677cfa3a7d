//! Expressions that choose links: the Common Expression Language (<https://cel.dev>), with the variable `link`, and
//! the functions `mac(bytes)`, which writes a hardware address, and `glob(pattern, text)`.
//!
//! What an expression may cost has a bound: 1024 bytes, 24 levels of brackets, no loops and no variables of
//! its own. Whatever it is, it runs on a thread of its own, whose stack holds the deepest one.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use cel::common::ast::Expr;
use cel::parser::{Expression as Parsed, Parser};
use cel::{Context, Value};

use super::Expression;

/// Of brackets and calls inside each other.
const DEPTH: u16 = 24;

/// In bytes; its type holds it.
pub(super) const LENGTH: usize = 1024;

/// A sum is as deep as it has numbers. Twice what the deepest of that length takes where nothing is optimised.
const STACK: usize = 128 << 20;

/// What is asked of a link, as `link.NAME`; the names are those of the API's message `LinkStatusSpec`.
#[derive(Debug, Clone, Default)]
pub struct LinkFacts {
    /// The kernel's number.
    pub index: u32,
    /// Of the hardware: `ARPHRD_*` of `linux/if_arp.h`.
    pub kind_of_hardware: u32,
    /// Bytes of the hardware address.
    pub hardware_addr: Vec<u8>,
    /// Those it was built with; empty where it says none.
    pub permanent_addr: Vec<u8>,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Of a link that software made.
    pub kind: String,
    /// Where the device sits.
    pub bus_path: String,
    /// The device's vendor and product.
    pub pci_id: String,
    /// The device's driver.
    pub driver: String,
    /// Whether there is a carrier.
    pub link_state: bool,
    /// Other names of it.
    pub alt_names: Vec<String>,
}

impl LinkFacts {
    fn value(&self) -> Value {
        let text = |text: &str| Value::from(text);
        let bytes = |bytes: &[u8]| Value::from(bytes.to_vec());
        let fields = [
            ("index", Value::from(self.index)),
            ("type", Value::from(self.kind_of_hardware)),
            ("hardware_addr", bytes(&self.hardware_addr)),
            ("permanent_addr", bytes(&self.permanent_addr)),
            ("mtu", Value::from(self.mtu)),
            ("kind", text(&self.kind)),
            ("bus_path", text(&self.bus_path)),
            ("pciid", text(&self.pci_id)),
            ("driver", text(&self.driver)),
            ("link_state", Value::from(self.link_state)),
            ("alt_names", Value::from(self.alt_names.clone())),
        ];
        let fields: HashMap<&str, Value> = fields.into_iter().collect();
        Value::from(fields)
    }
}

impl Expression {
    /// For each link, whether this is true for it.
    ///
    /// # Errors
    /// Says why it is none, or what it asks of a link that has no answer.
    pub fn selected(&self, links: &[LinkFacts]) -> Result<Vec<bool>, String> {
        thread::scope(|scope| {
            let task = thread::Builder::new().stack_size(STACK);
            let task = task.spawn_scoped(scope, || evaluate(self, links));
            let done = task.map_err(|error| format!("no thread: {error}"))?;
            let broken = |_| Err("it cannot be read".to_owned());
            done.join().unwrap_or_else(broken)
        })
    }

    /// Looks for what is wrong with it before there is a link.
    pub(crate) fn check_for_links(&self) -> Result<(), String> {
        let sample = LinkFacts {
            hardware_addr: vec![2, 0, 0, 0, 0, 1],
            permanent_addr: vec![2, 0, 0, 0, 0, 1],
            alt_names: vec!["enp0s1".to_owned()],
            ..LinkFacts::default()
        };
        self.selected(&[sample]).map(drop)
    }
}

fn evaluate(text: &str, links: &[LinkFacts]) -> Result<Vec<bool>, String> {
    let parser = Parser::new().max_recursion_depth(DEPTH);
    let parsed = parser.parse(text).map_err(|problems| {
        let first = problems.errors.first();
        first.map_or_else(String::new, |first| {
            if first.msg.contains("Recursion limit") {
                return format!("it has more than {DEPTH} levels of brackets");
            }
            let (line, column) = first.pos;
            format!("line {line}, column {column}: {}", first.msg)
        })
    })?;
    check(&parsed)?;
    let mut context = Context::default();
    let known = context.add_function("mac", mac);
    known
        .and_then(|()| context.add_function("glob", like))
        .map_err(|error| error.to_string())?;
    let one = |link: &LinkFacts| {
        let mut context = context.new_inner_scope();
        context.add_variable_from_value("link", link.value());
        match context.resolve(&parsed) {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(_) => Err("it is neither true nor false".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    links.iter().map(one).collect()
}

/// What is asked must end soon, and be something there is.
fn check(parsed: &Parsed) -> Result<(), String> {
    match &parsed.expr {
        Expr::Comprehension(_) | Expr::Map(_) | Expr::Struct(_) => {
            Err("loops and maps are not supported".to_owned())
        }
        Expr::Call(call) => {
            let target = call.target.iter().map(|target| &**target);
            target.chain(&call.args).try_for_each(check)
        }
        Expr::Select(select) => check(&select.operand),
        Expr::List(list) => list.elements.iter().try_for_each(check),
        Expr::Ident(name) if name != "link" => Err(format!("there is no {name}, only link")),
        _ => Ok(()),
    }
}

fn mac(address: Arc<Vec<u8>>) -> String {
    let bytes: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// A pattern that is none fits nothing.
fn like(pattern: Arc<String>, text: Arc<String>) -> bool {
    glob::Pattern::new(&pattern).is_ok_and(|pattern| pattern.matches(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Notes;
    use crate::read::{Reader, Value as _};
    use crate::table::Shape;
    use crate::tree::{Content, Node};

    fn link(last: u8, driver: &str) -> LinkFacts {
        LinkFacts {
            hardware_addr: vec![0, 0x1a, 0x2b, 0, 0, last],
            permanent_addr: vec![0, 0x1a, 0x2b, 0, 0, last],
            mtu: 1500,
            driver: driver.to_owned(),
            alt_names: vec![format!("enp0s{last}")],
            ..LinkFacts::default()
        }
    }

    fn selected(text: &str) -> Result<Vec<bool>, String> {
        let links = [link(1, "virtio_net"), link(2, "e1000")];
        Expression(text.to_owned()).selected(&links)
    }

    #[test]
    fn links_are_chosen_by_what_they_are() {
        for (text, expected) in [
            (
                "mac(link.permanent_addr) == \"00:1a:2b:00:00:02\"",
                [false, true],
            ),
            (
                "glob(\"00:1a:2b:*\", mac(link.permanent_addr))",
                [true, true],
            ),
            (
                "link.driver == \"e1000\" || link.mtu < 1000u",
                [false, true],
            ),
            ("!(link.driver.startsWith(\"virtio\"))", [false, true]),
            ("\"enp0s1\" in link.alt_names", [true, false]),
            ("link.driver in [\"e1000\", \"virtio_net\"]", [true, true]),
        ] {
            assert_eq!(selected(text), Ok(expected.to_vec()), "{text}");
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error_that_says_why() {
        for (text, why) in [
            ("link.driver ==", "line 1, column"),
            ("disk.size > 1u", "there is no disk"),
            ("link.colour == \"red\"", "colour"),
            ("link.driver", "neither true nor false"),
            ("size(link) > nowhere", "there is no nowhere"),
            ("paint(link.driver)", "paint"),
            ("[1, 2].all(x, [1, 2].all(y, true))", "loops and maps"),
        ] {
            let error = selected(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn hostile_expressions_end() {
        let deep =
            |open: &str, close: &str| format!("{}true{}", open.repeat(500), close.repeat(500));
        let long = |part: &str, end: &str| {
            format!("{}{end}", part.repeat((LENGTH - end.len()) / part.len()))
        };
        for text in [
            deep("(", ")"),
            deep("[", "]"),
            long("!", "true"),
            long("-", "1 == 1"),
            long("1+", "1 == 1"),
            long("true?", "true"),
            long("link.", "a"),
            long("a(", ""),
            long("\u{1f980}", ""),
            long("true||", "true"),
            long("link.mtu<", "1u"),
            long("link.alt_names[", ""),
            long("1 in[", ""),
            long("'a'+", "'a'"),
            long("link.driver.startsWith(", ""),
        ] {
            // What counts is that there is an answer.
            let _ = Expression(text).check_for_links();
        }
        let refused = selected(&deep("(", ")")).unwrap_err();
        assert_eq!(refused, "it has more than 24 levels of brackets");
    }

    #[test]
    fn the_bounds_are_those_that_are_told() {
        let Shape::Text(told) = Expression::SHAPE else {
            panic!("an expression is text");
        };
        let bounds =
            format!("an expression of at most {LENGTH} bytes, its brackets at most {DEPTH} deep");
        assert_eq!(told, bounds);
        let read = |length: usize| {
            let text = "1".repeat(length);
            let node = Node::new(Content::Scalar { text, plain: true });
            let mut notes = Notes::default();
            let expression = Expression::read(&node, &mut Reader::new(&mut notes, false));
            (expression.is_some(), notes.is_empty())
        };
        assert_eq!(read(LENGTH), (true, true));
        assert_eq!(read(LENGTH + 1), (false, false));
    }
}
