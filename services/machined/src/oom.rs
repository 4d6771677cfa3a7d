//! Processes of services that the kernel kills because memory ran out, as its log tells.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_sys::host;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::unix::pipe::Receiver;
use tokio::time::sleep;

use crate::services::{ApiMode, Id, extension, table, trustd};

/// Between two looks at the log when there was something: who is told writes to the disk.
const PAUSE: Duration = Duration::from_secs(10);
/// Of one look, so many are told, the last.
pub const MOST: usize = 16;
/// A record as the kernel gives it, in bytes at most (`CONSOLE_EXT_LOG_MAX`).
const RECORD: usize = 8192;
/// The cgroups of extensions' services (`services/extension.rs`).
const EXTENSIONS: &str = "system/extensions/";

/// A process that the kernel killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The id of its service.
    pub service: String,
    /// Its name; the kernel knows 15 bytes of it.
    pub process: String,
    /// When (RFC 3339).
    pub time: String,
}

impl std::fmt::Display for Kill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kill {
            service,
            process,
            time,
        } = self;
        write!(
            f,
            "{process} of service {service} was killed at {time}, as memory ran out"
        )
    }
}

/// Tells of all of this boot, those before the call too, for ever.
///
/// # Errors
/// The log cannot be read.
pub async fn watch(kmsg: &Path, mut told: impl FnMut(Vec<Kill>)) -> io::Result<()> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(kmsg)?;
    // Not a pipe, but what can be waited for and read without blocking is enough.
    let log = Receiver::from_file_unchecked(file)?;
    let mut buffer = vec![0; RECORD];
    loop {
        log.readable().await?;
        let booted = SystemTime::now().checked_sub(host::since_boot());
        let booted = booted.unwrap_or(SystemTime::UNIX_EPOCH);
        let mut kills = Vec::new();
        while let Some(record) = next(&log, &mut buffer)? {
            if let Some(kill) = kill(record, booted) {
                kills.push(kill);
                let older = kills.len().saturating_sub(MOST);
                kills.drain(..older);
            }
        }
        if !kills.is_empty() {
            told(kills);
            sleep(PAUSE).await;
        }
    }
}

/// The next record; `None`: there is no other yet. Those that others took the place of meanwhile are passed over.
fn next<'a>(log: &Receiver, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    use io::ErrorKind::{BrokenPipe, Interrupted, UnexpectedEof, WouldBlock};
    let length = loop {
        match log.try_read(buffer) {
            Ok(0) => return Err(UnexpectedEof.into()),
            Ok(length) => break length,
            Err(error) => match error.kind() {
                WouldBlock => return Ok(None),
                BrokenPipe | Interrupted => {}
                _ => return Err(error),
            },
        }
    };
    Ok(buffer.get(..length))
}

/// Reads a record of the log (kernel: Documentation/ABI/testing/dev-kmsg, and `dump_oom_victim` of mm/oom_kill.c:
/// `oom-kill:constraint=...,task_memcg=/system/apid,task=apid,pid=321,uid=50`); `None`: it is about something else.
fn kill(record: &[u8], booted: SystemTime) -> Option<Kill> {
    let text = String::from_utf8_lossy(record);
    let (numbers, message) = text.split_once(';')?;
    let mut numbers = numbers.split(',');
    let priority: u32 = numbers.next()?.parse().ok()?;
    let microseconds: u64 = numbers.nth(1)?.parse().ok()?;
    // The facility of the kernel, by which nobody else can write.
    if priority / 8 != 0 {
        return None;
    }
    let (_, victim) = message.lines().next()?.split_once(",task_memcg=/")?;
    let (cgroup, victim) = victim.split_once(",task=")?;
    let (process, _) = victim.rsplit_once(",pid=")?;
    let service = service(cgroup)?;
    let at = booted.checked_add(Duration::from_micros(microseconds))?;
    Some(Kill {
        service: service.to_string(),
        process: process.to_owned(),
        time: rfc3339(at),
    })
}

/// Empty for what no calendar has.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok());
    let time = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// The service whose processes are in a cgroup, or below it; pods' and tools' are in others.
fn service(cgroup: &str) -> Option<Id> {
    if let Some(name) = cgroup.strip_prefix(EXTENSIONS) {
        return name.split('/').next().map(extension::id);
    }
    let own = table(ApiMode::Secure).into_iter().chain([trustd()]);
    let mut holding = own.filter(|spec| {
        let below = cgroup.strip_prefix(spec.cgroup.as_str());
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    holding.next().map(|spec| spec.id)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn record(cgroup: &str, process: &str) -> String {
        format!(
            "6,1500,5000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
             oom_memcg=/system,task_memcg=/{cgroup},task={process},pid=321,uid=50\n SUBSYSTEM=x\n"
        )
    }

    fn read(record: &str) -> Option<Kill> {
        kill(record.as_bytes(), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_killed_process_is_told_with_its_service_and_time() {
        for (cgroup, service) in [
            ("system/apid", "apid"),
            ("system/trustd", "trustd"),
            ("system/runtime", "containerd"),
            ("system/extensions/ups/inner", "ext-ups"),
        ] {
            let kill = read(&record(cgroup, "a,pid=1")).unwrap();
            assert_eq!(kill.service, service);
            assert_eq!(kill.process, "a,pid=1");
            assert_eq!(kill.time, "1970-01-01T00:00:05Z");
        }
        // Where memory of the whole machine ran out.
        let global = record("system/syslogd", "syslogd").replace("oom_memcg=/system", "global_oom");
        let text =
            "syslogd of service syslogd was killed at 1970-01-01T00:00:05Z, as memory ran out";
        assert_eq!(read(&global).unwrap().to_string(), text);
    }

    #[test]
    fn what_others_are_killed_for_and_what_others_say_is_passed_over() {
        let own = record("system/apid", "apid");
        for other in [
            record("kubepods/burstable/a/b", "nginx"),
            record("system/apidx", "x"),
            record("system", "x"),
            record("", "x"),
            // Written by a program.
            own.replacen("6,", "30,", 1),
            own.replacen(",task=", ";task=", 1),
            own.replacen("5000000", "18446744073709551615", 1),
            "6,1,2,-;NET: Registered PF_INET\n".to_owned(),
            ";".to_owned(),
            String::new(),
        ] {
            let kill = read(&other);
            assert!(
                kill.as_ref().is_none_or(|kill| kill.time.is_empty()),
                "{other}: {kill:?}"
            );
        }
    }

    #[test]
    fn extensions_services_are_where_they_are_looked_for() {
        let text = b"name: ups\ncontainer: {entrypoint: /a}\nrestart: always\n";
        let declared = corten_extension::service::Service::parse(text).unwrap();
        let spec = extension::declare(&declared, None);
        assert_eq!(service(&spec.cgroup), Some(spec.id));
    }

    #[tokio::test]
    async fn a_log_that_is_none_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kmsg");
        watch(&file, |_| {}).await.unwrap_err();
        // What cannot be waited for.
        fs::write(&file, record("system/apid", "apid")).unwrap();
        watch(&file, |_| {}).await.unwrap_err();
    }
}
