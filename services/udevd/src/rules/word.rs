//! Parses words: knows the keys and their operators. No I/O.

use super::builtin::Builtin;
use super::constant::Constant;
use super::lexer::{Operator, Word};
use super::owner;
use super::pattern::Pattern;
use super::rule::{Escape, Id, SourceKind, Subject, Target, Test};
use super::template::Template;
use super::{Problem, Severity};

/// Properties that identify the device; rules cannot change them.
const FIXED: [&str; 12] = [
    "ACTION",
    "DEVLINKS",
    "DEVNAME",
    "DEVPATH",
    "DEVTYPE",
    "DRIVER",
    "IFINDEX",
    "MAJOR",
    "MINOR",
    "SEQNUM",
    "SUBSYSTEM",
    "TAGS",
];

/// A parsed word.
pub enum Part {
    /// A condition on the device.
    Test(Test),
    /// A condition on the device or an ancestor.
    Parent(Test),
    /// A condition that imports data.
    Source(SourceKind),
    /// An assignment.
    Assign(Target),
    /// A label of the line.
    Label,
    /// A jump to a label.
    Goto,
    /// No effect on this node.
    Nothing,
}

/// Parses one word.
pub struct Parser<'a> {
    /// The word.
    pub word: &'a Word,
    /// Parts of the word without effect on this node.
    pub unsupported: &'a mut Vec<Problem>,
}

type Parsed<T> = Result<T, Problem>;

impl Parser<'_> {
    /// Parses the word by its key.
    ///
    /// # Errors
    /// If the word is not valid.
    pub fn part(&mut self) -> Parsed<Part> {
        let word = self.word;
        let is_match = word.operator.is_match();
        match word.key.as_str() {
            "ACTION" => self.test(Subject::Action),
            "DEVPATH" => self.test(Subject::Devpath),
            "KERNEL" => self.test(Subject::Kernel),
            "SUBSYSTEM" => self.test(Subject::Subsystem),
            "DRIVER" => self.test(Subject::Driver),
            "KERNELS" => self.parent(Subject::Kernel),
            "SUBSYSTEMS" => self.parent(Subject::Subsystem),
            "DRIVERS" => self.parent(Subject::Driver),
            "TAGS" => self.parent(Subject::Tag),
            "ATTRS" => {
                let name = self.named()?;
                self.compare(Subject::Attribute(name)).map(Part::Parent)
            }
            "RESULT" => {
                self.plain()?;
                self.must_match()?;
                Ok(Part::Source(SourceKind::Result(self.pattern())))
            }
            "CONST" => {
                let name = self.attribute("arch, virt or cvm")?;
                let known = Constant::named(name);
                let constant =
                    known.ok_or_else(|| self.broken(format!("there is no constant {name}")))?;
                self.compare(Subject::Const(constant)).map(Part::Test)
            }
            "SYMLINK" if is_match => self.test(Subject::Link),
            "NAME" if is_match => self.test(Subject::Name),
            "TAG" if is_match => self.test(Subject::Tag),
            "ENV" if is_match => {
                let key = self.attribute("a property")?.into();
                self.compare(Subject::Env(key)).map(Part::Test)
            }
            "ATTR" if is_match => {
                let name = self.named()?;
                self.compare(Subject::Attribute(name)).map(Part::Test)
            }
            "SYSCTL" if is_match => {
                let name = self.named()?;
                self.compare(Subject::Sysctl(name)).map(Part::Test)
            }
            "TEST" => self.file(),
            "PROGRAM" => {
                self.plain()?;
                self.not_removed()?;
                self.program("PROGRAM never matches");
                Ok(Part::Source(SourceKind::Program))
            }
            "IMPORT" => self.import(),
            "LABEL" | "GOTO" => {
                self.plain()?;
                if word.operator != Operator::Assign || word.value.is_empty() {
                    return Err(self.broken(format!("{} must be set with = to a name", word.key)));
                }
                Ok(if word.key == "LABEL" {
                    Part::Label
                } else {
                    Part::Goto
                })
            }
            _ => self.assign(),
        }
    }

    fn assign(&mut self) -> Parsed<Part> {
        let word = self.word;
        if word.fold {
            return Err(self.broken("i\"...\" is for comparisons only".to_owned()));
        }
        let target = match word.key.as_str() {
            "OPTIONS" => return self.option(),
            "SECLABEL" => {
                self.attribute("a security module")?;
                self.not_supported("SECLABEL has no effect: device nodes are not labelled");
                return Ok(Part::Nothing);
            }
            "OWNER" => Target::Owner(self.id(owner::user, "user")?),
            "GROUP" => Target::Group(self.id(owner::group, "group")?),
            "MODE" => Target::Mode(self.id(owner::mode, "mode")?),
            "SYMLINK" => Target::Links(self.template()?),
            "TAG" => Target::Tag(self.template()?),
            "NAME" => {
                self.not_removed()?;
                Target::Name(self.template()?)
            }
            "ENV" => {
                let key = self.attribute("a property")?;
                self.not_removed()?;
                if FIXED.contains(&key) {
                    return Err(self.broken(format!("the property {key} cannot be changed")));
                }
                if key.contains(['=', '\n', '\0']) || key.is_empty() {
                    return Err(self.broken(format!("{key:?} cannot be a property")));
                }
                Target::Env(key.into(), self.template_with_attribute()?)
            }
            "ATTR" => {
                self.not_removed()?;
                Target::Attribute(self.named()?, self.template_with_attribute()?)
            }
            "SYSCTL" => {
                self.not_removed()?;
                Target::Sysctl(self.named()?, self.template_with_attribute()?)
            }
            "RUN" => return self.run(),
            key => return Err(self.broken(format!("unknown key {key}"))),
        };
        if word.operator.is_match() {
            return Err(self.broken(format!("{} can only be set", word.key)));
        }
        Ok(Part::Assign(target))
    }

    fn option(&mut self) -> Parsed<Part> {
        self.plain()?;
        self.not_removed()?;
        if self.word.operator.is_match() {
            return Err(self.broken("OPTIONS can only be set".to_owned()));
        }
        let (name, value) = match self.word.value.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (self.word.value.as_str(), None),
        };
        let target = match (name, value) {
            ("string_escape", Some("none")) => Target::Escape(Escape::None),
            ("string_escape", Some("replace")) => Target::Escape(Escape::Replace),
            ("link_priority", Some(number)) => {
                let number = number.parse();
                let wrong = |_| self.broken("link_priority must be an integer".to_owned());
                Target::Priority(number.map_err(wrong)?)
            }
            ("static_node", Some(node)) if crate::event::is_plain_path(node) => {
                Target::StaticNode(node.into())
            }
            ("watch", None) => Target::Watch(true),
            ("nowatch", None) => Target::Watch(false),
            // No effect: records live as long as their devices, and the daemon has one log level.
            ("db_persist" | "dump" | "dump-json", None) | ("log_level", Some(_)) => {
                return Ok(Part::Nothing);
            }
            _ => return Err(self.broken(format!("unknown option {}", self.word.value))),
        };
        Ok(Part::Assign(target))
    }

    fn run(&mut self) -> Parsed<Part> {
        self.not_removed()?;
        if self.word.operator.is_match() {
            return Err(self.broken("RUN can only be set".to_owned()));
        }
        match self.word.attribute.as_deref() {
            None | Some("program") => {
                if !self.word.value.is_empty() {
                    self.program("RUN has no effect");
                }
                Ok(Part::Assign(Target::Modules(None)))
            }
            Some("builtin") => {
                let builtin = self.builtin("RUN has no effect")?;
                Ok(Part::Assign(Target::Modules(Some(builtin))))
            }
            Some(other) => {
                Err(self.broken(format!("RUN{{{other}}} is neither program nor builtin")))
            }
        }
    }

    fn import(&mut self) -> Parsed<Part> {
        self.not_removed()?;
        let value = self.word.value.as_str();
        let from = self.attribute("program, builtin, file, db, cmdline or parent")?;
        Ok(Part::Source(match from {
            "program" => {
                if Builtin::replaces(value) {
                    SourceKind::Builtin(self.builtin("IMPORT never matches")?)
                } else {
                    self.program("IMPORT never matches");
                    SourceKind::Program
                }
            }
            "builtin" => SourceKind::Builtin(self.builtin("IMPORT never matches")?),
            "file" => SourceKind::Properties(self.template_with_attribute()?),
            "db" => SourceKind::Database(value.into()),
            "cmdline" => SourceKind::CommandLine(value.into()),
            "parent" => SourceKind::Parent(self.pattern()),
            other => return Err(self.broken(format!("IMPORT cannot read from {other}"))),
        }))
    }

    fn file(&mut self) -> Parsed<Part> {
        self.must_match()?;
        let mode = match self.word.attribute.as_deref() {
            None => None,
            Some(bits) => {
                let wrong = || self.broken(format!("TEST{{{bits}}} is not an octal mode"));
                Some(owner::mode(bits).ok_or_else(wrong)?)
            }
        };
        let path = self.template_with_attribute()?;
        Ok(Part::Source(SourceKind::File { path, mode }))
    }

    fn test(&self, subject: Subject) -> Parsed<Part> {
        self.plain()?;
        self.compare(subject).map(Part::Test)
    }

    fn parent(&self, subject: Subject) -> Parsed<Part> {
        self.plain()?;
        self.compare(subject).map(Part::Parent)
    }

    fn compare(&self, subject: Subject) -> Parsed<Test> {
        self.must_match()?;
        Ok(Test {
            subject,
            negated: self.word.operator == Operator::NoMatch,
            pattern: self.pattern(),
        })
    }

    fn pattern(&self) -> Pattern {
        Pattern::new(&self.word.value, self.word.fold)
    }

    fn id(&mut self, known: fn(&str) -> Option<u32>, what: &str) -> Parsed<Id> {
        self.not_removed()?;
        let template = self.template()?;
        match template.plain().map(|name| (known(name), name)) {
            None => Ok(Id::Open(template)),
            Some((Some(id), _)) => Ok(Id::Known(id)),
            Some((None, name)) => {
                let text = format!(
                    "{} has no effect: there is no {what} {name:?}",
                    self.word.key
                );
                self.not_supported(&text);
                Ok(Id::Open(template))
            }
        }
    }

    fn builtin(&mut self, otherwise: &str) -> Parsed<Builtin> {
        let builtin = Builtin::new(&self.word.value).map_err(|text| self.broken(text))?;
        if matches!(builtin, Builtin::Unsupported) {
            let name = self
                .word
                .value
                .split_whitespace()
                .next()
                .unwrap_or_default();
            self.not_supported(&format!("{otherwise}: this node has no builtin {name}"));
        }
        Ok(builtin)
    }

    fn program(&mut self, effect: &str) {
        let program = self
            .word
            .value
            .split_whitespace()
            .next()
            .unwrap_or_default();
        self.not_supported(&format!(
            "{effect}: this node does not run programs ({program})"
        ));
    }

    /// The value of a key without an attribute.
    fn template(&self) -> Parsed<Template> {
        self.plain()?;
        self.template_with_attribute()
    }

    fn template_with_attribute(&self) -> Parsed<Template> {
        Template::new(&self.word.value).map_err(|text| self.broken(text))
    }

    fn attribute(&self, what: &str) -> Parsed<&str> {
        let attribute = self.word.attribute.as_deref().filter(|a| !a.is_empty());
        attribute.ok_or_else(|| self.broken(format!("{}{{}} needs {what}", self.word.key)))
    }

    /// The attribute, as a template.
    fn named(&self) -> Parsed<Template> {
        let name = self.attribute("a file below the device's directory")?;
        Template::new(name).map_err(|text| self.broken(text))
    }

    fn plain(&self) -> Parsed<()> {
        match &self.word.attribute {
            None => Ok(()),
            Some(_) => Err(self.broken(format!("{} takes no attribute in braces", self.word.key))),
        }
    }

    fn must_match(&self) -> Parsed<()> {
        match self.word.operator.is_match() {
            true => Ok(()),
            false => Err(self.broken(format!(
                "{} can only be compared (== or !=), not set with {}",
                self.word.key,
                self.word.operator.text()
            ))),
        }
    }

    fn not_removed(&self) -> Parsed<()> {
        match self.word.operator {
            Operator::Remove => Err(self.broken(format!("{} is not a list", self.word.key))),
            _ => Ok(()),
        }
    }

    fn not_supported(&mut self, text: &str) {
        self.unsupported.push(Problem {
            at: self.word.at.clone(),
            severity: Severity::Unsupported,
            text: text.to_owned(),
        });
    }

    fn broken(&self, text: String) -> Problem {
        Problem {
            at: self.word.at.clone(),
            severity: Severity::Broken,
            text,
        }
    }
}
