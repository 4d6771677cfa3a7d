use corten_steps::cache::Cache;
use corten_steps::lock::PACKAGES;

use super::*;

fn repo() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A component with its sources in a directory.
fn part(name: &str, directory: &Path, licence: Option<&str>, authors: &[&str]) -> Part {
    let authors = authors.iter().map(|one| (*one).to_owned()).collect();
    Part {
        component: Component {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            supplier: "NOASSERTION".to_owned(),
            licence: licence.map(str::to_owned),
            purl: format!("pkg:cargo/{name}@1.0"),
            sha256: None,
        },
        licence: Licence::Directory(directory.to_owned(), authors),
    }
}

fn read(parts: &[Part]) -> Result<Notices> {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path(), Vec::new()).unwrap();
    let files = Files {
        source: &repo(),
        lock: &Lock::default(),
        arch: Arch::X86_64,
        fetcher: &Fetcher::new(cache, true, Vec::new()),
        scratch: dir.path(),
    };
    Notices::read(&files, parts)
}

#[test]
fn component_gets_its_declared_licence_or_that_of_its_texts() {
    let dir = tempfile::tempdir().unwrap();
    let text = standard("MIT").unwrap().concat();
    fs::write(dir.path().join("LICENSE"), text).unwrap();
    let parts = [
        part("crate", dir.path(), Some("MIT OR Zlib"), &[]),
        part("module", dir.path(), None, &[]),
    ];
    let notices = read(&parts).unwrap();
    let found = declared(parts.to_vec(), &notices.licences());
    let licences: Vec<_> = found.iter().map(|one| one.licence.as_deref()).collect();
    assert_eq!(licences, [Some("MIT OR Zlib"), Some("MIT")]);
    let text = notices.document("Licences", &parts);
    assert!(
        text.contains("=\ncrate 1.0\nmodule 1.0\n\nMIT License"),
        "{text}"
    );
    assert!(text.contains("=\nCorten\n\n"), "{text}");
    let one = notices.document("Licences", &parts[..1]);
    assert!(!one.contains("module 1.0"), "{one}");
}

#[test]
fn component_without_a_text_gets_that_of_spdx_with_its_authors() {
    let dir = tempfile::tempdir().unwrap();
    let bare = part("bare", dir.path(), Some("MIT"), &["A", "B"]);
    let bare = [bare];
    let text = read(&bare).unwrap().document("Licences", &bare);
    assert!(
        text.contains("=\nbare 1.0, by A, B\n\nMIT License"),
        "{text}"
    );
}

#[test]
fn component_without_a_licence_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = read(&[part("odd", dir.path(), None, &[])]).unwrap_err();
    let remedy = error.downcast_ref::<Failure>().unwrap().remedy();
    assert!(
        error.to_string().contains("odd 1.0 declares no licence"),
        "{error}"
    );
    assert!(remedy.contains(exceptions::FILE), "{remedy}");
}

/// A component that is gone must not keep a licence that a person has read.
#[test]
fn every_exception_is_of_a_component_and_has_a_reason() {
    let lock = Lock::read(&repo().join(PACKAGES)).unwrap();
    for one in Exceptions::read(&repo()).unwrap().licences {
        assert!(!one.reason.is_empty(), "{}", one.expression);
        for name in one.components {
            let is_locked = lock.packages.iter().any(|package| package.name == name);
            assert!(is_locked || name == crate::components::LIBRARY, "{name}");
        }
    }
}
