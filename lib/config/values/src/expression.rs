//! Expressions that select links, disks and volumes, in the Common Expression Language (<https://cel.dev>).
//!
//! Variables are the facts of the object (`facts.rs`). Sizes have units (`10u * GiB`); `mac(bytes)` and
//! `glob(pattern, text)` are our own. The cost is limited, because expressions come from configs.

use std::sync::Arc;
use std::thread;

use cel::common::ast::Expr;
use cel::objects::Key;
use cel::parser::{Expression as Parsed, Parser};
use cel::{Context, Value};

use crate::facts::Subject;
use crate::text::texts;

/// Limit of nested brackets and calls.
const DEPTH: u16 = 24;

/// Limit of the length in bytes.
const LENGTH: usize = 1024;

/// A sum is as deep as its number of terms. This is twice the need of the deepest one of that length in an unoptimised
/// build.
const STACK: usize = 128 << 20;

/// Units of sizes.
const UNITS: [(&str, u64); 10] = [
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

/// Allowed functions: those of the language that are useful here, and our own.
const FUNCTIONS: [&str; 11] = [
    "bytes",
    "contains",
    "double",
    "endsWith",
    "glob",
    "int",
    "mac",
    "size",
    "startsWith",
    "string",
    "uint",
];

/// Error for an expression that makes the parser panic.
const BROKEN: &str = "it cannot be read";

/// Name of the parser threads: a panic in one is an error of the expression, and harmless.
const READER: &str = "reader of expressions";

texts! {
    /// An expression that selects disks, volumes or links. Its syntax and depth are checked later, where its variables
    /// are known. It has no loops and no variables of its own. It runs on a thread of its own, with a stack for the
    /// deepest expression.
    Expression = "an expression of at most 1024 bytes, its brackets at most 24 deep",
        |text| !text.trim().is_empty() && text.len() <= LENGTH;
}

impl Expression {
    /// Whether the expression is true for each object. An object that it cannot be evaluated for is not selected.
    ///
    /// # Errors
    /// The expression is invalid; or it is true for no object, and cannot be evaluated for at least one.
    pub fn selected<S: Subject>(&self, all: &[S]) -> Result<Vec<bool>, String> {
        on_reader(self, |parsed| evaluate(parsed, all))?
    }

    /// Checks the expression before any object exists.
    ///
    /// # Errors
    /// The expression is invalid.
    pub fn check<S: Subject>(&self) -> Result<(), String> {
        self.selected(&[S::sample()]).map(drop)
    }
}

/// Parses an expression and runs `task` on it, on a thread with a stack for the deepest expression. A panic there is an
/// error, and harmless.
///
/// # Errors
/// The expression is invalid, or the thread cannot be created.
pub fn on_reader<T: Send>(text: &str, task: impl FnOnce(&Parsed) -> T + Send) -> Result<T, String> {
    // The stack is measured for this length.
    if text.len() > LENGTH {
        return Err(format!("it has more than {LENGTH} bytes"));
    }
    thread::scope(|scope| {
        let reader = thread::Builder::new().name(READER.to_owned());
        let reader = reader.stack_size(STACK);
        let reader = reader.spawn_scoped(scope, || parse(text).map(|parsed| task(&parsed)));
        let reader = reader.map_err(|error| format!("no thread: {error}"))?;
        let broken = |_| Err(BROKEN.to_owned());
        reader.join().unwrap_or_else(broken)
    })
}

fn parse(text: &str) -> Result<Parsed, String> {
    let parser = Parser::new().max_recursion_depth(DEPTH);
    parser.parse(text).map_err(|problems| {
        let first = problems.errors.first();
        first.map_or_else(String::new, |first| {
            if first.msg.contains("Recursion limit") {
                return format!("it has more than {DEPTH} levels of brackets");
            }
            let (line, column) = first.pos;
            format!("line {line}, column {column}: {}", first.msg)
        })
    })
}

fn evaluate<S: Subject>(parsed: &Parsed, all: &[S]) -> Result<Vec<bool>, String> {
    let sample = S::sample().values();
    let variables: Vec<_> = S::VARIABLES.iter().copied().zip(&sample).collect();
    check(parsed, &variables)?;
    let mut context = Context::default();
    let known = context.add_function("mac", mac);
    known
        .and_then(|()| context.add_function("glob", like))
        .map_err(|error| error.to_string())?;
    for (name, bytes) in UNITS {
        context.add_variable_from_value(name, bytes);
    }
    let one = |subject: &S| {
        let mut context = context.new_inner_scope();
        for (name, value) in S::VARIABLES.iter().zip(subject.values()) {
            context.add_variable_from_value(*name, value);
        }
        match context.resolve(parsed) {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(_) => Err("it is neither true nor false".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let answers: Vec<Result<bool, String>> = all.iter().map(one).collect();
    let meant = answers.iter().map(|answer| *answer == Ok(true)).collect();
    let why = answers.iter().find_map(|answer| answer.as_ref().err());
    match why {
        Some(why) if !answers.contains(&Ok(true)) => Err(why.clone()),
        _ => Ok(meant),
    }
}

/// Checks that evaluation is bounded, and that all names exist.
fn check(parsed: &Parsed, variables: &[(&str, &Value)]) -> Result<(), String> {
    let inner = |inner: &Parsed| check(inner, variables);
    match &parsed.expr {
        Expr::Comprehension(_) | Expr::Map(_) | Expr::Struct(_) => {
            Err("loops and maps are not supported".to_owned())
        }
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            // Operators have no letters.
            let is_function = name.starts_with(|first: char| first.is_ascii_alphabetic());
            if is_function && !FUNCTIONS.contains(&name) {
                let known = FUNCTIONS.join(", ");
                return Err(format!("there is no function {name}, only {known}"));
            }
            let target = call.target.iter().map(|target| &**target);
            target.chain(&call.args).try_for_each(inner)
        }
        Expr::Select(select) => {
            has_field(&select.operand, &select.field, variables)?;
            inner(&select.operand)
        }
        Expr::List(list) => list.elements.iter().try_for_each(inner),
        Expr::Ident(name) if !is_known(name, variables) => {
            let known: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
            Err(format!("there is no {name}, only {}", known.join(" and ")))
        }
        _ => Ok(()),
    }
}

/// Checks that a variable has a field with this name.
fn has_field(of: &Parsed, field: &str, variables: &[(&str, &Value)]) -> Result<(), String> {
    let Expr::Ident(name) = &of.expr else {
        return Ok(());
    };
    let variable = variables.iter().find(|(known, _)| known == name);
    match variable {
        Some((_, Value::Map(fields))) if fields.map.contains_key(&Key::from(field)) => Ok(()),
        Some(_) => Err(format!("{name} has no {field}")),
        None => Ok(()),
    }
}

fn is_known(name: &str, variables: &[(&str, &Value)]) -> bool {
    let is_variable = variables.iter().any(|(known, _)| *known == name);
    is_variable || UNITS.iter().any(|(unit, _)| *unit == name)
}

fn mac(address: Arc<Vec<u8>>) -> String {
    let bytes: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// An invalid pattern matches nothing.
fn like(pattern: Arc<String>, text: Arc<String>) -> bool {
    glob::Pattern::new(&pattern).is_ok_and(|pattern| pattern.matches(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{DiskFacts, LinkFacts, VolumeFacts};
    use corten_yaml::problem::Notes;
    use corten_yaml::read::{Reader, Value as _};
    use corten_yaml::table::Shape;
    use corten_yaml::tree::{Content, Node};

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
    fn links_are_selected_by_their_attributes() {
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
    fn disks_are_selected_by_their_attributes() {
        let disk = |size: u64, transport: &str, is_system: bool| DiskFacts {
            dev_path: "/dev/vdb".to_owned(),
            size,
            transport: transport.to_owned(),
            symlinks: vec!["/dev/disk/by-id/wwn-1".to_owned()],
            is_system,
            ..DiskFacts::default()
        };
        let disks = [disk(20 << 30, "virtio", true), disk(8 << 40, "nvme", false)];
        for (text, expected) in [
            ("!system_disk", [false, true]),
            ("disk.transport == 'virtio'", [true, false]),
            (
                "disk.size > 10u * GiB && disk.size < 1u * TB",
                [true, false],
            ),
            ("disk.size >= 1u * TB && !disk.rotational", [false, true]),
            ("'/dev/disk/by-id/wwn-1' in disk.symlinks", [true, true]),
            ("disk.dev_path == '/dev/vdb'", [true, true]),
            ("disk.size > 100", [true, true]),
        ] {
            let selected = Expression(text.to_owned()).selected(&disks);
            assert_eq!(selected, Ok(expected.to_vec()), "{text}");
        }
        let check = |text: &str| Expression(text.to_owned()).check::<DiskFacts>();
        let wrong = check("volume.label == 'x'").unwrap_err();
        assert_eq!(wrong, "there is no volume, only disk and system_disk");
        let wrong = check("disk.colour == 'x'").unwrap_err();
        assert!(wrong.contains("colour"), "{wrong}");
    }

    #[test]
    fn volumes_are_selected_by_their_own_and_their_disks_attributes() {
        let volume = |label: &str, transport: &str| VolumeFacts {
            label: label.to_owned(),
            name: "ext4".to_owned(),
            disk: DiskFacts {
                transport: transport.to_owned(),
                ..DiskFacts::default()
            },
            ..VolumeFacts::default()
        };
        let volumes = [volume("old", "sata"), volume("old", "usb")];
        let text = "volume.label == 'old' && volume.name == 'ext4' && disk.transport != 'usb'";
        let selected = Expression(text.to_owned()).selected(&volumes);
        assert_eq!(selected, Ok(vec![true, false]));
        let wrong = Expression("system_disk".to_owned()).check::<VolumeFacts>();
        assert_eq!(
            wrong,
            Err("there is no system_disk, only volume and disk".to_owned())
        );
    }

    #[test]
    fn expression_without_a_boolean_result_is_an_error_with_a_reason() {
        for (text, why) in [
            ("link.driver ==", "line 1, column"),
            ("disk.size > 1u", "there is no disk"),
            ("link.colour == \"red\"", "colour"),
            (
                "link.driver == \"a\" && link.colour == \"red\"",
                "link has no colour",
            ),
            ("link.driver", "neither true nor false"),
            ("size(link) > nowhere", "there is no nowhere"),
            (
                "link.driver == \"a\" && paint(link)",
                "there is no function paint",
            ),
            ("link.alt_names[7] == \"a\"", ""),
            ("[1, 2].all(x, [1, 2].all(y, true))", "loops and maps"),
        ] {
            let error = selected(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn unreadable_expression_is_an_error() {
        let read = |text: &str| on_reader(text, |_| ());
        assert_eq!(read("true"), Ok(()));
        assert!(read("&&").unwrap_err().contains("line 1, column"));
        let long = "1".repeat(LENGTH + 1);
        assert_eq!(read(&long), Err("it has more than 1024 bytes".to_owned()));
        let broken = on_reader::<()>("true", |_| panic!("a bug of the reader"));
        assert_eq!(broken, Err(BROKEN.to_owned()));
    }

    #[test]
    fn item_for_which_the_expression_fails_is_not_selected() {
        let mut nameless = link(1, "e1000");
        nameless.alt_names.clear();
        let text = Expression("link.alt_names[0] == \"enp0s2\"".to_owned());
        let selected = text.selected(&[nameless, link(2, "e1000")]);
        assert_eq!(selected, Ok(vec![false, true]));
    }

    #[test]
    fn hostile_expressions_terminate() {
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
            // Any result but a panic is good.
            let answer = Expression(text.clone()).check::<LinkFacts>();
            assert_ne!(answer, Err(BROKEN.to_owned()), "{text}");
        }
        let refused = selected(&deep("(", ")")).unwrap_err();
        assert_eq!(refused, "it has more than 24 levels of brackets");
    }

    #[test]
    fn documented_bounds_of_an_expression_are_enforced() {
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
