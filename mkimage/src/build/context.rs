//! The shared inputs of the steps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corten_image::Release;
use corten_rootfs::rust::CargoProfile;
use corten_steps::arch::Arch;
use corten_steps::archive::Substitution;
use corten_steps::error::Result;
use corten_steps::fetch::Fetcher;
use corten_steps::lock::Lock;

use super::Options;
use crate::notices::Files;
use crate::output::Output;
use crate::overlay::Overlay;
use crate::platform::Platform;

/// The shared inputs of the steps.
#[derive(Debug)]
pub struct Context {
    /// The options of the build.
    pub options: Options,
    /// The locked packages.
    pub lock: Lock,
    /// The commit of the sources, as nodes report it.
    pub commit: Option<String>,
    /// The board's additions, if the image is for a board.
    pub overlay: Overlay,
    /// Fetches the locked packages.
    pub fetcher: Fetcher,
    /// The image's name, architecture and date.
    pub release: Release,
    /// The packages in `lock` that differ from the lock file.
    pub substituted: Vec<Substitution>,
}

impl Context {
    /// The file name of an output in its step.
    pub fn file(&self, output: Output) -> String {
        format!("{}{}", self.release.stem(), output.suffix())
    }

    /// The common prefix of the finished outputs' names: the release, and the platform and board if
    /// the image is for one.
    pub fn stem(&self) -> String {
        let platform = self.options.profile.platform.map(Platform::name);
        let parts = [platform, self.overlay.name.as_deref()];
        let parts = parts.into_iter().flatten();
        parts.fold(self.release.stem(), |stem, part| format!("{stem}-{part}"))
    }

    pub(super) fn arch(&self) -> Arch {
        self.release.arch
    }

    pub(super) fn cargo_profile(&self) -> CargoProfile {
        match self.options.profile.quick {
            true => CargoProfile::Quick,
            false => CargoProfile::Release,
        }
    }

    pub(super) fn source(&self, path: &str) -> PathBuf {
        self.options.source.join(path)
    }

    /// systemd-boot in the output of the step `boot`.
    pub(super) fn sd_boot(&self, boot: &Path) -> PathBuf {
        let name = self.arch().names().sd_boot;
        boot.join("usr/lib/systemd/boot/efi").join(name)
    }

    /// GRUB's modules in the output of the step `boot`; `None` for an architecture whose firmware
    /// does not need GRUB.
    pub(super) fn grub(&self, boot: &Path) -> Option<PathBuf> {
        let platform = self.arch().names().grub?;
        Some(boot.join("usr/lib/grub").join(platform))
    }

    /// The directory of fetched Go modules and compiled Go packages.
    pub(super) fn go_cache(&self) -> PathBuf {
        self.options.cache.root().join("go")
    }

    /// The files that notices are read from.
    pub(super) fn files<'a>(&'a self, scratch: &'a Path) -> Files<'a> {
        Files {
            source: &self.options.source,
            lock: &self.lock,
            arch: self.arch(),
            fetcher: &self.fetcher,
            scratch,
        }
    }

    /// Fetches every package of one purpose.
    pub(super) fn fetch(&self, purpose: &str, debian: &str) -> Result<BTreeMap<String, PathBuf>> {
        let packages = self.lock.packages(purpose, debian);
        packages
            .map(|p| Ok((p.name.clone(), self.fetcher.package(p)?)))
            .collect()
    }
}
