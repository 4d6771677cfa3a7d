//! Rules as values. No I/O.
//!
//! The parts of a line apply in a fixed order whatever order they are written
//! in: what is known of the device, of its parents, what is fetched (by kind),
//! then assignments (by kind). It is the order of udev(7)'s own reader, on which
//! rule files rely.

use super::Position;
use super::builtin::Builtin;
use super::constant::Constant;
use super::lexer::Operator;
use super::owner;
use super::pattern::Pattern;
use super::template::Template;
use crate::plan::Permission;

/// One line.
#[derive(Debug, Default)]
pub struct Rule {
    /// What must hold for the device.
    pub tests: Vec<Test>,
    /// What must hold for the device or one above it: all for the same one.
    pub parents: Vec<Test>,
    /// What must be there, and is fetched.
    pub sources: Vec<Source>,
    /// What is done then.
    pub assigns: Vec<Assign>,
    /// The rule that is next then.
    pub next: Option<usize>,
}

/// A comparison.
#[derive(Debug)]
pub struct Test {
    /// What is compared.
    pub subject: Subject,
    /// `!=`
    pub negated: bool,
    /// With what.
    pub pattern: Pattern,
}

/// What can be compared.
#[derive(Debug)]
pub enum Subject {
    /// `ACTION`
    Action,
    /// `DEVPATH`
    Devpath,
    /// `KERNEL`, `KERNELS`
    Kernel,
    /// `SYMLINK`
    Link,
    /// `NAME`
    Name,
    /// `ENV{key}`
    Env(Box<str>),
    /// `CONST{key}`
    Const(Constant),
    /// `TAG`, `TAGS`
    Tag,
    /// `SUBSYSTEM`, `SUBSYSTEMS`
    Subsystem,
    /// `DRIVER`, `DRIVERS`
    Driver,
    /// `ATTR{file}`, `ATTRS{file}`
    Attribute(Template),
    /// `SYSCTL{key}`
    Sysctl(Template),
}

/// Something fetched, which also is a condition.
#[derive(Debug)]
pub struct Source {
    /// `!=`
    pub negated: bool,
    /// From where.
    pub kind: SourceKind,
}

/// Where something is fetched, in the order it is.
#[derive(Debug)]
pub enum SourceKind {
    /// `TEST{mode}`: a file is there, with one of these permission bits.
    File {
        /// Absolute, or below the device's directory.
        path: Template,
        /// Any if `None`.
        mode: Option<u32>,
    },
    /// `PROGRAM`, `IMPORT{program}`: there are none on the node.
    Program,
    /// `IMPORT{file}`
    Properties(Template),
    /// `IMPORT{builtin}`
    Builtin(Builtin),
    /// `IMPORT{db}`: what was known before this event.
    Database(Box<str>),
    /// `IMPORT{cmdline}`
    CommandLine(Box<str>),
    /// `IMPORT{parent}`: properties whose keys fit.
    Parent(Pattern),
    /// `RESULT`: of the last program, so of none.
    Result(Pattern),
}

impl SourceKind {
    /// Lower ones come first.
    pub fn rank(&self) -> u8 {
        match self {
            Self::File { .. } => 0,
            Self::Program => 1,
            Self::Properties(_) => 2,
            Self::Builtin(_) => 3,
            Self::Database(_) => 4,
            Self::CommandLine(_) => 5,
            Self::Parent(_) => 6,
            Self::Result(_) => 7,
        }
    }
}

/// An assignment.
#[derive(Debug)]
pub struct Assign {
    /// Where it is.
    pub at: Position,
    /// How.
    pub operator: Operator,
    /// Of what.
    pub target: Target,
}

/// What is assigned, in the order it is.
#[derive(Debug)]
pub enum Target {
    /// `OPTIONS+="string_escape=none|replace"`
    Escape(Escape),
    /// `OPTIONS+="watch"`, `"nowatch"`
    Watch(bool),
    /// `OPTIONS+="link_priority=N"`
    Priority(i32),
    /// `OWNER`
    Owner(Id),
    /// `GROUP`
    Group(Id),
    /// `MODE`
    Mode(Id),
    /// `TAG`
    Tag(Template),
    /// `OPTIONS+="static_node=PATH"`
    StaticNode(Box<str>),
    /// `ENV{key}`
    Env(Box<str>, Template),
    /// `NAME`
    Name(Template),
    /// `SYMLINK`: several names, separated by spaces.
    Links(Template),
    /// `ATTR{file}`
    Attribute(Template, Template),
    /// `SYSCTL{key}`
    Sysctl(Template, Template),
    /// `RUN{builtin}`: these modules; nothing for what the node does not run.
    Modules(Option<Builtin>),
}

impl Target {
    /// Lower ones come first.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Escape(_) => 0,
            Self::Watch(_) => 1,
            Self::Priority(_) => 2,
            Self::Owner(_) => 3,
            Self::Group(_) => 4,
            Self::Mode(_) => 5,
            Self::Tag(_) => 6,
            Self::StaticNode(_) => 7,
            Self::Env(..) => 8,
            Self::Name(_) => 9,
            Self::Links(_) => 10,
            Self::Attribute(..) => 11,
            Self::Sysctl(..) => 12,
            Self::Modules(_) => 13,
        }
    }
}

/// What becomes of characters that are unsafe in names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escape {
    /// As is usual for the key.
    #[default]
    Usual,
    /// They stay.
    None,
    /// They become `_`.
    Replace,
}

/// An owner, group or mode.
#[derive(Debug)]
pub enum Id {
    /// Known.
    Known(u32),
    /// To be filled in.
    Open(Template),
}

/// What a node shall be whose module is not loaded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticNode {
    /// Below `/dev`.
    pub name: String,
    /// Its owner and mode.
    pub permission: Permission,
}

impl Rule {
    /// The nodes its line names; conditions do not count for them.
    pub fn static_nodes(&self) -> Vec<StaticNode> {
        let (mut uid, mut gid, mut mode) = (None, None, None);
        for assign in &self.assigns {
            match &assign.target {
                Target::Owner(Id::Known(id)) => uid = Some(*id),
                Target::Group(Id::Known(id)) => gid = Some(*id),
                Target::Mode(Id::Known(bits)) => mode = Some(*bits),
                _ => {}
            }
        }
        if (uid, gid, mode) == (None, None, None) {
            return Vec::new();
        }
        let permission = owner::permission(None, mode, uid, gid);
        let node = |assign: &Assign| match &assign.target {
            Target::StaticNode(name) => Some(StaticNode {
                name: name.to_string(),
                permission,
            }),
            _ => None,
        };
        self.assigns.iter().filter_map(node).collect()
    }
}
