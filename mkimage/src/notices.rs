//! The notices of an image's components: their licences for the bill of materials, and their texts as one file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_image::sbom::Component;
use corten_rootfs::libkmod;
use corten_rootfs::licences::exceptions::Exceptions;
use corten_rootfs::licences::notice::{self, Notice, standard};
use corten_rootfs::licences::{RECIPE, debian, exceptions};
use corten_steps::arch::Arch;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::fetch::Fetcher;
use corten_steps::lock::Lock;

use crate::components::{Licence, Part};

/// The purpose of packages that are locked for their copyright files alone.
pub const PURPOSE: &str = "licences";
/// The licence of this repository, relative to it.
const OURS: &str = "LICENSE";
/// The name of everything in an image that is ours and no component.
const NAME: &str = "Corten";

/// What notices are read from.
#[derive(Debug)]
pub struct Files<'a> {
    /// The source tree.
    pub source: &'a Path,
    /// The locked packages.
    pub lock: &'a Lock,
    /// The architecture of the image.
    pub arch: Arch,
    /// Fetches the locked packages.
    pub fetcher: &'a Fetcher,
    /// A directory for unpacked sources.
    pub scratch: &'a Path,
}

/// The notices of components.
#[derive(Debug)]
pub struct Notices {
    ours: Notice,
    /// By package URL: the name in the list of texts, and the notice.
    found: BTreeMap<String, (String, Notice)>,
}

/// Adds the inputs of notices that are no component of their own to a step's key.
///
/// # Errors
/// A file cannot be read.
pub fn key(source: &Path, lock: &Lock, arch: Arch, key: KeyBuilder) -> Result<KeyBuilder> {
    let key = key.add("licences", RECIPE);
    let key = key
        .file(&source.join(exceptions::FILE))?
        .file(&source.join(OURS))?;
    let packages = lock.packages(PURPOSE, arch.names().debian);
    Ok(packages.fold(key, |key, package| key.add("deb", &package.sha256)))
}

impl Notices {
    /// Reads the notice of every component.
    ///
    /// # Errors
    /// A component declares no licence, or its text cannot be read.
    pub fn read<'a>(files: &Files<'_>, parts: impl IntoIterator<Item = &'a Part>) -> Result<Self> {
        let exceptions = Exceptions::read(files.source)?;
        let ours = files.ours()?;
        let mut found = BTreeMap::new();
        for part in parts {
            let one = &part.component;
            if found.contains_key(&one.purl) {
                continue;
            }
            let mut name = format!("{} {}", one.name, one.version);
            let mut notice = match part.licence {
                Licence::Ours => ours.clone(),
                _ => files.of(part)?,
            };
            let said = exceptions.of(&one.name).map(str::to_owned);
            let said = said.or_else(|| one.licence.clone());
            notice.licence = said.or(notice.licence);
            let Some(licence) = &notice.licence else {
                return Err(Failure::new(
                    format!("{name} declares no licence in a form that mkimage reads"),
                    format!("read its licence and name it in {}", exceptions::FILE),
                ));
            };
            if notice.texts.is_empty() {
                notice.texts = standard(licence).with_context(|| format!("{name} has no text"))?;
                name += &by(part);
            }
            found.insert(one.purl.clone(), (name, notice));
        }
        Ok(Self { ours, found })
    }

    /// The licences by package URL.
    pub fn licences(&self) -> BTreeMap<String, String> {
        let all = self.found.iter();
        all.filter_map(|(purl, (_, notice))| Some((purl.clone(), notice.licence.clone()?)))
            .collect()
    }

    /// The texts of some components.
    pub fn document<'a>(&self, title: &str, parts: impl IntoIterator<Item = &'a Part>) -> String {
        let of = |part: &Part| self.found.get(&part.component.purl);
        let found = parts.into_iter().filter_map(of);
        let named = found.map(|(name, notice)| (name.as_str(), notice));
        notice::document(title, named.chain([(NAME, &self.ours)]))
    }
}

/// The components with their licences, from [`Notices::licences`].
pub fn declared(parts: Vec<Part>, licences: &BTreeMap<String, String>) -> Vec<Component> {
    let with_licence = |part: Part| Component {
        licence: licences.get(&part.component.purl).cloned(),
        ..part.component
    };
    parts.into_iter().map(with_licence).collect()
}

/// The authors of a component without a text, who hold its copyright.
fn by(part: &Part) -> String {
    match &part.licence {
        Licence::Directory(_, authors) if !authors.is_empty() => {
            format!(", by {}", authors.join(", "))
        }
        _ => String::new(),
    }
}

impl Files<'_> {
    fn ours(&self) -> Result<Notice> {
        let text = fs::read_to_string(self.source.join(OURS)).or_fail(
            format!("reading our own licence {OURS}"),
            "restore it from version control",
        )?;
        Ok(Notice {
            licence: Some("Apache-2.0".to_owned()),
            texts: vec![text],
        })
    }

    fn of(&self, part: &Part) -> Result<Notice> {
        match &part.licence {
            Licence::Package(package) => debian::notice(&package.name, &|name| {
                if name == package.name {
                    return self.fetcher.package(package);
                }
                // Data of an architecture of the build machine may stand in another package of it.
                let arches = [self.arch, Arch::BUILD].map(|arch| arch.names().debian);
                let [target, build] = arches.map(|arch| self.lock.package(name, arch));
                self.fetcher.package(target.or(build)?)
            }),
            Licence::Source => {
                let tarball = self.fetcher.package(libkmod::source(self.lock)?)?;
                libkmod::notice(&tarball, self.scratch)
            }
            Licence::Directory(directory, _) => notice::of_directory(directory),
            Licence::Ours | Licence::Spdx => Ok(Notice::default()),
        }
    }
}

#[cfg(test)]
#[path = "notices_tests.rs"]
mod tests;
