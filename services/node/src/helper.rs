//! What the kernel asks user space for.
//!
//! It was built to run one program for all such requests, this one (`CONFIG_STATIC_USERMODEHELPER`), with the
//! helper it means as `argv[0]`. So an attacker who can make the kernel run "a helper" gets nothing else run.

use std::env::ArgsOs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use corten_sys::process::{Signal, signal};

/// Loads modules when called `modprobe`; it has libkmod, which this program has not.
const MODULE_LOADER: &str = "/usr/bin/udevd";

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Load the modules named or aliased by the arguments.
    LoadModules,
    /// Ask process 1 for an end in good order; the kernel only sees that this program was started.
    End(Signal),
}

impl Request {
    /// What `path`, one of the kernel's helper paths, asks for.
    pub fn parse(path: &str) -> Option<Request> {
        match path {
            // CONFIG_MODPROBE_PATH.
            "/sbin/modprobe" => Some(Request::LoadModules),
            // Too hot, or asked by the hypervisor (kernel/reboot.c).
            "/sbin/poweroff" => Some(Request::End(Signal::TERM)),
            "/sbin/reboot" => Some(Request::End(Signal::INT)),
            _ => None,
        }
    }

    /// Does it. `args` are those after the name.
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
            // The kernel gives its helpers no output; it looks at the code.
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
