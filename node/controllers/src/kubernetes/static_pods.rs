//! Serves the control plane's pods to the kubelet over HTTP on loopback.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::kubernetes::{StaticPod, StaticPodServerStatus};
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::extra_pods;

/// Maximum number of concurrent connections; the kubelet uses one.
const CONNECTIONS: usize = 8;
/// Timeout of a whole connection.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct Server;

impl Controller for Server {
    fn name(&self) -> &'static str {
        "k8s.StaticPodServerController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<StaticPod>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<StaticPodServerStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let pods = watch::Sender::new(Bytes::new());
        // The server ends with this controller.
        let mut server = JoinSet::new();
        server.spawn(serve(listener, pods.subscribe()));
        loop {
            context.event().await;
            let items: Vec<_> = context
                .list::<StaticPod>()?
                .iter()
                // The kubelet refuses the whole list for one invalid pod.
                .filter(|pod| pod.metadata().owner != extra_pods::NAME)
                .map(|pod| pod.0.clone())
                .collect();
            let list = json!({ "apiVersion": "v1", "kind": "PodList", "items": items });
            pods.send_replace(list.to_string().into());
            let status = StaticPodServerStatus { url: url.clone() };
            context.put(Draft::new(StaticPodServerStatus::ID, status))?;
        }
    }
}

async fn serve(listener: TcpListener, pods: watch::Receiver<Bytes>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        // The client has gone, or no file descriptor is left; both may be temporary.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let pods = pods.clone();
        tokio::spawn(async move {
            let _place = place;
            let _ = timeout(PATIENCE, connection(stream, pods)).await;
        });
    }
}

async fn connection(stream: TcpStream, pods: watch::Receiver<Bytes>) {
    let service = service_fn(|_: Request<hyper::body::Incoming>| {
        let mut answer = Response::new(Full::new(pods.borrow().clone()));
        let json = header::HeaderValue::from_static("application/json");
        answer.headers_mut().insert(header::CONTENT_TYPE, json);
        async move { Ok::<_, Infallible>(answer) }
    });
    // Errors of a connection concern only its client.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests {
    use corten_resources::Store;
    use corten_resources::controller::Runtime;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn kubelet_gets_the_pods_of_the_control_plane_as_a_list() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Server).unwrap();
        let pod = StaticPod(json!({ "kind": "Pod", "metadata": { "name": "a" } }));
        store.register::<StaticPod>().unwrap();
        store.create(Draft::new("a", pod), "test").unwrap();
        let extra = StaticPod(json!({ "kind": "Pod", "metadata": { "name": "extra" } }));
        let extra = Draft::new("default/extra", extra);
        store.create(extra, extra_pods::NAME).unwrap();
        let running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let url = loop {
            if let Some(status) = store.get_as::<StaticPodServerStatus>(StaticPodServerStatus::ID) {
                break status.url.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let address = url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("\"kind\":\"PodList\""), "{answer}");
        assert!(answer.contains("\"name\":\"a\""), "{answer}");
        assert!(!answer.contains("extra"), "{answer}");
        running.abort();
    }
}
