//! Third-party code in Corten: its licenses and its sources (`deny.toml`).
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::collections::BTreeSet;
use std::fs;

use cargo_metadata::{MetadataCommand, Package};
use spdx::{Expression, LicenseReq, ParseMode};
use tests::workspace;

/// The licenses that `deny.toml` allows.
fn allowed() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace::root().join("deny.toml")).expect("deny.toml");
    let table: toml::Table = text.parse().expect("TOML");
    let list = table
        .get("licenses")
        .and_then(|licenses| licenses.get("allow"));
    let list = list
        .and_then(toml::Value::as_array)
        .expect("licenses.allow");
    list.iter()
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

/// Every package of the lock, for every target. Packages of other targets may be downloaded here
/// for the first time.
fn packages() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace::root().join("Cargo.toml"))
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .expect("cargo metadata");
    metadata.packages
}

fn expression(package: &Package) -> Expression {
    let text = package.license.as_deref().unwrap_or_default();
    Expression::parse_mode(text, ParseMode::LAX)
        .unwrap_or_else(|error| panic!("{}: license {text:?}: {error}", package.name))
}

/// The license's name. A license with an exception counts as the license alone, which grants less.
fn name(license: &LicenseReq) -> String {
    license.license.to_string()
}

#[test]
fn every_license_is_allowed_and_every_allowed_license_is_used() {
    let allowed = allowed();
    let mut used = BTreeSet::new();
    let mut refused = Vec::new();
    for package in packages() {
        let expression = expression(&package);
        used.extend(expression.requirements().map(|one| name(&one.req)));
        if !expression.evaluate(|license| allowed.contains(&name(license))) {
            refused.push(format!(
                "{} {}: {expression}",
                package.name, package.version
            ));
        }
    }
    assert!(refused.is_empty(), "not allowed by deny.toml: {refused:#?}");
    let stale: Vec<_> = allowed.difference(&used).collect();
    assert!(stale.is_empty(), "allowed, but used by no crate: {stale:?}");
}

#[test]
fn every_crate_comes_from_the_registry() {
    let elsewhere: Vec<_> = packages()
        .into_iter()
        .filter_map(|package| Some((package.name.to_string(), package.source?.repr)))
        .filter(|(_, source)| !source.starts_with("registry+"))
        .collect();
    assert!(elsewhere.is_empty(), "not from the registry: {elsewhere:?}");
}
