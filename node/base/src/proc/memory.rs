//! Memory: `/proc/meminfo` (proc(5)), every value in kB as in the file.

use std::collections::HashMap;
use std::path::Path;

use corten_api::machine as api;

use super::{Unreadable, text};

/// Memory usage; `proc` is the mount point of procfs.
pub fn info(proc: &Path) -> Result<api::MemInfo, Unreadable> {
    text(proc, "meminfo").map(|text| parse(&text))
}

fn parse(text: &str) -> api::MemInfo {
    let values: HashMap<&str, u64> = text
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            Some((name, rest.split_whitespace().next()?.parse().ok()?))
        })
        .collect();
    let of = |name: &str| values.get(name).copied().unwrap_or_default();
    api::MemInfo {
        memtotal: of("MemTotal"),
        memfree: of("MemFree"),
        memavailable: of("MemAvailable"),
        buffers: of("Buffers"),
        cached: of("Cached"),
        swapcached: of("SwapCached"),
        active: of("Active"),
        inactive: of("Inactive"),
        activeanon: of("Active(anon)"),
        inactiveanon: of("Inactive(anon)"),
        activefile: of("Active(file)"),
        inactivefile: of("Inactive(file)"),
        unevictable: of("Unevictable"),
        mlocked: of("Mlocked"),
        swaptotal: of("SwapTotal"),
        swapfree: of("SwapFree"),
        dirty: of("Dirty"),
        writeback: of("Writeback"),
        anonpages: of("AnonPages"),
        mapped: of("Mapped"),
        shmem: of("Shmem"),
        slab: of("Slab"),
        sreclaimable: of("SReclaimable"),
        sunreclaim: of("SUnreclaim"),
        kernelstack: of("KernelStack"),
        pagetables: of("PageTables"),
        nfsunstable: of("NFS_Unstable"),
        bounce: of("Bounce"),
        writebacktmp: of("WritebackTmp"),
        commitlimit: of("CommitLimit"),
        committedas: of("Committed_AS"),
        vmalloctotal: of("VmallocTotal"),
        vmallocused: of("VmallocUsed"),
        vmallocchunk: of("VmallocChunk"),
        hardwarecorrupted: of("HardwareCorrupted"),
        anonhugepages: of("AnonHugePages"),
        shmemhugepages: of("ShmemHugePages"),
        shmempmdmapped: of("ShmemPmdMapped"),
        cmatotal: of("CmaTotal"),
        cmafree: of("CmaFree"),
        hugepagestotal: of("HugePages_Total"),
        hugepagesfree: of("HugePages_Free"),
        hugepagesrsvd: of("HugePages_Rsvd"),
        hugepagessurp: of("HugePages_Surp"),
        hugepagesize: of("Hugepagesize"),
        directmap4k: of("DirectMap4k"),
        directmap2m: of("DirectMap2M"),
        directmap1g: of("DirectMap1G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_kilobytes() {
        let parsed = parse(
            "MemTotal:        8128692 kB\nActive(anon):      1234 kB\nHugePages_Total:       2\nnonsense\nX: y\n",
        );
        assert_eq!(parsed.memtotal, 8_128_692);
        assert_eq!(parsed.activeanon, 1234);
        assert_eq!(parsed.hugepagestotal, 2);
        assert_eq!(parsed.memfree, 0);
    }
}
