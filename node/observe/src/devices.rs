//! Counters of disks and network devices: `/proc/diskstats`, `/proc/net/dev`.

use corten_api::machine as api;
use corten_base::proc::{self, at, numbers};
use tonic::Status;

use crate::Paths;

/// Bytes, packets and errors of each network device of the host since its creation, and their sums.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn network(paths: &Paths) -> Result<api::NetworkDeviceStatsResponse, Status> {
    let devices = parse_network(&proc::text(&paths.proc, "net/dev")?);
    let total = sum_network(&devices);
    let stats = api::NetworkDeviceStats {
        metadata: None,
        total: Some(total),
        devices,
    };
    Ok(api::NetworkDeviceStatsResponse {
        messages: vec![stats],
    })
}

fn parse_network(text: &str) -> Vec<api::NetDev> {
    let device = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let v = numbers(rest.split_whitespace());
        Some(api::NetDev {
            name: name.trim().to_owned(),
            rx_bytes: at(&v, 0),
            rx_packets: at(&v, 1),
            rx_errors: at(&v, 2),
            rx_dropped: at(&v, 3),
            rx_fifo: at(&v, 4),
            rx_frame: at(&v, 5),
            rx_compressed: at(&v, 6),
            rx_multicast: at(&v, 7),
            tx_bytes: at(&v, 8),
            tx_packets: at(&v, 9),
            tx_errors: at(&v, 10),
            tx_dropped: at(&v, 11),
            tx_fifo: at(&v, 12),
            tx_collisions: at(&v, 13),
            tx_carrier: at(&v, 14),
            tx_compressed: at(&v, 15),
        })
    };
    // Two heading lines come first.
    text.lines().skip(2).filter_map(device).collect()
}

fn sum_network(devices: &[api::NetDev]) -> api::NetDev {
    let sum = |of: fn(&api::NetDev) -> u64| devices.iter().map(of).fold(0, u64::saturating_add);
    api::NetDev {
        name: "Total".to_owned(),
        rx_bytes: sum(|d| d.rx_bytes),
        rx_packets: sum(|d| d.rx_packets),
        rx_errors: sum(|d| d.rx_errors),
        rx_dropped: sum(|d| d.rx_dropped),
        rx_fifo: sum(|d| d.rx_fifo),
        rx_frame: sum(|d| d.rx_frame),
        rx_compressed: sum(|d| d.rx_compressed),
        rx_multicast: sum(|d| d.rx_multicast),
        tx_bytes: sum(|d| d.tx_bytes),
        tx_packets: sum(|d| d.tx_packets),
        tx_errors: sum(|d| d.tx_errors),
        tx_dropped: sum(|d| d.tx_dropped),
        tx_fifo: sum(|d| d.tx_fifo),
        tx_collisions: sum(|d| d.tx_collisions),
        tx_carrier: sum(|d| d.tx_carrier),
        tx_compressed: sum(|d| d.tx_compressed),
    }
}

/// Requests of each disk and partition since boot, and their sums. Sectors have 512 bytes, times are milliseconds.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn disks(paths: &Paths) -> Result<api::DiskStatsResponse, Status> {
    let devices = parse_disks(&proc::text(&paths.proc, "diskstats")?);
    let total = sum_disks(&devices);
    let stats = api::DiskStats {
        metadata: None,
        total: Some(total),
        devices,
    };
    Ok(api::DiskStatsResponse {
        messages: vec![stats],
    })
}

fn parse_disks(text: &str) -> Vec<api::DiskStat> {
    let disk = |line: &str| {
        let mut fields = line.split_whitespace().skip(2);
        let name = fields.next()?.to_owned();
        let v = numbers(fields);
        Some(api::DiskStat {
            name,
            read_completed: at(&v, 0),
            read_merged: at(&v, 1),
            read_sectors: at(&v, 2),
            read_time_ms: at(&v, 3),
            write_completed: at(&v, 4),
            write_merged: at(&v, 5),
            write_sectors: at(&v, 6),
            write_time_ms: at(&v, 7),
            io_in_progress: at(&v, 8),
            io_time_ms: at(&v, 9),
            io_time_weighted_ms: at(&v, 10),
            discard_completed: at(&v, 11),
            discard_merged: at(&v, 12),
            discard_sectors: at(&v, 13),
            discard_time_ms: at(&v, 14),
        })
    };
    text.lines().filter_map(disk).collect()
}

fn sum_disks(disks: &[api::DiskStat]) -> api::DiskStat {
    let sum = |of: fn(&api::DiskStat) -> u64| disks.iter().map(of).fold(0, u64::saturating_add);
    api::DiskStat {
        name: "Total".to_owned(),
        read_completed: sum(|d| d.read_completed),
        read_merged: sum(|d| d.read_merged),
        read_sectors: sum(|d| d.read_sectors),
        read_time_ms: sum(|d| d.read_time_ms),
        write_completed: sum(|d| d.write_completed),
        write_merged: sum(|d| d.write_merged),
        write_sectors: sum(|d| d.write_sectors),
        write_time_ms: sum(|d| d.write_time_ms),
        io_in_progress: sum(|d| d.io_in_progress),
        io_time_ms: sum(|d| d.io_time_ms),
        io_time_weighted_ms: sum(|d| d.io_time_weighted_ms),
        discard_completed: sum(|d| d.discard_completed),
        discard_merged: sum(|d| d.discard_merged),
        discard_sectors: sum(|d| d.discard_sectors),
        discard_time_ms: sum(|d| d.discard_time_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_devices_are_counted_and_summed() {
        let devices = parse_network(
            "Inter-|   Receive\n face |bytes\n    lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0\n  eth0:900 5 0 1 0 0 0 0 50 1 0 0 0 0 0 0\n",
        );
        assert_eq!(devices[1].name, "eth0");
        let total = sum_network(&devices);
        assert_eq!(
            (total.rx_bytes, total.rx_dropped, total.tx_bytes),
            (1000, 1, 150)
        );
    }

    #[test]
    fn disks_are_counted_and_summed() {
        let disks = parse_disks(
            " 254       0 vda 10 1 80 5 20 2 160 9 0 14 15 1 2 3 4\n 254 1 vda1 1 0 8 1 0 0 0 0 0 1 1\n",
        );
        assert_eq!(
            (disks[0].name.as_str(), disks[0].discard_time_ms),
            ("vda", 4)
        );
        assert_eq!(disks[1].discard_completed, 0);
        assert_eq!(sum_disks(&disks).read_completed, 11);
    }
}
