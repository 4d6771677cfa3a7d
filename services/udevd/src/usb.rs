//! Identity of a USB device: its descriptors, read from sysfs.

use crate::encode::{escaped, identifier};
use crate::event::{Event, Properties};
use crate::sysfs::Sysfs;

/// Properties of the USB device at or above `event`'s device: `ID_BUS`, `ID_VENDOR`, `ID_VENDOR_ENC`, `ID_VENDOR_ID`,
/// the same of `ID_MODEL`, `ID_REVISION`, `ID_SERIAL`, `ID_SERIAL_SHORT`, `ID_USB_INTERFACES`. Adds
/// `ID_USB_INTERFACE_NUM` and `ID_USB_DRIVER` of the interface between them. Empty without a USB device.
pub fn identity(sysfs: &Sysfs, event: &Event) -> Properties {
    let mut found = Properties::new();
    let chain = sysfs.chain(&event.devpath);
    let has = |name: &'static str| {
        let mut usb = chain.iter().filter(|a| a.subsystem == "usb");
        usb.find(|a| sysfs.text(&a.devpath, name).is_some())
    };
    let Some(device) = has("idVendor") else {
        return found;
    };
    let mut set = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            found.insert(key.to_owned(), value);
        }
    };
    let text = |name| sysfs.text(&device.devpath, name);
    let (vendor_id, model_id) = (text("idVendor"), text("idProduct"));
    // A device without strings is identified by its numbers.
    let (vendor, model) = (
        text("manufacturer").or_else(|| vendor_id.clone()),
        text("product").or_else(|| model_id.clone()),
    );
    let serial = text("serial").map(|serial| identifier(&serial));
    let names = [&vendor, &model].map(|name| name.as_deref().map(identifier));
    let all = names.iter().chain([&serial]).flatten().cloned();
    set("ID_SERIAL", Some(all.collect::<Vec<_>>().join("_")));
    set("ID_SERIAL_SHORT", serial);
    let [vendor_name, model_name] = names;
    set("ID_VENDOR", vendor_name);
    set("ID_VENDOR_ENC", vendor.as_deref().map(escaped));
    set("ID_VENDOR_ID", vendor_id);
    set("ID_MODEL", model_name);
    set("ID_MODEL_ENC", model.as_deref().map(escaped));
    set("ID_MODEL_ID", model_id);
    set("ID_REVISION", text("bcdDevice"));
    set("ID_BUS", Some("usb".to_owned()));
    set("ID_USB_INTERFACES", interfaces(sysfs, &device.devpath));
    if let Some(interface) = has("bInterfaceNumber") {
        set(
            "ID_USB_INTERFACE_NUM",
            sysfs.text(&interface.devpath, "bInterfaceNumber"),
        );
        set("ID_USB_DRIVER", sysfs.link(&interface.devpath, "driver"));
    }
    found
}

/// Class, subclass and protocol of each kind of interface: `:080650:030101:`.
fn interfaces(sysfs: &Sysfs, device: &str) -> Option<String> {
    let mut kinds: Vec<String> = Vec::new();
    for name in sysfs.names(device) {
        let directory = format!("{device}/{name}");
        let files = [
            "bInterfaceClass",
            "bInterfaceSubClass",
            "bInterfaceProtocol",
        ];
        let kind = files.map(|file| sysfs.text(&directory, file));
        if let [Some(class), Some(subclass), Some(protocol)] = kind {
            let kind = format!("{class}{subclass}{protocol}");
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    (!kinds.is_empty()).then(|| format!(":{}:", kinds.join(":")))
}

#[cfg(test)]
mod tests {
    use super::identity;
    use crate::event::{Event, Properties};
    use crate::sysfs::Sysfs;
    use crate::testing::Tree;

    #[test]
    fn usb_serial_adapter_has_its_properties() {
        let tree = Tree::new();
        let (usb, port) = ("/devices/usb1/1-2", "/devices/usb1/1-2/1-2:1.0");
        let tty = format!("{port}/ttyUSB0/tty/ttyUSB0");
        tree.device(usb, "usb")
            .device(port, "usb")
            .device(&tty, "tty");
        for (name, value) in [
            ("idVendor", "0403"),
            ("idProduct", "6001"),
            ("manufacturer", "FT DI"),
            ("serial", "A1 "),
            ("bcdDevice", "0600"),
        ] {
            tree.attribute(usb, name, value);
        }
        for name in [
            "bInterfaceClass",
            "bInterfaceSubClass",
            "bInterfaceProtocol",
        ] {
            tree.attribute(port, name, "ff\n");
        }
        tree.attribute(port, "bInterfaceNumber", "00\n");
        let of = |devpath: &str| {
            let text = format!("ACTION=add\nDEVPATH={devpath}\nSUBSYSTEM=tty");
            identity(
                &Sysfs::new(tree.path()),
                &Event::parse(text.as_bytes()).unwrap(),
            )
        };
        let found = of(&tty);
        for (key, value) in [
            ("ID_SERIAL", "FT_DI_6001_A1"),
            ("ID_SERIAL_SHORT", "A1"),
            ("ID_VENDOR_ENC", "FT\\x20DI"),
            ("ID_MODEL", "6001"),
            ("ID_USB_INTERFACES", ":ffffff:"),
            ("ID_USB_INTERFACE_NUM", "00"),
        ] {
            assert_eq!(found.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert_eq!(of("/devices/virtual/tty/tty1"), Properties::new());
    }
}
