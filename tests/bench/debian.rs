//! The Debian system of the comparison: version 13 from its packages, with systemd, udev and sshd,
//! network by DHCP, and nothing else. Built without root.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use tar::EntryType;

/// Packages besides the essential ones. kmod comes with every kernel of Debian.
const PACKAGES: &str = "systemd-sysv,udev,openssh-server,kmod";
/// systemd's own network daemon, the one with the fastest start.
const NETWORK: &str = "[Match]\\nType=ether\\n[Network]\\nDHCP=yes\\n";
/// Size of the sparse image.
const DISK: &str = "2g";

/// A built image.
#[derive(Debug)]
pub struct Image {
    /// Raw disk with one XFS file system, which our kernel mounts without an initramfs.
    pub disk: PathBuf,
    /// Total size of its files in bytes.
    pub content: u64,
}

/// Builds the image in `directory`, or reuses an existing one unless `fresh` is set.
pub fn image(directory: &Path, fresh: bool) -> anyhow::Result<Image> {
    fs::create_dir_all(directory)?;
    let archive = directory.join("debian.tar");
    let disk = directory.join("debian.raw");
    // An image of other packages is another system.
    let list = directory.join("debian.packages");
    let is_same = disk.exists() && fs::read_to_string(&list).is_ok_and(|list| list == PACKAGES);
    if fresh || !is_same {
        eprintln!("building a minimal Debian 13 (once; --fresh builds it again)");
        let partial = directory.join("partial.tar");
        bootstrap(&partial)?;
        fs::rename(&partial, &archive)?;
        let partial = directory.join("partial.raw");
        make_disk(&archive, &directory.join("files"), &partial)?;
        fs::rename(&partial, &disk)?;
        fs::write(&list, PACKAGES)?;
    }
    let content = content(&archive)?;
    Ok(Image { disk, content })
}

/// The package mirror of the host itself.
fn mirror() -> anyhow::Result<String> {
    let output = Command::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(RELEASE) $(COMPONENT) $(REPO_URI)",
        ])
        .arg("Created-By: Packages")
        .output()
        .context("apt-get is needed to find a Debian mirror")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    find_mirror(&text).context("the host's apt has no Debian 12 or 13 main archive")
}

fn find_mirror(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let release = words.next()?;
        let main = words.next()? == "main";
        let known = ["bookworm", "trixie", "oldstable", "stable"].contains(&release);
        (main && known).then(|| words.next().map(str::to_owned))?
    })
}

fn bootstrap(archive: &Path) -> anyhow::Result<()> {
    let mirror = mirror()?;
    let network = format!(
        "mkdir -p \"$1/etc/systemd/network\"; \
         printf '{NETWORK}' > \"$1/etc/systemd/network/80-dhcp.network\""
    );
    let status = Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase", "--format=tar"])
        .arg(format!("--include={PACKAGES}"))
        .arg(format!("--customize-hook={network}"))
        .arg("--customize-hook=chroot \"$1\" systemctl enable systemd-networkd")
        .arg("trixie")
        .arg(archive)
        .arg(mirror)
        .status()
        .context("mmdebstrap is missing; install the package of that name")?;
    if !status.success() {
        bail!("mmdebstrap failed ({status})");
    }
    Ok(())
}

/// A node of the file tree, in the order of the archive.
#[derive(Debug, Default)]
struct Tree {
    line: String,
    children: std::collections::BTreeMap<String, Tree>,
}

impl Tree {
    fn at(&mut self, path: &str) -> &mut Self {
        let parts = path
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".");
        parts.fold(self, |tree, part| {
            tree.children.entry(part.to_owned()).or_default()
        })
    }

    /// Writes the prototype for `mkfs.xfs -p`: directories end with `$`.
    fn write(&self, depth: usize, out: &mut String) {
        for (name, child) in &self.children {
            let _infallible = writeln!(out, "{:depth$}{name} {}", "", child.line);
            if child.line.starts_with('d') {
                child.write(depth + 1, out);
                let _infallible = writeln!(out, "{:depth$}$", "");
            }
        }
    }
}

/// Writes the file system with `mkfs.xfs`, which reads owners and modes from a prototype: no root,
/// no mount.
fn make_disk(archive: &Path, files: &Path, disk: &Path) -> anyhow::Result<()> {
    let prototype = prototype(archive, files)?;
    let list = files.join("prototype");
    fs::write(&list, prototype)?;
    let _absent = fs::remove_file(disk);
    let status = Command::new("mkfs.xfs")
        .args(["-q", "-f", "-p"])
        .arg(&list)
        .arg("-d")
        .arg(format!("file,name={},size={DISK}", disk.display()))
        .status()
        .context("mkfs.xfs is missing; install xfsprogs")?;
    if !status.success() {
        bail!("mkfs.xfs failed ({status})");
    }
    fs::remove_dir_all(files)?;
    Ok(())
}

fn prototype(archive: &Path, files: &Path) -> anyhow::Result<String> {
    if files.exists() {
        fs::remove_dir_all(files)?;
    }
    fs::create_dir_all(files)?;
    let mut tree = Tree::default();
    let mut input = tar::Archive::new(fs::File::open(archive)?);
    for (number, entry) in input.entries()?.enumerate() {
        let mut entry = entry?;
        let path = entry
            .path()?
            .to_str()
            .context("a file name that is not UTF-8")?
            .to_owned();
        if path.contains(char::is_whitespace) {
            bail!("a prototype cannot hold the name `{path}`");
        }
        let header = entry.header();
        let kind = header.entry_type();
        let rights = rights(header.mode()?);
        let owner = format!("{} {}", header.uid()?, header.gid()?);
        // These fields have numbers only in a device's header.
        let device = || {
            anyhow::Ok(format!(
                "{} {}",
                header.device_major()?.unwrap_or(0),
                header.device_minor()?.unwrap_or(0)
            ))
        };
        let target = entry.link_name()?.map(|link| link.display().to_string());
        let line = match kind {
            EntryType::Directory => format!("d{rights} {owner}"),
            EntryType::Symlink => format!("l{rights} {owner} {}", target.unwrap_or_default()),
            EntryType::Char => format!("c{rights} {owner} {}", device()?),
            EntryType::Block => format!("b{rights} {owner} {}", device()?),
            EntryType::Fifo => format!("p{rights} {owner}"),
            // A hard link becomes a second copy.
            EntryType::Link => tree.at(&target.unwrap_or_default()).line.clone(),
            _ => {
                let source = files.join(number.to_string());
                let mut data = Vec::new();
                entry.read_to_end(&mut data)?;
                fs::write(&source, data)?;
                format!("-{rights} {owner} {}", source.display())
            }
        };
        tree.at(&path).line = line;
    }
    let mut text = format!("none\n0 0\n{}\n", tree.line);
    tree.write(1, &mut text);
    text.push_str("$\n");
    Ok(text)
}

/// Set-id bits as letters, permissions in octal; a prototype cannot express the sticky bit.
fn rights(mode: u32) -> String {
    let letter = |bit, letter| if mode & bit == 0 { '-' } else { letter };
    format!(
        "{}{}{:03o}",
        letter(0o4000, 'u'),
        letter(0o2000, 'g'),
        mode & 0o777
    )
}

fn content(archive: &Path) -> anyhow::Result<u64> {
    let mut input = tar::Archive::new(fs::File::open(archive)?);
    let mut bytes = 0;
    for entry in input.entries()? {
        bytes += entry?.header().size()?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_of_the_main_archive_is_chosen() {
        let targets = "bookworm-security main http://s.example/x\n\
                       bookworm contrib http://a.example/debian\n\
                       bookworm main http://b.example/debian\n";
        assert_eq!(find_mirror(targets).unwrap(), "http://b.example/debian");
        assert_eq!(find_mirror("noble main http://u.example/ubuntu"), None);
    }

    #[test]
    fn file_modes_have_the_prototype_format() {
        assert_eq!(rights(0o755), "--755");
        assert_eq!(rights(0o4711), "u-711");
        assert_eq!(rights(0o102_755), "-g755");
    }

    #[test]
    fn directories_are_closed_in_the_prototype() {
        let mut tree = Tree::default();
        tree.at("./").line = "d--755 0 0".into();
        tree.at("./a").line = "d--755 0 0".into();
        tree.at("./a/b").line = "---644 0 0 /x".into();
        let mut text = String::new();
        tree.write(1, &mut text);
        assert_eq!(text, " a d--755 0 0\n  b ---644 0 0 /x\n $\n");
    }
}
