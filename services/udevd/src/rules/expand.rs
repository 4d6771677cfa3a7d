//! Expands `$kernel`, `%k` and the other substitutions of a value.

use super::evaluation::Evaluation;
use super::template::{Piece, Template};
use crate::encode::{safe, underscored};
use crate::event::is_plain_path;
use std::borrow::Cow;
use std::path::PathBuf;

/// Safe characters of device text, in addition to those of every name.
const INPUT: &str = "/ $%?,";

impl Evaluation<'_> {
    /// Expands a value. With `in_names`, white space in substituted text becomes `_`, because it would separate names.
    pub fn expand<'b>(&'b self, template: &'b Template, in_names: bool) -> Cow<'b, str> {
        template.expand(|piece| match (self.piece(piece), in_names) {
            (value, true) => underscored(&value).into(),
            (value, false) => value,
        })
    }

    /// Path of a kernel parameter, which may be written with `.` or `/`.
    pub fn sysctl_path(&self, name: &Template) -> Option<PathBuf> {
        let name = self.expand(name, false);
        let separator = name.find(['.', '/']).and_then(|at| name.as_bytes().get(at));
        let name = match separator {
            Some(b'.') => name
                .chars()
                .map(|c| match c {
                    '.' => '/',
                    '/' => '.',
                    c => c,
                })
                .collect(),
            _ => name.into_owned(),
        };
        let plain = is_plain_path(&name);
        plain.then(|| self.world.proc.join("sys").join(name))
    }

    fn piece<'b>(&'b self, piece: &'b Piece) -> Cow<'b, str> {
        let event = self.event;
        let node = || event.node();
        let selected = || self.selected.and_then(|index| self.chain().get(index));
        match piece {
            Piece::Text(text) => (&**text).into(),
            Piece::Kernel => kernel_name(event.sysname()),
            Piece::Number => {
                let name = event.sysname();
                let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
                name.get(start..).unwrap_or_default().into()
            }
            Piece::Devpath => (&*event.devpath).into(),
            Piece::Id => selected()
                .map(|d| kernel_name(d.sysname()))
                .unwrap_or_default(),
            Piece::Driver => selected()
                .and_then(|d| self.world.sysfs.link(&d.devpath, "driver"))
                .unwrap_or_default()
                .into(),
            Piece::Attribute(name) => {
                let own = self.attribute(0, name);
                let value = own.or_else(|| self.attribute(self.selected?, name));
                safe(value.unwrap_or_default().trim_end(), INPUT).into()
            }
            Piece::Env(key) => self.env(key).unwrap_or_default(),
            Piece::Major => node().map_or(0, |n| n.major).to_string().into(),
            Piece::Minor => node().map_or(0, |n| n.minor).to_string().into(),
            Piece::Result => Cow::Borrowed(""),
            Piece::Parent => {
                let parent = self.chain().get(1);
                let event = parent.and_then(|p| self.world.sysfs.event(&p.devpath).ok());
                let name = event.and_then(|e| e.node().map(|node| node.name.to_owned()));
                name.unwrap_or_default().into()
            }
            Piece::Name => match (&self.plan.name, node()) {
                (Some(name), _) => name.into(),
                (None, Some(node)) => node.name.into(),
                (None, None) => kernel_name(event.sysname()),
            },
            Piece::Links => {
                let links: Vec<&str> = self.plan.links.iter().map(String::as_str).collect();
                links.join(" ").into()
            }
            Piece::Root => "/dev".into(),
            Piece::Sys => "/sys".into(),
            Piece::Devnode => {
                node().map_or_else(Cow::default, |n| format!("/dev/{}", n.name).into())
            }
        }
    }
}

/// Replaces `!`, which the kernel writes for a `/` in a device's name.
pub(super) fn kernel_name(sysname: &str) -> Cow<'_, str> {
    match sysname.contains('!') {
        true => sysname.replace('!', "/").into(),
        false => sysname.into(),
    }
}
