//! A fake API server: a function from request to answer.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::Cluster;

/// A request, as the server sees it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: Value,
}

impl Seen {
    /// Method and path, such as `GET /api/v1/nodes/n`.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

pub type Answer = (u16, String);
pub type Log = Arc<Mutex<Vec<Seen>>>;

/// A cluster with a fake server, and the log of its requests.
pub fn fake(answer: impl FnMut(&Seen) -> Answer + Send + 'static) -> (Cluster, Log) {
    let log = Log::default();
    let answer = Arc::new(Mutex::new(answer));
    let service = tower::service_fn({
        let log = log.clone();
        move |request: Request<Body>| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let seen = Seen {
                    method: parts.method.to_string(),
                    path: parts.uri.path().to_owned(),
                    query: parts.uri.query().unwrap_or_default().to_owned(),
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                };
                log.lock().unwrap().push(seen.clone());
                let (code, text) = (answer.lock().unwrap())(&seen);
                let response = Response::builder().status(code);
                let response = response.body(Full::new(Bytes::from(text))).unwrap();
                Ok::<_, Infallible>(response)
            }
        }
    });
    let client = Client::new(service, "default");
    (Cluster { client }, log)
}

pub fn ok(body: &Value) -> Answer {
    (200, body.to_string())
}

/// An error answer in Kubernetes' format.
pub fn refused(code: u16, message: &str) -> Answer {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        _ => "Invalid",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    (code, status.to_string())
}

pub fn lines(log: &Log) -> Vec<String> {
    log.lock().unwrap().iter().map(Seen::line).collect()
}

/// Discovery answer of a server with a few kinds, if the path requests one.
pub fn discovery(path: &str) -> Option<Value> {
    let resource = |name: &str, kind: &str, namespaced: bool| json!({ "name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": ["get", "patch"] });
    let (version, resources) = match path {
        "/api/v1" => (
            "v1",
            vec![
                resource("namespaces", "Namespace", false),
                resource("configmaps", "ConfigMap", true),
            ],
        ),
        "/apis/apiextensions.k8s.io/v1" => (
            "apiextensions.k8s.io/v1",
            vec![resource(
                "customresourcedefinitions",
                "CustomResourceDefinition",
                false,
            )],
        ),
        "/apis/discovery.k8s.io/v1" => (
            "discovery.k8s.io/v1",
            vec![resource("endpointslices", "EndpointSlice", true)],
        ),
        "/apis/example.org/v1" => ("example.org/v1", vec![resource("widgets", "Widget", true)]),
        _ => return None,
    };
    Some(json!({ "kind": "APIResourceList", "groupVersion": version, "resources": resources }))
}
