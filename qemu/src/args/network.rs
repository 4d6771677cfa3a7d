//! The part of the QEMU command line that makes the machine's NICs.

use super::{Args, Layout, option_path};
use crate::network::{Segment, Service, Tap};
use crate::{Machine, VmError};

/// The NICs of a machine.
pub(super) fn arguments(
    args: &mut Args,
    machine: &Machine,
    layout: &Layout,
) -> Result<(), VmError> {
    match &machine.tap {
        Some(Tap { link, mac, .. }) => {
            let netdev = format!("tap,id=net0,ifname={link},script=no,downscript=no");
            args.push("-netdev", &netdev);
            let nic = format!("virtio-net-pci,netdev=net0,mac={mac},romfile=");
            args.push("-device", &nic);
        }
        None => user(args, machine, layout)?,
    }
    for (number, wire) in machine.wires.iter().enumerate() {
        let (local, remote) = (option_path(&wire.local)?, option_path(&wire.remote)?);
        args.push(
            "-netdev",
            &format!(
                "dgram,id=wire{number},local.type=unix,local.path={local},remote.type=unix,remote.path={remote}"
            ),
        );
        let mac = &wire.mac;
        args.push(
            "-device",
            &format!("virtio-net-pci,netdev=wire{number},mac={mac},romfile="),
        );
    }
    if let Some(Segment { port, mac }) = &machine.segment {
        let netdev = format!("socket,id=segment,mcast=230.0.0.1:{port},localaddr=127.0.0.1");
        args.push("-netdev", &netdev);
        let nic = format!("virtio-net-pci,netdev=segment,mac={mac},romfile=");
        args.push("-device", &nic);
    }
    Ok(())
}

/// The NIC on QEMU's user network.
fn user(args: &mut Args, machine: &Machine, layout: &Layout) -> Result<(), VmError> {
    let mut netdev = format!(
        "user,id=net0,hostfwd=tcp:127.0.0.1:{}-:{}",
        layout.api_port, machine.guest_port
    );
    for (local, guest) in &machine.forwards {
        netdev.push_str(&format!(",hostfwd=tcp:127.0.0.1:{local}-:{guest}"));
    }
    if let Some(network) = &machine.subnet {
        netdev.push_str(&format!(",net={network}"));
    }
    for Service { guest, local } in &machine.services {
        let (address, port) = (guest.ip(), guest.port());
        let relay = relay(*local);
        netdev.push_str(&format!(",guestfwd=tcp:{address}:{port}-cmd:{relay}"));
    }
    let mut nic = String::from("virtio-net-pci,netdev=net0");
    if let Some(netboot) = &machine.netboot {
        let tftp = option_path(&netboot.tftp)?;
        let bootfile = netboot.bootfile.replace(',', ",,");
        netdev.push_str(&format!(",tftp={tftp},bootfile={bootfile}"));
        nic.push_str(",bootindex=0");
    } else {
        // Without its option ROM the NIC cannot delay or take over the boot.
        nic.push_str(",romfile=");
    }
    args.push("-netdev", &netdev);
    args.push("-device", &nic);
    Ok(())
}

/// A command that QEMU runs for each connection of the guest, which is its standard input and
/// output. QEMU's own forwarding would carry all connections of the guest over a single one.
fn relay(port: u16) -> String {
    // The copy of the guest's bytes would outlive a server that ends the connection.
    let copy = "cat <&0 >&3 & cat <&3; kill $!";
    format!("bash -c 'exec 2>/dev/null 3<>/dev/tcp/127.0.0.1/{port} || exit; {copy}'")
}
