//! Decodes configs in the kernel parameters, and compressed ones.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_base::cmdline::Cmdline;
use corten_base::mode::USER_DATA;
use flate2::read::GzDecoder;

use super::LARGEST;

/// The config in `corten.<name>`: base64 of zstd. It may be split over several parameters, which are joined first,
/// because the kernel limits the length of a parameter.
///
/// # Errors
/// The text names the parameter and the remedy.
pub(super) fn parameter(cmdline: &Cmdline, name: &'static str) -> Result<Option<Vec<u8>>, String> {
    let text: String = cmdline.all_ours(name).collect();
    if text.is_empty() {
        return Ok(None);
    }
    let remedy = "write it with `zstd | base64 -w0`";
    let packed = STANDARD
        .decode(&text)
        .map_err(|error| format!("corten.{name} is not valid base64 ({error}); {remedy}"))?;
    let unpacked = zstd::Decoder::with_buffer(packed.as_slice())
        .map_err(|error| error.to_string())
        .and_then(read);
    unpacked
        .map(Some)
        .map_err(|error| format!("corten.{name} is not valid zstd ({error}); {remedy}"))
}

/// Decompresses a platform's config if it is gzip.
///
/// # Errors
/// The data are truncated or too large.
pub(super) fn unpack(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return read(GzDecoder::new(bytes.as_slice()));
    }
    Ok(bytes)
}

/// Decodes the value of [`USER_DATA`]: base64, optionally of gzip.
///
/// # Errors
/// The text names the variable and the remedy.
pub(super) fn user_data(text: &str) -> Result<Vec<u8>, String> {
    let bytes = STANDARD.decode(text).map_err(|error| {
        format!("{USER_DATA} is not valid base64 ({error}); write it with `base64 -w0`")
    })?;
    unpack(bytes).map_err(|error| format!("{USER_DATA}: {error}"))
}

fn read(stream: impl Read) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    stream
        .take(LARGEST + 1)
        .read_to_end(&mut all)
        .map_err(|error| error.to_string())?;
    if all.len() as u64 > LARGEST {
        return Err(format!("it is larger than {} MiB", LARGEST >> 20));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// `printf 'machine: {}\n' | zstd | base64 -w0`
    const PACKED: &str = "KLUv/QRYYQAAbWFjaGluZToge30Kc/1hEA==";

    fn read_parameter(cmdline: &str) -> Result<Option<Vec<u8>>, String> {
        parameter(&Cmdline::parse(cmdline), "config.inline")
    }

    #[test]
    fn config_may_be_split_over_several_parameters() {
        let (first, second) = PACKED.split_at(9);
        let cmdline = format!("corten.config.inline={first} quiet talos.config.inline={second}");
        let found = read_parameter(&cmdline).unwrap().unwrap();
        assert_eq!(found, b"machine: {}\n");
        assert_eq!(read_parameter("quiet").unwrap(), None);
    }

    #[test]
    fn undecodable_parameters_are_named_in_the_error() {
        for (value, expected) in [
            ("%%", "not valid base64"),
            ("bWFjaGluZQ==", "not valid zstd"),
        ] {
            let error = read_parameter(&format!("corten.config.inline={value}")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn hostile_user_data_are_refused_by_variable_name() {
        // `printf 'machine: {}\n' | base64`
        assert_eq!(user_data("bWFjaGluZToge30K").unwrap(), b"machine: {}\n");
        for hostile in ["%%", "bWFjaGluZToge30", "H4sI/////w=="] {
            let error = user_data(hostile).unwrap_err();
            assert!(error.starts_with("USERDATA"), "{error}");
        }
    }

    #[test]
    fn gzip_is_decompressed_and_a_decompression_bomb_is_refused() {
        let pack = |bytes: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(unpack(pack(b"text")).unwrap(), b"text");
        assert_eq!(unpack(b"text".to_vec()).unwrap(), b"text");
        let bomb = pack(&vec![0; 9 << 20]);
        assert!(unpack(bomb).unwrap_err().contains("larger than 8 MiB"));
    }
}
