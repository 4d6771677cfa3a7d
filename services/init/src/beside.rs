//! Files that systemd-stub adds from the EFI partition: credentials and extensions of systemd. They are unsigned even
//! under Secure Boot, and appear below `/.extra` of the initramfs.
//!
//! This module reports their names on the console. It never reads a file; all of them disappear with the initramfs.

use std::fs;
use std::path::Path;

/// Directory of the stub's files, with a subdirectory per kind (systemd-stub(7)).
const DIRECTORY: &str = ".extra";
/// Limit of reported names.
const MOST: usize = 8;
/// Characters of a name that are shown.
const LONGEST: usize = 80;

/// A line per file in the initramfs at `top`, up to a limit, and a line for the rest.
pub fn complaints(top: &Path) -> Vec<String> {
    let mut names = Vec::new();
    // Files in the directory itself are sections of the image, which its signature covers.
    for kind in list(&top.join(DIRECTORY)) {
        let files = list(&top.join(DIRECTORY).join(&kind));
        names.extend(files.iter().map(|file| format!("{kind}/{file}")));
    }
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    let mut lines: Vec<String> = names
        .iter()
        .map(|name| {
            let name = shown(name);
            format!("{name} is not used: files beside the image are not signed")
        })
        .collect();
    lines.extend((more > 0).then(|| format!("{more} more files beside the image are not used")));
    lines
}

/// The names in a directory, sorted; empty if there is no directory.
fn list(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The name without characters that could control the console.
fn shown(name: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.chars().take(LONGEST).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initramfs(name: &str, files: &[&str]) -> std::path::PathBuf {
        let top = std::env::temp_dir().join(format!("corten-beside-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(&top).unwrap();
        for file in files {
            let path = top.join(DIRECTORY).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "secret").unwrap();
        }
        top
    }

    #[test]
    fn files_added_beside_the_image_are_named_and_its_own_sections_are_not() {
        let top = initramfs(
            "named",
            &[
                "os-release",
                "sysext/more.raw",
                "credentials/passwd.cred",
                "global_credentials/a b\u{1b}[2J.cred",
            ],
        );
        let lines = complaints(&top);
        let names: Vec<_> = lines
            .iter()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(
            names,
            [
                "credentials/passwd.cred",
                "global_credentials/a?b?[2J.cred",
                "sysext/more.raw"
            ]
        );
        assert!(!lines.join("").contains("secret"));
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn image_without_added_files_is_not_reported() {
        let top = initramfs("nothing", &["os-release"]);
        assert_eq!(complaints(&top), [] as [String; 0]);
        assert_eq!(complaints(&top.join("missing")), [] as [String; 0]);
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn hostile_numbers_of_files_do_not_fill_the_console() {
        let files: Vec<String> = (0..100)
            .map(|number| format!("confext/{number:0200}"))
            .collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let top = initramfs("many", &files);
        let lines = complaints(&top);
        assert_eq!(lines.len(), MOST + 1);
        assert!(lines.iter().all(|line| line.len() < 200), "{lines:?}");
        assert_eq!(lines[MOST], "92 more files beside the image are not used");
        fs::remove_dir_all(&top).unwrap();
    }
}
