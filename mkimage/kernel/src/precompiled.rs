//! Precompiled headers: clang parses the five hundred headers of most sources once and not three thousand times.
//! Owns: the list of the headers, and the compiler that `make` calls.
//! Never: changes code. clang and `names.rs` refuse the headers to a source to which they would mean something else.

mod names;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::tool::Tool;
use corten_steps::toolchain::{quote, write_script};

use crate::llvm::Llvm;

/// The headers. Each costs a little when a source loads them all, and saves more where most sources include it.
const HEADERS: [&str; 11] = [
    "linux/module.h",
    "linux/slab.h",
    "linux/fs.h",
    "linux/mm.h",
    "linux/uaccess.h",
    "linux/interrupt.h",
    "linux/device.h",
    "linux/seq_file.h",
    "linux/pagemap.h",
    "linux/sched/signal.h",
    "linux/netdevice.h",
];
/// An object with the options of most objects.
const SAMPLE: &str = "kernel/range.o";
/// The options of [`SAMPLE`]'s compiler, one in a line.
const OPTIONS: &str = "options";
/// The sources that may use the headers, one in a line.
const SOURCES: &str = "sources";
/// The header that includes all others.
const TOP: &str = "precompiled.h";
/// The kinds of objects, with the option that selects the kind. The headers differ between them.
const KINDS: [(&str, &[&str]); 2] = [("builtin", &[]), ("module", &["-DMODULE"])];

/// The compiler of `make` and its directory.
#[derive(Debug, Clone)]
pub struct Precompiled {
    dir: PathBuf,
    clang: PathBuf,
}

impl Precompiled {
    /// Makes a compiler in `dir` that has no headers yet. Its path must not change between two builds: `make` compiles
    /// everything again after a change of the compiler's path.
    pub fn new(dir: &Path, llvm: &Llvm) -> Result<Self> {
        let made = Self {
            dir: dir.to_owned(),
            clang: llvm.clang(),
        };
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        write_script(&made.compiler(), &made.script_that_records())?;
        Ok(made)
    }

    /// The argument of `make` that names the compiler.
    pub fn argument(&self) -> String {
        format!("CC={}", self.compiler().display())
    }

    fn compiler(&self) -> PathBuf {
        self.dir.join("cc")
    }

    /// Compiles the headers in the configured source `tree`, and has the compiler use them.
    pub fn compile(&self, tree: &Path, make: Tool) -> Result<()> {
        make.arg(SAMPLE).run()?;
        let options = self.options()?;
        let top: String = HEADERS.map(|name| format!("#include <{name}>\n")).concat();
        // Objects depend on it: an unchanged file keeps its date.
        if fs::read(self.dir.join(TOP)).ok().as_deref() != Some(top.as_bytes()) {
            fs::write(self.dir.join(TOP), top)?;
        }
        let mut included = Vec::new();
        for (kind, selected_by) in KINDS {
            let list = self.dir.join(format!("{kind}.d"));
            Tool::new(&self.clang)
                .dir(tree)
                .args(&options)
                .args(selected_by)
                .args(["-MD", "-MF"])
                .arg(&list)
                .args(["-x", "c-header", "-o"])
                .arg(self.dir.join(format!("{kind}.pch")))
                .arg(self.dir.join(TOP))
                .run()
                .or_fail(
                    "the kernel's headers cannot be precompiled",
                    "adapt HEADERS in mkimage/kernel/src/precompiled.rs to this kernel version",
                )?;
            let rule = fs::read_to_string(&list)?;
            // The first word is the target.
            let files = rule.split_whitespace().skip(1).filter(|word| *word != "\\");
            included.extend(files.map(|file| tree.join(file)));
        }
        let sources = names::unaffected(tree, &included)?;
        self.replace_sources(tree, &sources)?;
        write_script(&self.compiler(), &self.script_with_headers(&options))
    }

    /// Replaces the list of sources. In a kept tree, `make` compiles those again that are new in the list or no longer in
    /// it, so that the tree gives the same kernel as a new one.
    fn replace_sources(&self, tree: &Path, sources: &[String]) -> Result<()> {
        let list = self.dir.join(SOURCES);
        if let Ok(earlier) = fs::read_to_string(&list) {
            let earlier: BTreeSet<&str> = earlier.lines().collect();
            let sources = sources.iter().map(String::as_str).collect();
            for changed in earlier.symmetric_difference(&sources) {
                let source = fs::File::options().append(true).open(tree.join(changed))?;
                source.set_modified(SystemTime::now())?;
            }
        }
        fs::write(&list, sources.join("\n"))?;
        Ok(())
    }

    /// The recorded options of [`SAMPLE`], without those of this one object.
    fn options(&self) -> Result<Vec<String>> {
        let recorded = match fs::read_to_string(self.dir.join(OPTIONS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Failure::new(
                    format!("the kernel's build has not compiled {SAMPLE} for precompiled headers"),
                    "adapt SAMPLE in mkimage/kernel/src/precompiled.rs to this kernel version",
                ));
            }
            read => read?,
        };
        let own = ["-Wp,-MMD,", "-DKBUILD_", "-D__KBUILD_"];
        let of_object = |word: &&str| {
            own.iter().any(|start| word.starts_with(start))
                || ["-c", "-o"].contains(word)
                || [".c", ".o"].iter().any(|end| word.ends_with(end))
        };
        let words = recorded.lines().filter(|word| !of_object(word));
        Ok(words.map(str::to_owned).collect())
    }

    /// The script of a compiler without headers, which records the options of [`SAMPLE`].
    fn script_that_records(&self) -> String {
        format!(
            "#!/bin/sh\n\
             for source; do :; done\n\
             case $source in {source}) printf '%s\\n' \"$@\" >{options} ;; esac\n\
             exec {clang} \"$@\"\n",
            source = SAMPLE.replace(".o", ".c"),
            options = quote(&self.dir.join(OPTIONS)),
            clang = quote(&self.clang),
        )
    }

    /// The script of a compiler with headers. A source that defines a macro by an option, or includes a file by one, is
    /// compiled without. So is one with which clang refuses the headers, or fails: the second call tells why. A call that a
    /// signal ends fails at once: whether a source uses the headers must not depend on the machine.
    ///
    /// The dependencies begin with the source, as `fixdep` and `modpost` expect, and not with the precompiled header.
    fn script_with_headers(&self, options: &[String]) -> String {
        let is_checked = |word: &&String| word.starts_with("-D") || word.ends_with(".h");
        let known = options.iter().filter(is_checked);
        let known: Vec<String> = known.map(|word| quote(Path::new(word))).collect();
        format!(
            "#!/bin/sh\n\
             without() {{ exec {clang} \"$@\"; }}\n\
             kind=builtin dependencies=\n\
             for source; do case $source in\n\
             -DMODULE) kind=module ;;\n\
             -Wp,-MMD,*) dependencies=${{source#-Wp,-MMD,}} ;;\n\
             -DKBUILD_*|-D__KBUILD_*|{known}) ;;\n\
             -D*|-U*|-E|-S|*.h) without \"$@\" ;;\n\
             esac; done\n\
             [ \"$dependencies\" ] && grep -qxF -e \"$source\" {sources} || without \"$@\"\n\
             {clang} -include-pch {dir}/\"$kind\".pch \"$@\" -Wno-macro-redefined 2>/dev/null &&\n\
             exec sed -i \"1s|: |: $source |;2,\\$s| $source | |\" \"$dependencies\"\n\
             [ $? -lt 128 ] || exit 1\n\
             without \"$@\"\n",
            known = known.join("|"),
            clang = quote(&self.clang),
            dir = quote(&self.dir),
            sources = quote(&self.dir.join(SOURCES)),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A compiler that prints its arguments, and fails with precompiled headers if the source is `broken.c`, or is
    /// killed.
    const FAKE: &str = "#!/bin/sh\ncase \"$*\" in *.pch*broken.c*) exit 1 ;; *.pch*killed.c*) kill -9 $$ ;; esac\necho \"$@\"\n";

    fn with_fake(dir: &Path) -> Precompiled {
        let clang = dir.join("it's clang");
        fs::write(&clang, FAKE).unwrap();
        fs::set_permissions(&clang, fs::Permissions::from_mode(0o755)).unwrap();
        let dir = dir.to_owned();
        Precompiled { dir, clang }
    }

    fn call(made: &Precompiled, words: &[&str]) -> String {
        let said = Tool::new(made.compiler()).dir(&made.dir).args(words);
        String::from_utf8(said.output().unwrap()).unwrap()
    }

    #[test]
    fn options_of_the_sample_are_recorded_without_those_of_its_object() {
        let dir = tempfile::tempdir().unwrap();
        let made = with_fake(dir.path());
        let missing = made.options().unwrap_err().to_string();
        assert!(missing.contains(SAMPLE), "{missing}");
        write_script(&made.compiler(), &made.script_that_records()).unwrap();
        for source in ["kernel/range.c", "kernel/fork.c"] {
            let words = [
                "-Wp,-MMD,x.d",
                "-O2",
                "-DKBUILD_MODNAME=\"a b\"",
                "-c",
                "-o",
                "x.o",
                source,
            ];
            assert!(call(&made, &words).ends_with(&format!("{source}\n")));
            assert_eq!(made.options().unwrap(), ["-O2"]);
        }
    }

    #[test]
    fn source_is_compiled_again_when_it_begins_or_ceases_to_use_the_headers() {
        let dir = tempfile::tempdir().unwrap();
        let made = with_fake(dir.path());
        let date = |name: &str| {
            let file = fs::metadata(dir.path().join(name));
            file.unwrap().modified().unwrap()
        };
        let names = ["kept.c", "new.c", "gone.c"];
        for name in names {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let replace = |names: [&str; 2]| {
            let names = names.map(str::to_owned);
            made.replace_sources(dir.path(), &names).unwrap();
        };
        replace(["kept.c", "gone.c"]);
        assert!(
            names
                .iter()
                .all(|name| date(name) == SystemTime::UNIX_EPOCH)
        );
        replace(["kept.c", "new.c"]);
        let changed = names.map(|name| date(name) != SystemTime::UNIX_EPOCH);
        assert_eq!(changed, [false, true, true]);
    }

    #[test]
    fn only_sources_with_the_usual_macros_use_the_headers() {
        let dir = tempfile::tempdir().unwrap();
        let made = with_fake(dir.path());
        fs::write(dir.path().join(SOURCES), "a/b.c\nbroken.c\nkilled.c").unwrap();
        let usual = [
            "-D__KERNEL__=(a b)",
            "-include",
            "./include/linux/kconfig.h",
        ];
        let options = usual.map(str::to_owned);
        write_script(&made.compiler(), &made.script_with_headers(&options)).unwrap();
        let kind_of = |more: &[&str], source: &str| {
            fs::write(dir.path().join("x.d"), "b.o: /top.h \\\n a/b.c\n").unwrap();
            let words = [
                &usual[..],
                &["-Wp,-MMD,x.d", "-DKBUILD_X=1"],
                more,
                &[source],
            ]
            .concat();
            let called = call(&made, &words);
            let kinds = ["builtin", "module"].map(|kind| called.contains(&format!("/{kind}.pch")));
            let first = fs::read_to_string(dir.path().join("x.d")).unwrap();
            let is_corrected = first.starts_with(&format!("b.o: {source} /top.h"));
            assert_eq!(is_corrected, kinds.contains(&true), "{first}");
            kinds
        };
        let without = [false, false];
        assert_eq!(kind_of(&["-Wall"], "a/b.c"), [true, false]);
        assert_eq!(kind_of(&["-DMODULE"], "a/b.c"), [false, true]);
        for other in [&["-DDEBUG"][..], &["-UX"], &["-include", "own.h"], &["-S"]] {
            assert_eq!(kind_of(other, "a/b.c"), without, "{other:?}");
        }
        assert_eq!(kind_of(&[], "a/other.c"), without);
        assert_eq!(kind_of(&[], "broken.c"), without);
        let killed = Tool::new(made.compiler()).dir(&made.dir);
        killed
            .args(["-Wp,-MMD,x.d", "killed.c"])
            .output()
            .unwrap_err();
    }
}
