//! The components of an image, collected from the steps that build it.

use corten_image::Release;
use corten_image::sbom::{self, Component};
use corten_rootfs::go;
use corten_steps::error::Result;
use corten_steps::recipe::{Built, Handle};

use super::context::Context;
use super::programs::Programs;
use crate::components;

/// The steps whose outputs list the components.
#[derive(Debug, Clone)]
pub struct Bill {
    /// The compilers.
    pub programs: Programs,
    /// Go's own tools.
    pub go_tools: Handle,
    /// The Go programs.
    pub go: Handle,
}

impl Bill {
    /// Every component of the image.
    pub fn components(&self, context: &Context, built: &Built) -> Result<Vec<Component>> {
        let (source, arch) = (&context.options.source, context.arch());
        let mut found = components::debian(&context.lock, arch);
        found.push(components::kernel(source)?);
        let rustc = self.programs.compilers(context, built)?.rust();
        found.extend(components::crates(source, arch, &rustc)?);
        let go = go::go_program(built.dir(&self.go_tools))?;
        found.extend(components::go_modules(&go, built.dir(&self.go))?);
        Ok(found)
    }

    /// The bill of materials that the image itself contains. It has no date, so that the root file
    /// system stays the same across commits that do not touch it.
    pub fn in_image(&self, context: &Context, built: &Built) -> Result<String> {
        let release = Release {
            epoch: 0,
            ..context.release.clone()
        };
        sbom::document(&release, &self.components(context, built)?)
    }
}
