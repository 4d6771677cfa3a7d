//! The structure of the workspace: the allowed dependencies between crates, the contract in every
//! crate's header, and the place of unsafe code.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failing step is a failing test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package, TargetKind};
use tests::circles::{Module, circles, module};
use tests::edges::{OF_TESTS, allowed};
use tests::{tokens, workspace};

/// The crate with generated code, which violates our lints.
const WITHOUT_LINTS: &[&str] = &["corten-api"];
/// Limit on the lines of a crate of [`LIMITED`], tests included.
const CRATE_LINES: usize = 13_000;
/// The folders of the crates with the limit.
const LIMITED: [&str; 5] = ["cortenctl", "lib", "mkimage", "node", "services"];
/// The one place for unsafe code.
const UNSAFE_HOME: &str = "lib/sys/";

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(workspace::root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata")
}

fn members(metadata: &Metadata) -> Vec<&Package> {
    metadata.workspace_packages()
}

/// The workspace dependencies of each package, of any kind.
fn edges(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeSet<&str> = members(metadata).iter().map(|p| p.name.as_str()).collect();
    members(metadata)
        .iter()
        .map(|package| {
            let used = package
                .dependencies
                .iter()
                .filter(|dependency| names.contains(dependency.name.as_str()))
                .map(|dependency| dependency.name.clone())
                .collect();
            (package.name.to_string(), used)
        })
        .collect()
}

/// The dependencies in `found` that `table` does not allow.
fn forbidden(found: &BTreeMap<String, BTreeSet<String>>, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, used) in found {
        let Some((_, allowed)) = table.iter().find(|(row, _)| row == name) else {
            wrong.push(format!("{name} has no row in the table"));
            continue;
        };
        wrong.extend(
            used.iter()
                .filter(|other| !allowed.contains(&other.as_str()))
                .map(|other| format!("{name} may not use {other}")),
        );
    }
    wrong
}

/// The dependencies that `table` allows and no crate has. Without this check the table only grows.
fn unused(found: &BTreeMap<String, BTreeSet<String>>, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut unused = Vec::new();
    for (name, allowed) in table {
        let used = found.get(*name);
        let is_used = |other: &&&str| used.is_some_and(|used| used.contains(**other));
        let rest = allowed.iter().filter(|other| !is_used(other));
        unused.extend(rest.map(|other| format!("{name} does not use {other}")));
    }
    unused
}

#[test]
fn crate_dependencies_follow_the_allowed_edges() {
    let found = edges(&metadata());
    let allowed = allowed();
    assert_eq!(forbidden(&found, &allowed), Vec::<String>::new());
    let gone: Vec<_> = allowed
        .iter()
        .filter(|(name, _)| !found.contains_key(*name))
        .collect();
    assert!(gone.is_empty(), "rows without a crate: {gone:?}");
    assert_eq!(unused(&found, &allowed), Vec::<String>::new());
}

#[test]
fn test_crate_is_a_dev_dependency_only() {
    let metadata = metadata();
    let packages = members(&metadata).into_iter();
    let uses = packages.flat_map(|package| {
        let of_tests = |other: &&Dependency| other.name == OF_TESTS;
        let uses = package.dependencies.iter().filter(of_tests);
        uses.map(|dependency| (package.name.as_str(), dependency.kind))
    });
    let (tests, others): (Vec<_>, Vec<_>) =
        uses.partition(|(_, kind)| *kind == DependencyKind::Development);
    assert!(!tests.is_empty(), "no crate uses {OF_TESTS}");
    assert_eq!(others, [], "not as a dev-dependency of {OF_TESTS}");
}

#[test]
fn forbidden_dependency_is_found() {
    let edge = |from: &str, to: &str| BTreeMap::from([(from.into(), BTreeSet::from([to.into()]))]);
    for (from, to) in [
        ("apid", "machined"),
        ("corten-config", "corten-pki"),
        ("corten-config", "corten-changes"),
        ("mkimage", "machined"),
        ("x", "y"),
    ] {
        assert_eq!(
            forbidden(&edge(from, to), &allowed()).len(),
            1,
            "{from} -> {to}"
        );
    }
    assert!(forbidden(&edge("multicall", "apid"), &allowed()).is_empty());
}

/// The crate roots of a package.
fn roots(package: &Package) -> Vec<&str> {
    let wanted = |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::Bin);
    package
        .targets
        .iter()
        .filter(|target| target.kind.iter().any(wanted))
        .map(|target| target.src_path.as_str())
        .collect()
}

/// The parts of the contract that a header lacks.
fn header_lacks(source: &str) -> Vec<&'static str> {
    let header = tokens::header(source).join(" ").to_lowercase();
    ["owns", "never"]
        .into_iter()
        .filter(|word| !header.contains(word))
        .collect()
}

#[test]
fn every_crate_root_opens_with_its_contract() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in members(&metadata) {
        let roots = roots(package);
        let lacks = |path: &&str| header_lacks(&fs::read_to_string(path).unwrap());
        // A program with a library of the same package may leave the contract to the library.
        let kept = roots.iter().any(|path| lacks(path).is_empty());
        for path in &roots {
            let source = fs::read_to_string(path).unwrap();
            if tokens::header(&source).is_empty() {
                wrong.push(format!("{path} does not open with //!"));
            }
            if !kept {
                wrong.push(format!("{path}: the header does not say {:?}", lacks(path)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crate_header_must_have_every_part() {
    assert_eq!(header_lacks("//! Owns: x.\nfn a() {}\n"), ["never"]);
    assert_eq!(header_lacks("use a;\n//! Owns never\n").len(), 2);
    assert!(header_lacks("//! X.\n//!\n//! Owns: a.\n//! Never: does b.\n").is_empty());
}

/// The lines of a source file that violate the rule on unsafe code.
fn unsafe_lines(source: &str) -> Vec<usize> {
    let words = tokens::identifiers(source).unwrap();
    let lint = |word: &str| word == "unsafe_code";
    words
        .iter()
        .enumerate()
        .filter(|(index, (word, _))| {
            // `unsafe_code` may be denied or forbidden everywhere, but never allowed.
            let loosened = lint(word)
                && index
                    .checked_sub(1)
                    .and_then(|before| words.get(before))
                    .is_none_or(|(before, _)| before != "forbid" && before != "deny");
            word == "unsafe" || loosened
        })
        .map(|(_, (_, line))| *line)
        .collect()
}

#[test]
fn unsafe_code_is_in_one_crate_only() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in workspace::tracked() {
        let name = path.to_str().unwrap();
        if path.extension().is_none_or(|extension| extension != "rs")
            || name.starts_with(UNSAFE_HOME)
        {
            continue;
        }
        seen += 1;
        let source = fs::read_to_string(workspace::root().join(&path)).unwrap();
        wrong.extend(
            unsafe_lines(&source)
                .iter()
                .map(|line| format!("{name}:{line}")),
        );
    }
    assert!(seen > 20, "only {seen} source files found");
    assert!(
        wrong.is_empty(),
        "unsafe outside {UNSAFE_HOME}: {}",
        wrong.join(" ")
    );
}

#[test]
fn unsafe_is_found_in_code_only() {
    assert_eq!(unsafe_lines("fn a() {\n unsafe { b() }\n}"), [2]);
    assert_eq!(unsafe_lines("#![allow(unsafe_code)]"), [1]);
    assert!(
        unsafe_lines("#![deny(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";").is_empty()
    );
}

#[test]
fn crates_stay_below_the_line_limit() {
    let metadata = metadata();
    let folders: BTreeMap<&Path, &str> = members(&metadata)
        .into_iter()
        .filter_map(|package| {
            let folder = package.manifest_path.parent()?;
            let folder = folder.strip_prefix(&metadata.workspace_root).ok()?;
            Some((folder.as_std_path(), package.name.as_str()))
        })
        .filter(|(folder, _)| LIMITED.iter().any(|top| folder.starts_with(top)))
        .collect();
    let mut crates: BTreeMap<&str, usize> = BTreeMap::new();
    for path in workspace::tracked() {
        // A crate may have others in its folder: the nearest one owns the file.
        let name = path.ancestors().find_map(|folder| folders.get(folder));
        if let Some(name) = name
            && path.extension().is_some_and(|found| found == "rs")
        {
            let source = fs::read_to_string(workspace::root().join(&path)).unwrap();
            *crates.entry(name).or_default() += source.lines().count();
        }
    }
    assert!(crates.len() > 50, "only {} crates found", crates.len());
    crates.retain(|_, lines| *lines > CRATE_LINES);
    assert!(
        crates.is_empty(),
        "more than {CRATE_LINES} lines: {crates:?}"
    );
}

#[test]
fn files_of_a_crate_use_each_other_in_one_direction() {
    let mut crates: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for path in workspace::tracked() {
        let name = path.to_str().unwrap();
        let Some((part, file)) = name.split_once("/src/") else {
            continue;
        };
        let is_of_tests =
            |word: &str| matches!(word, "tests" | "testing") || word.ends_with("_tests");
        if !name.ends_with(".rs") || module(file).iter().any(|word| is_of_tests(word)) {
            continue;
        }
        let source = fs::read_to_string(workspace::root().join(&path)).unwrap();
        let of_crate = crates.entry(part.to_owned()).or_default();
        of_crate.insert(module(file), source);
    }
    assert!(crates.len() > 20, "only {} crates found", crates.len());
    let mut wrong = Vec::new();
    for (part, sources) in &crates {
        for circle in circles(sources).unwrap() {
            let names: Vec<String> = circle.iter().map(|one| one.join("::")).collect();
            wrong.push(format!("{part}: {}", names.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_crate_uses_the_workspace_lints() {
    let metadata = metadata();
    for package in members(&metadata) {
        let manifest = fs::read_to_string(&package.manifest_path).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let takes = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool)
            .unwrap_or(false);
        let exempt = WITHOUT_LINTS.contains(&package.name.as_str());
        assert_eq!(
            takes, !exempt,
            "{}: [lints] workspace = true",
            package.manifest_path
        );
    }
}

#[test]
fn there_is_one_build_script() {
    let metadata = metadata();
    let scripts: BTreeSet<_> = members(&metadata)
        .iter()
        .flat_map(|package| &package.targets)
        .filter(|target| target.kind.contains(&TargetKind::CustomBuild))
        .map(|target| target.src_path.clone().into_std_path_buf())
        .map(|path| fs::canonicalize(path).unwrap())
        .collect();
    let only = fs::canonicalize(workspace::root().join("build.rs")).unwrap();
    assert_eq!(scripts, BTreeSet::from([only]));
}
