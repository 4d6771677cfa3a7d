//! VMDK, streamOptimized (VMware's Virtual Disk Format 5.0): the disk format of an OVA.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use corten_steps::error::Result;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::{Release, bytes, output};

const SECTOR: u64 = 512;
/// Sectors per grain: 64 KiB, the only size importers expect.
const GRAIN: u64 = 128;
/// Grains per table.
const TABLE: u64 = 512;
const DESCRIPTOR_SECTORS: u64 = 20;
/// Sectors before the first grain.
const OVERHEAD: u64 = 128;
/// Newline test is valid; grains are compressed; markers are present.
const FLAGS: u32 = 1 | 1 << 16 | 1 << 17;
/// The directory's offset is in the footer.
const AT_END: u64 = u64::MAX;
const DEFLATE: u16 = 1;
const MARK_END: u32 = 0;
const MARK_TABLE: u32 = 1;
const MARK_DIRECTORY: u32 = 2;
const MARK_FOOTER: u32 = 3;

/// Writes the disk image `raw` to `out` as a streamOptimized VMDK.
pub fn build(out: &Path, release: &Release, raw: &Path) -> Result<()> {
    let mut disk = output::open(raw)?;
    let sectors = disk.metadata()?.len() / SECTOR;
    output::create(out, |file| {
        let mut stream = Stream {
            out: BufWriter::new(file),
            sector: 0,
        };
        stream.put(&header(sectors, AT_END))?;
        let mut text = descriptor(release, sectors).into_bytes();
        text.resize(bytes::index((OVERHEAD - 1) * SECTOR)?, 0);
        stream.put(&text)?;
        let directory = grains(&mut stream, &mut disk, sectors)?;
        let data: Vec<u8> = directory
            .iter()
            .flat_map(|entry| entry.to_le_bytes())
            .collect();
        stream.mark(bytes::size(data.len()).div_ceil(SECTOR), MARK_DIRECTORY)?;
        let at = stream.sector;
        stream.put(&data)?;
        stream.mark(1, MARK_FOOTER)?;
        stream.put(&header(sectors, at))?;
        stream.mark(0, MARK_END)?;
        Ok(stream.out.flush()?)
    })
}

/// A file written sector by sector.
struct Stream<W: Write> {
    out: W,
    sector: u64,
}

impl<W: Write> Stream<W> {
    /// Appends `data`, padded to whole sectors.
    fn put(&mut self, data: &[u8]) -> Result<()> {
        let mut data = data.to_vec();
        bytes::pad(&mut data, bytes::index(SECTOR)?);
        self.out.write_all(&data)?;
        self.sector = self.sector.saturating_add(bytes::size(data.len()) / SECTOR);
        Ok(())
    }

    /// Appends the marker that announces `sectors` of metadata.
    fn mark(&mut self, sectors: u64, kind: u32) -> Result<()> {
        let mut marker = sectors.to_le_bytes().to_vec();
        marker.extend([0; 4]);
        marker.extend(kind.to_le_bytes());
        self.put(&marker)
    }
}

/// Writes every non-zero grain, and a table after each 512; returns the directory.
fn grains(stream: &mut Stream<impl Write>, disk: &mut File, sectors: u64) -> Result<Vec<u32>> {
    let tables = sectors.div_ceil(GRAIN * TABLE);
    let mut directory = vec![0; bytes::index(tables)?];
    let mut current: Option<(u64, Vec<u32>)> = None;
    output::blocks(disk, bytes::index(GRAIN * SECTOR)?, |index, block| {
        let slot = index / TABLE;
        if current.as_ref().is_some_and(|(open, _)| *open != slot) {
            close(stream, &mut directory, current.take())?;
        }
        let (_, table) =
            current.get_or_insert_with(|| (slot, vec![0; usize::try_from(TABLE).unwrap_or(0)]));
        let place = bytes::fit32(stream.sector, "the VMDK")?;
        if let Some(entry) = table.get_mut(bytes::index(index % TABLE)?) {
            *entry = place;
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(block)?;
        let packed = packed.finish()?;
        let mut grain = (index * GRAIN).to_le_bytes().to_vec();
        grain.extend(bytes::fit32(packed.len(), "a grain")?.to_le_bytes());
        grain.extend(packed);
        stream.put(&grain)
    })?;
    close(stream, &mut directory, current)?;
    Ok(directory)
}

/// Writes a grain table and records its offset.
fn close(
    stream: &mut Stream<impl Write>,
    directory: &mut [u32],
    table: Option<(u64, Vec<u32>)>,
) -> Result<()> {
    let Some((slot, entries)) = table else {
        return Ok(());
    };
    let data: Vec<u8> = entries
        .iter()
        .flat_map(|entry| entry.to_le_bytes())
        .collect();
    stream.mark(bytes::size(data.len()) / SECTOR, MARK_TABLE)?;
    if let Some(entry) = directory.get_mut(bytes::index(slot)?) {
        *entry = bytes::fit32(stream.sector, "the VMDK")?;
    }
    stream.put(&data)
}

fn header(sectors: u64, directory: u64) -> Vec<u8> {
    let mut header = b"KDMV".to_vec();
    header.extend(3_u32.to_le_bytes());
    header.extend(FLAGS.to_le_bytes());
    header.extend(sectors.to_le_bytes());
    header.extend(GRAIN.to_le_bytes());
    header.extend(1_u64.to_le_bytes()); // the descriptor's sector
    header.extend(DESCRIPTOR_SECTORS.to_le_bytes());
    header.extend(512_u32.to_le_bytes()); // entries of a grain table
    header.extend(0_u64.to_le_bytes()); // no second directory
    header.extend(directory.to_le_bytes());
    header.extend(OVERHEAD.to_le_bytes());
    header.extend(b"\0\n \r\n"); // clean shutdown; bytes that a text transfer would damage
    header.extend(DEFLATE.to_le_bytes());
    header
}

fn descriptor(release: &Release, sectors: u64) -> String {
    // 0xffffffff and 0xfffffffe mean "none".
    let id = release.id32("vmdk") & 0x7fff_ffff;
    let (stem, long) = (release.stem(), release.uuid("vmdk").simple());
    let cylinders = sectors / (255 * 63);
    format!(
        "# Disk DescriptorFile\nversion=1\nCID={id:08x}\nparentCID=ffffffff\n\
         createType=\"streamOptimized\"\n\n# Extent description\n\
         RW {sectors} SPARSE \"{stem}.vmdk\"\n\n# The Disk Data Base\n#DDB\n\n\
         ddb.adapterType = \"lsilogic\"\nddb.geometry.cylinders = \"{cylinders}\"\n\
         ddb.geometry.heads = \"255\"\nddb.geometry.sectors = \"63\"\n\
         ddb.longContentID = \"{long}\"\nddb.virtualHWVersion = \"13\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, disk, host, release, text};

    #[test]
    fn qemu_reads_the_same_disk_from_the_vmdk_image() {
        let scratch = Scratch::new();
        let raw = disk(&scratch);
        let (one, two) = (scratch.path("one.vmdk"), scratch.path("two.vmdk"));
        build(&one, &release(), &raw).unwrap();
        build(&two, &release(), &raw).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
        let said = host("qemu-img", &["info", "-f", "vmdk", text(&one)]);
        assert!(said.contains("streamOptimized"), "{said}");
        host(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "vmdk", text(&raw), text(&one)],
        );
    }
}
