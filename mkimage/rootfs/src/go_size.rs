//! Makes the Go programs of the root file system small: less inlining, and templates that call no methods.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::error::{Failure, Result};

/// Packages whose functions the compiler still inlines: the runtime, strings, checksums, encryption and compression.
/// Inlining elsewhere makes the compressed programs an eighth larger and speeds up no loop over a layer's bytes.
pub const INLINED: [&str; 10] = [
    "runtime",
    "internal/runtime/...",
    "internal/bytealg",
    "bytes",
    "strings",
    "unicode/utf8",
    "compress/...",
    "crypto/...",
    "hash/...",
    "github.com/klauspost/...",
];

/// The file of Go's library that calls a method by its name, below GOROOT.
const TEMPLATE: &str = "src/text/template/exec.go";

/// The line of [`TEMPLATE`] with the call, and its replacement. Where the linker finds this call, it keeps every
/// exported method of every type: containerd is a sixth larger. The templates that the node uses (CNI configurations
/// and hooks) have fields only; the help texts of `runc` and `containerd`, which no node prints, use methods.
const CALL: [&str; 2] = [
    "if method := ptr.MethodByName(fieldName); method.IsValid() {",
    "if method := (reflect.Value{}); method.IsValid() {",
];

/// The compiler's flags; of the flags for a package, the last ones count.
pub fn compiler_flags() -> Vec<String> {
    let inlined = INLINED.iter().map(|package| format!("-gcflags={package}="));
    std::iter::once("-gcflags=all=-l".to_owned())
        .chain(inlined)
        .collect()
}

/// Writes the changed file of Go's library, and the list for `go build -overlay`, to `scratch`. Returns the list.
pub fn overlay(goroot: &Path, scratch: &Path) -> Result<PathBuf> {
    let original = goroot.join(TEMPLATE);
    let text =
        fs::read_to_string(&original).with_context(|| format!("reading {}", original.display()))?;
    let changed =
        without_methods(&text).with_context(|| format!("changing {}", original.display()))?;
    let [file, list] = ["template.go", "overlay.json"].map(|name| scratch.join(name));
    let replace = serde_json::json!({ "Replace": { original.to_string_lossy(): file } });
    for (path, content) in [(&file, changed), (&list, replace.to_string())] {
        fs::write(path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(list)
}

fn without_methods(text: &str) -> Result<String> {
    let [call, replacement] = CALL;
    match text.matches(call).count() {
        1 => Ok(text.replace(call, replacement)),
        count => Err(Failure::new(
            format!("the line \"{call}\" is there {count} times, and must be there once"),
            "adapt CALL in mkimage/rootfs/src/go_size.rs to the locked Go compiler",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_the_expected_call_is_refused() {
        let [call, replacement] = CALL;
        let changed = without_methods(&format!("a\n{call}\nb\n")).unwrap();
        assert_eq!(changed, format!("a\n{replacement}\nb\n"));
        for text in ["", &format!("{call}\n{call}\n")] {
            let error = without_methods(text).unwrap_err().to_string();
            assert!(error.contains("must be there once"), "{error}");
        }
    }

    #[test]
    fn only_the_listed_packages_are_inlined() {
        let flags = compiler_flags();
        assert_eq!(flags[0], "-gcflags=all=-l");
        assert_eq!(flags[1], "-gcflags=runtime=");
        assert_eq!(flags.len(), 1 + INLINED.len());
    }
}
