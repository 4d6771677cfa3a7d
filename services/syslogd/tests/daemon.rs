//! The daemon as a whole, without root: sockets in a temporary directory.

#[cfg(test)]
mod tests {
    use corten_api::corten::v1::log_service_client::LogServiceClient;
    use corten_api::corten::v1::{LogChunk, LogListRequest, LogReadRequest, LogRecord};
    use std::ffi::OsString;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::time::Duration;
    use tonic::transport::{Channel, Endpoint};
    use tonic::{Code, Streaming};

    type Client = LogServiceClient<Channel>;

    /// Starts the daemon on a thread; it lives as long as the test.
    async fn daemon(directory: &Path, more: &[&str]) -> Client {
        let socket = directory.join("service");
        let mut args: Vec<OsString> = ["syslogd", "--kmsg", "none", "--dev-log"]
            .map(Into::into)
            .to_vec();
        args.extend([
            directory.join("log").into(),
            "--socket".into(),
            socket.clone().into(),
        ]);
        args.extend(more.iter().map(Into::into));
        std::thread::spawn(move || syslogd::run(args.into_iter()));
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        for _ in 0..500 {
            if let Ok(channel) = endpoint.connect().await {
                return LogServiceClient::new(channel);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the daemon did not come up");
    }

    fn request(id: &str, follow: bool, tail_lines: i32) -> LogReadRequest {
        LogReadRequest {
            id: id.to_owned(),
            follow,
            tail_lines,
        }
    }

    fn record(id: &str, line: &str) -> LogRecord {
        LogRecord {
            id: id.to_owned(),
            line: line.into(),
        }
    }

    /// Reads until `lines` lines came or were told to be lost.
    async fn read_lines(stream: &mut Streaming<LogChunk>, lines: u64) -> (String, u64) {
        let (mut text, mut dropped) = (String::new(), 0);
        while text.lines().count() as u64 + dropped < lines {
            let next = tokio::time::timeout(Duration::from_secs(20), stream.message()).await;
            let chunk = next
                .expect("lines within 20 s")
                .unwrap()
                .expect("a stream that goes on");
            text.push_str(std::str::from_utf8(&chunk.bytes).unwrap());
            dropped += chunk.dropped_lines;
        }
        (text, dropped)
    }

    #[tokio::test]
    async fn messages_and_records_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut client = daemon(directory.path(), &[]).await;

        // A follower may come before the log.
        let mut follower = client
            .read(request("apid", true, -1))
            .await
            .unwrap()
            .into_inner();
        let records = vec![
            record("apid", "one"),
            record("no/log", "x"),
            record("apid", "two\n"),
        ];
        let reply = client
            .append(tokio_stream::iter(records))
            .await
            .unwrap()
            .into_inner();
        assert_eq!((reply.accepted, reply.refused), (2, 1));
        assert_eq!(read_lines(&mut follower, 2).await.0, "one\ntwo\n");
        client
            .append(tokio_stream::iter(vec![record("apid", "three")]))
            .await
            .unwrap();
        assert_eq!(read_lines(&mut follower, 1).await.0, "three\n");

        let mut foreign = client
            .read(request("syslogd", true, -1))
            .await
            .unwrap()
            .into_inner();
        let sender = UnixDatagram::unbound().unwrap();
        sender
            .send_to(b"<30>iscsid: hello", directory.path().join("log"))
            .unwrap();
        sender
            .send_to(b"\xff\0\xfe", directory.path().join("log"))
            .unwrap();
        let (text, _) = read_lines(&mut foreign, 2).await;
        assert!(
            text.contains("\"tag\":\"iscsid\",\"content\":\"hello\"}\n"),
            "{text}"
        );

        let missing = client.read(request("nobody", false, -1)).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound);
        let mut tail = client
            .read(request("apid", false, 1))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(tail.message().await.unwrap().unwrap().bytes, b"three\n");
        assert_eq!(tail.message().await.unwrap(), None);

        let list = client.list(LogListRequest {}).await.unwrap().into_inner();
        let ids: Vec<&str> = list.logs.iter().map(|l| l.id.as_str()).collect();
        assert_eq!((ids, list.refused), (vec!["apid", "syslogd"], 1));
        assert_eq!((list.logs[0].bytes, list.logs[0].lines), (14, 3));
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_and_costs_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut client = daemon(directory.path(), &["--log-kib", "64", "--total-kib", "128"]).await;
        client
            .append(tokio_stream::iter(vec![record("a", "first")]))
            .await
            .unwrap();
        let mut slow = client
            .read(request("a", true, -1))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(read_lines(&mut slow, 1).await.0, "first\n");

        let lines = 60_000u64;
        let records = (0..lines).map(|n| record("a", &format!("line {n} {}", "x".repeat(80))));
        let records: Vec<LogRecord> = records.collect();
        // A second connection: on one, the unread stream would hold back the other.
        let mut writer =
            Endpoint::try_from(format!("unix://{}/service", directory.path().display()))
                .unwrap()
                .connect()
                .await
                .map(LogServiceClient::new)
                .unwrap();
        writer.append(tokio_stream::iter(records)).await.unwrap();
        let list = writer.list(LogListRequest {}).await.unwrap().into_inner();
        assert!(list.logs[0].bytes <= 64 * 1024);
        assert!(list.logs[0].dropped_lines > 50_000);

        let (text, dropped) = read_lines(&mut slow, lines).await;
        assert!(dropped > 0, "the reader slept through more than the bound");
        assert!(text.ends_with(&format!("line {} {}\n", lines - 1, "x".repeat(80))));
    }
}
