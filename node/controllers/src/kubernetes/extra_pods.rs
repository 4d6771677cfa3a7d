//! Shows the static pods of the config, on nodes of any kind, and writes one file each for the kubelet.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::{fs, io};

use corten_base::durable::{Access, remove_if_there, remove_others, replace_now};
use corten_config::Document;
use corten_kubernetes::kubelet::{pod_files, reads_manifests};
use corten_kubernetes::pods::extra_pods;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use corten_types::kubernetes::StaticPod;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::next;

/// Name of this controller, which owns the pods of the config.
pub(super) const NAME: &str = "k8s.ExtraStaticPodController";
/// Start of the files' names. Other files of the directory stay.
const PREFIX: &str = "config-";

#[derive(Debug, Clone)]
pub(super) struct ExtraPods {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for ExtraPods {
    fn name(&self) -> &'static str {
        NAME
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<StaticPod>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let pods = config.as_ref().map(extra_pods).unwrap_or_default();
            context.start_outputs();
            for (id, pod) in pods {
                context.put(Draft::new(&id, StaticPod(pod)))?;
            }
            context.remove_others::<StaticPod>()?;
        }
    }
}

/// Writes the static pods of the config for the kubelet.
pub(super) fn write_files(config: &Document) -> io::Result<()> {
    let directory = pod_files(reads_manifests(config));
    write(Path::new(&directory), &extra_pods(config))
}

/// Makes the pods the only ones of the config in the directory. Names of pods are no file names: a config may give any.
fn write(directory: &Path, pods: &[(String, Value)]) -> io::Result<()> {
    let file = |id: &str| format!("{PREFIX}{}.json", hex::encode(Sha256::digest(id)));
    let files: BTreeMap<String, &Value> = pods.iter().map(|(id, pod)| (file(id), pod)).collect();
    fs::create_dir_all(directory)?;
    let mut done = Ok(());
    for (name, pod) in &files {
        let path = directory.join(name);
        done = done.and(replace_now(&path, &pod.to_string(), Access::PRIVATE));
    }
    let is_wanted = |name: &OsStr| {
        let name = name.to_string_lossy();
        !name.starts_with(PREFIX) || files.contains_key(&*name)
    };
    done.and(remove_others(directory, is_wanted, remove_if_there))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> (String, Value) {
        let pod = json!({ "kind": "Pod", "metadata": { "name": name } });
        (format!("default/{name}"), pod)
    }

    fn texts(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .map(|path| fs::read_to_string(path).unwrap())
            .collect()
    }

    #[test]
    fn each_pod_of_the_config_is_a_file_beside_those_of_others() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("pods");
        write(&directory, &[]).unwrap();
        fs::write(directory.join("other.yaml"), "other").unwrap();
        let (a, b) = (pod("a"), pod("../b"));
        write(&directory, &[a.clone(), b.clone()]).unwrap();
        let (other, a_text, b_text) = ("other".to_owned(), a.1.to_string(), b.1.to_string());
        assert_eq!(
            texts(&directory),
            [a_text.clone(), b_text, other.clone()].into()
        );
        write(&directory, std::slice::from_ref(&a)).unwrap();
        assert_eq!(texts(&directory), [a_text, other].into());
        write(&directory, &[]).unwrap();
        assert_eq!(texts(&directory), ["other".to_owned()].into());
    }
}
