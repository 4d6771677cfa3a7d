//! Rules as values. No I/O.
//!
//! The parts of a line apply in the order of udev(7)'s implementation, on which rule files rely. The order is:
//! conditions on the device, conditions on its parents, sources (by kind), assignments (by kind).

use super::Position;
use super::builtin::Builtin;
use super::constant::Constant;
use super::lexer::Operator;
use super::owner;
use super::pattern::Pattern;
use super::template::Template;
use crate::plan::Permission;

/// One rule line.
#[derive(Debug, Default)]
pub struct Rule {
    /// Conditions on the device.
    pub tests: Vec<Test>,
    /// Conditions on the device or one ancestor; one device must meet all of them.
    pub parents: Vec<Test>,
    /// Conditions that also import data.
    pub sources: Vec<Source>,
    /// Assignments, made if all conditions hold.
    pub assigns: Vec<Assign>,
    /// Index of the next rule if all conditions hold (`GOTO`).
    pub next: Option<usize>,
}

/// A comparison.
#[derive(Debug)]
pub struct Test {
    /// The left side of the comparison.
    pub subject: Subject,
    /// Whether the operator is `!=`.
    pub negated: bool,
    /// The right side of the comparison.
    pub pattern: Pattern,
}

/// The left side of a comparison.
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

/// A condition that also imports data.
#[derive(Debug)]
pub struct Source {
    /// Whether the operator is `!=`.
    pub negated: bool,
    /// Where the data come from.
    pub kind: SourceKind,
}

/// Kinds of sources, in order of evaluation.
#[derive(Debug)]
pub enum SourceKind {
    /// `TEST{mode}`: a file exists, with at least one of these permission bits.
    File {
        /// Absolute, or relative to the device's directory.
        path: Template,
        /// Permission bits; any mode if `None`.
        mode: Option<u32>,
    },
    /// `PROGRAM`, `IMPORT{program}`: never holds, because the node runs no programs.
    Program,
    /// `IMPORT{file}`
    Properties(Template),
    /// `IMPORT{builtin}`
    Builtin(Builtin),
    /// `IMPORT{db}`: a property of the stored record.
    Database(Box<str>),
    /// `IMPORT{cmdline}`
    CommandLine(Box<str>),
    /// `IMPORT{parent}`: the parent's properties whose keys match.
    Parent(Pattern),
    /// `RESULT`: the output of the last program, always empty.
    Result(Pattern),
}

impl SourceKind {
    /// Rank of evaluation; the lowest comes first.
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
    /// Position in the rule file.
    pub at: Position,
    /// The operator.
    pub operator: Operator,
    /// Target and value.
    pub target: Target,
}

/// Kinds of assignments, in order of execution.
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
    /// `SYMLINK`: names separated by spaces.
    Links(Template),
    /// `ATTR{file}`
    Attribute(Template, Template),
    /// `SYSCTL{key}`
    Sysctl(Template, Template),
    /// `RUN{builtin}`: modules to load; `None` for a program or an unsupported builtin.
    Modules(Option<Builtin>),
}

impl Target {
    /// Rank of execution; the lowest comes first.
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

/// Treatment of unsafe characters in names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escape {
    /// The default of the key.
    #[default]
    Usual,
    /// Unsafe characters stay.
    None,
    /// Unsafe characters become `_`.
    Replace,
}

/// An owner, group or mode.
#[derive(Debug)]
pub enum Id {
    /// A constant value.
    Known(u32),
    /// A value with substitutions.
    Open(Template),
}

/// Permissions of a node whose module is not loaded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticNode {
    /// Path below `/dev`.
    pub name: String,
    /// Owner and mode.
    pub permission: Permission,
}

impl Rule {
    /// The static nodes of this line. The line's conditions do not apply to them.
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
