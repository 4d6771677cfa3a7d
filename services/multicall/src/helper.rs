//! The kernel's usermode helper.
//!
//! The kernel is built to run one program for all requests, this one (`CONFIG_STATIC_USERMODEHELPER`), with the
//! intended helper as `argv[0]`. So an attacker who redirects a helper path cannot run another program.

use std::env::ArgsOs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use corten_sys::process::{Signal, signal};

/// Loads modules when called as `modprobe`. It has libkmod, which this program lacks.
const MODULE_LOADER: &str = "/usr/bin/udevd";

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Load the modules that the arguments name or alias.
    LoadModules,
    /// Ask process 1 for an orderly end. The kernel only sees that this program started.
    End(Signal),
}

impl Request {
    /// Parses `path`, one of the kernel's helper paths.
    pub fn parse(path: &str) -> Option<Request> {
        match path {
            // CONFIG_MODPROBE_PATH.
            "/sbin/modprobe" => Some(Request::LoadModules),
            // Overheating, or a request of the hypervisor (kernel/reboot.c).
            "/sbin/poweroff" => Some(Request::End(Signal::TERM)),
            "/sbin/reboot" => Some(Request::End(Signal::INT)),
            _ => None,
        }
    }

    /// Executes the request. `args` are the arguments after the name.
    pub fn fulfil(self, args: ArgsOs) -> ExitCode {
        let outcome = match self {
            Request::LoadModules => Err(Command::new(MODULE_LOADER)
                .arg0("modprobe")
                .args(args)
                .exec()),
            Request::End(how) => signal(1, how),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            // The kernel gives its helpers no output; it reads the exit code.
            Err(_) => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kernel_helpers_are_ignored() {
        assert_eq!(Request::parse("/sbin/modprobe"), Some(Request::LoadModules));
        assert_eq!(
            Request::parse("/sbin/reboot"),
            Some(Request::End(Signal::INT))
        );
        for path in ["/sbin/request-key", "/sbin/init", "modprobe", ""] {
            assert_eq!(Request::parse(path), None, "{path}");
        }
    }
}
