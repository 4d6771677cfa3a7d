//! Debian's short names of licences as SPDX expressions.

use spdx::{exception_id, identifiers, license_id};

/// Short names for which SPDX has another name.
const OTHERS: [(&str, &str); 2] = [("Apache-2", "Apache-2.0"), ("Expat", "MIT")];
/// Files of common licences whose names leave out the version: the text is that of the newest.
const NEWEST: [(&str, &str); 4] = [
    ("Artistic", "Artistic-1.0-Perl"),
    ("GFDL", "GFDL-1.3-only"),
    ("GPL", "GPL-3.0-only"),
    ("LGPL", "LGPL-3.0-only"),
];
/// Families whose names end in a version, with `+` for later ones.
const GNU: [&str; 4] = ["AGPL-", "GFDL-", "GPL-", "LGPL-"];

/// The expression of a `License` field of `package`. A name that SPDX does not list becomes a reference to the text of
/// the package.
pub fn expression(package: &str, field: &str) -> String {
    // A comma changes the order of operators; such a field stays one reference.
    if field.contains(',') {
        return reference(package, field);
    }
    let spaced = field.replace('(', " ( ").replace(')', " ) ");
    let mut parts: Vec<String> = Vec::new();
    let mut name: Vec<&str> = Vec::new();
    let close = |name: &mut Vec<&str>, parts: &mut Vec<String>| {
        if !name.is_empty() {
            parts.push(term(package, &name.join(" ")));
            name.clear();
        }
    };
    for word in spaced.split_whitespace() {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "and" | "or" | "(" | ")" => {
                close(&mut name, &mut parts);
                parts.push(lower.to_ascii_uppercase());
            }
            _ => name.push(word),
        }
    }
    close(&mut name, &mut parts);
    parts.join(" ").replace("( ", "(").replace(" )", ")")
}

/// One licence, maybe with an exception.
fn term(package: &str, name: &str) -> String {
    let known = match name.split_once(" with ") {
        None => identifier(name).map(str::to_owned),
        Some((base, addition)) => {
            let addition = addition.trim_end_matches(" exception");
            let ids = [addition.to_owned(), format!("{addition}-exception")];
            let id = ids.iter().find_map(|id| exception_id(id));
            let both = identifier(base).zip(id);
            both.map(|(base, id)| format!("{base} WITH {}", id.name))
        }
    };
    known.unwrap_or_else(|| reference(package, name))
}

/// SPDX's identifier of a licence with Debian's name, if both name the same.
fn identifier(name: &str) -> Option<&'static str> {
    if GNU.iter().any(|family| name.starts_with(family)) {
        let (base, extent) = match name.strip_suffix('+') {
            Some(base) => (base, "or-later"),
            None => (name, "only"),
        };
        let zero = if base.contains('.') { "" } else { ".0" };
        let id = license_id(&format!("{base}{zero}-{extent}"))?;
        return Some(id.name);
    }
    // An expression must not have a name that SPDX has given up.
    let current = |name: &str| license_id(name).is_some_and(|id| !id.is_deprecated());
    let plain = identifiers::LICENSES.iter().map(|one| one.name);
    let mut same = plain.filter(|id| id.eq_ignore_ascii_case(name) && current(id));
    same.next().or_else(|| other(&OTHERS, name))
}

/// SPDX's identifier of a file in `/usr/share/common-licenses`.
pub fn common(file: &str) -> Option<&'static str> {
    other(&NEWEST, file).or_else(|| identifier(file))
}

fn other(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let found = names.iter().find(|(debian, _)| *debian == name);
    found.map(|(_, id)| *id)
}

/// The identifier of a licence that SPDX does not list.
fn reference(package: &str, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let name = name.replace('+', "-or-later");
    let words: Vec<&str> = name
        .split(|c| !plain(c))
        .filter(|w| !w.is_empty())
        .collect();
    format!("LicenseRef-{package}-{}", words.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_agree_become_identifiers() {
        for (field, wanted) in [
            ("Expat", "MIT"),
            ("BSD-3-clause", "BSD-3-Clause"),
            ("GPL-2", "GPL-2.0-only"),
            ("GPL-2+", "GPL-2.0-or-later"),
            ("GPL-2.0+", "GPL-2.0-or-later"),
            ("LGPL-2.1+", "LGPL-2.1-or-later"),
            ("Apache-2", "Apache-2.0"),
            ("CC0-1.0", "CC0-1.0"),
            (
                "GPL-2 with Linux-syscall-note exception",
                "GPL-2.0-only WITH Linux-syscall-note",
            ),
            (
                "Apache-2.0 with LLVM exception",
                "Apache-2.0 WITH LLVM-exception",
            ),
            ("BSD-3-clause or GPL-2+", "BSD-3-Clause OR GPL-2.0-or-later"),
            (
                "(MIT OR Apache-2.0)  and ISC",
                "(MIT OR Apache-2.0) AND ISC",
            ),
        ] {
            let found = expression("p", field);
            assert_eq!(found, wanted, "{field}");
            spdx::Expression::parse(&found).unwrap();
        }
    }

    #[test]
    fn other_names_become_references_to_the_package() {
        for (field, wanted) in [
            ("public-domain", "LicenseRef-p-public-domain"),
            ("GPL", "LicenseRef-p-GPL"),
            ("MIT/X11", "LicenseRef-p-MIT-X11"),
            ("BSD-2-clause-NetBSD", "LicenseRef-p-BSD-2-clause-NetBSD"),
            (
                "BSD-3-clause-Regents and ISC",
                "LicenseRef-p-BSD-3-clause-Regents AND ISC",
            ),
            (
                "GPL-2+ with Autoconf-2.0~Archive exception",
                "LicenseRef-p-GPL-2-or-later-with-Autoconf-2.0-Archive-exception",
            ),
            ("A, and B", "LicenseRef-p-A-and-B"),
        ] {
            let found = expression("p", field);
            assert_eq!(found, wanted, "{field}");
            spdx::Expression::parse(&found).unwrap();
        }
    }

    #[test]
    fn common_licences_of_debian_have_a_text() {
        for file in [
            "Apache-2.0",
            "Artistic",
            "CC0-1.0",
            "GFDL-1.3",
            "GPL",
            "GPL-1",
            "GPL-2",
            "GPL-3",
            "LGPL",
            "LGPL-2",
            "LGPL-2.1",
            "LGPL-3",
            "MPL-1.1",
            "MPL-2.0",
        ] {
            let id = common(file).and_then(license_id);
            assert!(id.is_some_and(|id| id.text().len() > 1000), "{file}");
        }
        assert_eq!(common("None"), None);
    }
}
