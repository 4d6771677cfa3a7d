//! Reads files from a disc in a drive, whatever its label.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use corten_platform::Udf;
use corten_volumes::labelled;

use crate::volume::read_file;

/// `ENOMEDIUM`, errno(3): the drive is empty.
const NO_MEDIUM: i32 = 123;
const BLOCK_DEVICES: &str = "/sys/class/block";

/// Contents of files; `None` for a missing one.
type Files = Vec<Option<Vec<u8>>>;

/// Reads these files from the first disc that has one of them. The disc has UDF or ISO 9660; the latter is mounted at
/// `mount_point` during the call. `None` without such a disc.
///
/// # Errors
/// No disc has a file, and one cannot be read; the text names the drive.
pub fn read_discs(files: &[&str], mount_point: &Path) -> Result<Option<Files>, String> {
    let mut problem = None;
    for drive in drives(Path::new(BLOCK_DEVICES)) {
        match read(&Path::new("/dev").join(&drive), files, mount_point) {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(why) => problem = Some(format!("disc in {drive}: {why}")),
        }
    }
    problem.map_or(Ok(None), Err)
}

/// The optical drives, sorted by name.
fn drives(class: &Path) -> Vec<String> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut drives: Vec<String> = names.filter(|name| name.starts_with("sr")).collect();
    drives.sort();
    drives
}

fn read(device: &Path, files: &[&str], mount_point: &Path) -> Result<Option<Files>, String> {
    let disc = match File::open(device) {
        Ok(disc) => disc,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(NO_MEDIUM) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if let Some(found) = read_udf(&disc, files)? {
        return Ok(Some(found).filter(has_one));
    }
    let disc = labelled::attach_device(device, "mounting", mount_point)?;
    let found = files.iter().map(|file| {
        let bytes = read_file(&disc.path(file));
        bytes.map_err(|error| format!("{file}: {error}"))
    });
    let found = found.collect::<Result<Files, _>>()?;
    Ok(Some(found).filter(has_one))
}

/// The files of a disc with UDF.
fn read_udf(disc: &File, files: &[&str]) -> Result<Option<Files>, String> {
    let fill = |bytes: &mut [u8], at| disc.read_exact_at(bytes, at);
    let Some(udf) = Udf::open(&fill)? else {
        return Ok(None);
    };
    let found = files.iter().map(|file| {
        let bytes = udf.file(file);
        bytes.map_err(|error| format!("{file}: {error}"))
    });
    found.collect::<Result<_, _>>().map(Some)
}

fn has_one(files: &Files) -> bool {
    files.iter().any(Option::is_some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_block_devices_of_the_optical_driver() {
        let class = tempfile::tempdir().unwrap();
        for name in ["sr1", "sda", "sr0", "vda", "loop0"] {
            fs::create_dir(class.path().join(name)).unwrap();
        }
        assert_eq!(drives(class.path()), ["sr0", "sr1"]);
        assert!(drives(&class.path().join("none")).is_empty());
    }

    #[test]
    fn udf_disc_is_read_without_a_mount() {
        let root = tempfile::tempdir().unwrap();
        let packed = include_bytes!("../../platform/src/golden.udf.gz");
        let mut disc = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(packed.as_slice());
        std::io::Read::read_to_end(&mut decoder, &mut disc).unwrap();
        let device = root.path().join("sr0");
        fs::write(&device, &disc).unwrap();
        let none = root.path().join("none");
        let found = read(&device, &["ovf-env.xml", "other"], &none)
            .unwrap()
            .unwrap();
        assert_eq!(found[0].as_ref().map(Vec::len), Some(3028));
        assert_eq!(found[1], None);
        assert_eq!(read(&device, &["other"], &none), Ok(None));
        assert_eq!(read(&none, &["ovf-env.xml"], &none), Ok(None));
    }
}
