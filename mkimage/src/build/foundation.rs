//! The locked packages that the other steps build with.

use std::path::PathBuf;

use corten_rootfs::REVISION;
use corten_steps::arch::Arch;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::Result;
use corten_steps::recipe::{Handle, Recipe};
use corten_steps::toolchain;

use super::context::Context;
use super::programs::Programs;

/// The steps of those packages.
#[derive(Debug)]
pub struct Foundation {
    /// Compilers and the libraries they link against.
    pub programs: Programs,
    /// Go's own tools.
    pub go_tools: Handle,
    /// Image tools.
    pub tools: Handle,
}

/// Adds the steps that unpack those packages.
pub fn foundation<'a>(recipe: &mut Recipe<'a>, context: &'a Context) -> Foundation {
    // Tools run on the build machine, whatever the target; the rest is for the target.
    let (build, target) = (Arch::BUILD, context.arch());
    let toolchain = packages(recipe, context, "toolchain", &["toolchain", "std"], build);
    let sysroot = packages(recipe, context, "sysroot", &["sysroot"], target);
    let build_sysroot = match target == build {
        true => sysroot.clone(),
        false => packages(recipe, context, "sysroot", &["sysroot"], build),
    };
    let tools = packages(recipe, context, "tools", &["tools"], build);
    let go_tools = packages(recipe, context, "go-tools", &["go"], build);
    Foundation {
        programs: Programs {
            toolchain,
            sysroot,
            build_sysroot,
        },
        go_tools,
        tools,
    }
}

/// Unpacks the locked packages of the given purposes into one tree.
pub fn packages<'a>(
    recipe: &mut Recipe<'a>,
    context: &'a Context,
    name: &'static str,
    purposes: &'static [&'static str],
    arch: Arch,
) -> Handle {
    let (target, debian) = (context.arch().names().debian, arch.names().debian);
    let chosen = move || {
        let wanted = move |purpose: &&str| {
            // A compiler needs the standard library of its host and of its target.
            let both = *purpose == "std";
            context.lock.packages.iter().filter({
                let purpose = (*purpose).to_owned();
                move |p| {
                    p.purpose == purpose
                        && (p.arch == "all" || p.arch == debian || (both && p.arch == target))
                }
            })
        };
        purposes
            .iter()
            .flat_map(move |purpose| wanted(purpose).collect::<Vec<_>>())
    };
    let key = chosen().fold(KeyBuilder::new(name).add("revision", REVISION), |key, p| {
        key.add("deb", &p.sha256)
    });
    recipe.add(name, key.finish(), move |_, out, _| {
        let files: Vec<PathBuf> = chosen()
            .map(|p| context.fetcher.package(p))
            .collect::<Result<_>>()?;
        toolchain::unpack(&files, out)
    })
}
