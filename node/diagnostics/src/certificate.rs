//! The kubelet's serving certificate, if the cluster issues it (`serverTLSBootstrap`).

use std::path::Path;
use std::time::SystemTime;
use std::{fs, io};

use corten_pki::{certificates_from_pem, validity};
use corten_types::kubernetes_kubelet::KubeletSpec;
use serde_json::Value;

/// File of the certificate and its key. A kubelet without a valid one refuses every connection (client-go,
/// `util/certificate`; Kubernetes, `pkg/kubelet/server`).
const ISSUED: &str = "kubelet-server-current.pem";

/// Whether the kubelet requests its serving certificate from the cluster. Its argument overrides its configuration.
pub(crate) fn is_requested(kubelet: &KubeletSpec) -> bool {
    let argument = |text: &String| {
        let value = text.strip_prefix("--rotate-server-certificates")?;
        // The kubelet reads booleans as Go does (`strconv.ParseBool`).
        let truths = ["", "=1", "=t", "=T", "=true", "=TRUE", "=True"];
        Some(truths.contains(&value))
    };
    let configured = kubelet.config.get("serverTLSBootstrap");
    let argument = kubelet.args.iter().rev().find_map(argument);
    argument.unwrap_or_else(|| configured.and_then(Value::as_bool) == Some(true))
}

/// Whether the cluster has issued one that has not expired.
pub(crate) fn is_issued(directory: &Path, now: SystemTime) -> io::Result<bool> {
    let found = match fs::read(directory.join(ISSUED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    let chain = certificates_from_pem(&found).unwrap_or_default();
    let dates = chain.first().and_then(|leaf| validity(leaf).ok());
    Ok(dates.is_some_and(|(_, until)| now <= until))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_pki::{Algorithm, Ca};
    use serde_json::json;

    use super::*;
    use crate::tests::kubelet;

    #[test]
    fn certificate_of_the_cluster_is_requested_by_argument_or_configuration() {
        let own = json!({});
        let cluster = json!({ "serverTLSBootstrap": true });
        for (config, args, expected) in [
            (&own, &[][..], false),
            (&cluster, &[], true),
            (&own, &["--v=4", "--rotate-server-certificates=true"], true),
            (&own, &["--rotate-server-certificates"], true),
            (&cluster, &["--rotate-server-certificates=false"], false),
            (&own, &["--rotate-certificates=true"], false),
        ] {
            let found = is_requested(&kubelet(config.clone(), args));
            assert_eq!(found, expected, "{config} {args:?}");
        }
    }

    #[test]
    fn issued_certificate_counts_until_it_expires() {
        let scratch = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let is_issued = |now| is_issued(scratch.path(), now).unwrap();
        assert!(!is_issued(now));
        let day = Duration::from_secs(24 * 60 * 60);
        let ca = Ca::generate(Algorithm::EcdsaP256, "kubernetes", "", now).unwrap();
        let issued = ca.server("a", &["a".to_owned()], now, day).unwrap();
        let file = scratch.path().join(ISSUED);
        fs::write(&file, format!("{}{}", issued.crt, issued.key)).unwrap();
        assert!(is_issued(now));
        assert!(!is_issued(now + day * 2));
        fs::write(&file, "damaged").unwrap();
        assert!(!is_issued(now));
    }
}
