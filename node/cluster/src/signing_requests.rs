//! Requests for certificates (Kubernetes, CertificateSigningRequest v1).

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde_json::Value;

use crate::{Cluster, ClusterError, within};

/// Selects requests of kubelets for a serving certificate.
const OF_KUBELETS: &str = "spec.signerName=kubernetes.io/kubelet-serving";
/// Limit of requests in one answer.
const PAGE: u32 = 500;
/// Limit of answers. Without an approver, each kubelet adds a request every quarter of an hour, and each stays for a day.
const MOST_PAGES: usize = 20;

impl Cluster {
    /// Names of a user's requests for the serving certificate of a kubelet that nobody has approved. Reads the requests
    /// of the cluster until some are found, or 10,000 are read.
    ///
    /// # Errors
    /// [`ClusterError::Request`].
    pub async fn unapproved_serving_requests(
        &self,
        user: &str,
    ) -> Result<Vec<String>, ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind());
        let mut params = ListParams::default().fields(OF_KUBELETS).limit(PAGE);
        let object = "the requests of kubelets for certificates";
        for _ in 0..MOST_PAGES {
            let page = within("list", &object, api.list(&params)).await?;
            let found = page
                .items
                .into_iter()
                .filter(|one| is_unapproved(one, user));
            let found: Vec<String> = found.filter_map(|one| one.metadata.name).collect();
            let next = page.metadata.continue_.filter(|next| !next.is_empty());
            match next {
                Some(next) if found.is_empty() => params = params.continue_token(&next),
                _ => return Ok(found),
            }
        }
        Ok(Vec::new())
    }
}

fn kind() -> ApiResource {
    ApiResource {
        group: "certificates.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "certificates.k8s.io/v1".to_owned(),
        kind: "CertificateSigningRequest".to_owned(),
        plural: "certificatesigningrequests".to_owned(),
    }
}

/// Whether it is a request of this user without the condition Approved.
fn is_unapproved(request: &DynamicObject, user: &str) -> bool {
    let conditions = request.data.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let is_approved = conditions.any(|one| one.get("type") == Some(&Value::from("Approved")));
    request.data.pointer("/spec/username") == Some(&Value::from(user)) && !is_approved
}
