//! The licence of a Debian package, from its copyright file (format: copyright-format 1.0, DEP-5).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use corten_steps::deb::{self, Kind};
use corten_steps::error::{Failure, Result};

use super::notice::{Notice, standard};
use super::short_names;

/// Where a package keeps its copyright file.
#[derive(Debug, PartialEq, Eq)]
enum Copyright {
    /// In itself, with this text.
    Here(String),
    /// In the directory of another package.
    In(String),
}

/// The notice of a package; `find` gives the file of a package by its name.
///
/// # Errors
/// A package is missing or has no copyright file.
pub fn notice(name: &str, find: &dyn Fn(&str) -> Result<PathBuf>) -> Result<Notice> {
    let found = match copyright(&find(name)?, name)? {
        Copyright::In(other) => copyright(&find(&other)?, &other)?,
        here @ Copyright::Here(_) => here,
    };
    let Copyright::Here(text) = found else {
        return Err(Failure::new(
            format!("the copyright file of the Debian package {name} leads to a link"),
            "lock the package at its end for the use \"licences\" in rootfs/packages.lock",
        ));
    };
    let mut texts = vec![text.clone()];
    for file in common(&text) {
        let id = short_names::common(file).ok_or_else(|| {
            Failure::new(
                format!(
                    "{name} refers to Debian's common licence {file}, which SPDX does not list"
                ),
                "add it to mkimage/rootfs/src/licences/short_names.rs",
            )
        })?;
        texts.extend(standard(id)?);
    }
    Ok(Notice {
        licence: licence(name, &text),
        texts,
    })
}

/// Finds the copyright file in a package.
fn copyright(file: &Path, name: &str) -> Result<Copyright> {
    let directory = format!("usr/share/doc/{name}");
    let wanted = format!("{directory}/copyright");
    let mut found = None;
    deb::for_each_entry(file, |path, kind, _, content| {
        match kind {
            Kind::Symlink(target) if path == directory => {
                found = Some(Copyright::In(target.clone()));
            }
            Kind::Symlink(target) if path == wanted => {
                let other = target.trim_start_matches("../").split('/').next();
                found = other.map(|other| Copyright::In(other.to_owned()));
            }
            Kind::File if path == wanted => {
                let mut text = Vec::new();
                content.read_to_end(&mut text)?;
                let text = String::from_utf8_lossy(&text).into_owned();
                found = Some(Copyright::Here(text));
            }
            _ => {}
        }
        Ok(())
    })?;
    found.ok_or_else(|| {
        Failure::new(
            format!("the Debian package {name} has no file /{wanted}"),
            "lock another version of it",
        )
    })
}

/// The names of the common licences that a text refers to, whose texts Debian has in a package of their own.
fn common(text: &str) -> BTreeSet<&str> {
    let references = text.split("/usr/share/common-licenses/").skip(1);
    let names = references.filter_map(|rest| {
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && !".-+".contains(c));
        Some(name.into_iter().next()?.trim_end_matches('.'))
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The licence that a copyright file declares for the files of the program, without those of the packaging; `None` if
/// it is prose.
fn licence(package: &str, text: &str) -> Option<String> {
    let mut declared = BTreeSet::new();
    for paragraph in paragraphs(text) {
        let field = |name: &str| {
            let mut fields = paragraph.iter();
            fields.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
        };
        let (Some(files), Some(licence)) = (field("Files"), field("License")) else {
            continue;
        };
        // What stands below the first line is the text.
        let name = licence.lines().next().unwrap_or_default().trim();
        let of_packaging = files
            .split_whitespace()
            .all(|file| file.starts_with("debian/"));
        if !of_packaging && !name.is_empty() {
            let found = short_names::expression(package, name);
            declared.extend(match found.contains(" OR ") {
                true => vec![found],
                false => found.split(" AND ").map(str::to_owned).collect(),
            });
        }
    }
    let whole = declared.len() == 1;
    let parts = declared
        .into_iter()
        .map(|one| match one.contains(" OR ") && !whole {
            true => format!("({one})"),
            false => one,
        });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(" AND "))
}

/// The paragraphs of a control file as fields and values.
fn paragraphs(text: &str) -> Vec<Vec<(&str, String)>> {
    let mut found: Vec<Vec<(&str, String)>> = vec![Vec::new()];
    for line in text.lines() {
        if line.trim().is_empty() {
            found.push(Vec::new());
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = found.last_mut().and_then(|fields| fields.last_mut()) {
                value.push('\n');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':')
            && let Some(fields) = found.last_mut()
        {
            fields.push((name, value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
#[path = "debian_tests.rs"]
mod tests;
