use std::fs;

use super::*;

/// A copyright file in which every kind of paragraph occurs.
const COPYRIGHT: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
    Upstream-Name: tool\n\
    \n\
    Files: *\n\
    Copyright: 2001 A\n\
    License: GPL-2+\n\
    \n\
    Files: lib/a.c\n \
    lib/b.c\n\
    Copyright: 2002 B\n\
    License: BSD-3-clause or LGPL-2.1\n \
    The text of the licence.\n \
    .\n \
    License: no field\n\
    \n\
    Files: lib/c.c\n\
    License: ISC and GPL-2+\n\
    \n\
    Files: debian/*\n\
    License: GPL-3\n\
    \n\
    License: GPL-2+\n \
    See \"/usr/share/common-licenses/GPL-2\".\n\
    \n\
    License: LGPL-2.1\n \
    See /usr/share/common-licenses/LGPL-2.1.\n";

/// A package with one entry below `usr/share/doc`: a file, or a link if it has a target.
fn package(directory: &Path, name: &str, path: &str, content: &str, target: Option<&str>) {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    let path = format!("./usr/share/doc/{path}");
    match target {
        None => {
            header.set_size(u64::try_from(content.len()).unwrap());
            tar.append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        Some(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, path, target).unwrap();
        }
    }
    let data = tar.into_inner().unwrap();
    let mut ar = ar::Builder::new(fs::File::create(directory.join(name)).unwrap());
    let length = u64::try_from(data.len()).unwrap();
    ar.append(&ar::Header::new(b"data.tar".to_vec(), length), &data[..])
        .unwrap();
}

fn read(directory: &Path, name: &str) -> Result<Notice> {
    notice(name, &|name| Ok(directory.join(name)))
}

#[test]
fn package_declares_the_licences_of_its_files_without_those_of_the_packaging() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path(), "tool", "tool/copyright", COPYRIGHT, None);
    let found = read(dir.path(), "tool").unwrap();
    let wanted = "(BSD-3-Clause OR LGPL-2.1-only) AND GPL-2.0-or-later AND ISC";
    assert_eq!(found.licence.as_deref(), Some(wanted));
    let [own, gpl, lgpl] = found.texts.as_slice() else {
        panic!("{} texts", found.texts.len());
    };
    assert_eq!(own, COPYRIGHT);
    assert!(gpl.contains("Version 2, June 1991"), "{gpl}");
    assert!(lgpl.contains("Version 2.1, February 1999"), "{lgpl}");
}

#[test]
fn prose_declares_nothing_and_is_carried() {
    let dir = tempfile::tempdir().unwrap();
    let prose = "This package was made by hand.\n\nLicense: yes, see below.\n";
    package(dir.path(), "old", "old/copyright", prose, None);
    let found = read(dir.path(), "old").unwrap();
    assert_eq!((found.licence, found.texts), (None, vec![prose.to_owned()]));
}

#[test]
fn copyright_file_of_another_package_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let text = "Files: *\nLicense: Expat\n";
    package(dir.path(), "base", "base/copyright", text, None);
    package(dir.path(), "lib", "lib", "", Some("base"));
    let licence = read(dir.path(), "lib").unwrap().licence;
    assert_eq!(licence.as_deref(), Some("MIT"));
    package(
        dir.path(),
        "lib",
        "lib/copyright",
        "",
        Some("../base/copyright"),
    );
    assert_eq!(read(dir.path(), "lib").unwrap().texts, [text]);
    package(dir.path(), "base", "base", "", Some("further"));
    let error = read(dir.path(), "lib").unwrap_err().to_string();
    assert!(
        error.contains("copyright file of the Debian package lib"),
        "{error}"
    );
}

#[test]
fn package_without_a_copyright_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    package(dir.path(), "bare", "bare/README", "Hello.", None);
    let error = read(dir.path(), "bare").unwrap_err().to_string();
    assert!(
        error.contains("bare has no file /usr/share/doc/bare/copyright"),
        "{error}"
    );
}

#[test]
fn unknown_common_licence_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = "See /usr/share/common-licenses/Secret-1.\n";
    package(dir.path(), "odd", "odd/copyright", text, None);
    let error = read(dir.path(), "odd").unwrap_err().to_string();
    assert!(error.contains("common licence Secret-1"), "{error}");
}
