//! The manifests that a config adds to those of its cluster.

use std::collections::BTreeMap;

use corten_values::Secret;

use crate::Document;
use crate::kinds::{KubeExternalManifestConfig, KubeInlineManifestConfig};

/// A manifest to download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalManifest {
    /// Config field that declares it, for messages; its id among the manifests of the cluster.
    pub field: String,
    /// URL; may contain secrets.
    pub url: Secret,
    /// Headers of the request.
    pub headers: Vec<(String, Secret)>,
}

impl Document {
    /// Inline manifests, each with a name and YAML.
    #[must_use]
    pub fn inline_manifests(&self) -> Vec<(String, Secret)> {
        let old = self.cluster.inline_manifests.iter();
        let old = old.map(|one| (one.name.clone(), one.contents.clone()));
        let by_kind = self.all::<KubeInlineManifestConfig>();
        let by_kind = by_kind.map(|one| (one.name.to_string(), one.manifest.clone()));
        old.chain(by_kind).collect()
    }

    /// External manifests. Those of the network plug-in come first: without it no other pods run.
    #[must_use]
    pub fn external_manifests(&self) -> Vec<ExternalManifest> {
        let cluster = &self.cluster;
        let cni = cluster.network.cni.as_ref().map(|cni| &*cni.urls);
        let cloud = cluster.external_cloud_provider.as_ref();
        let cloud = cloud.filter(|cloud| cloud.enabled);
        let cloud = cloud.map(|cloud| &*cloud.manifests);
        let none = BTreeMap::new();
        let mut found = Vec::new();
        for (field, urls, of_field) in [
            ("cluster.network.cni.urls", cni, &none),
            ("cluster.externalCloudProvider.manifests", cloud, &none),
            (
                "cluster.extraManifests",
                Some(&*cluster.extra_manifests),
                &cluster.extra_manifest_headers,
            ),
        ] {
            let urls = urls.unwrap_or_default().iter().enumerate();
            found.extend(urls.map(|(number, url)| ExternalManifest {
                field: format!("{field}[{number}]"),
                url: Secret::new(&**url),
                headers: headers(of_field),
            }));
        }
        let by_kind = self.all::<KubeExternalManifestConfig>();
        found.extend(by_kind.map(|one| ExternalManifest {
            field: format!("KubeExternalManifestConfig {}", one.name),
            url: Secret::new(&*one.url),
            headers: headers(&one.headers),
        }));
        found
    }

    /// Ids of the inline and external manifests among the manifests of the cluster.
    #[must_use]
    pub fn manifest_ids(&self) -> Vec<String> {
        let inline = self.inline_manifests().into_iter().map(|(name, _)| name);
        let external = self.external_manifests().into_iter().map(|one| one.field);
        inline.chain(external).collect()
    }
}

fn headers(headers: &BTreeMap<String, String>) -> Vec<(String, Secret)> {
    let headers = headers.iter();
    headers
        .map(|(name, value)| (name.clone(), Secret::new(value.as_str())))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{bare, doc, document, good};

    #[test]
    fn manifests_of_both_forms_have_ids_in_their_order() {
        let text = [
            bare("controlplane"),
            "cluster:
    controlPlane: {endpoint: 'https://10.0.2.15:6443'}
    network: {cni: {name: custom, urls: ['https://cni.example.org/a.yaml']}}
    externalCloudProvider: {enabled: true, manifests: ['https://cloud.example.org/b.yaml']}
    extraManifests: ['https://a.example.org/c.yaml', 'https://a.example.org/d.yaml']
    extraManifestHeaders: {Authorization: hidden}
    inlineManifests: [{name: old, contents: 'a: b'}]
"
            .to_owned(),
            doc("KubeInlineManifestConfig", "name: new\nmanifest: 'c: d'"),
            doc(
                "KubeExternalManifestConfig",
                "name: other\nurl: https://a.example.org/e.yaml",
            ),
        ];
        let document = document(&text.concat());
        let expected = [
            "old",
            "new",
            "cluster.network.cni.urls[0]",
            "cluster.externalCloudProvider.manifests[0]",
            "cluster.extraManifests[0]",
            "cluster.extraManifests[1]",
            "KubeExternalManifestConfig other",
        ];
        assert_eq!(document.manifest_ids(), expected);
        let inline = document.inline_manifests();
        assert_eq!(inline[1].1.expose(), "c: d");
        let external = document.external_manifests();
        let headers: Vec<usize> = external.iter().map(|one| one.headers.len()).collect();
        assert_eq!(headers, [0, 0, 1, 1, 0]);
        assert!(!format!("{external:?}").contains("hidden"));
    }

    #[test]
    fn config_without_manifests_has_no_ids() {
        assert!(document(&good()).manifest_ids().is_empty());
    }
}
