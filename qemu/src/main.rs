//! `corten-qemu`: starts an image as `make run` does.
//!
//! Owns: the terminal while a machine runs. Ctrl-C is the power button, a second Ctrl-C cuts the power.
//! Never: changes the image or builds anything.

mod cli;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser as _;
use qemu::{Accel, Arch, DirectBoot, Disk, DiskMode, Firmware, Machine, Running, VmError};

use cli::{Cli, FirmwareArg, RunArgs, Verb};

/// Time after the power button until the machine is killed.
const POWERDOWN: Duration = Duration::from_secs(60);
/// The API's port on a node. Used on this host too if it is free, because clients default to it.
const USUAL_PORT: u16 = 50000;
const TICK: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Verb::Probe => {
            let probe = Accel::probe();
            println!("{}: {}", probe.accel.option(), probe.reason);
            Ok(())
        }
        Verb::Run(args) => run(*args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corten-qemu: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The requested architecture and that of the images' names, which must agree.
fn machine_arch(args: &RunArgs) -> anyhow::Result<Arch> {
    let mut known = args.arch;
    let media = [&args.iso, &args.usb, &args.pxe].into_iter().flatten();
    for image in args.image.iter().chain(media) {
        match (Arch::of_image(image), known) {
            (Some(found), Some(other)) if found != other => bail!(
                "{} is for {found}, but the machine is {other}: use --arch {found}, and only images for it",
                image.display(),
                found = found.name(),
                other = other.name()
            ),
            (found, _) => known = known.or(found),
        }
    }
    Ok(known.unwrap_or(Arch::X86_64))
}

fn machine(args: &RunArgs, arch: Arch) -> anyhow::Result<Machine> {
    let firmware = match args.firmware {
        FirmwareArg::Bios => Firmware::Bios,
        FirmwareArg::Uefi => Firmware::Uefi,
        FirmwareArg::SecureBoot => Firmware::SecureBoot,
    };
    let mut machine = Machine::new(&args.name, &args.dir)
        .arch(arch)
        .firmware(firmware)
        .memory_mib(args.memory)
        .cpus(args.cpus);
    for (local, node) in &args.forward {
        machine = machine.forward(*local, *node);
    }
    if let Some(segment) = &args.segment {
        machine = machine.segment(segment.clone());
    }
    for image in &args.image {
        let disk = if image.extension().is_some_and(|ext| ext == "qcow2") {
            Disk::qcow2(image)
        } else {
            Disk::raw(image)
        };
        let mode = if args.overlay {
            DiskMode::Overlay
        } else {
            DiskMode::Snapshot
        };
        let disk = disk.mode(mode);
        machine = machine.disk(match args.disk_size {
            Some(mib) => disk.enlarged(mib),
            None => disk,
        });
    }
    if let Some(iso) = &args.iso {
        machine = machine.cdrom(iso);
    }
    if let Some(usb) = &args.usb {
        machine = machine.usb(usb);
    }
    if let Some(dir) = &args.pxe {
        machine = machine.netboot(dir, &args.bootfile);
    }
    if let Some(kernel) = &args.kernel {
        machine = machine.direct(DirectBoot {
            kernel: kernel.clone(),
            initrd: args.initrd.clone(),
            append: args
                .append
                .clone()
                .unwrap_or_else(|| arch.console_parameter().to_owned()),
        });
    }
    let usual = (Ipv4Addr::LOCALHOST, USUAL_PORT);
    if let Some(port) = args.port {
        machine = machine.api_port(port);
    } else if TcpListener::bind(usual).is_ok() {
        machine = machine.api_port(USUAL_PORT);
    }
    let accel = args.accel.as_deref().and_then(Accel::from_name);
    if let Some(accel) = accel {
        machine = machine.accel(accel);
    }
    let accel = accel.unwrap_or_else(|| Accel::probe_for(arch).accel);
    let parameters = accel.kernel_parameters().join(" ");
    // Only the firmware's stub adds parameters to those of the image.
    if matches!(firmware, Firmware::Uefi) && args.kernel.is_none() && !parameters.is_empty() {
        say(&format!(
            "without hardware virtualisation, for speed: {parameters}"
        ));
        machine = machine.kernel_parameters(parameters);
    }
    if args.image.is_empty()
        && args.iso.is_none()
        && args.usb.is_none()
        && args.pxe.is_none()
        && args.kernel.is_none()
    {
        bail!("nothing to boot; give --image, --iso, --usb, --pxe or --kernel");
    }
    Ok(machine)
}

/// Ctrl-C and SIGTERM, received by a thread of their own.
fn interrupts() -> anyhow::Result<Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot watch for Ctrl-C")?;
    let (sender, receiver) = channel();
    let mut term = {
        let _inside = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .context("cannot watch for SIGTERM")?
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = term.recv() => {}
                }
                if sender.send(()).is_err() {
                    break;
                }
            }
        });
    });
    Ok(receiver)
}

fn say(text: &str) {
    // A separate line between the guest's lines.
    eprintln!("\n--- {text}");
}

fn run(args: RunArgs) -> anyhow::Result<()> {
    let arch = machine_arch(&args)?;
    let machine = machine(&args, arch)?;
    let interrupts = interrupts()?;
    let probe = Accel::probe_for(arch);
    let running = machine.start()?;
    if args.accel.is_none() {
        let (accel, reason) = (probe.accel.option(), &probe.reason);
        say(&format!("accelerator {accel} ({reason})"));
    }
    let api = running.api();
    say(&format!(
        "API address: {api}; Ctrl-C presses the power button"
    ));
    say(&format!(
        "console log: {}",
        running.console().path().display()
    ));
    std::thread::scope(|scope| {
        let _always = KillAtEnd(&running);
        let (answered, answer) = channel();
        scope.spawn(|| {
            // The wait ends early when QEMU does; the receiver may be gone by then.
            let _unheard = answered.send(running.wait_tls(Duration::from_hours(24)));
            drop(answered);
        });
        watch(&running, &args, &interrupts, &answer)
    })
}

/// Shows the console and reacts to Ctrl-C until QEMU ends.
fn watch(
    running: &Running,
    args: &RunArgs,
    interrupts: &Receiver<()>,
    answer: &Receiver<Result<Duration, VmError>>,
) -> anyhow::Result<()> {
    let mut up = Up::Waiting;
    let mut powered_down: Option<Instant> = None;
    let mut shown = 0;
    loop {
        let status = running.ended();
        show(running, &mut shown);
        if let Some(status) = status {
            say(&format!("machine ended ({status})"));
            if !status.success() {
                bail!("QEMU ended: {status}");
            }
            return Ok(());
        }
        if let Ok(Ok(after)) = answer.try_recv() {
            up.announce(running, after, args)?;
        }
        up.watch();
        let overdue = powered_down.is_some_and(|since| since.elapsed() > POWERDOWN);
        let interrupted = interrupts.try_recv().is_ok();
        if overdue || (interrupted && powered_down.is_some()) {
            say("cutting the power");
            let _gone = running.qmp().quit();
        } else if interrupted {
            say("power button pressed; Ctrl-C again cuts the power");
            powered_down = Some(Instant::now());
            running.qmp().powerdown()?;
        }
        std::thread::sleep(TICK);
    }
}

/// Ends QEMU on every path out of the loop, which also ends the waiting thread.
struct KillAtEnd<'a>(&'a Running);

impl Drop for KillAtEnd<'_> {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Copies new console output to the terminal.
fn show(running: &Running, shown: &mut u64) {
    let (text, next) = running.console().since(*shown);
    *shown = next;
    let mut out = std::io::stdout().lock();
    // A closed terminal is no reason to kill the machine.
    let _unseen = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The state of the command that runs once the API answers.
enum Up {
    Waiting,
    Commanded(Child),
    Done,
}

impl Up {
    fn announce(
        &mut self,
        running: &Running,
        after: Duration,
        args: &RunArgs,
    ) -> anyhow::Result<()> {
        let api = running.api();
        let seconds = after.as_secs_f32();
        let client = client();
        let client = client.display();
        let call = match &args.client_config {
            Some(file) => {
                let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
                format!(
                    "---   export CORTENCONFIG={}\n---   {client} -e {api} memory",
                    file.display()
                )
            }
            None => format!("---   {client} --insecure -n {api} version"),
        };
        say(&format!(
            "API answers at {api} after {seconds:.1} s; in a second terminal:\n{call}"
        ));
        *self = match &args.when_up {
            None => Self::Done,
            Some(command) => Self::Commanded(
                Command::new("/bin/sh")
                    .args(["-c", command])
                    .env("CORTEN_API", api.to_string())
                    .spawn()
                    .with_context(|| format!("cannot run `{command}`"))?,
            ),
        };
        Ok(())
    }

    /// Reports the exit of the command without waiting for it.
    fn watch(&mut self) {
        if let Self::Commanded(child) = self
            && let Ok(Some(status)) = child.try_wait()
        {
            if !status.success() {
                say(&format!("the --when-up command failed ({status})"));
            }
            *self = Self::Done;
        }
    }
}

/// The path of cortenctl: the one built beside this program, or the installed one.
fn client() -> PathBuf {
    std::env::current_exe()
        .map(|this| this.with_file_name("cortenctl"))
        .ok()
        .filter(|beside| beside.is_file())
        .unwrap_or_else(|| "cortenctl".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_architecture_follows_its_images() {
        let arch = |words: &[&str]| {
            let words = ["corten-qemu", "run"].iter().chain(words);
            match Cli::try_parse_from(words).unwrap().command {
                Verb::Run(args) => machine_arch(&args).map_err(|error| error.to_string()),
                Verb::Probe => unreachable!("the verb is run"),
            }
        };
        assert_eq!(arch(&["--image", "a.raw"]), Ok(Arch::X86_64));
        assert_eq!(arch(&["--image", "a-arm64.raw"]), Ok(Arch::Arm64));
        assert_eq!(
            arch(&["--iso", "a-arm64.iso", "--arch", "aarch64"]),
            Ok(Arch::Arm64)
        );
        assert_eq!(
            arch(&["--image", "a.raw", "--arch", "arm64"]),
            Ok(Arch::Arm64)
        );
        let error = arch(&["--image", "a-arm64.raw", "--arch", "amd64"]).unwrap_err();
        assert!(error.contains("a-arm64.raw is for arm64"), "{error}");
        assert!(error.contains("use --arch arm64"), "{error}");
        arch(&["--image", "a-arm64.raw", "--image", "b-x86_64.raw"]).unwrap_err();
    }
}
