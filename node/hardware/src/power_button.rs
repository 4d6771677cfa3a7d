//! The power button: input devices with a power key (kernel: Documentation/input/input.rst).

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use corten_base::console;
use corten_base::panics::again;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::uevents::Told;

const EV_KEY: u16 = 1;
const KEY_POWER: u16 = 116;
const PRESSED: i32 = 1;
/// Size of `struct input_event` with 64-bit time.
const EVENT_SIZE: usize = 24;
const O_NONBLOCK: i32 = 0o4000;

/// Directories of input devices.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The sysfs class.
    pub class: PathBuf,
    /// The device nodes.
    pub nodes: PathBuf,
}

impl Default for Inputs {
    fn default() -> Inputs {
        Inputs {
            class: "/sys/class/input".into(),
            nodes: "/dev/input".into(),
        }
    }
}

impl Inputs {
    /// Names (`event3`) of the devices with a power key.
    fn buttons(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.class).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("event") && self.has_key(name))
            .collect()
    }

    fn has_key(&self, name: &str) -> bool {
        let keys = self.class.join(name).join("device/capabilities/key");
        fs::read_to_string(keys).is_ok_and(|keys| has_key(&keys, KEY_POWER))
    }
}

/// Watches all present and future power buttons, and reports presses. `devices` changes with the input devices.
pub async fn watch(
    inputs: Inputs,
    mut devices: watch::Receiver<Told>,
    pressed: mpsc::UnboundedSender<()>,
) {
    // The listeners end with this task, so that after a restart each button has one listener.
    let mut listeners = Listeners::default();
    loop {
        devices.mark_unchanged();
        listeners.look(&inputs, &pressed);
        if devices.changed().await.is_err() {
            break;
        }
    }
    while listeners.tasks.join_next().await.is_some() {}
}

/// The listener tasks, one per button.
#[derive(Default)]
struct Listeners {
    /// Each task ends with its device and returns the device's name.
    tasks: JoinSet<String>,
    names: BTreeSet<String>,
}

impl Listeners {
    /// Starts listeners for new buttons.
    fn look(&mut self, inputs: &Inputs, pressed: &mpsc::UnboundedSender<()>) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Ok(name) = ended {
                self.names.remove(&name);
            }
        }
        for name in inputs.buttons() {
            if self.names.insert(name.clone()) {
                let (node, pressed) = (inputs.nodes.join(&name), pressed.clone());
                self.tasks.spawn(async move {
                    again(|| listen_to(&node, &pressed)).await;
                    name
                });
            }
        }
    }
}

/// Opens a device as a pipe: both can be polled, and a read returns whole events.
fn open(path: &Path) -> io::Result<pipe::Receiver> {
    let device = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    pipe::Receiver::from_file_unchecked(device)
}

/// Reports presses until the device is gone.
async fn listen_to(node: &Path, pressed: &mpsc::UnboundedSender<()>) {
    let mut device = match open(node) {
        Ok(device) => device,
        Err(error) => {
            let node = node.display();
            return console::warn(&format!(
                "cannot listen to the power button {node}: {error}"
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

/// Whether a `struct input_event` (16 bytes of time, then type, code, value) is a press of the power key.
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

/// Tests a bit in a bitmap of sysfs: 64-bit words in hexadecimal, the highest first.
fn has_key(bitmap: &str, key: u16) -> bool {
    let word = bitmap.split_whitespace().rev().nth(usize::from(key / 64));
    word.and_then(|word| u64::from_str_radix(word, 16).ok())
        .is_some_and(|word| word >> (key % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn power_key_is_found_in_the_capability_bitmap() {
        assert!(has_key("10000000000000 0\n", KEY_POWER));
        assert!(!has_key("8000000000000 0", KEY_POWER));
        assert!(!has_key("0", KEY_POWER));
        assert!(!has_key("", KEY_POWER));
    }

    fn event(kind: u16, code: u16, value: i32) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    }

    #[test]
    fn power_key_press_is_distinguished_from_release_and_other_keys() {
        assert!(is_press(&event(1, 116, 1)));
        assert!(!is_press(&event(1, 116, 0)));
        assert!(!is_press(&event(1, 30, 1)));
        assert!(!is_press(&event(0, 0, 0)));
        assert!(!is_press(&[0; 10]));
    }

    /// Adds a device whose node is a pipe, present while the returned value exists.
    fn plug(inputs: &Inputs, name: &str, keys: &str) -> File {
        let capabilities = inputs.class.join(name).join("device/capabilities");
        fs::create_dir_all(&capabilities).unwrap();
        fs::write(capabilities.join("key"), keys).unwrap();
        fs::create_dir_all(&inputs.nodes).unwrap();
        let node = inputs.nodes.join(name);
        mkfifo(&node, Mode::S_IRWXU).unwrap();
        File::options().read(true).write(true).open(node).unwrap()
    }

    fn inputs(root: &Path) -> Inputs {
        Inputs {
            class: root.join("class"),
            nodes: root.join("nodes"),
        }
    }

    const POWER: &str = "10000000000000 0\n";
    const LETTERS: &str = "8000000000000 0\n";

    #[tokio::test]
    async fn each_power_button_has_one_listener_while_present() {
        let root = tempfile::tempdir().unwrap();
        let inputs = inputs(root.path());
        let (presses, mut pressed) = mpsc::unbounded_channel();
        let mut listeners = Listeners::default();
        listeners.look(&inputs, &presses);
        assert_eq!(listeners.tasks.len(), 0);
        let button = plug(&inputs, "event0", POWER);
        let _keyboard = plug(&inputs, "event1", LETTERS);
        for _ in 0..3 {
            listeners.look(&inputs, &presses);
            assert_eq!(listeners.tasks.len(), 1);
        }
        // A new device takes the name of a removed one.
        drop(button);
        fs::remove_file(inputs.nodes.join("event0")).unwrap();
        let mut other = plug(&inputs, "event0", POWER);
        other.write_all(&event(1, 116, 1)).unwrap();
        while pressed.is_empty() {
            listeners.look(&inputs, &presses);
            tokio::task::yield_now().await;
        }
        pressed.recv().await.unwrap();
        assert_eq!(listeners.tasks.len(), 1);
    }

    #[tokio::test]
    async fn power_button_added_later_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let inputs = inputs(root.path());
        let mut first = plug(&inputs, "event0", POWER);
        let devices = watch::Sender::new(Told::default());
        let (presses, mut pressed) = mpsc::unbounded_channel();
        let watching = tokio::spawn(watch(inputs.clone(), devices.subscribe(), presses));
        let press = event(1, 116, 1);
        first.write_all(&press).unwrap();
        pressed.recv().await.unwrap();
        let mut second = plug(&inputs, "event2", POWER);
        devices.send_replace(Told::default());
        second.write_all(&press).unwrap();
        pressed.recv().await.unwrap();
        // The watcher continues with its buttons, and ends with the last one.
        drop((devices, first));
        second.write_all(&press).unwrap();
        pressed.recv().await.unwrap();
        drop(second);
        watching.await.unwrap();
    }
}
