//! The power button: input devices that have such a key (kernel: Documentation/input/input.rst).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rtnetlink::sys::protocols::NETLINK_KOBJECT_UEVENT;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::console;
use crate::panics::again;

const EV_KEY: u16 = 1;
const KEY_POWER: u16 = 116;
const PRESSED: i32 = 1;
/// `struct input_event` where time is 64 bits wide.
const EVENT_SIZE: usize = 24;
const O_NONBLOCK: i32 = 0o4000;
/// The kernel's own messages; udevd's go to group 2.
const KERNEL_GROUP: u32 = 1;

/// Watches every power button there is and every one to come, and reports presses.
pub async fn watch(pressed: mpsc::UnboundedSender<()>) {
    // First listen, then look: a device may come in between.
    let uevents = listen();
    // They end with this task, so that when it begins anew each button is listened to once.
    let mut listeners = JoinSet::new();
    for name in input_devices(Path::new("/sys/class/input")) {
        watch_device(name, &pressed, &mut listeners);
    }
    match uevents {
        Ok(socket) => {
            while let Ok((message, _)) = socket.recv_from_full().await {
                if let Some(name) = added_input_device(&message) {
                    while listeners.try_join_next().is_some() {}
                    watch_device(name, &pressed, &mut listeners);
                }
            }
        }
        Err(error) => console::warn(&format!(
            "power buttons that come later are not seen: {error}"
        )),
    }
    while listeners.join_next().await.is_some() {}
}

fn listen() -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETLINK_KOBJECT_UEVENT)?;
    socket
        .socket_mut()
        .bind(&SocketAddr::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

/// The names (`event3`) of all input devices.
fn input_devices(class: &Path) -> Vec<String> {
    let names = fs::read_dir(class).map(|entries| entries.flatten().map(|entry| entry.file_name()));
    names
        .into_iter()
        .flatten()
        .filter_map(|name| name.into_string().ok())
        .filter(|n| n.starts_with("event"))
        .collect()
}

/// The name in a kernel message that tells of a new input device: `add@<path>`, then `KEY=value` parts, each
/// ending in NUL.
fn added_input_device(message: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(message);
    let mut parts = text.split('\0');
    if !parts.next()?.starts_with("add@") || !text.contains("\0SUBSYSTEM=input\0") {
        return None;
    }
    let name = parts.find_map(|part| part.strip_prefix("DEVNAME=input/"))?;
    name.starts_with("event").then(|| name.to_owned())
}

fn watch_device(name: String, pressed: &mpsc::UnboundedSender<()>, listeners: &mut JoinSet<()>) {
    let capabilities = PathBuf::from("/sys/class/input")
        .join(&name)
        .join("device/capabilities/key");
    if !fs::read_to_string(capabilities).is_ok_and(|keys| has_key(&keys, KEY_POWER)) {
        return;
    }
    let pressed = pressed.clone();
    listeners.spawn(again(move || listen_to(name.clone(), pressed.clone())));
}

/// A device is read like a pipe: it can be waited for, and each read gives whole events.
fn open(path: &Path) -> io::Result<pipe::Receiver> {
    let device = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    pipe::Receiver::from_file_unchecked(device)
}

/// Ends when the device is gone.
async fn listen_to(name: String, pressed: mpsc::UnboundedSender<()>) {
    let mut device = match open(&Path::new("/dev/input").join(&name)) {
        Ok(device) => device,
        Err(error) => {
            return console::warn(&format!(
                "cannot listen to the power button {name}: {error}"
            ));
        }
    };
    let mut buffer = [0; EVENT_SIZE * 16];
    while let Ok(length @ 1..) = device.read(&mut buffer).await {
        let events = buffer.get(..length).unwrap_or_default();
        if events.chunks_exact(EVENT_SIZE).any(is_press) && pressed.send(()).is_err() {
            return;
        }
    }
}

/// Whether a `struct input_event` (16 bytes of time, then type, code, value) says that the button went down.
fn is_press(event: &[u8]) -> bool {
    let Some((_, rest)) = event.split_first_chunk::<16>() else {
        return false;
    };
    let Some((kind, rest)) = rest.split_first_chunk::<2>() else {
        return false;
    };
    let Some((code, rest)) = rest.split_first_chunk::<2>() else {
        return false;
    };
    let Some((value, _)) = rest.split_first_chunk::<4>() else {
        return false;
    };
    u16::from_ne_bytes(*kind) == EV_KEY
        && u16::from_ne_bytes(*code) == KEY_POWER
        && i32::from_ne_bytes(*value) == PRESSED
}

/// Whether a bit is set in a bitmap as sysfs prints it: 64-bit words in hexadecimal, the highest first.
fn has_key(bitmap: &str, key: u16) -> bool {
    let word = bitmap.split_whitespace().rev().nth(usize::from(key / 64));
    word.and_then(|word| u64::from_str_radix(word, 16).ok())
        .is_some_and(|word| word >> (key % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_found_in_the_bitmap() {
        assert!(has_key("10000000000000 0\n", KEY_POWER));
        assert!(!has_key("8000000000000 0", KEY_POWER));
        assert!(!has_key("0", KEY_POWER));
        assert!(!has_key("", KEY_POWER));
    }

    #[test]
    fn a_press_is_told_from_a_release_and_from_other_keys() {
        let event = |kind: u16, code: u16, value: i32| {
            let mut bytes = vec![0; 16];
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(code.to_ne_bytes());
            bytes.extend(value.to_ne_bytes());
            bytes
        };
        assert!(is_press(&event(1, 116, 1)));
        assert!(!is_press(&event(1, 116, 0)));
        assert!(!is_press(&event(1, 30, 1)));
        assert!(!is_press(&event(0, 0, 0)));
        assert!(!is_press(&[0; 10]));
    }

    #[test]
    fn only_new_input_devices_matter() {
        let message = b"add@/devices/x/event2\0ACTION=add\0SUBSYSTEM=input\0DEVNAME=input/event2\0";
        assert_eq!(added_input_device(message).as_deref(), Some("event2"));
        assert_eq!(
            added_input_device(b"remove@/x\0SUBSYSTEM=input\0DEVNAME=input/event2\0"),
            None
        );
        assert_eq!(
            added_input_device(b"add@/x\0SUBSYSTEM=block\0DEVNAME=sda\0"),
            None
        );
        assert_eq!(
            added_input_device(b"add@/x\0SUBSYSTEM=input\0DEVNAME=input/mouse0\0"),
            None
        );
    }
}
