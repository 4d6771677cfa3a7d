//! Puts the functions that a node uses beside each other in a program. The kernel maps a file in pieces of 64 KiB, and in
//! the order of crates each piece has a function that runs. Owns: the call of the linker, and the form of the list.
//! Never: changes a function; one that is not in the list stays in the order of its crate.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use corten_steps::error::Result;
use corten_steps::tool::Tool;
use object::SymbolKind;
use object::read::{Object as _, ObjectSymbol as _};
use rustc_demangle::demangle;
use sha2::{Digest as _, Sha256};

/// The recorded functions, in the source tree.
pub const USED: &str = "services/multicall/functions.txt";

/// The list of the functions of the multi-call program that [`link`] writes.
pub const TABLE: &str = "corten_node.functions";

/// What the linker calls the section of a function before the function's symbol.
const SECTION: &str = ".text.";

/// The identity of a function: the start of the SHA-256 of its path in the source with its types. It is the same for
/// every architecture, compiler and version of a crate.
pub fn identity(symbol: &str) -> u32 {
    // The alternate form has no hashes of crates.
    let path = format!("{:#}", demangle(symbol));
    let [first, second, third, fourth, ..] = <[u8; 32]>::from(Sha256::digest(path));
    u32::from_be_bytes([first, second, third, fourth])
}

/// Identities of functions, one a line in 8 hex digits; `#` starts a comment.
///
/// # Errors
/// A line is no identity.
pub fn parse(text: &str) -> Result<BTreeSet<u32>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| u32::from_str_radix(line, 16).with_context(|| format!("the line {line:?}")))
        .collect()
}

/// A function of a linked program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its place, from the start of the program in memory, in bytes.
    pub address: u64,
    /// Bytes of instructions.
    pub size: u64,
    /// Its [`identity`].
    pub identity: u32,
}

/// Reads the functions of a program that [`link`] has written: on each line address, size and identity, in hex digits.
///
/// # Errors
/// A line has another form.
pub fn functions(text: &str) -> Result<Vec<Function>> {
    let function = |line: &str| {
        let mut words = line.split(' ');
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        Some(Function {
            address: number()?,
            size: number()?,
            identity: number()?.try_into().ok()?,
        })
    };
    text.lines()
        .map(|line| function(line).with_context(|| format!("the line {line:?}")))
        .collect()
}

/// A call of the linker by rustc.
#[derive(Debug)]
pub struct Link<'a> {
    /// The C compiler, which calls the linker.
    pub linker: &'a Path,
    /// The list of functions that a node uses.
    pub used: &'a Path,
    /// The directory for `CRATE.functions`, which lists the functions of the linked program.
    pub tables: &'a Path,
    /// rustc's arguments.
    pub arguments: &'a [OsString],
}

/// Links a program, the used functions first.
///
/// # Errors
/// A file cannot be read or written, an argument is missing, or the linker fails.
pub fn link(call: &Link<'_>) -> Result<()> {
    let text = fs::read_to_string(call.used);
    let used = text
        .map_err(anyhow::Error::from)
        .and_then(|text| parse(&text));
    let used = used.with_context(|| format!("reading {}", call.used.display()))?;
    let program = output(call.arguments)?;
    let [order, map] = ["order", "map"].map(|kind| program.with_extension(kind));
    let mut names = String::new();
    for object in objects(call.arguments)? {
        let content = fs::read(&object);
        let found = content
            .map_err(anyhow::Error::from)
            .and_then(|content| used_symbols(&content, &used));
        for name in found.with_context(|| format!("reading {}", object.display()))? {
            names += &name;
            names.push('\n');
        }
    }
    fs::write(&order, names).with_context(|| format!("writing {}", order.display()))?;
    let option = |name: &str, path: &Path| {
        let mut option = OsString::from(format!("-Wl,--{name}="));
        option.push(path);
        option
    };
    Tool::new(call.linker)
        .args(call.arguments)
        .arg(option("symbol-ordering-file", &order))
        .arg("-Wl,--no-warn-symbol-ordering")
        .arg(option("Map", &map))
        .run()?;
    let text = fs::read_to_string(&map).with_context(|| format!("reading {}", map.display()))?;
    let table = call.tables.join(table(&program)?);
    fs::write(&table, listed(&text)).with_context(|| format!("writing {}", table.display()))?;
    for file in [order, map] {
        fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    }
    Ok(())
}

/// The name of the list of a program's functions: cargo names a program `CRATE-HASH` before it moves it.
fn table(program: &Path) -> Result<String> {
    let name = program.file_name().and_then(OsStr::to_str);
    let name = name.with_context(|| format!("the name of {}", program.display()))?;
    let (name, _hash) = name.rsplit_once('-').unwrap_or((name, ""));
    Ok(name.to_owned() + ".functions")
}

fn output(arguments: &[OsString]) -> Result<PathBuf> {
    let mut rest = arguments.iter().skip_while(|argument| *argument != "-o");
    let output = rest
        .nth(1)
        .context("rustc's call of the linker has no -o")?;
    Ok(output.into())
}

/// The object files among the arguments.
fn objects(arguments: &[OsString]) -> Result<Vec<PathBuf>> {
    let is_list = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"@");
    if arguments.iter().any(is_list) {
        bail!("rustc passes its arguments to the linker in a file, which is not supported");
    }
    let files = arguments.iter().map(PathBuf::from);
    Ok(files
        .filter(|file| file.extension() == Some(OsStr::new("o")))
        .collect())
}

/// The symbols of the used functions that an object file defines.
fn used_symbols(content: &[u8], used: &BTreeSet<u32>) -> Result<Vec<String>> {
    let file = object::File::parse(content)?;
    let functions = file
        .symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
    let mut found = Vec::new();
    for symbol in functions {
        let name = symbol.name()?;
        if used.contains(&identity(name)) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// The functions in the linker's map of a program, as [`functions`] reads them.
///
/// A line of the map has address, load address, size, alignment and a name. The name of a section of an object file is
/// `FILE:(SECTION)`; a function has a section of its own.
fn listed(map: &str) -> String {
    let mut table = String::new();
    for line in map.lines() {
        let mut words = line.split_whitespace();
        let (address, size) = (words.next(), words.nth(1));
        let section = line
            .rsplit_once(":(")
            .and_then(|(_, name)| name.strip_suffix(')'));
        let symbol = section.and_then(|name| name.strip_prefix(SECTION));
        if let (Some(address), Some(size), Some(symbol)) = (address, size, symbol) {
            let symbol = symbol.strip_prefix("unlikely.").unwrap_or(symbol);
            let _infallible = writeln!(table, "{address} {size} {:08x}", identity(symbol));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const MAP: &str = "\
        VMA              LMA     Size Align Out     In      Symbol\n\
        6000             6000   1ceeec  4096 .rodata\n\
        6000             6000    300c1     1         <internal>:(.rodata.str1.1)\n\
        8aca40           8aca40  1342707    64 .text\n\
        8aca40           8aca40       26     1         /a b/crt.o:(.text)\n\
        8aca70           8aca70       2f    16         /a b/x.o:(.text._RNvCs1_3foo3run)\n\
        8aca70           8aca70       2f     1                 _RNvCs1_3foo3run\n\
        8acaa0           8acaa0        5     1         /a b/x.o:(.text.unlikely._RNvCs1_3foo4fail)\n";

    #[test]
    fn hash_of_a_crate_does_not_change_the_identity_and_a_type_does() {
        assert_eq!(
            identity("_RNvCs4fqI2P2rA04_3foo3run"),
            identity("_RNvCsaaaaaaaaaaa_3foo3run.llvm.123")
        );
        assert_ne!(
            identity("_RINvCs4fqI2P2rA04_3foo3runhE"),
            identity("_RINvCs4fqI2P2rA04_3foo3runtE")
        );
    }

    #[test]
    fn broken_line_of_the_list_is_refused_and_shown() {
        assert_eq!(parse("# a comment\n0000000a\n").unwrap(), [10].into());
        let error = parse("0000000a\nfunction\n").unwrap_err();
        assert!(error.to_string().contains("function"), "{error:#}");
        functions("8aca70 2f\n").unwrap_err();
    }

    #[test]
    fn table_has_every_function_of_the_map() {
        let [run, fail] = ["_RNvCs1_3foo3run", "_RNvCs1_3foo4fail"].map(identity);
        let function = |address, size, identity| Function {
            address,
            size,
            identity,
        };
        assert_eq!(
            functions(&listed(MAP)).unwrap(),
            [function(0x8a_ca70, 0x2f, run), function(0x8a_caa0, 5, fail)]
        );
    }

    #[test]
    fn linker_gets_the_used_symbols_of_the_object_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        // The program of this test is an object with symbols, too.
        fs::copy(std::env::current_exe().unwrap(), path("x.o")).unwrap();
        fs::write(path("used"), format!("{:08x}\n", identity("main"))).unwrap();
        fs::write(path("map"), MAP).unwrap();
        let script = "#!/bin/sh\ncd \"${0%/*}\"\nfor word; do case $word in\n\
            -Wl,--Map=*) cp map \"${word#*=}\" ;;\n\
            -Wl,--symbol-ordering-file=*) cp \"${word#*=}\" order ;;\n\
            esac; done\n";
        fs::write(path("linker"), script).unwrap();
        fs::set_permissions(path("linker"), fs::Permissions::from_mode(0o755)).unwrap();
        let program = path("foo_bar-0123.program");
        let arguments = [path("x.o").into(), "-o".into(), program.into()];
        let call = Link {
            linker: &path("linker"),
            used: &path("used"),
            tables: dir.path(),
            arguments: &arguments,
        };
        link(&call).unwrap();
        assert_eq!(fs::read_to_string(path("order")).unwrap(), "main\n");
        assert_eq!(
            fs::read_to_string(path("foo_bar.functions")).unwrap(),
            listed(MAP)
        );
        assert!(!path("foo_bar-0123.map").exists());
        let error = link(&Link {
            arguments: &arguments[..1],
            ..call
        });
        assert!(error.unwrap_err().to_string().contains("-o"));
    }
}
