//! The network boot bundle: a directory for a TFTP or HTTP server.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use corten_steps::error::{Failure, Result};

use super::{Release, output};

/// The content of a network boot bundle.
#[derive(Debug)]
pub struct Pxe<'a> {
    /// The kernel.
    pub vmlinuz: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// The kernel command line.
    pub cmdline: &'a str,
}

/// File name of the kernel.
pub const KERNEL: &str = "vmlinuz";
/// File name of the initramfs.
pub const INITRAMFS: &str = "initramfs";
/// File name of the iPXE script.
pub const SCRIPT: &str = "boot.ipxe";

/// Makes the directory `out` with `vmlinuz`, `initramfs` and `boot.ipxe`.
pub fn build(out: &Path, release: &Release, pxe: &Pxe<'_>) -> Result<()> {
    let script = script(release, pxe.cmdline)?;
    output::checked(out, || {
        std::fs::create_dir(out)?;
        Ok(std::fs::set_permissions(
            out,
            std::fs::Permissions::from_mode(0o755),
        )?)
    })?;
    for (name, from) in [(KERNEL, pxe.vmlinuz), (INITRAMFS, pxe.initramfs)] {
        let mut source = output::open(from)?;
        output::create(&out.join(name), |file| {
            std::io::copy(&mut source, file)?;
            Ok(())
        })?;
    }
    output::create(&out.join(SCRIPT), |file| {
        Ok(file.write_all(script.as_bytes())?)
    })
}

/// The kernel command line in the builder's iPXE script; `None` for another script.
pub fn command_line(script: &str) -> Option<&str> {
    let start = format!("kernel {KERNEL} initrd={INITRAMFS} ");
    let line = script.lines().find_map(|line| line.strip_prefix(&start))?;
    Some(line.split(" || ").next().unwrap_or(line))
}

/// The iPXE script. Its names have no server, so that iPXE loads them from the script's own
/// location.
fn script(release: &Release, cmdline: &str) -> Result<String> {
    let operator = |word: &str| word == "||" || word == "&&";
    if cmdline.contains("${") || cmdline.split_whitespace().any(operator) {
        return Err(Failure::new(
            format!("iPXE cannot pass the kernel command line {cmdline:?}"),
            "remove ${...}, && and || from the kernel arguments",
        ));
    }
    let title = release.stem();
    Ok(format!(
        "#!ipxe\n\
         # {title}: point the DHCP server's boot file at this script on the server that holds\n\
         # this directory, or type `chain http://SERVER/DIRECTORY/{SCRIPT}` at the iPXE prompt.\n\
         # Add corten.config=URL to the kernel line to serve a machine configuration.\n\
         :start\n\
         kernel {KERNEL} initrd={INITRAMFS} {cmdline} || goto failed\n\
         initrd {INITRAMFS} || goto failed\n\
         boot || goto failed\n\
         :failed\n\
         echo {title} could not be loaded; trying again in 10 seconds\n\
         sleep 10\n\
         goto start\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, release};

    #[test]
    fn pxe_bundle_is_readable_under_any_umask() {
        let scratch = Scratch::new();
        let (kernel, initramfs) = (
            scratch.file("k", b"kernel"),
            scratch.file("i", b"initramfs"),
        );
        let pxe = Pxe {
            vmlinuz: &kernel,
            initramfs: &initramfs,
            cmdline: "console=ttyS0",
        };
        let out = scratch.path("pxe");
        build(&out, &release(), &pxe).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&out), 0o755);
        assert_eq!(mode(&out.join(KERNEL)), 0o644);
        assert_eq!(std::fs::read(out.join(INITRAMFS)).unwrap(), b"initramfs");
        let script = std::fs::read_to_string(out.join(SCRIPT)).unwrap();
        assert_eq!(command_line(&script), Some("console=ttyS0"));
        assert_eq!(command_line("#!ipxe\nboot\n"), None);
        assert!(script.starts_with("#!ipxe\n"));
        assert!(
            script.contains("\nkernel vmlinuz initrd=initramfs console=ttyS0 || goto failed\n")
        );
    }

    #[test]
    fn command_line_that_ipxe_would_expand_is_refused() {
        assert!(
            script(&release(), "a=${net0/mac}")
                .unwrap_err()
                .to_string()
                .contains("iPXE")
        );
        assert!(
            script(&release(), "a || b")
                .unwrap_err()
                .to_string()
                .contains("iPXE")
        );
    }
}
