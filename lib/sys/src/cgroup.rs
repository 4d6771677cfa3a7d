//! cgroup v2: directories and one-line control files (kernel: Documentation/admin-guide/cgroup-v2.rst).

use std::fs;
use std::io;
use std::path::Path;

/// Creates the cgroup and its parents below `root`, and enables `controllers` at every level.
///
/// `path` is relative to `root` ("system/apid"). Controllers that the kernel lacks are skipped.
///
/// # Errors
/// A directory cannot be created; a controller that cannot be enabled is not an error.
pub fn create(root: &Path, path: &str, controllers: &[&str]) -> io::Result<()> {
    let mut dir = root.to_path_buf();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        enable(&dir, controllers);
        dir.push(part);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Controllers of `wanted` that the hierarchy at `root` lacks: the kernel has none, or cgroup v1 uses it.
///
/// # Errors
/// The file `cgroup.controllers` cannot be read.
pub fn missing<'a>(root: &Path, wanted: &[&'a str]) -> io::Result<Vec<&'a str>> {
    let had = fs::read_to_string(root.join("cgroup.controllers"))?;
    let is_had = |controller: &str| had.split_whitespace().any(|one| one == controller);
    let missing = wanted.iter().copied().filter(|one| !is_had(one));
    Ok(missing.collect())
}

/// Enables controllers for the children of `dir`, each by its own write: a missing one must not fail the others.
fn enable(dir: &Path, controllers: &[&str]) {
    for controller in controllers {
        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Writes one control file, for example `memory.min`.
///
/// # Errors
/// The kernel's error: the controller is missing, or the value is refused.
pub fn set(root: &Path, path: &str, file: &str, value: &str) -> io::Result<()> {
    fs::write(root.join(path).join(file), value)
}

/// Moves a process (0: the caller) into the cgroup.
///
/// # Errors
/// The cgroup or the process does not exist, or the cgroup has children with controllers.
pub fn enter(root: &Path, path: &str, pid: u32) -> io::Result<()> {
    set(root, path, "cgroup.procs", &pid.to_string())
}

/// Kills every process in the cgroup and below it, atomically (`cgroup.kill`).
///
/// # Errors
/// The cgroup does not exist.
pub fn kill(root: &Path, path: &str) -> io::Result<()> {
    set(root, path, "cgroup.kill", "1")
}

/// Whether the cgroup or one below it contains a process.
#[must_use]
pub fn is_populated(root: &Path, path: &str) -> bool {
    fs::read_to_string(root.join(path).join("cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_missing_from_the_hierarchy_are_listed() {
        let root = std::env::temp_dir().join(format!("corten-controllers-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        missing(&root, &["cpu"]).unwrap_err();
        fs::write(root.join("cgroup.controllers"), "cpu hugetlb io pids\n").unwrap();
        let wanted = ["cpu", "cpuset", "io", "memory"];
        assert_eq!(missing(&root, &wanted).unwrap(), ["cpuset", "memory"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn directories_and_values_are_plain_files() {
        let root = std::env::temp_dir().join(format!("corten-cgroup-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        create(&root, "system/apid", &["memory"]).unwrap();
        set(&root, "system/apid", "memory.min", "16777216").unwrap();
        assert_eq!(
            fs::read_to_string(root.join("system/cgroup.subtree_control")).unwrap(),
            "+memory"
        );
        assert_eq!(
            fs::read_to_string(root.join("system/apid/memory.min")).unwrap(),
            "16777216"
        );
        fs::write(
            root.join("system/apid/cgroup.events"),
            "populated 1\nfrozen 0\n",
        )
        .unwrap();
        assert!(is_populated(&root, "system/apid"));
        assert!(!is_populated(&root, "system"));
        fs::remove_dir_all(&root).unwrap();
    }
}
