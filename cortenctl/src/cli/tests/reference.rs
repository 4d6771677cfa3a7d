//! The command line beside that of the reference's client: `cortenctl/tests/reference.txt` says where it is from.

use clap::{Arg, Command};

use super::command;

const REFERENCE: &str = include_str!("../../../tests/reference.txt");

/// Whether an argument takes a value that must be there.
fn takes_value(argument: &Arg) -> bool {
    let least = argument
        .get_num_args()
        .map_or(0, |range| range.min_values());
    argument.get_action().takes_values() && least > 0
}

/// A verb that is refused takes whatever follows.
fn is_refused(verb: &Command) -> bool {
    verb.get_arguments()
        .any(|argument| argument.get_id() == "rest")
}

/// A flag of the reference's: `-s --long VALUE`.
struct Flag {
    letter: Option<char>,
    long: &'static str,
    takes_value: bool,
}

impl Flag {
    fn parse(text: &'static str) -> Flag {
        let mut words = text.split_whitespace().peekable();
        let letter = words.next_if(|word| !word.starts_with("--"));
        Flag {
            letter: letter.and_then(|word| word.chars().nth(1)),
            long: words.next().unwrap().strip_prefix("--").unwrap(),
            takes_value: words.next().is_some(),
        }
    }

    /// The difference between this flag and that of our verb.
    fn problem(&self, verb: &Command) -> Option<&'static str> {
        let has_name = |argument: &&Arg| {
            let mut aliases = argument.get_all_aliases().unwrap_or_default().into_iter();
            argument.get_long() == Some(self.long) || aliases.any(|alias| alias == self.long)
        };
        let Some(argument) = verb.get_arguments().find(has_name) else {
            return Some("the verb has no such flag");
        };
        if takes_value(argument) != self.takes_value {
            return Some("only one of the two flags, this one and the reference's, takes a value");
        }
        let letter = self.letter?;
        let of_letter = verb
            .get_arguments()
            .find(|other| other.get_short() == Some(letter));
        match of_letter {
            None => Some("it has no short flag"),
            // Every verb has `--insecure`, but only some have its short flag.
            Some(other) if other.get_id() == "short_insecure" && self.long == "insecure" => None,
            Some(other) if other.get_id() == argument.get_id() => None,
            Some(_) => Some("its short flag belongs to another flag"),
        }
    }
}

/// The verb and all verbs below it, without the refused ones.
fn below(verb: &Command) -> Vec<&Command> {
    let subs = verb
        .get_subcommands()
        .filter(|sub| !is_refused(sub) && sub.get_name() != "help");
    std::iter::once(verb).chain(subs.flat_map(below)).collect()
}

/// Our verb for a line of the file. A refused group refuses all its verbs.
fn find<'a>(root: &'a Command, line: &str, wrong: &mut Vec<String>) -> &'a Command {
    let mut names = line.split(", ");
    let mut at = root;
    let path: Vec<&str> = names.next().unwrap_or_default().split(' ').collect();
    let (last, groups) = path.split_last().unwrap();
    for group in groups {
        at = at.find_subcommand(group).unwrap_or(at);
    }
    if is_refused(at) {
        return at;
    }
    for name in names.chain([*last]) {
        if at.find_subcommand(name).is_none() {
            wrong.push(format!("{line}: no such verb: {name}"));
        }
    }
    at.find_subcommand(last).unwrap_or(at)
}

#[test]
fn verbs_and_flags_of_the_reference_client_exist_or_are_refused() {
    let mut root = command();
    root.build();
    let (mut verbs, mut flags, mut wrong) = (vec![&root], 0, Vec::new());
    for line in REFERENCE.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(flag) = line.strip_prefix("  ").map(Flag::parse) else {
            verbs = match line {
                "(every verb)" => below(&root),
                line => vec![find(&root, line, &mut wrong)],
            };
            continue;
        };
        flags += 1;
        for verb in verbs.iter().filter(|verb| !is_refused(verb)) {
            // Below the root a verb may use the short flag for another flag.
            let alone = verbs.len() == 1 || verb.get_name() == root.get_name();
            let letter = flag.letter.filter(|_| alone);
            if let Some(problem) = (Flag { letter, ..flag }).problem(verb) {
                wrong.push(format!("{} --{}: {problem}", verb.get_name(), flag.long));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(flags > 200, "only {flags} flags were compared");
}
