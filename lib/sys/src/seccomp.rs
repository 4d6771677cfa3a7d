//! Which system calls a daemon may make: what a server on sockets and files needs, and nothing else; or, for one
//! that does more, all but those that work on the machine as a whole.
//!
//! A call it may not make fails with `ENOSYS`, as on a kernel that does not have it: libraries then fall
//! back (glibc from `clone3`, whose flags no filter can see, to `clone`, whose flags these do see). A call by the
//! numbers of another architecture ends its caller.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// What a server may call, with any arguments.
const CALLS: &[i64] = &[
    // Files and descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads and signals; `clone` is below.
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // Time, chance, the machine.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_uname,
    // Sockets; `socket` is below.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    // The C library's resolver asks for both kinds of addresses at once.
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
];

/// What older architectures have beside the calls above.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_readlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// What no daemon calls that is not machined or containerd, whatever its capabilities are; `clone` is below.
const WHOLE_MACHINE: &[i64] = &[
    // What runs as the kernel, and when it ends; what loads modules is below.
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    // Mounts, roots and namespaces.
    libc::SYS_chroot,
    libc::SYS_clone3,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // Other processes, their memory and their descriptors.
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    // Memory of the machine, and faults that others can be made to wait in.
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_userfaultfd,
    // Files beside their paths and permissions.
    libc::SYS_acct,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Keys know of no namespaces.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Work that no filter sees.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // The machine's clock, names and consoles.
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_personality,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const OLD_WHOLE_MACHINE: &[i64] = &[
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_modify_ldt,
    libc::SYS_sysfs,
    libc::SYS_uselib,
];
/// `kexec_file_load` (Linux, `include/uapi/asm-generic/unistd.h`); libc does not name it for every C library.
#[cfg(not(target_arch = "x86_64"))]
const OLD_WHOLE_MACHINE: &[i64] = &[294];

/// They load modules, which must be signed.
const LOAD_MODULES: &[i64] = &[libc::SYS_finit_module, libc::SYS_init_module];

/// `clone` makes threads and processes, never namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

const FAMILIES: [i32; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// What a filter knows of a call: none of its arguments, or these. One rule that fits is enough.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A filter, ready to be loaded.
#[derive(Debug, Clone)]
pub struct Filter(BpfProgram);

impl Filter {
    /// The filter of a daemon that serves sockets: it has what such a one needs.
    ///
    /// # Errors
    /// The architecture is one that this has no filter for.
    pub fn server() -> io::Result<Filter> {
        Filter::allowing(server_calls()?, architecture()?)
    }

    /// The filter of a daemon that does more: it has all but what works on the machine as a whole.
    ///
    /// # Errors
    /// As of [`Filter::server`].
    pub fn daemon() -> io::Result<Filter> {
        let mut rules = whole_machine_calls()?;
        rules.extend(any_arguments(LOAD_MODULES));
        Filter::refusing(rules, architecture()?)
    }

    /// The filter of [`Filter::daemon`] for one that loads modules, too.
    ///
    /// # Errors
    /// As of [`Filter::server`].
    pub fn module_loader() -> io::Result<Filter> {
        Filter::refusing(whole_machine_calls()?, architecture()?)
    }

    fn allowing(rules: Rules, architecture: TargetArch) -> io::Result<Filter> {
        Filter::new(rules, not_there(), SeccompAction::Allow, architecture)
    }

    fn refusing(rules: Rules, architecture: TargetArch) -> io::Result<Filter> {
        Filter::new(rules, SeccompAction::Allow, not_there(), architecture)
    }

    fn new(
        rules: Rules,
        others: SeccompAction,
        these: SeccompAction,
        architecture: TargetArch,
    ) -> io::Result<Filter> {
        let filter = SeccompFilter::new(rules, others, these, architecture).map_err(refused)?;
        Ok(Filter(filter.try_into().map_err(refused)?))
    }

    /// Binds this thread, and all it starts, to the filter for ever. Makes system calls only.
    pub(crate) fn load(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(|_| io::Error::last_os_error())
    }
}

fn not_there() -> SeccompAction {
    SeccompAction::Errno(libc::ENOSYS.unsigned_abs())
}

fn architecture() -> io::Result<TargetArch> {
    std::env::consts::ARCH.try_into().map_err(refused)
}

fn any_arguments(calls: &[i64]) -> impl Iterator<Item = (i64, Vec<SeccompRule>)> {
    calls.iter().map(|call| (*call, Vec::new()))
}

fn server_calls() -> io::Result<Rules> {
    let mut rules: Rules = any_arguments(CALLS)
        .chain(any_arguments(OLD_CALLS))
        .collect();
    let all = NAMESPACES
        .into_iter()
        .map(wide)
        .fold(0, |all, one| all | one);
    let none_of_them = vec![rule(0, SeccompCmpOp::MaskedEq(all), 0)?];
    rules.insert(libc::SYS_clone, none_of_them);
    rules.insert(libc::SYS_socket, only(0, FAMILIES.map(wide))?);
    rules.insert(libc::SYS_ioctl, only(1, [libc::FIONBIO, libc::FIOCLEX])?);
    Ok(rules)
}

fn whole_machine_calls() -> io::Result<Rules> {
    let mut rules: Rules = any_arguments(WHOLE_MACHINE)
        .chain(any_arguments(OLD_WHOLE_MACHINE))
        .collect();
    let any_of_them = NAMESPACES
        .map(wide)
        .into_iter()
        .map(|one| rule(0, SeccompCmpOp::MaskedEq(one), one))
        .collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_clone, any_of_them);
    Ok(rules)
}

fn wide(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

/// The argument must be one of these.
fn only<const N: usize>(argument: u8, values: [u64; N]) -> io::Result<Vec<SeccompRule>> {
    values
        .into_iter()
        .map(|value| rule(argument, SeccompCmpOp::Eq, value))
        .collect()
}

/// The lower half of the argument compares so with the value: none of those that are looked at is longer.
fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    let length = SeccompCmpArgLen::Dword;
    let condition = SeccompCondition::new(argument, length, operator, value).map_err(refused)?;
    SeccompRule::new(vec![condition]).map_err(refused)
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// As a server.
    fn filtered<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
        under(Filter::server(), act)
    }

    /// On a thread of its own, for the filter stays.
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
    fn every_filter_is_a_program_for_both_architectures() {
        for architecture in [TargetArch::x86_64, TargetArch::aarch64] {
            let server = Filter::allowing(server_calls().unwrap(), architecture);
            let daemon = Filter::refusing(whole_machine_calls().unwrap(), architecture);
            for filter in [server, daemon] {
                let length = filter.unwrap().0.len();
                // As long as one of the kernel's may be (linux/bpf_common.h, `BPF_MAXINSNS`).
                assert!((50..=4096).contains(&length), "{length}");
            }
        }
    }

    #[test]
    fn a_daemon_does_what_it_does_without_a_filter() {
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
    fn no_daemon_has_what_works_on_the_machine_as_a_whole() {
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
            // The kernel itself says what is wrong with it, or with who asks, or that it has no modules.
            let unfiltered = init_module(b"no module", c"");
            let wanted = if loads { unfiltered } else { Err(Errno::NOSYS) };
            assert_eq!(loaded, wanted);
        }
        let length = |filter: io::Result<Filter>| filter.unwrap().0.len();
        assert!(length(Filter::daemon()) > length(Filter::module_loader()));
    }

    #[test]
    fn a_server_can_serve() {
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

    /// As the C library's resolver does.
    #[test]
    fn a_server_can_send_two_questions_at_once() {
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
            sendmmsg(socket.as_raw_fd(), &mut headers, &questions, to, [], flags)
                .map(Iterator::count)
        });
        assert_eq!(sent, Ok(2));
    }

    #[test]
    fn everything_else_is_not_there() {
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
}
