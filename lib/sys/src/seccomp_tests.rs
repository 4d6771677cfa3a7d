//! Tests of the calls that each filter allows and refuses.

use super::*;
use std::net::UdpSocket;

/// Runs `act` under the filter of a server.
fn filtered<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    under(Filter::server(), act)
}

/// Runs `act` on a thread of its own, because a filter cannot be removed.
fn under<T: Send + 'static>(
    filter: io::Result<Filter>,
    act: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || {
        filter.unwrap().load().unwrap();
        act()
    });
    thread.join().unwrap()
}

#[test]
fn every_filter_compiles_for_both_architectures() {
    for architecture in [TargetArch::x86_64, TargetArch::aarch64] {
        let server = Filter::allowing(server_calls().unwrap(), architecture);
        let daemon = Filter::refusing(whole_machine_calls().unwrap(), architecture);
        let tool = Filter::allowing(tool_calls().unwrap(), architecture);
        for filter in [server, daemon, tool] {
            let length = filter.unwrap().0.len();
            // The kernel's limit of a program (linux/bpf_common.h, `BPF_MAXINSNS`).
            assert!((50..=4096).contains(&length), "{length}");
        }
    }
}

#[test]
fn daemon_filter_allows_files_threads_processes_and_sockets() {
    for filter in [Filter::daemon(), Filter::module_loader()] {
        let (written, thread, child, socket) = under(filter, || {
            use rustix::net::{AddressFamily, SocketType, socket};
            let directory = tempfile::tempdir().unwrap();
            let (one, other) = (directory.path().join("one"), directory.path().join("other"));
            std::fs::write(&one, "x").unwrap();
            std::fs::rename(&one, &other).unwrap();
            let thread = std::thread::spawn(|| 7).join().unwrap();
            let child = std::process::Command::new("true").status().unwrap();
            let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None).map(drop);
            (std::fs::read(other).unwrap(), thread, child, socket)
        });
        assert_eq!((&*written, thread, socket), (&b"x"[..], 7, Ok(())));
        assert!(child.success());
    }
}

#[test]
fn daemon_filter_refuses_machine_wide_system_calls() {
    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, unmount};
    use rustix::system::{delete_module, init_module};
    for (filter, loads) in [(Filter::daemon(), false), (Filter::module_loader(), true)] {
        let (mounted, root, pivot, loaded, removed, space) = under(filter, || {
            (
                unmount("/nowhere", UnmountFlags::empty()),
                rustix::process::chroot("/nowhere"),
                rustix::process::pivot_root("/nowhere", "/nowhere"),
                init_module(b"no module", c""),
                delete_module(c"no_such_module", 0),
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER),
            )
        });
        for refused in [mounted, root, pivot, removed] {
            assert_eq!(refused, Err(Errno::NOSYS));
        }
        assert_eq!(space, Err(nix::errno::Errno::ENOSYS));
        // The kernel's own error: an invalid module, a missing capability, or no support for modules.
        let unfiltered = init_module(b"no module", c"");
        let wanted = if loads { unfiltered } else { Err(Errno::NOSYS) };
        assert_eq!(loaded, wanted);
    }
    let length = |filter: io::Result<Filter>| filter.unwrap().0.len();
    assert!(length(Filter::daemon()) > length(Filter::module_loader()));
}

#[test]
fn server_filter_allows_serving() {
    let (address, bytes, thread) = filtered(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let bytes = std::fs::read("/proc/self/comm").unwrap();
        let thread = std::thread::spawn(|| 7).join().unwrap();
        (socket.local_addr().unwrap(), bytes, thread)
    });
    assert_ne!(address.port(), 0);
    assert!(!bytes.is_empty());
    assert_eq!(thread, 7);
}

/// Like the C library's resolver.
#[test]
fn server_filter_allows_sending_two_queries_at_once() {
    use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg};
    use std::io::IoSlice;
    use std::net::Ipv4Addr;
    use std::os::fd::AsRawFd;
    let sent = filtered(|| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = SockaddrIn::new(127, 0, 0, 1, socket.local_addr().unwrap().port());
        let questions = [[IoSlice::new(b"A")], [IoSlice::new(b"AAAA")]];
        let mut headers = MultiHeaders::preallocate(questions.len(), None);
        let to = [Some(to), Some(to)];
        let flags = MsgFlags::empty();
        sendmmsg(socket.as_raw_fd(), &mut headers, &questions, to, [], flags).map(Iterator::count)
    });
    assert_eq!(sent, Ok(2));
}

#[test]
fn server_filter_refuses_all_other_system_calls() {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    let (packet, mounted, space) = filtered(|| {
        (
            socket(AddressFamily::NETLINK, SocketType::RAW, None).map(drop),
            rustix::mount::unmount("/nowhere", rustix::mount::UnmountFlags::empty()),
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER),
        )
    });
    assert_eq!(packet, Err(Errno::NOSYS));
    assert_eq!(mounted, Err(Errno::NOSYS));
    assert_eq!(space, Err(nix::errno::Errno::ENOSYS));
}

#[test]
fn tool_filter_allows_files_and_threads_but_no_processes_and_sockets() {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    let disk = std::fs::File::open("/dev/null").unwrap();
    let (text, thread, child, sockets, mounted, requests) = under(Filter::tool(), move || {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        std::fs::write(&one, "x").unwrap();
        std::fs::rename(&one, &other).unwrap();
        std::os::unix::fs::symlink("other", &one).unwrap();
        let text = std::fs::read(one).unwrap();
        let thread = std::thread::spawn(|| 7).join().unwrap();
        let child = std::process::Command::new("/bin/true").status();
        let families = [
            AddressFamily::UNIX,
            AddressFamily::INET,
            AddressFamily::NETLINK,
        ];
        let sockets = families.map(|family| socket(family, SocketType::DGRAM, None).map(drop));
        let mounted = rustix::mount::unmount("/nowhere", rustix::mount::UnmountFlags::empty());
        // One request of the block layer, which this file does not support, and one of terminals.
        let block = crate::diskseq::of(&disk).unwrap_err().raw_os_error();
        let terminal = rustix::termios::tcgetattr(&disk)
            .unwrap_err()
            .raw_os_error();
        (
            text,
            thread,
            child,
            sockets,
            mounted,
            [block, Some(terminal)],
        )
    });
    assert_eq!((&*text, thread), (&b"x"[..], 7));
    let missing = Some(Errno::NOSYS.raw_os_error());
    assert_eq!(child.unwrap_err().raw_os_error(), missing);
    assert_eq!(sockets, [Err(Errno::NOSYS); 3]);
    assert_eq!(mounted, Err(Errno::NOSYS));
    assert_eq!(requests, [Some(Errno::NOTTY.raw_os_error()), missing]);
}
