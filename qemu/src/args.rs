//! The QEMU command line: a pure function of the machine and its files.

use std::path::{Path, PathBuf};

use crate::arch::Row;
use crate::{Accel, Firmware, Machine, VmError};

mod network;
mod storage;

/// The paths of a running machine's files and sockets.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub console: PathBuf,
    pub qmp: PathBuf,
    pub second_serial: PathBuf,
    pub firmware: Option<(PathBuf, PathBuf)>,
    pub overlays: Vec<PathBuf>,
    pub api_port: u16,
    pub accel: Accel,
}

/// The use of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Captured to a file, controlled through QMP.
    Captured,
    /// On the terminal of a person who repeats a failed run by hand.
    Replay,
}

/// A path in the syntax of a QEMU option: commas doubled.
pub(crate) fn option_path(path: &Path) -> Result<String, VmError> {
    let text = path.to_str().ok_or_else(|| VmError::Path {
        path: path.to_owned(),
    })?;
    Ok(text.replace(',', ",,"))
}

/// All arguments of the emulator.
pub(crate) fn arguments(
    machine: &Machine,
    layout: &Layout,
    purpose: Purpose,
) -> Result<Vec<String>, VmError> {
    let row = machine.arch.row();
    let mut args = Args::default();
    args.push("-name", &machine.name);
    args.push("-nodefaults", "");
    args.push("-machine", &machine_type(machine, &row));
    processors(&mut args, machine, layout.accel)?;
    args.push("-m", &machine.memory_mib.to_string());
    args.push("-display", "none");
    if !machine.randomless {
        args.push("-device", "virtio-rng-pci");
    }
    if let Some(uuid) = &machine.uuid {
        args.push("-uuid", uuid);
    }
    if let Some(number) = &machine.serial_number {
        let number = number.replace(',', ",,");
        args.push("-smbios", &format!("type=1,serial={number}"));
    }
    if let Some(parameters) = &machine.kernel_parameters {
        let value = parameters.replace(',', ",,");
        let name = "io.systemd.stub.kernel-cmdline-extra";
        args.push("-smbios", &format!("type=11,value={name}={value}"));
    }
    if machine.display {
        args.push("-device", row.display);
    }
    if let Some(date) = &machine.clock {
        args.push("-rtc", &format!("base={date}"));
    }
    if machine.watchdog {
        args.push("-device", "i6300esb");
        args.push("-action", "watchdog=reset");
    }
    if machine.stop_on_reboot {
        args.push("-no-reboot", "");
    }
    if let Some((code, vars)) = &layout.firmware {
        let code = option_path(code)?;
        let vars = option_path(vars)?;
        args.push(
            "-drive",
            &format!("if=pflash,unit=0,format=raw,readonly=on,file={code}"),
        );
        args.push(
            "-drive",
            &format!("if=pflash,unit=1,format=raw,file={vars}"),
        );
        if machine.firmware == Some(Firmware::SecureBoot) {
            // Its flash is writable only in system management mode, which sleep to RAM would
            // bypass.
            args.push("-global", "driver=cfi.pflash01,property=secure,value=on");
            args.push("-global", "ICH9-LPC.disable_s3=1");
        }
    }
    channels(&mut args, machine, layout, purpose)?;
    network::arguments(&mut args, machine, layout)?;
    storage::arguments(&mut args, machine, layout)?;
    for number in 1..=machine.sockets {
        // These ports come last, so that the other devices keep their addresses.
        let port = format!("pcie-root-port,id=socket{number},chassis={number}");
        args.push("-device", &port);
    }
    if let Some(direct) = &machine.direct {
        args.push("-kernel", &plain(&direct.kernel)?);
        if let Some(initrd) = &direct.initrd {
            args.push("-initrd", &plain(initrd)?);
        }
        args.push("-append", &direct.append);
    }
    Ok(args.0)
}

fn processors(args: &mut Args, machine: &Machine, accel: Accel) -> Result<(), VmError> {
    let row = machine.arch.row();
    let cpu = match accel {
        Accel::Kvm => "host",
        Accel::Tcg => row.tcg_cpu,
    };
    let without = if machine.randomless {
        row.no_random
    } else {
        ""
    };
    args.push("-accel", accel.option());
    args.push("-cpu", &format!("{cpu}{without}"));
    args.push("-smp", &machine.cpus.to_string());
    if let Some((file, addresses)) = &machine.blocks {
        args.push("-d", "in_asm");
        args.push("-D", &plain(file)?);
        let (first, last) = (addresses.start(), addresses.end());
        args.push("-dfilter", &format!("{first:#x}..{last:#x}"));
    }
    Ok(())
}

/// Without a display, firmware, GRUB and iPXE use the serial port too, so that the console log is
/// complete.
fn machine_type(machine: &Machine, row: &Row) -> String {
    let without_display = if machine.display { "" } else { row.no_display };
    let protected = match machine.firmware {
        Some(Firmware::SecureBoot) => row.protected,
        _ => "",
    };
    format!("{}{without_display}{protected}", row.machine)
}

/// A path as an argument of its own.
fn plain(path: &Path) -> Result<String, VmError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| VmError::Path {
            path: path.to_owned(),
        })
}

fn channels(
    args: &mut Args,
    machine: &Machine,
    layout: &Layout,
    purpose: Purpose,
) -> Result<(), VmError> {
    if purpose == Purpose::Replay {
        args.push("-serial", "mon:stdio");
        return Ok(());
    }
    let console = option_path(&layout.console)?;
    args.push(
        "-chardev",
        &format!("file,id=console,path={console},append=on"),
    );
    args.push("-serial", "chardev:console");
    if machine.second_serial {
        let path = option_path(&layout.second_serial)?;
        args.push(
            "-chardev",
            &format!("socket,id=second,path={path},server=on,wait=off"),
        );
        let (flag, value) = machine.arch.row().second_serial;
        args.push(flag, value);
    }
    let qmp = option_path(&layout.qmp)?;
    args.push(
        "-chardev",
        &format!("socket,id=qmp,path={qmp},server=on,wait=off"),
    );
    args.push("-mon", "chardev=qmp,mode=control");
    Ok(())
}

/// Flags with their values; an empty value is omitted.
#[derive(Debug, Default)]
struct Args(Vec<String>);

impl Args {
    fn push(&mut self, flag: &str, value: &str) {
        self.0.push(flag.to_owned());
        if !value.is_empty() {
            self.0.push(value.to_owned());
        }
    }
}

/// A command for a shell, with its words quoted.
pub(crate) fn shell_line(program: &str, args: &[String]) -> String {
    let mut line = program.to_owned();
    for arg in args {
        line.push(' ');
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/+@%".contains(c);
        if !arg.is_empty() && arg.chars().all(safe) {
            line.push_str(arg);
        } else {
            line.push('\'');
            line.push_str(&arg.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

#[cfg(test)]
mod tests;
