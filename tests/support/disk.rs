//! A disk that keeps a node's state across several machines, and CDs.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use qemu::{Bus, Disk, DiskMode, Machine};

use crate::node::Node;
use crate::{images, workspace};

const MIB: usize = 1 << 20;

/// A disk with the image on it, and the configs of its node.
#[derive(Debug)]
pub struct NodeDisk {
    name: String,
    path: PathBuf,
    bus: Bus,
}

impl NodeDisk {
    /// The image on a disk of `gib` GiB; replaces an older disk of this name.
    ///
    /// # Panics
    /// The disk cannot be made.
    #[must_use]
    pub fn new(name: &str, gib: u32) -> Self {
        let disk = Self::gone(name);
        let image = std::fs::canonicalize(images::image(".raw")).expect("the image");
        let base = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
        let mut command = Command::new("qemu-img");
        command.args(base).arg(image).arg(&disk.path);
        run(command.arg(format!("{gib}G")));
        disk
    }

    /// An empty disk of `gib` GiB; replaces an older disk of this name.
    ///
    /// # Panics
    /// The disk cannot be made.
    #[must_use]
    pub fn blank(name: &str, gib: u32) -> Self {
        let disk = Self::gone(name);
        let mut command = Command::new("qemu-img");
        command
            .args(["create", "-q", "-f", "qcow2"])
            .arg(&disk.path);
        run(command.arg(format!("{gib}G")));
        disk
    }

    /// The same disk on another bus.
    #[must_use]
    pub fn on(mut self, bus: Bus) -> Self {
        self.bus = bus;
        self
    }

    /// A disk of this name without a file; an older file is removed.
    fn gone(name: &str) -> Self {
        let disk = Self {
            name: name.to_owned(),
            path: workspace::target().join("vm").join(format!("{name}.qcow2")),
            bus: Bus::default(),
        };
        let _none = std::fs::remove_dir_all(disk.configs());
        let _none = std::fs::remove_file(&disk.path);
        std::fs::create_dir_all(disk.configs()).expect("a directory for the configs");
        disk
    }

    /// Fills `length` bytes at `offset` with a value, while no machine uses the disk.
    ///
    /// # Panics
    /// `qemu-io` fails.
    pub fn fill(&self, value: u8, offset: u64, length: u64) {
        let mut command = Command::new("qemu-io");
        let write = format!("write -P {value} {offset} {length}");
        run(command.args(["-f", "qcow2", "-c", &write]).arg(&self.path));
    }

    /// The disk's file in qcow2 format.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A raw copy of the disk.
    ///
    /// # Panics
    /// `qemu-img` fails.
    #[must_use]
    pub fn to_raw(&self) -> PathBuf {
        let raw = self.path.with_extension("raw");
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-q", "-O", "raw"]);
        run(command.arg(&self.path).arg(&raw));
        raw
    }

    /// Enlarges the disk to `gib` GiB, while no machine uses it.
    ///
    /// # Panics
    /// `qemu-img` fails.
    pub fn grow(&self, gib: u32) {
        let mut command = Command::new("qemu-img");
        command.args(["resize", "-q"]).arg(&self.path);
        run(command.arg(format!("{gib}G")));
    }

    /// The first 8 bytes of every MiB: possible starts of partitions.
    ///
    /// # Panics
    /// The disk cannot be read.
    #[must_use]
    pub fn starts(&self) -> Vec<[u8; 8]> {
        let start = |content: &[u8]| content.first_chunk().copied().unwrap_or_default();
        self.each_mib(start)
    }

    /// The numbers of the MiB that are not all zeros.
    ///
    /// # Panics
    /// The disk cannot be read.
    #[must_use]
    pub fn written(&self) -> Vec<usize> {
        let zeros = vec![0; MIB];
        let written = self.each_mib(|content| content != zeros);
        let numbered = written.into_iter().enumerate();
        numbered
            .filter_map(|(number, written)| written.then_some(number))
            .collect()
    }

    /// Overwrites `length` bytes at `offset` with zeros, while no machine uses the disk.
    ///
    /// # Panics
    /// `qemu-io` fails.
    pub fn zero(&self, offset: u64, length: u64) {
        self.fill(0, offset, length);
    }

    /// Adds a partition after those of the image, while no machine uses the disk.
    ///
    /// # Panics
    /// `qemu-img` or `sfdisk` fails.
    pub fn add_partition(&self, name: &str, content: &[u8]) {
        let raw = self.path.with_extension("plain");
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-q", "-O", "raw"]);
        run(command.arg(&self.path).arg(&raw));
        let script = self.path.with_extension("partition");
        let mib = content.len().div_ceil(MIB);
        std::fs::write(&script, format!("size={mib}MiB, name={name}\n")).expect("a script");
        let mut command = Command::new("/sbin/sfdisk");
        command.args(["--quiet", "--append"]).arg(&raw);
        run(command.stdin(std::fs::File::open(&script).expect("the script")));
        let mut command = Command::new("/sbin/sfdisk");
        let table = command.arg("--json").arg(&raw).output().expect("sfdisk");
        let table: serde_json::Value = serde_json::from_slice(&table.stdout).expect("its table");
        let partitions = table.pointer("/partitiontable/partitions");
        let partitions = partitions.and_then(serde_json::Value::as_array);
        let mut named = partitions.into_iter().flatten();
        let found = named.find(|partition| partition["name"] == name);
        let start = found.and_then(|found| found["start"].as_u64());
        let start = start.expect("the partition") * 512;
        let file = std::fs::File::options().write(true).open(&raw);
        let file = file.expect("the raw disk");
        file.write_all_at(content, start).expect("its content");
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-q", "-f", "raw", "-O", "qcow2"]);
        run(command.arg(&raw).arg(&self.path));
        for left in [raw, script] {
            std::fs::remove_file(left).expect("a file to go");
        }
    }

    fn each_mib<T>(&self, look: impl Fn(&[u8]) -> T) -> Vec<T> {
        let raw = self.path.with_extension("plain");
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-q", "-O", "raw"]);
        run(command.arg(&self.path).arg(&raw));
        let file = std::fs::File::open(&raw).expect("the raw disk");
        let length = file.metadata().expect("its length").len();
        let mut content = vec![0; MIB];
        let seen = (0..length / MIB as u64).map(|number| {
            file.read_exact_at(&mut content, number * MIB as u64)
                .expect("a part of the disk");
            look(&content)
        });
        let seen = seen.collect();
        std::fs::remove_file(&raw).expect("the raw disk to go");
        seen
    }

    /// Starts a machine with the disk. The configs of [`Node::configure`] stay
    /// with the disk.
    #[must_use]
    pub fn start(&self, shape: impl FnOnce(Machine) -> Machine) -> Node {
        let disk = Disk::qcow2(&self.path).mode(DiskMode::Direct).bus(self.bus);
        let node = Node::start(&self.name, |machine| shape(machine.disk(disk)));
        node.with_configs(self.configs())
    }

    /// The directory of its node's configs.
    #[must_use]
    pub fn configs(&self) -> PathBuf {
        Path::new(&self.path).with_extension("config")
    }
}

/// A CD with these files, in `directory`. A file's name may have directories.
///
/// # Panics
/// `xorriso` fails.
#[must_use]
pub fn cd(directory: &Path, label: &str, files: &[(&str, &str)]) -> PathBuf {
    let content = directory.join("content");
    for (name, text) in files {
        let path = content.join(name);
        let parent = path.parent().expect("a directory");
        std::fs::create_dir_all(parent).expect("a directory for the files");
        std::fs::write(path, text).expect("a file");
    }
    let iso = directory.join("config.iso");
    let mut command = Command::new("xorriso");
    let options = ["-as", "mkisofs", "-quiet", "-r", "-V", label, "-o"];
    run(command.args(options).args([&iso, &content]));
    iso
}

fn run(command: &mut Command) {
    let status = command.status().expect("a tool for disks");
    assert!(status.success(), "{command:?}: {status}");
}
