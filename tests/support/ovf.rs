//! A check of OVF descriptions against the required elements and references of DMTF DSP0243, and
//! against the order of elements in its schemas (DSP8023, CIM).

use roxmltree::{Document, Node};

const OVF: &str = "http://schemas.dmtf.org/ovf/envelope/1";
const CIM: &str = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/";

/// The disk of a machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Facts {
    /// Name of the disk's file.
    pub file: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of the disk in bytes.
    pub capacity: u64,
    /// Keys of the properties that an importer asks for.
    pub properties: Vec<String>,
}

/// Checks the description of one machine with one disk.
///
/// # Errors
/// The first missing or wrong part.
pub fn check(text: &str) -> Result<Facts, String> {
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    let envelope = document.root_element();
    if !envelope.has_tag_name((OVF, "Envelope")) {
        return Err("the root is no Envelope".to_owned());
    }
    let parts: Vec<&str> = elements(envelope)
        .map(|part| part.tag_name().name())
        .collect();
    let expected = [
        "References",
        "DiskSection",
        "NetworkSection",
        "VirtualSystem",
    ];
    if parts != expected {
        return Err(format!("the Envelope has {parts:?}, not {expected:?}"));
    }
    let file = child(child(envelope, "References")?, "File")?;
    let disk = child(section(envelope, "DiskSection")?, "Disk")?;
    let network = child(section(envelope, "NetworkSection")?, "Network")?;
    let system = section(envelope, "VirtualSystem")?;
    attribute(system, "id")?;
    number(section(system, "OperatingSystemSection")?, "id")?;
    if attribute(disk, "fileRef")? != attribute(file, "id")? {
        return Err("the Disk is of no File".to_owned());
    }
    if !attribute(disk, "format")?.starts_with("http://") {
        return Err("the Disk's format is no URI".to_owned());
    }
    let names = [
        format!("ovf:/disk/{}", attribute(disk, "diskId")?),
        attribute(network, "name")?,
    ];
    hardware(section(system, "VirtualHardwareSection")?, &names)?;
    let product = section(system, "ProductSection")?;
    let properties = elements(product).filter(|node| node.has_tag_name((OVF, "Property")));
    let properties = properties.map(|property| {
        attribute(property, "type")?;
        child(property, "Label")?;
        attribute(property, "key")
    });
    Ok(Facts {
        file: attribute(file, "href")?,
        size: number(file, "size")?,
        capacity: number(disk, "capacity")?,
        properties: properties.collect::<Result<_, _>>()?,
    })
}

/// Checks the hardware; its items refer to a disk and a network by these names.
fn hardware(section: Node<'_, '_>, names: &[String]) -> Result<(), String> {
    attribute(section, "transport")?;
    fields(child(section, "System")?, &["ElementName", "InstanceID"])?;
    let items = elements(section).filter(|node| node.has_tag_name((OVF, "Item")));
    let mut known: Vec<String> = Vec::new();
    let mut used: Vec<String> = Vec::new();
    for item in items {
        let fields = fields(item, &["ElementName", "InstanceID", "ResourceType"])?;
        for (name, value) in fields {
            let is_known = match name.as_str() {
                "InstanceID" if known.contains(&value) => false,
                "InstanceID" => {
                    known.push(value.clone());
                    true
                }
                "Parent" => known.contains(&value),
                "HostResource" | "Connection" => {
                    used.push(value.clone());
                    names.contains(&value)
                }
                "ResourceType" => value.parse::<u32>().is_ok(),
                _ => true,
            };
            if !is_known {
                return Err(format!("an Item has the {name} {value}"));
            }
        }
    }
    let unused = names.iter().find(|name| !used.contains(name));
    unused.map_or(Ok(()), |name| Err(format!("no Item is of {name}")))
}

/// Names and values of a CIM element, which has these fields at least, in alphabetical order.
fn fields(element: Node<'_, '_>, needed: &[&str]) -> Result<Vec<(String, String)>, String> {
    let fields = elements(element).map(|field| {
        let name = field.tag_name();
        let is_cim = name.namespace().is_some_and(|place| place.starts_with(CIM));
        let value = field.text().unwrap_or_default().to_owned();
        let named = (name.name().to_owned(), value);
        is_cim
            .then_some(named)
            .ok_or_else(|| format!("{} is none of CIM", name.name()))
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    if !fields.is_sorted_by(|(one, _), (next, _)| one < next) {
        return Err(format!("{fields:?} are not in the schema's order"));
    }
    let has = |name: &&&str| {
        fields
            .iter()
            .any(|(field, value)| field == *name && !value.is_empty())
    };
    match needed.iter().find(|name| !has(name)) {
        Some(name) => Err(format!("{fields:?} have no {name}")),
        None => Ok(fields),
    }
}

/// A section, whose first element is its `Info`.
fn section<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Result<Node<'a, 'input>, String> {
    let section = child(node, name)?;
    let first = elements(section).next();
    match first.filter(|first| first.has_tag_name((OVF, "Info"))) {
        Some(_) => Ok(section),
        None => Err(format!("{name} does not begin with an Info")),
    }
}

fn elements<'a, 'input>(node: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(Node::is_element)
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Result<Node<'a, 'input>, String> {
    let mut found = elements(node).filter(|child| child.has_tag_name((OVF, name)));
    match (found.next(), found.next()) {
        (Some(child), None) => Ok(child),
        _ => Err(format!("{} needs one {name}", node.tag_name().name())),
    }
}

fn attribute(node: Node<'_, '_>, name: &str) -> Result<String, String> {
    let value = node
        .attribute((OVF, name))
        .filter(|value| !value.is_empty());
    let missing = || format!("{} has no {name}", node.tag_name().name());
    value.map(str::to_owned).ok_or_else(missing)
}

fn number(node: Node<'_, '_>, name: &str) -> Result<u64, String> {
    let text = attribute(node, name)?;
    let wrong = |_| format!("{name} of {} is {text}", node.tag_name().name());
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use corten_image::{Release, ova, vmdk};
    use corten_steps::arch::Arch;

    use super::*;

    #[test]
    fn description_of_the_builder_is_whole_and_every_lost_part_is_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let release = Release {
            version: "1.2.3".to_owned(),
            arch: Arch::X86_64,
            epoch: 1_700_000_000,
        };
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("disk.raw"), vec![1; 4 << 20]).expect("a disk");
        vmdk::build(&at("disk.vmdk"), &release, &at("disk.raw")).expect("a VMDK");
        ova::build(&at("one.ova"), &release, &at("disk.raw"), &at("disk.vmdk")).expect("an OVA");
        let mut tar = Command::new("tar");
        let tar = tar
            .arg("-xOf")
            .arg(at("one.ova"))
            .arg("corten-1.2.3-x86_64.ovf");
        let text = String::from_utf8(tar.output().expect("tar").stdout).expect("text");
        let facts = check(&text).expect("a whole description");
        assert_eq!(facts.file, "corten-1.2.3-x86_64.vmdk");
        assert_eq!(facts.capacity, 4 << 20);
        assert_eq!(facts.properties, ["corten.config", "metadata"]);
        for (part, other) in [
            ("ovf:fileRef=\"file1\"", "ovf:fileRef=\"file2\""),
            ("ovf:/disk/disk1", "ovf:/disk/disk2"),
            ("<rasd:Connection>VM Network<", "<rasd:Connection>LAN<"),
            ("<rasd:Parent>3<", "<rasd:Parent>9<"),
            ("<rasd:InstanceID>2<", "<rasd:InstanceID>1<"),
            ("<rasd:ResourceType>10<", "<rasd:ResourceType><"),
            ("<Info>Networks</Info>", ""),
            ("<vssd:InstanceID>0</vssd:InstanceID>", ""),
            (" ovf:capacity=", " ovf:other="),
            ("ovf:transport=", "ovf:other="),
            ("<Label>Metadata</Label>", ""),
            ("References>", "Other>"),
        ] {
            let changed = text.replace(part, other);
            assert_ne!(changed, text, "{part}");
            check(&changed).expect_err(part);
        }
    }
}
