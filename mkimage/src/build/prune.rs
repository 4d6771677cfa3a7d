//! `mkimage cache prune`: removes cache entries that this source tree no longer needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_kernel::CONFIG_DIR;
use corten_kernel::source::SourceLock;
use corten_steps::arch::Arch;
use corten_steps::cache::{self, OUTPUTS, STEPS, TREES, remove_tree};
use corten_steps::error::Result;
use corten_steps::lock::{self, Lock};
use corten_steps::recipe::Recipe;
use corten_steps::report::{self, Format};

use super::{Options, context, images, outputs, steps};
use crate::profile::Profile;

/// Removes finished steps that are in no recipe of any format, neither for `options` nor for an
/// architecture without a profile. Also removes outputs that no step refers to, fetched files that
/// no lock names, and work and kept trees of builds that have ended. Does not touch entries that
/// another process is making.
///
/// # Errors
/// A build uses the cache: it needs steps that are in no recipe of this source tree.
pub fn prune(options: &Options) -> Result<()> {
    let _alone = options.cache.remove_entries()?;
    let (steps, fetched) = needed(options)?;
    let root = options.cache.root();
    let mut freed = 0;
    // Outputs come last, when the records of unneeded steps have been removed.
    for directory in [STEPS, "fetch", "work", TREES, OUTPUTS] {
        for name in names(&root.join(directory))? {
            if in_use(&name) {
                continue;
            }
            let Some(_lock) = options.cache.try_lock(&name)? else {
                continue;
            };
            let is_needed = match directory {
                STEPS => steps.contains(&name),
                "fetch" => fetched.contains(&name),
                // The build that made an output holds the output's lock until the record is
                // written.
                OUTPUTS => options.cache.is_recorded(&names(&root.join(STEPS))?, &name),
                _ => false,
            };
            if is_needed {
                continue;
            }
            let path = root.join(directory).join(&name);
            let size = size_of(&path)?;
            remove_tree(&path)?;
            freed += size;
            tell(options.format, &format!("{directory}/{name}"), size)?;
        }
    }
    match options.format {
        Format::Text => report::print(&format!("{} MiB freed\n", freed >> 20)),
        Format::Json => report::print(&format!("{}\n", serde_json::json!({"freed": freed}))),
    }
}

/// The names of the steps and of the fetched files that builds need.
fn needed(options: &Options) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let source = SourceLock::read(&options.source.join(CONFIG_DIR))?;
    let (kernel, checker) = (source.kernel.package(), source.checker.package());
    let locked = Lock::read(&options.source.join(lock::PACKAGES))?.packages;
    let mut fetched: BTreeSet<String> = locked.into_iter().map(|one| one.sha256).collect();
    fetched.extend([kernel.sha256, checker.sha256]);
    let mut steps = BTreeSet::new();
    for profile in profiles(&options.profile) {
        let context = context(&Options {
            profile,
            ..options.clone()
        })?;
        let mut recipe = Recipe::default();
        let handles = steps::add(&mut recipe, &context)?;
        outputs::add(&mut recipe, &context, &handles)?;
        if !context.options.profile.makes_images() {
            images::every(&mut recipe, &context, &handles)?;
        }
        let names = recipe.steps().iter();
        steps.extend(names.map(|step| cache::entry(&step.name, &step.key)));
    }
    Ok((steps, fetched))
}

/// The plain profile of every architecture, and the requested profile if it is none of these; each
/// with all its formats.
fn profiles(asked: &Profile) -> Vec<Profile> {
    let without = |arch| Profile {
        arch,
        ..Profile::default()
    };
    let mut profiles: Vec<Profile> = Arch::ALL.map(without).into();
    let asked = Profile {
        output: Vec::new(),
        ..asked.clone()
    };
    if !profiles.contains(&asked) {
        profiles.push(asked);
    }
    profiles
}

/// Whether the name ends in the process id of a running process, as names in `work` do.
fn in_use(name: &str) -> bool {
    let id = name.rsplit(['.', '-']).next().unwrap_or_default();
    // A name with a leading dot is a temporary file of an unknown process.
    name.starts_with('.') || (id.parse::<u32>().is_ok() && Path::new("/proc").join(id).exists())
}

fn tell(format: Format, removed: &str, size: u64) -> Result<()> {
    report::print(&match format {
        Format::Text => format!("{removed} ({} MiB)\n", size >> 20),
        Format::Json => format!(
            "{}\n",
            serde_json::json!({"removed": removed, "size": size})
        ),
    })
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Result<BTreeSet<String>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Bytes on disk below `path`.
fn size_of(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0;
    for entry in walkdir::WalkDir::new(path) {
        let entry = entry.with_context(|| format!("listing {}", path.display()))?;
        sum += entry.metadata()?.blocks() * 512;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Output;

    #[test]
    fn recipe_is_computed_once() {
        let arm64 = Profile {
            arch: Arch::Arm64,
            output: vec![Output::Raw],
            ..Profile::default()
        };
        assert_eq!(profiles(&arm64).len(), Arch::ALL.len());
        let quick = Profile {
            quick: true,
            ..arm64
        };
        let all = profiles(&quick);
        assert_eq!(all.len(), Arch::ALL.len() + 1);
        let last = all.last().unwrap();
        assert!(last.quick && last.output.is_empty(), "{last:?}");
    }

    #[test]
    fn directory_of_a_running_process_is_in_use() {
        assert!(in_use("kernel-00ff.1") && in_use("hardening-1") && in_use(".tmpAbc"));
        assert!(!in_use("kernel-00ff.0") && !in_use("kernel"));
    }
}
