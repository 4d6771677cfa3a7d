//! The whole daemon without root: sockets in a temporary directory.

#[cfg(test)]
mod tests {
    use corten_api::corten::v1::log_service_client::LogServiceClient;
    use corten_api::corten::v1::{LogChunk, LogListRequest, LogReadRequest, LogRecord};
    use std::ffi::OsString;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::time::Duration;
    use tokio::io::AsyncBufReadExt as _;
    use tonic::transport::{Channel, Endpoint};
    use tonic::{Code, Streaming};

    type Client = LogServiceClient<Channel>;

    /// Timeout of a step; an idle machine needs milliseconds.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Polls until there is a result.
    async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
        let asking = async {
            loop {
                if let Some(answer) = ask().await {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let answer = tokio::time::timeout(PATIENCE, asking).await;
        answer.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
    }

    /// Starts the daemon on a thread, which lives as long as the test.
    async fn daemon(directory: &Path, more: &[&str]) -> Client {
        let socket = directory.join("service");
        let mut args: Vec<OsString> = ["syslogd", "--kmsg", "none", "--dev-log"]
            .map(Into::into)
            .to_vec();
        args.extend([
            directory.join("log").into(),
            "--socket".into(),
            socket.clone().into(),
            "--config".into(),
            directory.join("config.json").into(),
        ]);
        args.extend(more.iter().map(Into::into));
        std::thread::spawn(move || syslogd::run(args.into_iter()));
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        let connect = async || endpoint.connect().await.ok();
        LogServiceClient::new(until("the daemon comes up", connect).await)
    }

    fn request(id: &str, follow: bool, tail_lines: i32) -> LogReadRequest {
        LogReadRequest {
            id: id.to_owned(),
            follow,
            tail_lines,
            previous: false,
        }
    }

    fn record(id: &str, line: &str) -> LogRecord {
        LogRecord {
            id: id.to_owned(),
            line: line.into(),
        }
    }

    /// Reads until `lines` lines arrived or were reported as lost.
    async fn read_lines(stream: &mut Streaming<LogChunk>, lines: u64) -> (String, u64) {
        let (mut text, mut dropped) = (String::new(), 0);
        while text.lines().count() as u64 + dropped < lines {
            let next = tokio::time::timeout(PATIENCE, stream.message()).await;
            let chunk = next
                .expect("lines in time")
                .unwrap()
                .expect("a stream that goes on");
            text.push_str(std::str::from_utf8(&chunk.bytes).unwrap());
            dropped += chunk.dropped_lines;
        }
        (text, dropped)
    }

    #[tokio::test]
    async fn messages_and_records_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut client = daemon(directory.path(), &[]).await;

        // A follower may start before the log exists.
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
    async fn slow_reader_gets_a_loss_count_and_uses_no_memory() {
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
        // A second connection: on the first, the unread stream would block the writer.
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

    /// Replaces the config as machined does.
    fn configure(directory: &Path, config: &str) {
        let new = directory.join("config.new");
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, directory.join("config.json")).unwrap();
    }

    /// The texts of messages up to `last`.
    async fn messages_to(stream: &mut tokio::net::TcpStream, last: &str) -> Vec<String> {
        let mut lines = tokio::io::BufReader::new(stream).lines();
        let mut texts = Vec::new();
        while texts.last().is_none_or(|text| text != last) {
            let next = tokio::time::timeout(PATIENCE, lines.next_line()).await;
            let line = next.expect("a message in time").unwrap().unwrap();
            let message: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(message["site"], "here");
            if message["talos-service"] == "apid" {
                texts.push(message["msg"].as_str().unwrap().to_owned());
            }
        }
        texts
    }

    async fn append(client: &mut Client, numbers: std::ops::Range<u32>) -> Vec<String> {
        let lines: Vec<String> = numbers.map(|n| format!("line {n}")).collect();
        let records: Vec<LogRecord> = lines.iter().map(|line| record("apid", line)).collect();
        client.append(tokio_stream::iter(records)).await.unwrap();
        lines
    }

    #[tokio::test]
    async fn reconnected_destination_gets_every_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut client = daemon(directory.path(), &[]).await;
        // A receiver with a tiny buffer, so that most data waits in the daemon. Its port is reserved now, but
        // connections are refused until it listens.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        let config = format!(
            r#"{{"destinations": [{{"endpoint": "tcp://{address}", "logs": "services", "tags": {{"site": "here"}}}}]}}"#
        );
        configure(directory.path(), &config);
        let early = append(&mut client, 0..3000).await;
        // The daemon logs that the destination is unreachable.
        let mut own = client
            .read(request("syslogd", true, -1))
            .await
            .unwrap()
            .into_inner();
        let told = own.message().await.unwrap().unwrap().bytes;
        assert!(String::from_utf8_lossy(&told).contains("accepts no logs"));

        let listener = socket.listen(8).unwrap();
        let (mut first, _) = listener.accept().await.unwrap();
        assert!(messages_to(&mut first, "line 2999").await == early);

        // The receiver dies during transmission. Data that its kernel acknowledged is lost; the rest is sent again.
        let late = append(&mut client, 3000..6000).await;
        first.readable().await.unwrap();
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        let got = messages_to(&mut second, "line 5999").await;
        assert!(
            late.ends_with(&got) || got.ends_with(&late),
            "{} messages",
            got.len()
        );
        assert!(got.len() > 2700, "only {} of 3000 messages", got.len());

        // The receiver is away while no data is in flight.
        drop(second);
        let later = append(&mut client, 6000..6100).await;
        let (mut third, _) = listener.accept().await.unwrap();
        let got = messages_to(&mut third, "line 6099").await;
        assert!(got.ends_with(&later), "{got:?}");
    }

    #[tokio::test]
    async fn datagram_destination_gets_one_message_per_datagram() {
        let directory = tempfile::tempdir().unwrap();
        let mut client = daemon(directory.path(), &[]).await;
        let receiver = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = receiver.local_addr().unwrap();
        let config = format!(
            r#"{{"destinations": [{{"endpoint": "udp://{address}", "logs": "services"}}]}}"#
        );
        configure(directory.path(), &config);
        append(&mut client, 0..2).await;
        let mut buffer = [0; 2048];
        for n in 0..2 {
            let wait = tokio::time::timeout(PATIENCE, receiver.recv(&mut buffer));
            let length = wait.await.unwrap().unwrap();
            let message: serde_json::Value = serde_json::from_slice(&buffer[..length]).unwrap();
            assert_eq!(message["msg"], format!("line {n}"));
        }
    }

    #[tokio::test]
    async fn lines_from_before_the_disk_are_stored_and_read_by_the_next_boot() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let boot = |name: &str| {
            let file = base.join(name);
            std::fs::write(&file, name).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let mut client = daemon(base, &["--boot-id", &boot("one")]).await;
        append(&mut client, 0..10).await;
        let previous = |id: &str, tail_lines| LogReadRequest {
            previous: true,
            ..request(id, false, tail_lines)
        };
        let refused = client.read(previous("apid", -1)).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);

        let (files, records) = (base.join("files"), base.join("records"));
        std::fs::create_dir(&files).unwrap();
        std::fs::create_dir(&records).unwrap();
        configure(
            base,
            &serde_json::json!({"files": files, "records": records}).to_string(),
        );
        let on_disk = || std::fs::read_to_string(files.join("apid.log")).unwrap_or_default();
        let recorded = || std::fs::read(records.join("current/apid.ring")).unwrap_or_default();
        let both = async || {
            let there = recorded().windows(6).any(|bytes| bytes == b"line 9");
            (there && on_disk().ends_with("line 9\n")).then_some(())
        };
        until("both have all lines", both).await;
        assert!(on_disk().starts_with("line 0\n"));

        let next = base.join("next");
        std::fs::create_dir(&next).unwrap();
        let config = serde_json::json!({"records": records}).to_string();
        configure(&next, &config);
        let mut client = daemon(&next, &["--boot-id", &boot("two")]).await;
        append(&mut client, 100..101).await;
        // The daemon reads the config after it opens the socket.
        let read = async || client.read(previous("apid", 2)).await.ok();
        let mut stream = until("the boot before is read", read).await.into_inner();
        let mut text = Vec::new();
        while let Some(chunk) = stream.message().await.unwrap() {
            text.extend(chunk.bytes);
        }
        assert_eq!(text, b"line 8\nline 9\n");
        let missing = client.read(previous("etcd", -1)).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound);
    }
}
