//! Returns pages of files that containerd and the shims no longer use to the kernel: mostly code of the image, which is in
//! memory a second time, compressed. Owns: the pace, which follows the pages that come back.
//! Never: touches memory of pods, or memory that is not of files.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_sys::cgroup;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::boot::cgroups::ROOT;

/// containerd and the shims of all pods. machined and its daemons are not worth it: they use nearly every block of their
/// program within a minute.
const GROUP: &str = "system/runtime";
/// Time before the first round: Kubernetes starts meanwhile, and uses what a round would return.
const START: Duration = Duration::from_secs(240);
/// Interval of the rounds. containerd uses most of its code for the last time when it starts.
const ROUND: Duration = Duration::from_secs(60);
/// Part of the group's pages that a round returns; the kernel begins with those unused for longest.
const PART: u64 = 2;
/// Part of the returned pages above which too many come back. A page comes back with its neighbours in the compressed
/// block.
const BACK: u64 = 2;
/// Most rounds between two returns while too many pages come back.
const LONGEST: u32 = 64;

/// Returns pages at intervals. Runs until machined ends, or until the kernel refuses.
pub(super) async fn follow() {
    let mut pace = Pace::default();
    sleep(START).await;
    loop {
        sleep(ROUND).await;
        let round = spawn_blocking(move || pace.round(Path::new(ROOT), GROUP).map(|()| pace));
        pace = match round.await {
            Ok(Ok(next)) => next,
            Ok(Err(error)) => {
                return console::say(&format!(
                    "cgroup {GROUP}: unused pages of files stay until memory is short: {error}"
                ));
            }
            Err(_panic) => return,
        };
    }
}

/// The pace of the rounds.
#[derive(Debug, Default)]
struct Pace {
    /// Rounds to wait before the next return.
    left: u32,
    /// Rounds between the last return and the next.
    pause: u32,
    /// Bytes that the last return freed, and the group's count of pages that came back before it.
    last: Option<(u64, u64)>,
}

/// Numbers of a group's `memory.stat` (Documentation/admin-guide/cgroup-v2.rst of the kernel).
#[derive(Debug, Clone, Copy)]
struct Stat {
    /// Bytes of files, without those of file systems in memory.
    files: u64,
    /// Pages that came back since the group was made.
    back: u64,
}

impl Pace {
    /// Waits, or returns a part of the group's pages.
    fn round(&mut self, root: &Path, path: &str) -> io::Result<()> {
        let read = || fs::read_to_string(root.join(path).join("memory.stat"));
        let before = Stat::parse(&read()?);
        if !self.is_due(before) {
            return Ok(());
        }
        // Swapping would make these programs wait for a disk.
        let request = format!("{} swappiness=0", before.files / PART);
        match cgroup::set(root, path, "memory.reclaim", &request) {
            // The kernel has returned fewer: the others are in use, or protected.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => done?,
        }
        let freed = before.files.saturating_sub(Stat::parse(&read()?).files);
        self.last = Some((freed, before.back));
        Ok(())
    }

    /// Whether this round returns pages. The pause doubles while too many of the last ones come back.
    fn is_due(&mut self, now: Stat) -> bool {
        if let Some((freed, before)) = self.last.take() {
            let page = rustix::param::page_size() as u64;
            let back = now.back.saturating_sub(before).saturating_mul(page);
            self.pause = match back > freed / BACK {
                true => (self.pause * 2).clamp(1, LONGEST),
                false => 0,
            };
            self.left = self.pause;
        }
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due && now.files > 0
    }
}

impl Stat {
    fn parse(text: &str) -> Stat {
        let of = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
            text.lines().find_map(value).unwrap_or(0_u64)
        };
        Stat {
            files: of("active_file ").saturating_add(of("inactive_file ")),
            back: of("workingset_refault_file "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("runtime")).unwrap();
        root
    }

    fn stat(root: &Path, files: u64, back: u64) {
        let text = format!(
            "anon 1\nfile {0}\ninactive_file 0\nactive_file {0}\nworkingset_refault_anon 9\nworkingset_refault_file {back}\n",
            files * MIB
        );
        fs::write(root.join("runtime/memory.stat"), text).unwrap();
    }

    /// The request of a round, if it makes one.
    fn request(pace: &mut Pace, root: &Path) -> Option<String> {
        let file = root.join("runtime/memory.reclaim");
        let _ = fs::remove_file(&file);
        pace.round(root, "runtime").unwrap();
        fs::read_to_string(file).ok()
    }

    #[test]
    fn each_round_returns_half_of_the_pages_of_files() {
        let (root, mut pace) = (group(), Pace::default());
        for files in [40, 20, 10] {
            stat(root.path(), files, 0);
            let half = format!("{} swappiness=0", files / 2 * MIB);
            assert_eq!(request(&mut pace, root.path()), Some(half));
        }
        stat(root.path(), 0, 0);
        assert_eq!(request(&mut pace, root.path()), None);
    }

    #[test]
    fn pause_doubles_while_pages_come_back_and_ends_when_they_stay_away() {
        let mut pace = Pace::default();
        let mut now = Stat {
            files: 8 * MIB,
            back: 0,
        };
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let mut rounds = 0;
            while !pace.is_due(now) {
                rounds += 1;
            }
            pauses.push(rounds);
            pace.last = Some((4 * MIB, now.back));
            now.back += 2 * MIB / 4096 + 1;
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
        pace.last = Some((4 * MIB, now.back));
        assert!(pace.is_due(now));
    }

    #[test]
    fn refused_request_and_missing_statistics_are_errors() {
        let root = group();
        stat(root.path(), 8, 0);
        fs::create_dir(root.path().join("runtime/memory.reclaim")).unwrap();
        Pace::default().round(root.path(), "runtime").unwrap_err();
        fs::remove_file(root.path().join("runtime/memory.stat")).unwrap();
        Pace::default().round(root.path(), "runtime").unwrap_err();
    }
}
