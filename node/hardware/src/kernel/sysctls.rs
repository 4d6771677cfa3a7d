//! The image's kernel parameters, from `*.conf` files in the syntax of sysctl.d(5), and the parameters that depend on
//! the machine (`super::lockups`).

use std::fs;
use std::io;
use std::path::Path;

use corten_base::console;
use corten_base::mode::{Ability, Mode};
use corten_sys::sysctl;

use super::lockups::Choice;
use super::setting::{Setting, parse};

/// Directory of the files, below the root.
const DIRECTORY: &str = "etc/sysctl.d";

/// Sets every parameter of the node below `root` (`/`); returns the number of set ones. A parameter that cannot be set
/// is logged and skipped.
pub fn apply(root: &Path) -> usize {
    if Mode::now().can(Ability::Sysctls) {
        console::say(&Choice::of(root).to_string());
    }
    let proc_sys = root.join("proc/sys");
    let settings = read(root);
    let works = |setting: &&Setting| apply_one(setting, &proc_sys);
    settings.iter().filter(works).count()
}

/// Every parameter of the node: first those of the machine, then those of the files in lexical order. The last value of
/// a parameter wins.
pub fn read(root: &Path) -> Vec<Setting> {
    read_for(root, Mode::now())
}

fn read_for(root: &Path, mode: Mode) -> Vec<Setting> {
    let mut settings: Vec<_> = Choice::of(root).settings().collect();
    let mut files: Vec<_> = fs::read_dir(root.join(DIRECTORY))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.retain(|path: &std::path::PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "conf")
    });
    files.sort();
    for file in files {
        match fs::read_to_string(&file) {
            Ok(text) => settings.extend(parse(&text)),
            Err(error) => console::warn(&format!("cannot read {}: {error}", file.display())),
        }
    }
    settings.retain(|setting| mode.sets(&setting.key));
    // Some network parameters exist only in the initial network namespace.
    for setting in &mut settings {
        setting.quiet |= !mode.can(Ability::Sysctls);
    }
    settings
}

fn apply_one(setting: &Setting, proc_sys: &Path) -> bool {
    match sysctl::write(proc_sys, &setting.key, &setting.value) {
        Ok(()) => true,
        // Its module is not loaded yet, or this kernel was built without the option.
        Err(error) if setting.quiet && error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => {
            console::warn(&format!(
                "sysctl {} = {}: {error}",
                setting.key, setting.value
            ));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_sets_only_network_parameters_and_ignores_errors() {
        let dir = tempfile::tempdir().unwrap();
        let conf = dir.path().join(DIRECTORY);
        fs::create_dir_all(&conf).unwrap();
        fs::write(conf.join("a.conf"), "kernel.panic = 1\nnet.core.a = 1\n").unwrap();
        let own = read_for(dir.path(), Mode::Container);
        let expected = [Setting {
            key: "net.core.a".into(),
            value: "1".into(),
            quiet: true,
        }];
        assert_eq!(own, expected);
        assert_eq!(read_for(dir.path(), Mode::Machine).len(), 4);
    }

    #[test]
    fn later_file_wins_and_missing_parameter_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let (conf, sys) = (dir.path().join(DIRECTORY), dir.path().join("proc/sys"));
        fs::create_dir_all(&conf).unwrap();
        fs::create_dir_all(sys.join("kernel")).unwrap();
        fs::write(conf.join("20-b.conf"), "kernel.a = 2").unwrap();
        fs::write(
            conf.join("10-a.conf"),
            "kernel.a = 1\n-no.such.parameter = 1",
        )
        .unwrap();
        fs::write(conf.join("README"), "kernel.a = 3").unwrap();
        // Two of the files and two of the machine.
        assert_eq!(apply(dir.path()), 4);
        let value = |name: &str| fs::read_to_string(sys.join("kernel").join(name)).unwrap();
        assert_eq!(value("a"), "2\n");
        assert_eq!(value("softlockup_panic"), "1\n");
        fs::write(dir.path().join("proc/cpuinfo"), "flags : hypervisor\n").unwrap();
        apply(dir.path());
        assert_eq!(value("softlockup_panic"), "0\n");
        fs::write(conf.join("30-c.conf"), "kernel.softlockup_panic = 1").unwrap();
        apply(dir.path());
        assert_eq!(value("softlockup_panic"), "1\n");
    }
}
