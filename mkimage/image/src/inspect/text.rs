//! An inspection as text for people.

use std::fmt;

use super::Inspection;

/// A size with a unit.
fn human(size: u64) -> String {
    if size < 10 << 10 {
        return format!("{size} B");
    }
    let (unit, name) = if size < 10 << 20 {
        (1 << 10, "KiB")
    } else {
        (1 << 20, "MiB")
    };
    let tenths = size.saturating_mul(10) / unit;
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "format      {}, {}", self.format, human(self.size))?;
        if let Some(volume) = &self.volume {
            writeln!(f, "volume      {volume}")?;
        }
        for part in &self.partitions {
            let (size, start) = (human(part.size), human(part.start));
            writeln!(
                f,
                "partition {} {:10} {:10} {size} at {start}",
                part.number, part.label, part.kind
            )?;
        }
        for (tag, value) in &self.meta {
            writeln!(f, "META {tag}   {value}")?;
        }
        for file in &self.files {
            writeln!(f, "file        {} {}", file.path, human(file.size))?;
        }
        for image in &self.images {
            writeln!(f, "image       {}", image.path)?;
            let arch = image.arch.map(|arch| arch.to_string()).unwrap_or_default();
            for (label, value) in [
                ("name", &image.name),
                ("version", &image.version),
                ("arch", &arch),
                ("kernel", &image.kernel),
                ("cmdline", &image.cmdline),
            ] {
                if !value.is_empty() {
                    writeln!(f, "  {label:9} {value}")?;
                }
            }
            for section in &image.sections {
                writeln!(f, "  section   {:10} {}", section.name, human(section.size))?;
            }
            for file in &image.initramfs {
                writeln!(f, "  initramfs {} {}", file.path, human(file.size))?;
            }
        }
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "note        {note}"))
    }
}
