//! Documents of clouds and their machines. The first card of such a machine is QEMU's and is on
//! [`NETWORK`](crate::metadata::NETWORK).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::client::generate_config;
use crate::metadata::{Script, Server};

/// Address of the metadata service of most clouds.
pub const METADATA: &str = "169.254.169.254:80";

/// A platform and its machine. In the documents, `{config}` is the machine config and `{base64}`
/// the same in base64.
///
/// The answers are written by hand in the form of the public documentation:
/// - Amazon: "Instance metadata categories", "Use IMDSv2";
/// - Microsoft: "Azure Instance Metadata Service", "Create a generalized image without a provisioning agent";
/// - Google: "Predefined metadata keys";
/// - Nova: "Metadata", "Config drives", JSON schema of `network_data.json`;
/// - cloud-init: "NoCloud", "Networking config version 2";
/// - DMTF DSP0243, section 9.5.1 (OVF environment); cloud-init: "VMware" (the metadata);
/// - Hetzner: "Server metadata";
/// - DigitalOcean: "Metadata API".
#[derive(Debug)]
pub struct Cloud {
    /// Name, as in `corten.platform`.
    pub platform: &'static str,
    /// A header that the service requires.
    pub header: Option<(&'static str, &'static str)>,
    /// Requests and answers, or the files of a volume and their contents.
    pub documents: &'static [(&'static str, &'static str)],
    /// Fields of `get platformmetadata`.
    pub metadata: &'static [(&'static str, &'static str)],
    /// Resource types, and a text in each.
    pub shown: &'static [(&'static str, &'static str)],
}

/// Amazon EC2.
pub const AWS: Cloud = Cloud {
    platform: "aws",
    header: Some(("X-aws-ec2-metadata-token", "dG9rZW4=")),
    documents: &[
        ("PUT /latest/api/token", "dG9rZW4="),
        ("GET /latest/user-data", "{config}"),
        ("GET /latest/meta-data/instance-id", "i-1234567890abcdef0"),
        (
            "GET /latest/meta-data/hostname",
            "ip-10-251-50-12.ec2.internal",
        ),
        ("GET /latest/meta-data/instance-type", "m5.large"),
        ("GET /latest/meta-data/instance-life-cycle", "spot"),
        ("GET /latest/meta-data/public-ipv4", "203.0.113.25"),
        ("GET /latest/meta-data/placement/region", "us-east-1"),
        (
            "GET /latest/meta-data/placement/availability-zone",
            "us-east-1a",
        ),
        ("GET /latest/meta-data/tags/instance", "Name"),
        ("GET /latest/meta-data/tags/instance/Name", "first"),
        ("GET /latest/meta-data/mac", "52:54:00:12:34:56"),
        (
            "GET /latest/meta-data/network/interfaces/macs/52:54:00:12:34:56/local-ipv4s",
            "168.0.2.15",
        ),
    ],
    metadata: &[
        ("region", "us-east-1"),
        ("zone", "us-east-1a"),
        ("instanceType", "m5.large"),
        ("instanceId", "i-1234567890abcdef0"),
        ("providerId", "aws:///us-east-1a/i-1234567890abcdef0"),
        ("spot", "true"),
    ],
    shown: &[
        ("hostname", "ip-10-251-50-12"),
        ("addresses", "203.0.113.25"),
    ],
};

/// Microsoft Azure.
pub const AZURE: Cloud = Cloud {
    platform: "azure",
    header: Some(("Metadata", "true")),
    documents: &[
        (
            "GET /metadata/instance/compute/userData?api-version=2021-01-01&format=text",
            "{base64}",
        ),
        (
            "GET /metadata/instance/compute?api-version=2021-02-01&format=json",
            r#"{"location":"westus","name":"node","osProfile":{"computerName":"node-2"},"zone":"2",
              "platformFaultDomain":"0","vmSize":"Standard_B1ms","evictionPolicy":"",
              "resourceId":"/subscriptions/0/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/node"}"#,
        ),
        (
            "GET /metadata/instance/network/interface?api-version=2021-02-01&format=json",
            r#"[{"ipv4":{"ipAddress":[{"privateIpAddress":"168.0.2.15","publicIpAddress":"203.0.113.4"}],
              "subnet":[{"address":"168.0.0.0","prefix":"7"}]},"ipv6":{"ipAddress":[]},
              "macAddress":"525400123456"}]"#,
        ),
    ],
    metadata: &[
        ("region", "westus"),
        ("zone", "westus-2"),
        ("instanceType", "Standard_B1ms"),
        (
            "instanceId",
            "/subscriptions/0/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/node",
        ),
    ],
    shown: &[("hostname", "node-2"), ("addresses", "203.0.113.4")],
};

/// Azure's wire server.
pub const WIRE_SERVER: &str = "168.63.129.16:80";
/// Its goal state.
pub const GOAL: (&str, &str) = (
    "GET /machine/?comp=goalstate",
    r#"<?xml version="1.0" encoding="utf-8"?><GoalState><Version>2012-11-30</Version>
      <Incarnation>1</Incarnation><Machine><ExpectedState>Started</ExpectedState></Machine>
      <Container><ContainerId>c-1</ContainerId><RoleInstanceList><RoleInstance>
      <InstanceId>i-1</InstanceId></RoleInstance></RoleInstanceList></Container></GoalState>"#,
);
/// The report of a machine.
pub const HEALTH: &str = "POST /machine/?comp=health";

/// The disc that Azure puts into a machine's drive, in ISO 9660 instead of UDF.
pub const AZURE_DISC: Cloud = Cloud {
    platform: "azure",
    header: None,
    documents: &[(
        "ovf-env.xml",
        r#"<ns0:Environment xmlns:ns0="http://schemas.dmtf.org/ovf/environment/1"
            xmlns:ns1="http://schemas.microsoft.com/windowsazure"><ns1:ProvisioningSection>
          <ns1:Version>1.0</ns1:Version><ns1:LinuxProvisioningConfigurationSet>
          <ns1:ConfigurationSetType>LinuxProvisioningConfiguration</ns1:ConfigurationSetType>
          <ns1:HostName>node-7</ns1:HostName><ns1:CustomData>{base64}</ns1:CustomData>
          </ns1:LinuxProvisioningConfigurationSet></ns1:ProvisioningSection></ns0:Environment>"#,
    )],
    metadata: &[("hostname", "node-7")],
    shown: &[("hostname", "node-7")],
};

/// Google Compute Engine.
pub const GCP: Cloud = Cloud {
    platform: "gcp",
    header: Some(("Metadata-Flavor", "Google")),
    documents: &[
        (
            "GET /computeMetadata/v1/instance/attributes/user-data",
            "{config}",
        ),
        ("GET /computeMetadata/v1/instance/id", "4407000000000000000"),
        ("GET /computeMetadata/v1/project/project-id", "my-project"),
        ("GET /computeMetadata/v1/instance/name", "node-3"),
        (
            "GET /computeMetadata/v1/instance/hostname",
            "node-3.c.my-project.internal",
        ),
        (
            "GET /computeMetadata/v1/instance/zone",
            "projects/77/zones/us-central1-a",
        ),
        (
            "GET /computeMetadata/v1/instance/machine-type",
            "projects/77/machineTypes/n1-standard-1",
        ),
        (
            "GET /computeMetadata/v1/instance/scheduling/preemptible",
            "FALSE",
        ),
        (
            "GET /computeMetadata/v1/instance/tags?alt=json",
            r#"["kube"]"#,
        ),
        (
            "GET /computeMetadata/v1/instance/network-interfaces/?recursive=true&alt=json",
            r#"[{"accessConfigs":[{"externalIp":"203.0.113.9","type":"ONE_TO_ONE_NAT"}],
              "gateway":"168.0.2.2","ip":"168.0.2.15","mac":"52:54:00:12:34:56","mtu":1460}]"#,
        ),
    ],
    metadata: &[
        ("region", "us-central1"),
        ("zone", "us-central1-a"),
        ("instanceType", "n1-standard-1"),
        ("instanceId", "4407000000000000000"),
        ("providerId", "gce://my-project/us-central1-a/node-3"),
    ],
    shown: &[
        ("hostname", "node-3"),
        ("addresses", "203.0.113.9"),
        ("links", "mtu: 1460"),
    ],
};

const SERVER_ID: &str = "d8e02d56-2648-49a3-bf97-6be8f1204f38";
const META_DATA: &str = r#"{"uuid":"d8e02d56-2648-49a3-bf97-6be8f1204f38","hostname":"node-4.novalocal",
  "availability_zone":"nova","project_id":"f7ac","meta":{"role":"worker"}}"#;
const NETWORK_DATA: &str = r#"{"links":[{"id":"nic0","type":"phy","ethernet_mac_address":"52:54:00:12:34:56",
    "mtu":1450,"vif_id":"v0"}],
  "networks":[{"id":"n0","type":"ipv4","link":"nic0","ip_address":"168.0.2.15","netmask":"254.0.0.0",
    "gateway":"168.0.2.2"}],"services":[{"type":"dns","address":"192.0.2.53"}]}"#;

/// OpenStack by its metadata service.
pub const OPENSTACK: Cloud = Cloud {
    platform: "openstack",
    header: None,
    documents: &[
        ("GET /openstack/latest/user_data", "{config}"),
        ("GET /openstack/latest/meta_data.json", META_DATA),
        ("GET /openstack/latest/network_data.json", NETWORK_DATA),
        ("GET /latest/meta-data/public-ipv4", "203.0.113.3"),
        ("GET /latest/meta-data/instance-type", "m1.small"),
    ],
    metadata: &[
        ("zone", "nova"),
        ("instanceType", "m1.small"),
        ("instanceId", SERVER_ID),
    ],
    shown: &[
        ("hostname", "node-4"),
        ("addresses", "203.0.113.3"),
        ("links", "mtu: 1450"),
        ("resolvers", "192.0.2.53"),
    ],
};

/// OpenStack by its config drive.
pub const CONFIG_DRIVE: Cloud = Cloud {
    documents: &[
        ("openstack/latest/user_data", "{config}"),
        ("openstack/latest/meta_data.json", META_DATA),
        ("openstack/latest/network_data.json", NETWORK_DATA),
    ],
    metadata: &[("zone", "nova"), ("instanceId", SERVER_ID)],
    shown: &[("hostname", "node-4"), ("links", "mtu: 1450")],
    ..OPENSTACK
};

/// A NoCloud seed on a server.
pub const NOCLOUD: Cloud = Cloud {
    platform: "nocloud",
    header: None,
    documents: &[
        ("GET /seed/user-data", "{config}"),
        (
            "GET /seed/meta-data",
            "instance-id: i-5\nlocal-hostname: node-5.example.com\nregion: lab\nzone: rack-1\n",
        ),
        (
            "GET /seed/network-config",
            "version: 2\nethernets:\n  uplink:\n    match: {macaddress: '52:54:00:12:34:56'}\n    mtu: 1440\n    \
             addresses: [168.0.2.15/7]\n    gateway4: 168.0.2.2\n",
        ),
    ],
    metadata: &[("instanceId", "i-5"), ("region", "lab"), ("zone", "rack-1")],
    shown: &[
        ("hostname", "node-5"),
        ("addresses", "168.0.2.15/7"),
        ("links", "mtu: 1440"),
    ],
};

/// The disc of the OVF environment. QEMU has VMware's port, but no guest properties behind it.
pub const VMWARE: Cloud = Cloud {
    platform: "vmware",
    header: None,
    documents: &[(
        "ovf-env.xml",
        r#"<?xml version="1.0" encoding="UTF-8"?>
          <Environment xmlns="http://schemas.dmtf.org/ovf/environment/1"
            xmlns:oe="http://schemas.dmtf.org/ovf/environment/1" oe:id=""><PropertySection>
          <Property oe:key="corten.config" oe:value="{base64}"/>
          <Property oe:key="metadata" oe:value="{metadata}"/>
          </PropertySection></Environment>"#,
    )],
    metadata: &[("instanceId", "vm-8")],
    shown: &[
        ("hostname", "node-8"),
        ("addresses", "168.0.2.15/7"),
        ("links", "mtu: 1430"),
    ],
};
const VMWARE_METADATA: &str = "instance-id: vm-8\nlocal-hostname: node-8\nnetwork:\n  version: 2\n  ethernets:\n    \
    first:\n      match: {macaddress: '52:54:00:12:34:56'}\n      mtu: 1430\n      \
    addresses: [168.0.2.15/7]\n      gateway4: 168.0.2.2\n";

/// Hetzner Cloud.
pub const HCLOUD: Cloud = Cloud {
    platform: "hcloud",
    header: None,
    documents: &[
        ("GET /hetzner/v1/userdata", "{base64}"),
        ("GET /hetzner/v1/metadata/instance-id", "42424242"),
        ("GET /hetzner/v1/metadata/hostname", "worker-1"),
        ("GET /hetzner/v1/metadata/availability-zone", "hel1-dc2"),
        ("GET /hetzner/v1/metadata/public-ipv4", "203.0.113.7"),
        (
            "GET /hetzner/v1/metadata/network-config",
            "version: 1\nconfig:\n- type: physical\n  name: eth0\n  mac_address: 52:54:00:12:34:56\n  subnets:\n  \
             - {type: dhcp, ipv4: true}\n  \
             - {type: static, ipv6: true, address: 2001:db8:1:2::1/64, gateway: 'fe80::1'}\n",
        ),
    ],
    metadata: &[
        ("region", "hel1"),
        ("zone", "hel1-dc2"),
        ("instanceId", "42424242"),
        ("providerId", "hcloud://42424242"),
    ],
    shown: &[
        ("hostname", "worker-1"),
        ("addresses", "203.0.113.7"),
        ("addresses", "2001:db8:1:2::1/64"),
    ],
};

/// DigitalOcean.
pub const DIGITAL_OCEAN: Cloud = Cloud {
    platform: "digital-ocean",
    header: None,
    documents: &[
        ("GET /metadata/v1/user-data", "{config}"),
        (
            "GET /metadata/v1.json",
            r#"{"droplet_id":2756294,"hostname":"sample-droplet","region":"nyc3","tags":["kube"],
              "dns":{"nameservers":["192.0.2.54"]},"interfaces":{"public":[{"type":"public",
              "ipv4":{"ip_address":"168.0.2.15","netmask":"254.0.0.0","gateway":"168.0.2.2"},
              "anchor_ipv4":{"ip_address":"10.17.0.5","netmask":"255.255.0.0","gateway":"10.17.0.1"},
              "mac":"52:54:00:12:34:56"}]},
              "reserved_ip":{"ipv4":{"active":true,"ip_address":"203.0.113.99"}}}"#,
        ),
    ],
    metadata: &[
        ("region", "nyc3"),
        ("instanceId", "2756294"),
        ("providerId", "digitalocean://2756294"),
    ],
    shown: &[
        ("hostname", "sample-droplet"),
        ("addresses", "10.17.0.5/16"),
        ("addresses", "203.0.113.99"),
        ("resolvers", "192.0.2.54"),
    ],
};

impl Cloud {
    /// The documents with the machine config of a new cluster, which is written to `directory`.
    ///
    /// # Panics
    /// The config cannot be made.
    #[must_use]
    pub fn documents(&self, directory: &Path) -> Vec<(&'static str, String)> {
        generate_config(directory);
        let config = std::fs::read_to_string(directory.join("controlplane.yaml"));
        let config = config.expect("the config");
        let documents = self.documents.iter().map(|(name, text)| {
            let text = text.replace("{base64}", &STANDARD.encode(&config));
            let text = text.replace("{metadata}", &STANDARD.encode(VMWARE_METADATA));
            (*name, text.replace("{config}", &config))
        });
        documents.collect()
    }

    /// The metadata service, which fails for the first requests.
    ///
    /// # Panics
    /// The config cannot be made, or no port is free.
    #[must_use]
    pub fn service(&self, directory: &Path, failures: usize) -> Server {
        let mut script = Script::new().failing(failures);
        if let Some((name, value)) = self.header {
            script = script.needs(name, value);
        }
        let documents = self.documents(directory).into_iter();
        documents
            .fold(script, |script, (request, text)| {
                script.answer(request, text)
            })
            .serve()
    }
}
