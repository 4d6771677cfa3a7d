//! The date of the image: its `SOURCE_DATE_EPOCH`, stored in the initramfs.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Environment variable that passes the date to machined.
pub const VARIABLE: &str = "CORTEN_IMAGE_DATE";

const FILE: &str = "source-date-epoch";

/// The date in the initramfs at `top`; `None` if it is missing or unreadable.
pub fn of_image(top: &Path) -> Option<SystemTime> {
    let text = fs::read_to_string(top.join(FILE)).ok()?;
    let seconds = text.trim().parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// The date in seconds since 1970.
pub fn text(date: SystemTime) -> Option<String> {
    let since = date.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_date_is_read_and_malformed_dates_are_ignored() {
        let top = std::env::temp_dir().join(format!("corten-init-date-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let date = |text: &str| {
            fs::write(top.join(FILE), text).unwrap();
            of_image(&top)
        };
        let found = date("1700000000\n");
        assert_eq!(
            found,
            UNIX_EPOCH.checked_add(Duration::from_secs(1_700_000_000))
        );
        assert_eq!(found.and_then(text).as_deref(), Some("1700000000"));
        for wrong in ["", "-1", "soon", "18446744073709551615"] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
        fs::remove_file(top.join(FILE)).unwrap();
        assert_eq!(of_image(&top), None);
        fs::remove_dir(&top).unwrap();
    }
}
