//! System call filters (seccomp(2)) for the programs of the node.
//!
//! A server gets only the calls of sockets and files, a tool those of one device or directory. Any other daemon gets
//! all calls except those that act on the whole machine.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Calls of servers and tools, with any arguments.
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
    // Time, random numbers, properties of the machine.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_uname,
    // A socket pair, by which an async runtime wakes itself.
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_socketpair,
];

/// Additional calls of servers, with any arguments; `socket` is below.
const SOCKETS: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvmsg,
    // The C library's resolver sends the A and the AAAA query at once.
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_readlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// Number of fchmodat2(2) on every architecture; the `libc` crate lacks its name on arm64.
pub(crate) const FCHMODAT2: i64 = 452;

/// Additional calls of tools, with any arguments. The list comes from strace(1) of each tool in every use on a node.
/// One use is `xfs_repair` of a disk with 32 damaged allocation groups.
const TOOL: &[i64] = &[
    // Writing a device or a file.
    libc::SYS_copy_file_range,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_memfd_create,
    libc::SYS_pwrite64,
    // Names and modes of files.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    // Memory, and progress of threads.
    libc::SYS_getppid,
    libc::SYS_membarrier,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sysinfo,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_settime,
];

#[cfg(target_arch = "x86_64")]
const OLD_TOOL: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_link,
    libc::SYS_mkdir,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_symlink,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_TOOL: &[i64] = &[];

/// The type of the block layer's `ioctl` requests, and the mask of the type in a request (kernel:
/// include/uapi/linux/fs.h, include/uapi/asm-generic/ioctl.h).
const BLOCK_REQUESTS: u64 = 0x12 << 8;
const REQUEST_TYPE: u64 = 0xff << 8;

/// Calls refused to every daemon except machined and containerd, whatever its capabilities; `clone` is below.
const WHOLE_MACHINE: &[i64] = &[
    // Code that runs in the kernel, and reboot; loading modules is below.
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
    // Memory of the whole machine, and page faults that can stall other processes.
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_userfaultfd,
    // Access to files that bypasses their paths and permissions.
    libc::SYS_acct,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Keyrings are not namespaced.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Work that bypasses every filter.
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

/// Calls that load modules; the kernel requires a signature.
const LOAD_MODULES: &[i64] = &[libc::SYS_finit_module, libc::SYS_init_module];

/// Flags that create namespaces, which `clone` may not have: it creates only threads and processes.
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

/// The condition for each call: none, or a list of rules of which one must match.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A compiled filter, ready to load.
///
/// A refused call fails with `ENOSYS`, as on an older kernel, so libraries fall back. glibc, for example, falls back
/// from `clone3`, whose flags no filter can read, to `clone`. A call with the numbers of another architecture kills its
/// caller.
#[derive(Debug, Clone)]
pub struct Filter(BpfProgram);

impl Filter {
    /// The filter of a daemon that serves sockets.
    ///
    /// # Errors
    /// No filter exists for this architecture.
    pub fn server() -> io::Result<Filter> {
        Filter::allowing(server_calls()?, architecture()?)
    }

    /// The filter of a tool that works on one device or directory. The tool has no network and starts no process, so
    /// its work ends with its process.
    ///
    /// # Errors
    /// Those of [`Filter::server`].
    pub fn tool() -> io::Result<Filter> {
        Filter::allowing(tool_calls()?, architecture()?)
    }

    /// The filter of any other daemon: all calls except those that act on the whole machine.
    ///
    /// # Errors
    /// Those of [`Filter::server`].
    pub fn daemon() -> io::Result<Filter> {
        let mut rules = whole_machine_calls()?;
        rules.extend(any_arguments(LOAD_MODULES));
        Filter::refusing(rules, architecture()?)
    }

    /// The filter of [`Filter::daemon`], plus the calls that load kernel modules.
    ///
    /// # Errors
    /// Those of [`Filter::server`].
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

    /// Applies the filter to this thread and its descendants, irrevocably. Makes system calls only.
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
    let mut rules: Rules = [CALLS, OLD_CALLS, SOCKETS]
        .into_iter()
        .flat_map(any_arguments)
        .collect();
    let none_of_them = vec![rule(0, SeccompCmpOp::MaskedEq(namespaces()), 0)?];
    rules.insert(libc::SYS_clone, none_of_them);
    rules.insert(libc::SYS_socket, only(0, FAMILIES.map(wide))?);
    rules.insert(libc::SYS_ioctl, only(1, [libc::FIONBIO, libc::FIOCLEX])?);
    Ok(rules)
}

fn tool_calls() -> io::Result<Rules> {
    let mut rules: Rules = [CALLS, OLD_CALLS, TOOL, OLD_TOOL]
        .into_iter()
        .flat_map(any_arguments)
        .collect();
    let thread = wide(libc::CLONE_THREAD);
    let threads = rule(0, SeccompCmpOp::MaskedEq(namespaces() | thread), thread)?;
    rules.insert(libc::SYS_clone, vec![threads]);
    let block = SeccompCmpOp::MaskedEq(REQUEST_TYPE);
    let mut requests = only(1, [libc::FIONBIO, libc::FIOCLEX])?;
    requests.push(rule(1, block, BLOCK_REQUESTS)?);
    rules.insert(libc::SYS_ioctl, requests);
    Ok(rules)
}

fn namespaces() -> u64 {
    let all = NAMESPACES.into_iter().map(wide);
    all.fold(0, |all, one| all | one)
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

/// A rule for each value that the argument may have.
fn only<const N: usize>(argument: u8, values: [u64; N]) -> io::Result<Vec<SeccompRule>> {
    values
        .into_iter()
        .map(|value| rule(argument, SeccompCmpOp::Eq, value))
        .collect()
}

/// A rule on the lower 32 bits of an argument; every argument that the filters check fits them.
fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    let length = SeccompCmpArgLen::Dword;
    let condition = SeccompCondition::new(argument, length, operator, value).map_err(refused)?;
    SeccompRule::new(vec![condition]).map_err(refused)
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
