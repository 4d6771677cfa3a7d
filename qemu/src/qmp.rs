//! A small QMP client (QEMU Machine Protocol: one JSON object per line).
//!
//! One thread reads. It passes answers to the waiting command and keeps events in order of arrival.
//! So a test can also wait for an event of the past.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::VmError;

/// Timeout of an answer. QEMU answers at once, except for commands that wait for a disk.
const ANSWER: Duration = Duration::from_secs(20);

/// An event that QEMU reported: `RESET`, `SHUTDOWN`, ...
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event's name, in capitals.
    pub name: String,
    /// Its data, `null` if it has none.
    pub data: Value,
}

#[derive(Debug, Default)]
struct Events {
    seen: Mutex<(Vec<Event>, bool)>,
    changed: Condvar,
}

/// A connection to a running machine.
#[derive(Debug)]
pub struct Qmp {
    // One command at a time, because answers do not name their command.
    link: Mutex<(UnixStream, Receiver<Value>)>,
    events: Arc<Events>,
}

/// A panic of another thread does not invalidate the data here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Qmp {
    /// Connects and negotiates.
    pub(crate) fn connect(path: &Path) -> Result<Self, VmError> {
        let lost = |source| VmError::QmpLost {
            command: format!("connect {}", path.display()),
            source,
        };
        let stream = UnixStream::connect(path).map_err(lost)?;
        let reader = stream.try_clone().map_err(lost)?;
        let events = Arc::new(Events::default());
        let (sender, answers) = channel();
        let sink = Arc::clone(&events);
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                let Ok(line) = line else { break };
                let Ok(message) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                if let Some(name) = message.get("event").and_then(Value::as_str) {
                    let data = message.get("data").cloned().unwrap_or(Value::Null);
                    lock(&sink.seen).0.push(Event {
                        name: name.to_owned(),
                        data,
                    });
                    sink.changed.notify_all();
                } else if message.get("QMP").is_none() && sender.send(message).is_err() {
                    break;
                }
            }
            lock(&sink.seen).1 = true;
            sink.changed.notify_all();
        });
        let qmp = Self {
            link: Mutex::new((stream, answers)),
            events,
        };
        qmp.execute("qmp_capabilities", &Value::Null)?;
        Ok(qmp)
    }

    /// Runs any command and returns its `return` value.
    ///
    /// # Errors
    /// [`VmError::QmpRefused`] with QEMU's message, [`VmError::QmpLost`] when QEMU has ended or
    /// does not answer within 20 s.
    pub fn execute(&self, command: &str, arguments: &Value) -> Result<Value, VmError> {
        let lost = |source| VmError::QmpLost {
            command: command.to_owned(),
            source,
        };
        let mut request = json!({ "execute": command });
        if let (Some(map), false) = (request.as_object_mut(), arguments.is_null()) {
            map.insert("arguments".to_owned(), arguments.clone());
        }
        let mut link = lock(&self.link);
        let (stream, answers) = &mut *link;
        // Drops answers that arrived after the timeout of their command.
        while answers.try_recv().is_ok() {}
        stream
            .write_all(format!("{request}\n").as_bytes())
            .map_err(lost)?;
        let answer = answers.recv_timeout(ANSWER).map_err(|error| {
            lost(match error {
                RecvTimeoutError::Timeout => std::io::ErrorKind::TimedOut.into(),
                RecvTimeoutError::Disconnected => std::io::ErrorKind::UnexpectedEof.into(),
            })
        })?;
        match answer.get("return") {
            Some(value) => Ok(value.clone()),
            None => Err(VmError::QmpRefused {
                command: command.to_owned(),
                answer: answer
                    .pointer("/error/desc")
                    .and_then(Value::as_str)
                    .unwrap_or("no description")
                    .to_owned(),
            }),
        }
    }

    /// Presses the ACPI power button.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn powerdown(&self) -> Result<(), VmError> {
        self.execute("system_powerdown", &Value::Null).map(drop)
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn reset(&self) -> Result<(), VmError> {
        self.execute("system_reset", &Value::Null).map(drop)
    }

    /// Ends QEMU, which cuts the machine's power.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn quit(&self) -> Result<(), VmError> {
        self.execute("quit", &Value::Null).map(drop)
    }

    /// Plugs in a device; `properties` as for `device_add` (`driver`, `id`, ...).
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn device_add(&self, properties: &Value) -> Result<(), VmError> {
        self.execute("device_add", properties).map(drop)
    }

    /// Asks the guest to release the device with this `id`, and waits until it is unplugged.
    ///
    /// # Errors
    /// As [`Qmp::execute`] and [`Qmp::wait_event`].
    pub fn device_del(&self, id: &str, deadline: Duration) -> Result<(), VmError> {
        let before = self.events().len();
        self.execute("device_del", &json!({ "id": id }))?;
        let gone = |event: &Event| {
            event.name == "DEVICE_DELETED"
                && event.data.get("device").is_some_and(|gone| gone == id)
        };
        self.wait_event(&format!("removal of device {id}"), before, deadline, gone)
            .map(drop)
    }

    /// Writes a picture of the display (PPM) to `path` on this host.
    ///
    /// # Errors
    /// As [`Qmp::execute`]; also when the machine has no display.
    pub fn screendump(&self, path: &Path) -> Result<(), VmError> {
        let filename = path.to_str().ok_or_else(|| VmError::Path {
            path: path.to_owned(),
        })?;
        self.execute("screendump", &json!({ "filename": filename }))
            .map(drop)
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events.seen).0.clone()
    }

    /// Waits for the first event that `wanted` accepts after the `skip` oldest events. A `skip` of
    /// 0 accepts past events, `events().len()` only future ones.
    ///
    /// # Errors
    /// [`VmError::Deadline`] with the list of events that arrived; at once when QEMU has ended.
    pub fn wait_event(
        &self,
        what: &str,
        skip: usize,
        deadline: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event, VmError> {
        let end = Instant::now() + deadline;
        let mut seen = lock(&self.events.seen);
        loop {
            if let Some(event) = seen.0.iter().skip(skip).find(|event| wanted(event)) {
                return Ok(event.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || seen.1 {
                let names: Vec<_> = seen.0.iter().map(|event| event.name.as_str()).collect();
                return Err(VmError::Deadline {
                    what: what.to_owned(),
                    deadline,
                    last: format!("events seen: [{}], QEMU ended: {}", names.join(" "), seen.1),
                });
            }
            seen = self
                .events
                .changed
                .wait_timeout(seen, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A minimal QEMU: greets, acknowledges, refuses `bad`, sends RESET.
    fn fake(path: &Path) -> std::thread::JoinHandle<()> {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{\"QMP\": {\"version\": {}}}\n").unwrap();
            let reader = BufReader::new(stream.try_clone().unwrap());
            for line in reader.lines() {
                let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
                let answer = match request["execute"].as_str().unwrap() {
                    "bad" => json!({"error": {"class": "GenericError", "desc": "no such thing"}}),
                    "echo" => json!({"return": request["arguments"]}),
                    _ => json!({"return": {}}),
                };
                stream
                    .write_all(b"{\"event\": \"RESET\", \"data\": {\"guest\": true}}\n")
                    .unwrap();
                stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        })
    }

    #[test]
    fn qmp_answers_events_and_errors_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp");
        let server = fake(&path);
        let qmp = Qmp::connect(&path).unwrap();
        assert_eq!(
            qmp.execute("echo", &json!({"a": 1})).unwrap(),
            json!({"a": 1})
        );
        let refused = qmp.execute("bad", &Value::Null).unwrap_err().to_string();
        assert_eq!(refused, "QEMU refused `bad`: no such thing");
        let event = qmp
            .wait_event("reset", 0, ANSWER, |e| e.name == "RESET")
            .unwrap();
        assert_eq!(event.data, json!({"guest": true}));
        assert_eq!(qmp.events().len(), 3);
        let missing = qmp.wait_event("stop", 0, Duration::from_millis(20), |e| e.name == "STOP");
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .contains("RESET RESET RESET")
        );
        drop(qmp);
        // The reading thread holds the other half of the socket until the server closes it, which
        // it does after the writer is gone.
        drop(server);
    }
}
