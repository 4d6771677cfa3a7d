//! Which system calls a daemon may make: what a server on sockets and files needs, and nothing else.
//!
//! A call outside the list fails with `ENOSYS`, as on a kernel that does not have it: libraries then fall
//! back (glibc from `clone3`, whose flags no filter can see, to `clone`, whose flags this one does see).

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Any arguments.
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

/// `clone` makes threads, never namespaces.
const NAMESPACES: i32 = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

const FAMILIES: [i32; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// A filter, ready to be loaded.
#[derive(Debug, Clone)]
pub struct Filter(BpfProgram);

impl Filter {
    /// The filter of a daemon that serves sockets.
    ///
    /// # Errors
    /// The architecture is one that this has no filter for.
    pub fn server() -> io::Result<Filter> {
        let any = Vec::<SeccompRule>::new;
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = CALLS
            .iter()
            .chain(OLD_CALLS)
            .map(|call| (*call, any()))
            .collect();
        rules.insert(libc::SYS_clone, vec![no_namespaces().map_err(refused)?]);
        rules.insert(libc::SYS_socket, only(0, FAMILIES.map(wide))?);
        rules.insert(libc::SYS_ioctl, only(1, [libc::FIONBIO, libc::FIOCLEX])?);
        let architecture = std::env::consts::ARCH.try_into().map_err(refused)?;
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
            SeccompAction::Allow,
            architecture,
        )
        .map_err(refused)?;
        Ok(Filter(filter.try_into().map_err(refused)?))
    }

    /// Binds this thread, and all it starts, to the filter for ever. Makes system calls only.
    pub(crate) fn load(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(|_| io::Error::last_os_error())
    }
}

fn wide(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

/// The argument must be one of these.
fn only<const N: usize>(argument: u8, values: [u64; N]) -> io::Result<Vec<SeccompRule>> {
    let rule = |value| {
        let condition =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
        SeccompRule::new(vec![condition])
    };
    values
        .into_iter()
        .map(|value| rule(value).map_err(refused))
        .collect()
}

fn no_namespaces() -> Result<SeccompRule, seccompiler::BackendError> {
    let operator = SeccompCmpOp::MaskedEq(wide(NAMESPACES));
    SeccompRule::new(vec![SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        operator,
        0,
    )?])
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// On a thread of its own, for the filter stays.
    fn filtered<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            Filter::server().unwrap().load().unwrap();
            act()
        });
        thread.join().unwrap()
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
