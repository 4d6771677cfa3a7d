//! Reads the config fragments: one concern a file, a reason above each group of options.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Remedy as _, Result};

/// The place of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The fragment's file name.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The requested value of an option, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// As in a `.config`: `y`, `m`, `n`, a number, or a text in quotes.
    pub value: String,
    /// The place of the request.
    pub place: Place,
}

/// Every requested option for one architecture, by name (with `CONFIG_`).
///
/// A fragment with the name of an architecture applies to that architecture only, the others to all. Comments do not
/// change the key of the kernel. The form:
///
/// ```text
/// # Why this group is there.
/// CONFIG_NAME=y
/// CONFIG_OTHER="text"
/// CONFIG_NEVER=n
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested(BTreeMap<String, Request>);

impl Requested {
    /// Reads the fragments in `dir` that apply to `arch`.
    pub fn read(dir: &Path, arch: Arch) -> Result<Self> {
        let others: Vec<String> = Arch::ALL
            .into_iter()
            .filter(|other| *other != arch)
            .map(|other| format!("{other}.config"))
            .collect();
        let mut requested = Self::default();
        for entry in walkdir::WalkDir::new(dir).max_depth(1).sort_by_file_name() {
            let entry = entry.or_fail(
                format!("listing the kernel config fragments in {}", dir.display()),
                "run mkimage in a complete clone of the repository",
            )?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.ends_with(".config") || others.contains(&name) {
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).or_fail(
                format!("reading {}", entry.path().display()),
                "make it readable",
            )?;
            requested.merge(&name, &text)?;
        }
        if requested.0.is_empty() {
            return Err(Failure::new(
                format!("{} holds no kernel config fragment", dir.display()),
                "run mkimage in a complete clone of the repository",
            ));
        }
        Ok(requested)
    }

    /// Adds the fragment `text` under the name `file`.
    pub fn merge(&mut self, file: &str, text: &str) -> Result<()> {
        let mut reason = false;
        for (index, line) in text.lines().enumerate() {
            let place = Place {
                file: file.to_owned(),
                line: index + 1,
            };
            if line.is_empty() {
                reason = false;
                continue;
            }
            if line.starts_with('#') {
                reason = true;
                continue;
            }
            let (name, value) = parse(line).ok_or_else(|| {
                Failure::new(
                    format!("{place}: {line:?} is neither an option nor a comment"),
                    "write CONFIG_NAME=value, with n for an option that must be off",
                )
            })?;
            if !reason {
                return Err(Failure::new(
                    format!("{place}: {name} is in a group without a reason"),
                    "put a comment with the reason above the group",
                ));
            }
            if let Some(before) = self.0.get(name) {
                return Err(Failure::new(
                    format!(
                        "{place}: {name}={value}, but {} has {name}={}",
                        before.place, before.value
                    ),
                    "keep the option in one fragment only",
                ));
            }
            self.0.insert(
                name.to_owned(),
                Request {
                    value: value.to_owned(),
                    place,
                },
            );
        }
        Ok(())
    }

    /// Every option with its request, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Request)> {
        self.0
            .iter()
            .map(|(name, request)| (name.as_str(), request))
    }

    /// The input of `make allnoconfig` (`KCONFIG_ALLCONFIG`).
    pub fn to_allconfig(&self) -> String {
        self.iter()
            .map(|(name, request)| match request.value.as_str() {
                "n" => format!("# {name} is not set\n"),
                value => format!("{name}={value}\n"),
            })
            .collect()
    }
}

/// Splits `CONFIG_NAME=value`.
fn parse(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let symbol = name.strip_prefix("CONFIG_")?;
    let named = !symbol.is_empty()
        && symbol
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let quoted = value.len() >= 2 && value.starts_with('"') && value.ends_with('"');
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (named && (quoted || plain)).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(files: &[(&str, &str)]) -> Result<Requested> {
        let mut requested = Requested::default();
        for (file, text) in files {
            requested.merge(file, text)?;
        }
        Ok(requested)
    }

    #[test]
    fn options_come_out_sorted_in_the_form_allnoconfig_reads() {
        let requested = merge(&[
            ("a", "# why\nCONFIG_Z=m\nCONFIG_B=n\n"),
            ("b", "# why\nCONFIG_T=\"x y\"\n"),
        ])
        .unwrap();
        assert_eq!(
            requested.to_allconfig(),
            "# CONFIG_B is not set\nCONFIG_T=\"x y\"\nCONFIG_Z=m\n"
        );
    }

    #[test]
    fn comments_are_no_part_of_the_options() {
        let one = merge(&[("a", "# why\nCONFIG_Z=m\n")]).unwrap();
        let other = merge(&[("a", "# Another reason,\n# in two lines.\nCONFIG_Z=m\n")]).unwrap();
        assert_eq!(one.to_allconfig(), other.to_allconfig());
    }

    #[test]
    fn error_for_a_repeated_option_names_both_places() {
        let error = merge(&[
            ("a", "# w\nCONFIG_X=y\n"),
            ("b", "# w\n\n# w\nCONFIG_X=m\n"),
        ]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "b:4: CONFIG_X=m, but a:2 has CONFIG_X=y"
        );
    }

    #[test]
    fn a_group_without_a_reason_is_refused() {
        let error = merge(&[("a", "# why\nCONFIG_X=y\n\nCONFIG_Y=y\n")]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("a:4: CONFIG_Y is in a group without a reason"),
            "{error}"
        );
    }

    #[test]
    fn malformed_options_are_refused() {
        for line in [
            "CONFIG_=y",
            "X=y",
            "CONFIG_X=",
            "CONFIG_X=y # note",
            "CONFIG_X=\"a",
            "junk",
        ] {
            merge(&[("a", &format!("# why\n{line}\n"))]).unwrap_err();
        }
    }

    #[test]
    fn fragments_of_another_architecture_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for (file, option) in [("a", "A"), ("x86_64", "X"), ("arm64", "M")] {
            let text = format!("# why\nCONFIG_{option}=y\n");
            std::fs::write(dir.path().join(format!("{file}.config")), text).unwrap();
        }
        let names = |arch| {
            let requested = Requested::read(dir.path(), arch).unwrap();
            requested
                .iter()
                .map(|(name, _)| name.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Arch::X86_64), ["CONFIG_A", "CONFIG_X"]);
        assert_eq!(names(Arch::Arm64), ["CONFIG_A", "CONFIG_M"]);
    }
}
