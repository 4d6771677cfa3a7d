//! Combines all CNI plugins into one program that selects the plugin by its name: they share nine tenths of their code.
//!
//! Go cannot import a `package main`. So the pinned sources are copied into a generated module, where each plugin is a
//! package with an exported `Main`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::error::{Failure, Result};
use corten_steps::file_name;

/// The program's name and its package's directory in the generated module.
pub const PROGRAM: &str = "cni";

/// Makes the package [`PROGRAM`] in the Go module at `module`, from the plugin packages at `paths`
/// below `sources`. `prefix` is the module's own name.
pub fn combine(sources: &Path, paths: &[&str], module: &Path, prefix: &str) -> Result<()> {
    let program = module.join(PROGRAM);
    let (mut imports, mut table) = (String::new(), String::new());
    for (index, path) in paths.iter().enumerate() {
        let name = path.rsplit('/').next().unwrap_or(path);
        import(&sources.join(path), &program.join(name))?;
        // Writing to a String cannot fail.
        let _ = writeln!(imports, "\tp{index} \"{prefix}/{PROGRAM}/{name}\"");
        let _ = writeln!(table, "\t\"{name}\": p{index}.Main,");
    }
    let main = format!(
        "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"path/filepath\"\n\n{imports})\n\n\
         var plugins = map[string]func(){{\n{table}}}\n\n\
         func main() {{\n\
         \tname := filepath.Base(os.Args[0])\n\
         \tplugin, known := plugins[name]\n\
         \tif !known {{\n\
         \t\tfmt.Fprintf(os.Stderr, \"there is no CNI plugin %s\\n\", name)\n\
         \t\tos.Exit(1)\n\
         \t}}\n\
         \tplugin()\n\
         }}\n"
    );
    let file = program.join("main.go");
    fs::write(&file, main).with_context(|| format!("writing {}", file.display()))
}

/// Copies the Go files of one plugin as an importable package.
fn import(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    let mut entries = 0;
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let path = entry?.path();
        let name = file_name(&path);
        if !name.ends_with(".go") || name.ends_with("_test.go") {
            continue;
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let (text, is_entry) =
            exported(&text).with_context(|| format!("{} is not a main package", path.display()))?;
        entries += usize::from(is_entry);
        fs::write(to.join(&name), text).with_context(|| format!("writing {name}"))?;
    }
    if entries == 1 {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "{} has {entries} functions main instead of one",
            from.display()
        ),
        "adapt mkimage/rootfs/src/cni.rs to this version of the plugins",
    ))
}

/// The file as part of an importable package, and whether it defines `main`; `None` for a file of
/// another package.
fn exported(text: &str) -> Option<(String, bool)> {
    let mut is_main_package = false;
    let mut is_entry = false;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out.push_str(match line.trim_end() {
            "package main" if !is_main_package => {
                is_main_package = true;
                "package plugin"
            }
            "func main() {" => {
                is_entry = true;
                "func Main() {"
            }
            _ => line,
        });
        out.push('\n');
    }
    is_main_package.then_some((out, is_entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cni_plugins_are_combined_into_one_program() {
        let dir = tempfile::tempdir().unwrap();
        let plugin = dir.path().join("meta/tuning");
        fs::create_dir_all(&plugin).unwrap();
        fs::write(
            plugin.join("a.go"),
            "// package main\npackage main\n\nfunc main() {\n}\n",
        )
        .unwrap();
        fs::write(plugin.join("b.go"), "package main\n\nvar x = 1\n").unwrap();
        fs::write(plugin.join("b_test.go"), "package main\n").unwrap();
        let module = dir.path().join("module");
        combine(dir.path(), &["meta/tuning"], &module, "corten/rootfs").unwrap();
        let read = |name: &str| fs::read_to_string(module.join("cni").join(name)).unwrap();
        assert_eq!(
            read("tuning/a.go"),
            "// package main\npackage plugin\n\nfunc Main() {\n}\n"
        );
        assert!(read("main.go").contains("\tp0 \"corten/rootfs/cni/tuning\""));
        assert!(read("main.go").contains("\t\"tuning\": p0.Main,"));
        assert!(!module.join("cni/tuning/b_test.go").exists());
    }

    #[test]
    fn a_plugin_without_a_main_function_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("odd")).unwrap();
        fs::write(dir.path().join("odd/a.go"), "package main\n").unwrap();
        let error = combine(dir.path(), &["odd"], &dir.path().join("m"), "m").unwrap_err();
        assert!(
            error.to_string().contains("has 0 functions main"),
            "{error}"
        );
    }
}
