//! The recipe: an ordered list of named steps, each a pure function of its inputs.
//!
//! A step's key hashes inputs, not outputs, and is known before any step runs. `mkimage plan` can
//! therefore print the whole recipe and its cached steps.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, Key};
use crate::error::Result;
use crate::report::Reporter;

/// The output directories of the earlier steps. No entry of the cache is removed before this value is dropped.
#[derive(Debug)]
pub struct Built {
    dirs: Vec<PathBuf>,
    _in_use: File,
}

impl Built {
    /// The output directory of an earlier step.
    pub fn dir(&self, step: &Handle) -> &Path {
        // A handle exists only for a step added before, and steps run in order.
        self.dirs
            .get(step.index)
            .map_or_else(|| Path::new(""), PathBuf::as_path)
    }
}

/// A reference of a later step to an earlier one.
#[derive(Debug, Clone)]
pub struct Handle {
    index: usize,
    /// The step's key, an input of every step that uses its output.
    pub key: Key,
}

/// Fills a step's output directory: (earlier outputs, output directory, scratch directory).
type Make<'a> = Box<dyn Fn(&Built, &Path, &Path) -> Result<()> + 'a>;

/// One step.
pub struct Step<'a> {
    /// A short name; two steps of one name have different keys.
    pub name: String,
    /// The hash of everything that determines the output.
    pub key: Key,
    make: Make<'a>,
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.name, self.key.as_str())
    }
}

/// The ordered steps of a build.
#[derive(Debug, Default)]
pub struct Recipe<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Recipe<'a> {
    /// Appends a step.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        key: Key,
        make: impl Fn(&Built, &Path, &Path) -> Result<()> + 'a,
    ) -> Handle {
        let handle = Handle {
            index: self.steps.len(),
            key: key.clone(),
        };
        self.steps.push(Step {
            name: name.into(),
            key,
            make: Box::new(make),
        });
        handle
    }

    /// The steps in order.
    pub fn steps(&self) -> &[Step<'a>] {
        &self.steps
    }

    /// Runs every step that is not in the cache.
    pub fn run(&self, cache: &Cache, reporter: &Reporter) -> Result<Built> {
        let mut built = Built {
            dirs: Vec::new(),
            _in_use: cache.keep_entries()?,
        };
        for step in &self.steps {
            let since = reporter.begin(&step.name);
            let mut cached = true;
            let dir = cache.step(&step.name, &step.key, |out, scratch| {
                cached = false;
                (step.make)(&built, out, scratch)
            })?;
            built.dirs.push(dir);
            reporter.end(&step.name, cached, since);
        }
        Ok(built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::KeyBuilder;
    use crate::report::Format;

    #[test]
    fn later_steps_see_earlier_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Vec::new()).unwrap();
        let mut recipe = Recipe::default();
        let one = recipe.add("one", KeyBuilder::new("one").finish(), |_, out, _| {
            Ok(std::fs::write(out.join("f"), "1")?)
        });
        let key = KeyBuilder::new("two").step(&one.key).finish();
        let two = recipe.add("two", key, move |built, out, _| {
            std::fs::copy(built.dir(&one).join("f"), out.join("g"))?;
            Ok(())
        });
        let built = recipe.run(&cache, &Reporter::new(Format::Text, 2)).unwrap();
        assert_eq!(std::fs::read(built.dir(&two).join("g")).unwrap(), b"1");
    }
}
