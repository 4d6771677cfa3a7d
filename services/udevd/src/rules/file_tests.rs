//! Valid and broken rule files, and the reported problems.

use super::tests::{Machine, disk, told};
use super::{Rules, World};
use crate::database::Database;
use crate::event::Event;
use crate::plan::{Permission, Plan};
use crate::sysfs::Sysfs;
use corten_corpus::{hostile, samples};
use proptest::prelude::{prop_assert, proptest};
use std::sync::LazyLock;

/// Broken lines and the reported problem.
const BROKEN: &[(&str, &str)] = &[
    ("KERNEL==\"a\", FOO=\"b\"", "t:1:14: unknown key FOO"),
    (
        "  KERNEL=\"a\"",
        "t:1:3: KERNEL can only be compared (== or !=), not set with =",
    ),
    (
        "KERNEL==a",
        "t:1:9: the value of KERNEL is not in double quotes",
    ),
    (
        "KERNEL==\"a",
        "t:1:9: the value of KERNEL has no closing quote",
    ),
    (
        "KERNEL \"a\"",
        "t:1:8: an operator (== != = += -= :=) is expected after KERNEL",
    ),
    ("ATTR{size==\"a\"", "t:1:6: ATTR{ has no closing brace"),
    (
        "ATTR==\"a\"",
        "t:1:1: ATTR{} needs a file below the device's directory",
    ),
    (
        "KERNEL{a}==\"a\"",
        "t:1:1: KERNEL takes no attribute in braces",
    ),
    ("==\"a\"", "t:1:1: a key is expected here, such as KERNEL"),
    (
        "TAG+=\"a\", \\\n  MODE==\"1\"",
        "t:2:3: MODE can only be set",
    ),
    (
        "GOTO=\"a\"",
        "t:1:1: no line after this one has LABEL=\"a\": the GOTO is skipped",
    ),
    (
        "LABEL=\"a\", GOTO=\"a\"",
        "t:1:12: no line after this one has LABEL=\"a\": the GOTO is skipped",
    ),
    ("LABEL+=\"a\"", "t:1:1: LABEL must be set with = to a name"),
    (
        "ENV{DEVPATH}=\"a\"",
        "t:1:1: the property DEVPATH cannot be changed",
    ),
    ("ENV{A}-=\"a\"", "t:1:1: ENV is not a list"),
    ("CONST{moon}==\"a\"", "t:1:1: there is no constant moon"),
    ("TEST{9}==\"a\"", "t:1:1: TEST{9} is not an octal mode"),
    ("IMPORT{moon}=\"a\"", "t:1:1: IMPORT cannot read from moon"),
    (
        "IMPORT{builtin}=\"moon\"",
        "t:1:1: there is no builtin \"moon\"",
    ),
    (
        "RUN{moon}+=\"a\"",
        "t:1:1: RUN{moon} is neither program nor builtin",
    ),
    (
        "RUN{builtin}+=\"kmod drop\"",
        "t:1:1: the builtin kmod must be called as \"kmod load\"",
    ),
    ("OPTIONS+=\"moon\"", "t:1:1: unknown option moon"),
    (
        "OPTIONS+=\"link_priority=x\"",
        "t:1:1: link_priority must be an integer",
    ),
    (
        "OPTIONS+=\"static_node=../x\"",
        "t:1:1: unknown option static_node=../x",
    ),
    (
        "SYMLINK+=\"$moon\"",
        "t:1:1: $moon is not a substitution (write $$ for $)",
    ),
    ("SYMLINK+=i\"a\"", "t:1:1: i\"...\" is for comparisons only"),
    (
        "KERNEL==e\"a\\q\"",
        "t:1:12: this is not a C escape sequence",
    ),
    (
        "KERNEL==\"\u{e4}",
        "t:1:9: the value of KERNEL has no closing quote",
    ),
];

/// Lines without effect on this node. The problem is reported once, not per event.
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "RUN+=\"/bin/a b\"",
        "t:1:1: RUN has no effect: this node does not run programs (/bin/a)",
    ),
    (
        "PROGRAM==\"/bin/a\"",
        "t:1:1: PROGRAM never matches: this node does not run programs (/bin/a)",
    ),
    (
        "IMPORT{program}=\"a\"",
        "t:1:1: IMPORT never matches: this node does not run programs (a)",
    ),
    (
        "IMPORT{builtin}=\"hwdb\"",
        "t:1:1: IMPORT never matches: this node has no builtin hwdb",
    ),
    (
        "OWNER=\"alice\"",
        "t:1:1: OWNER has no effect: there is no user \"alice\"",
    ),
    (
        "SECLABEL{selinux}=\"a\"",
        "t:1:1: SECLABEL has no effect: device nodes are not labelled",
    ),
];

#[test]
fn rule_problems_are_named_with_their_position_and_other_rules_apply() {
    for (rule, problem) in BROKEN.iter().chain(UNSUPPORTED) {
        assert_eq!(told(rule), [*problem], "{rule}");
        let lines = format!("{rule}\nKERNEL==\"sda\", TAG+=\"good\"");
        let (mut rules, mut problems) = (Rules::default(), Vec::new());
        rules.add("t", lines.as_bytes(), &mut problems);
        assert!(rules.len() >= 1, "{rule}");
    }
}

#[test]
fn non_utf8_and_overlong_rule_lines_are_refused() {
    let mut problems = Vec::new();
    Rules::default().add("t", b"# \xff in a comment\nKERNEL==\"\xff\"", &mut problems);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].to_string(), "t:2:10: this is not UTF-8");
    let long = format!("KERNEL==\"{}\"", "a".repeat(20_000));
    assert_eq!(told(&long), ["t:1:1: the line is longer than 16384 bytes"]);
}

#[test]
fn static_node_rules_are_collected() {
    let (mut rules, mut problems) = (Rules::default(), Vec::new());
    let text = "KERNEL==\"tun\", MODE=\"0660\", GROUP=\"44\", OPTIONS+=\"static_node=net/tun\"\n\
                KERNEL==\"x\", OPTIONS+=\"static_node=x\"";
    rules.add("t", text.as_bytes(), &mut problems);
    let nodes: Vec<_> = rules
        .static_nodes()
        .into_iter()
        .map(|n| (n.name, n.permission))
        .collect();
    let permission = Permission {
        mode: 0o660,
        uid: 0,
        gid: 44,
    };
    assert_eq!(nodes, [("net/tun".to_owned(), permission)]);
}

static MACHINE: LazyLock<Machine> = LazyLock::new(Machine::new);

#[test]
fn corpus_samples_are_rules() {
    for sample in samples("udev-rules") {
        let (mut rules, mut problems) = (Rules::default(), Vec::new());
        rules.add(&sample.name, &sample.bytes, &mut problems);
        assert!(problems.is_empty(), "{}: {problems:?}", sample.name);
    }
}

proptest! {
    #[test]
    fn hostile_files_never_panic(bytes in hostile("udev-rules")) {
        let (mut rules, mut problems) = (Rules::default(), Vec::new());
        rules.add("t", &bytes, &mut problems);
    }

    #[test]
    fn almost_valid_rule_files_are_read_or_reported(
        words in proptest::collection::vec(
            ("(KERNEL|ENV|ATTRS?|SYMLINK|TEST|IMPORT|RUN|OPTIONS|GOTO|LABEL|NAME|TAG|MODE)",
             "(|\\{[a-z*/.]{0,6}\\}?)", "(==|!=|=|\\+=|-=|:=|)", "[ei]?", "[a-z$%*?\\[\\]{}|\\\\ \"/.0-9]{0,12}"), 1..6),
    ) {
        let text: String = words
            .iter()
            .map(|(key, attribute, operator, prefix, value)| {
                format!("{key}{attribute}{operator}{prefix}\"{value}\", ")
            })
            .collect();
        let (mut rules, mut problems) = (Rules::default(), Vec::new());
        rules.add("t", text.as_bytes(), &mut problems);
        // Every line is a rule or has a problem, except a line of labels only.
        prop_assert!(rules.len() == 1 || !problems.is_empty() || text.starts_with("LABEL"), "{}", text);
        let machine = &*MACHINE;
        let (sysfs, database) = (Sysfs::new(machine.tree.path()), Database::new(machine.run.path()));
        let world = World { sysfs: &sysfs, database: &database, proc: machine.proc.path(), read: &|_| None };
        let event = Event::parse(disk("add").as_bytes()).unwrap();
        let plan = rules.apply(&world, &event, Plan::default(), None);
        prop_assert!(plan.links.iter().all(|link| crate::event::is_plain_path(link)));
        prop_assert!(plan.writes.iter().all(|write| write.path.starts_with(machine.tree.path())));
    }
}
