//! Checks the finished tree for forbidden and missing content before it is written. A finding names
//! the path and the problem.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Result};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};

use crate::programs::{self, MOST_EXECUTABLES};
use crate::tree::{Kind, Tree};

/// Checks the whole tree; `allowed` lists the programs (`rootfs/executables.txt`).
pub fn check(tree: &Tree, arch: Arch, allowed: &str) -> Result<()> {
    let mut findings = Vec::new();
    modes(tree, &mut findings);
    executables(tree, arch, allowed, &mut findings);
    let mut needed = BTreeSet::new();
    for (path, node) in tree.nodes() {
        if let Kind::File(file) = &node.kind {
            needed.extend(content(tree, arch, path, node.mode, file, &mut findings)?);
        }
    }
    let libraries = format!("usr/lib/{}/lib", arch.names().gnu);
    for (path, _) in tree
        .nodes()
        .filter(|(path, _)| path.starts_with(&libraries))
    {
        if !needed.contains(path.rsplit('/').next().unwrap_or(path)) {
            findings.push(format!("/{path}: a library that no program needs"));
        }
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "the root file system of the image breaks its rules:\n  {}",
            findings.join("\n  ")
        ),
        "correct rootfs/manifest.toml (and rootfs/executables.txt for a required program)",
    ))
}

fn modes(tree: &Tree, findings: &mut Vec<String>) {
    for (path, node) in tree.nodes() {
        if matches!(node.kind, Kind::Link(_)) {
            if tree.resolve(path).is_none() && !leads_to_mount(tree, path) {
                findings.push(format!("/{path}: a dangling link"));
            }
            continue;
        }
        if node.mode & 0o7000 != 0 {
            findings.push(format!(
                "/{path}: mode {:o} has a set-id or sticky bit",
                node.mode
            ));
        }
        if node.mode & 0o002 != 0 {
            findings.push(format!(
                "/{path}: mode {:o} is writable by everyone",
                node.mode
            ));
        }
    }
}

/// Whether the path is a link into a mount of the running node, such as `/etc/hosts ->
/// ../run/names/hosts`: its target does not exist in the image.
fn leads_to_mount(tree: &Tree, path: &str) -> bool {
    let Some(Kind::Link(target)) = tree.get(path).map(|node| &node.kind) else {
        return false;
    };
    let depth = path.matches('/').count();
    let inside = target.trim_start_matches('/');
    let from_root = inside.trim_start_matches("../");
    let climbs = (inside.len() - from_root.len()) / 3;
    (target.starts_with('/') || climbs == depth)
        && ["run/", "proc/", "var/"]
            .iter()
            .any(|mount| from_root.starts_with(mount))
}

fn executables(tree: &Tree, arch: Arch, allowed: &str, findings: &mut Vec<String>) {
    let allowed = match programs::allowed(allowed, arch) {
        Ok(allowed) => allowed,
        Err(error) => {
            findings.push(format!("rootfs/executables.txt: {error:#}"));
            return;
        }
    };
    let mut seen = BTreeSet::new();
    for (path, node) in tree.nodes() {
        let is_program = matches!(node.kind, Kind::File(_)) && node.mode & 0o111 != 0;
        if programs::is_interpreter(path) && (is_program || matches!(node.kind, Kind::Link(_))) {
            findings.push(format!("/{path}: a shell, interpreter or package manager"));
        }
        if is_program {
            let path = format!("/{path}");
            if allowed.contains(path.as_str()) {
                seen.insert(path);
            } else {
                findings.push(format!(
                    "{path}: executable, but not in rootfs/executables.txt"
                ));
            }
        }
    }
    for path in allowed {
        if !seen.contains(path) {
            findings.push(format!(
                "{path}: in rootfs/executables.txt, but not in the image"
            ));
        }
    }
    if seen.len() > MOST_EXECUTABLES {
        findings.push(format!(
            "{} programs, more than {MOST_EXECUTABLES}",
            seen.len()
        ));
    }
}

/// Checks a file; returns the libraries it needs.
fn content(
    tree: &Tree,
    arch: Arch,
    path: &str,
    mode: u32,
    file: &Path,
    findings: &mut Vec<String>,
) -> Result<Vec<String>> {
    let data = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    if data.starts_with(b"#!") {
        findings.push(format!("/{path}: a script"));
    }
    if !data.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    let facts = match elf(&data) {
        Ok(facts) => facts,
        Err(why) => {
            findings.push(format!("/{path}: not readable as ELF: {why}"));
            return Ok(Vec::new());
        }
    };
    if facts.machine != arch.names().elf_machine {
        findings.push(format!(
            "/{path}: for another machine (ELF machine {}) than {arch}",
            facts.machine
        ));
    }
    if path.ends_with(".ko") {
        return Ok(Vec::new());
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if mode & 0o111 == 0 && !name.contains(".so") {
        findings.push(format!("/{path}: a program without execute permission"));
    }
    if facts.executable_stack {
        findings.push(format!("/{path}: requests an executable stack"));
    }
    if let Some(interpreter) = &facts.interpreter
        && tree.resolve(interpreter).is_none()
    {
        findings.push(format!(
            "/{path}: its dynamic linker {interpreter} is not in the image"
        ));
    }
    for library in &facts.needed {
        if !has_library(tree, arch, library) {
            findings.push(format!(
                "/{path}: needs {library}, which is not in the image"
            ));
        }
    }
    Ok(facts.needed)
}

/// Whether the C library finds `name` without any configuration.
fn has_library(tree: &Tree, arch: Arch, name: &str) -> bool {
    let gnu = arch.names().gnu;
    [
        format!("lib/{gnu}"),
        format!("usr/lib/{gnu}"),
        "lib64".into(),
        "lib".into(),
    ]
    .iter()
    .any(|dir| tree.resolve(&format!("{dir}/{name}")).is_some())
}

/// The parts of an ELF file that the dynamic linker uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Elf {
    machine: u16,
    interpreter: Option<String>,
    needed: Vec<String>,
    executable_stack: bool,
}

fn elf(data: &[u8]) -> std::result::Result<Elf, object::Error> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(data)?;
    let endian = header.endian()?;
    let mut facts = Elf {
        machine: header.e_machine(endian).0,
        ..Elf::default()
    };
    let sections = header.sections(endian, data)?;
    for segment in header.program_headers(endian, data)? {
        match segment.p_type(endian) {
            object::elf::PT_INTERP => {
                let text = segment.data(endian, data).unwrap_or_default();
                let text = text.strip_suffix(b"\0").unwrap_or(text);
                facts.interpreter = Some(String::from_utf8_lossy(text).into_owned());
            }
            object::elf::PT_GNU_STACK => {
                facts.executable_stack = (segment.p_flags(endian) & object::elf::PF_X).0 != 0;
            }
            _ => {}
        }
    }
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries {
            if entry.tag(endian) == object::elf::DT_NEEDED {
                let name = entry.string(endian, strings)?;
                facts
                    .needed
                    .push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Node;

    struct Image {
        dir: tempfile::TempDir,
        tree: Tree,
    }

    impl Image {
        fn new() -> Self {
            Self {
                dir: tempfile::tempdir().unwrap(),
                tree: Tree::default(),
            }
        }

        fn file(mut self, path: &str, mode: u32, content: &[u8]) -> Self {
            let file = self.dir.path().join(path.replace('/', "-"));
            fs::write(&file, content).unwrap();
            self.add(path, mode, Kind::File(file));
            self
        }

        fn link(mut self, path: &str, to: &str) -> Self {
            self.add(path, 0o777, Kind::Link(to.into()));
            self
        }

        fn add(&mut self, path: &str, mode: u32, kind: Kind) {
            self.tree
                .insert(
                    path.into(),
                    Node {
                        kind,
                        mode,
                        uid: 0,
                        gid: 0,
                    },
                )
                .unwrap();
        }

        fn finding(&self, allowed: &str) -> String {
            check(&self.tree, Arch::X86_64, allowed)
                .unwrap_err()
                .to_string()
        }
    }

    #[test]
    fn dangerous_files_are_found() {
        let image = |mode, content: &[u8]| Image::new().file("x", mode, content);
        assert!(image(0o4755, b"").finding("/x").contains("set-id"));
        assert!(
            image(0o666, b"")
                .finding("")
                .contains("is writable by everyone")
        );
        assert!(
            image(0o755, b"")
                .finding("")
                .contains("not in rootfs/executables.txt")
        );
        assert!(image(0o644, b"#!/x").finding("").contains("a script"));
        assert!(
            image(0o644, b"")
                .finding("/y # why")
                .contains("but not in the image")
        );
        let shell = Image::new()
            .file("usr-bin-x", 0o755, b"")
            .link("bash", "usr-bin-x");
        assert!(shell.finding("/usr-bin-x").contains("/bash: a shell"));
        let nowhere = Image::new().link("a", "b").finding("");
        assert!(nowhere.contains("/a: a dangling link"), "{nowhere}");
    }

    #[test]
    fn unneeded_library_is_found() {
        let alone = Image::new().file("usr/lib/x86_64-linux-gnu/libm.so.6", 0o644, b"");
        assert!(
            alone
                .finding("")
                .contains("libm.so.6: a library that no program needs")
        );
    }

    #[test]
    fn links_into_mounts_may_dangle() {
        let image = Image::new()
            .link("etc/hosts", "../run/names/hosts")
            .link("var/run", "/run/x");
        check(&image.tree, Arch::X86_64, "").unwrap();
        let wrong = Image::new()
            .link("etc/hosts", "run/names/hosts")
            .finding("");
        assert!(wrong.contains("/etc/hosts: a dangling link"), "{wrong}");
    }

    #[test]
    fn a_missing_library_or_linker_is_found() {
        // This test program itself is a dynamic ELF file.
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let finding = Image::new().file("x", 0o755, &program).finding("/x");
        assert!(
            finding.contains("its dynamic linker /lib64/ld-linux"),
            "{finding}"
        );
        assert!(finding.contains("needs libc.so.6"), "{finding}");
        assert!(
            Image::new()
                .file("x", 0o644, b"\x7fELF")
                .finding("")
                .contains("not readable")
        );
        let hidden = Image::new().file("x", 0o644, &program).finding("");
        assert!(hidden.contains("without execute permission"), "{hidden}");
    }

    #[test]
    fn file_for_another_architecture_is_found() {
        let host: Arch = std::env::consts::ARCH.parse().unwrap();
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        for path in ["x.so", "x.ko"] {
            let image = Image::new().file(path, 0o644, &program);
            for arch in Arch::ALL {
                let found = check(&image.tree, arch, "").is_err_and(|error| {
                    let machine = host.names().elf_machine;
                    let wanted = format!("/{path}: for another machine (ELF machine {machine})");
                    error.to_string().contains(&wanted)
                });
                assert_eq!(found, arch != host, "{path} on {arch}");
            }
        }
    }

    #[test]
    fn a_list_of_programs_that_cannot_be_read_is_a_finding() {
        for bad in ["/a armv7 # x", "/a arm64 x86_64"] {
            let finding = Image::new().finding(bad);
            let wanted = format!("rootfs/executables.txt: {bad}: ");
            assert!(finding.contains(&wanted), "{finding}");
        }
    }
}
