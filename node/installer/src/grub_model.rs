//! A model of GRUB's next start, for tests: a function of the configuration, the block and the files. `tests/grub.rs`
//! compares its assumptions with GRUB itself.

use std::collections::BTreeMap;

use crate::Entry;

/// The file that GRUB starts by `config`, and the kernel's block list. Counts the start in `block`. `None`: GRUB starts
/// nothing, and restarts the machine.
pub(crate) fn start(
    config: &str,
    block: &mut [u8],
    files: &BTreeMap<String, Vec<u8>>,
) -> Option<(String, String)> {
    let listed = listed(config);
    let has_content = |name: &&String| !files[*name].is_empty();
    for (stem, linux) in &listed {
        let good = format!("{stem}.efi");
        if files.get(&good).is_some_and(|content| !content.is_empty()) {
            return Some((good, linux.clone()));
        }
        for name in counted(files, stem).filter(has_content) {
            let left = Entry::parse(name).and_then(|entry| entry.counter);
            if left.is_some_and(|counter| counter.left > 0) && take(block, &good) {
                return Some((name.clone(), linux.clone()));
            }
        }
    }
    listed.iter().find_map(|(stem, linux)| {
        let name = counted(files, stem).find(has_content)?;
        Some((name.clone(), linux.clone()))
    })
}

fn counted<'a>(
    files: &'a BTreeMap<String, Vec<u8>>,
    stem: &str,
) -> impl Iterator<Item = &'a String> {
    let start = format!("{stem}+");
    let is_it = move |name: &&String| name.starts_with(&start) && name.ends_with(".efi");
    files.keys().filter(is_it)
}

/// Stems and block lists of a configuration's entries, in order.
pub(crate) fn listed(config: &str) -> Vec<(String, String)> {
    let between = |line: &str, start: &str, end: &str| {
        let (rest, _) = line.trim().strip_prefix(start)?.split_once(end)?;
        Some(rest.to_owned())
    };
    let stems = config
        .lines()
        .filter_map(|line| between(line, "if [ -s ($root)/EFI/Linux/", ".efi ]"));
    let lists = config
        .lines()
        .filter_map(|line| between(line, "if linux (uki)", " "));
    stems.zip(lists).collect()
}

/// Takes one of the starts that `block` has left for the entry `id`.
fn take(block: &mut [u8], id: &str) -> bool {
    let value = |block: &[u8], name: &str| {
        let text = String::from_utf8_lossy(block).into_owned();
        let text = text.strip_prefix("# GRUB Environment Block\n")?.to_owned();
        // Of several values, the last one counts.
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines.rev().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.to_owned())
    };
    let rest = match value(block, "left").as_deref() {
        Some("3") => "2",
        Some("2") => "1",
        Some("1") => "0",
        _ => return false,
    };
    if value(block, "trial").as_deref() != Some(id) {
        return false;
    }
    // GRUB overwrites the first value.
    let at = block.windows(6).position(|bytes| bytes == b"\nleft=");
    let at = at.expect("a value") + 6;
    block[at..=at].copy_from_slice(rest.as_bytes());
    value(block, "left").as_deref() == Some(rest)
}
