//! A directory that a tool fills. It belongs to the tool while the tool works, and to the node afterwards.
//!
//! A tool that reads untrusted data does not run as root, but its output must belong to root. No symbolic link in the
//! output is followed. Nothing changes the directory meanwhile: no process of a tool outlives it.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchown, openat,
    openat2, readlinkat, statat,
};
use tokio::task::spawn_blocking;

/// Maximum number of paths; exceeds the limit for an image (`lib/extension`, `archive/files.rs`).
const MOST: usize = 400_000;
const SET_ID: u32 = 0o6000;

/// A path below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Path relative to the directory, without a leading `/`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Kind of the path.
    pub kind: Kind,
}

/// Kinds of files a tool may leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link with this target.
    Link(String),
}

/// Applies a function to each directory on a blocking thread, so that a slow disk does not stall the runtime.
///
/// # Errors
/// The first error; the text names the directory.
pub(super) async fn each(
    directories: &[PathBuf],
    act: impl Fn(&Path) -> io::Result<()> + Clone + Send + 'static,
) -> Result<(), String> {
    for directory in directories {
        let (directory, act) = (directory.clone(), act.clone());
        let shown = directory.display().to_string();
        let done = spawn_blocking(move || act(&directory)).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|error| format!("{shown}: {error}"))?;
    }
    Ok(())
}

/// Recreates the directory empty and gives it to a user.
///
/// # Errors
/// The directory cannot be removed or created.
pub(super) fn give(directory: &Path, uid: u32) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::create_dir(directory)?;
    chown(directory, Some(uid), Some(uid))
}

/// Gives the directory and everything the user left in it to root.
///
/// # Errors
/// The directory contains something a tool never leaves; the text names it. The directory then stays with the user.
pub(super) fn take(directory: &Path, uid: u32) -> io::Result<()> {
    walk(directory, |within, name, found| {
        if found.mode & SET_ID != 0 {
            let why = format!("{:?} is set-user-id or set-group-id", found.path);
            return Err(io::Error::other(why));
        }
        let owner = statat(within, name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid;
        if owner != uid {
            let why = format!("{:?} belongs to user {owner}", found.path);
            return Err(io::Error::other(why));
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(chownat(
            within,
            name,
            Some(Uid::ROOT),
            Some(Gid::ROOT),
            flags,
        )?)
    })?;
    let top = open(directory)?;
    Ok(fchown(top, Some(Uid::ROOT), Some(Gid::ROOT))?)
}

/// Visits everything below the directory, without following links. `see` receives the open parent, the name in it, and
/// a description.
///
/// # Errors
/// There are other files than directories, regular files and links, or too many of them; a file cannot be read; or
/// `see` fails.
pub fn walk(
    directory: &Path,
    mut see: impl FnMut(&OwnedFd, &CStr, &Found) -> io::Result<()>,
) -> io::Result<()> {
    let top = open(directory)?;
    let mut left = vec![String::from(".")];
    let mut seen = 0_usize;
    while let Some(path) = left.pop() {
        // Resolution follows no link and never leaves the directory.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let within = openat2(&top, path.as_str(), DIRECTORY, Mode::empty(), resolve)?;
        for entry in Dir::read_from(&within)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            seen += 1;
            if seen > MOST {
                return Err(io::Error::other(format!("it has more than {MOST} paths")));
            }
            let found = find(&within, name, &path)?;
            see(&within, name, &found)?;
            if found.kind == Kind::Directory {
                left.push(found.path);
            }
        }
    }
    Ok(())
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn open(directory: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, directory, DIRECTORY, Mode::empty())?)
}

fn find(within: &OwnedFd, name: &CStr, path: &str) -> io::Result<Found> {
    let word = |name: &CStr| {
        let word = name.to_str().map(str::to_owned);
        word.map_err(|_| io::Error::other(format!("{path:?} has a name that is not UTF-8")))
    };
    let path = match path {
        "." => word(name)?,
        above => format!("{above}/{}", word(name)?),
    };
    let about = statat(within, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(about.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link(word(&readlinkat(within, name, Vec::new())?)?),
        _ => {
            return Err(io::Error::other(format!(
                "{path:?} is neither file, directory nor link"
            )));
        }
    };
    Ok(Found {
        path,
        // The permission bits of a link have no meaning.
        mode: about.st_mode & 0o7777,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use corten_base::testing::skip;

    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    const USER: u32 = 53;

    fn of_user(path: &Path) {
        std::os::unix::fs::lchown(path, Some(USER), Some(USER)).unwrap();
    }

    #[test]
    fn files_of_a_tool_are_handed_to_root_without_following_links() {
        if !rustix::process::geteuid().is_root() {
            return skip("root, to change the owner of files");
        }
        let world = tempfile::tempdir().unwrap();
        let (outside, directory) = (world.path().join("outside"), world.path().join("a/b"));
        fs::write(&outside, "").unwrap();
        of_user(&outside);
        fs::create_dir_all(directory.join("of-another-boot")).unwrap();
        give(&directory, USER).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        assert_eq!(fs::metadata(&directory).unwrap().uid(), USER);
        let at = |name: &str| directory.join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/program"), "").unwrap();
        fs::set_permissions(at("d/program"), Permissions::from_mode(0o755)).unwrap();
        symlink(&outside, at("link")).unwrap();
        let names = ["d", "d/program", "link"];
        names.iter().for_each(|name| of_user(&at(name)));
        take(&directory, USER).unwrap();
        for name in ["", "d", "d/program", "link"] {
            let about = fs::symlink_metadata(at(name)).unwrap();
            assert_eq!((about.uid(), about.gid()), (0, 0), "{name}");
        }
        assert_eq!(
            fs::metadata(at("d/program")).unwrap().mode() & 0o7777,
            0o755
        );
        assert_eq!(fs::metadata(&outside).unwrap().uid(), USER);
        // A file of root was not left by the tool.
        let error = take(&directory, USER).unwrap_err().to_string();
        assert!(error.contains("belongs to user 0"), "{error}");
    }

    #[test]
    fn hostile_files_of_a_tool_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return skip("root, to change the owner of files");
        }
        let world = tempfile::tempdir().unwrap();
        let directory = world.path().join("d");
        let refused = |leave: &dyn Fn(&Path)| {
            give(&directory, USER).unwrap();
            leave(&directory.join("x"));
            take(&directory, USER).unwrap_err().to_string()
        };
        let socket = refused(&|path| {
            UnixListener::bind(path).unwrap();
            of_user(path);
        });
        assert_eq!(socket, "\"x\" is neither file, directory nor link");
        let program = refused(&|path| {
            fs::write(path, "").unwrap();
            of_user(path);
            fs::set_permissions(path, Permissions::from_mode(0o4755)).unwrap();
        });
        assert_eq!(program, "\"x\" is set-user-id or set-group-id");
        // A link replaces the directory itself.
        fs::remove_dir_all(&directory).unwrap();
        symlink(world.path(), &directory).unwrap();
        take(&directory, USER).unwrap_err();
        assert_eq!(fs::metadata(world.path()).unwrap().uid(), 0);
    }

    #[test]
    fn walk_visits_every_path_once_and_follows_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/c"), "").unwrap();
        symlink("..", at("a/up")).unwrap();
        let mut seen = Vec::new();
        let told = walk(directory.path(), |_, _, found| {
            seen.push((found.path.clone(), found.kind.clone()));
            Ok(())
        });
        told.unwrap();
        seen.sort_by(|one, other| one.0.cmp(&other.0));
        let wanted = [
            ("a", Kind::Directory),
            ("a/b", Kind::Directory),
            ("a/b/c", Kind::File),
            ("a/up", Kind::Link("..".to_owned())),
        ];
        assert_eq!(seen, wanted.map(|(path, kind)| (path.to_owned(), kind)));
    }
}
