//! Locks up processors of a running node, as a broken driver or broken hardware does. Works from
//! outside through QEMU's debugger stub, without the node's cooperation. For x86-64.

use std::ops::Range;
use std::sync::Arc;

use qemu::{Gdb, Registers, VmError};

use crate::node::{Node, SOON};

/// Default number of processors of a machine.
const PROCESSORS: u32 = 2;
/// The interrupt enable flag: `IF` of EFLAGS (Intel's manual, volume 1, "System Flags and IOPL
/// Field").
const INTERRUPTS: u32 = 1 << 9;
/// The instruction that jumps to itself, `JMP rel8` (the same, volume 2).
const JUMP_TO_ITSELF: [u8; 2] = [0xeb, 0xfe];
/// The instruction that waits for an interrupt, `HLT` (the same).
const WAIT: [u8; 1] = [0xf4];
/// Range of the kernel's image, which the kernel places at a random aligned address
/// (`KERNEL_IMAGE_SIZE` and `CONFIG_PHYSICAL_ALIGN`; the kernel's
/// `Documentation/arch/x86/x86_64/mm.rst`).
const IMAGE: Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_c000_0000;
const STEP: u64 = 2 << 20;
/// A task's stack in the kernel, aligned to its size (`THREAD_SIZE`, the kernel's `arch/x86/include/asm/page_64_types.h`).
const STACK: u64 = 16 << 10;
/// At the base of its stack, an entry from user space leaves `ip`, `cs`, `flags`, `sp`, `ss`
/// (`struct pt_regs`, `ptrace.h` beside it) ...
const CODE_SEGMENT: u64 = STACK - 4 * 8;
/// ... with the `cs` of user space (`__USER_CS`, `segment.h` beside it).
const OF_PROGRAMS: u64 = 0x33;

/// Makes a processor loop in the kernel, in a system call of a program, with interrupts enabled.
///
/// Only a processor that works for a program qualifies. At every interrupt of an idle processor, the kernel resets its
/// lockup detector (`tick_nohz_update_jiffies`, the kernel's `kernel/time/tick-sched.c`).
///
/// # Panics
/// No such processor is found.
pub fn stays_in_the_kernel(node: &Node) {
    // Keeps the kernel busy until this function returns or panics.
    let wanted = Arc::new(());
    let (still_wanted, client) = (Arc::downgrade(&wanted), node.admin());
    std::thread::spawn(move || {
        while still_wanted.strong_count() > 0 {
            let _any_answer = client.call(&["list", "--recurse", "/sys"]);
        }
    });
    change_one(node, "processor that works for a program", |gdb| {
        let registers = gdb.registers()?;
        let found = IMAGE.contains(&registers.instruction())
            && registers.flags() & INTERRUPTS != 0
            && works_for_a_program(gdb, &registers);
        if found {
            go_round(gdb, registers)?;
        }
        Ok(found)
    });
}

/// Makes a processor loop with interrupts disabled.
///
/// Only an idle processor qualifies: a busy one may hold a lock that the panic needs.
///
/// # Panics
/// No such processor is found.
pub fn takes_no_interrupts(node: &Node) {
    change_one(node, "processor that idles", |gdb| {
        let registers = gdb.registers()?;
        let before = registers.instruction().wrapping_sub(WAIT.len() as u64);
        let found = IMAGE.contains(&before) && gdb.read(before, WAIT.len())? == WAIT;
        if found {
            let flags = registers.flags() & !INTERRUPTS;
            go_round(gdb, registers.with_flags(flags))?;
        }
        Ok(found)
    });
}

/// Halts the machine repeatedly, until `change` has found a processor to change.
fn change_one(node: &Node, what: &str, change: impl Fn(&mut Gdb) -> Result<bool, VmError>) {
    let attempt = || -> Result<bool, VmError> {
        let mut gdb = node.vm.debugger()?;
        let mut changed = false;
        // The last processor first, because the first one keeps the time.
        for processor in (0..PROCESSORS).rev() {
            gdb.select(processor)?;
            changed = change(&mut gdb)?;
            if changed {
                break;
            }
        }
        gdb.detach()?;
        Ok(changed)
    };
    node.until(what, SOON, || match attempt() {
        Ok(true) => Ok(()),
        Ok(false) => Err("none at this moment".to_owned()),
        Err(error) => Err(error.to_string()),
    });
}

/// Sets the registers with the instruction pointer on a jump to itself. The jump is at an address
/// that no other code executes, not even a panic.
fn go_round(gdb: &mut Gdb, registers: Registers) -> Result<(), VmError> {
    let place = first_instruction(gdb, &registers);
    gdb.write(place, &JUMP_TO_ITSELF)?;
    gdb.set_registers(&registers.with_instruction(place))
}

/// Address of the first instruction of the kernel's image, which only the kernel's start executes.
/// The memory below it is unmapped.
fn first_instruction(gdb: &mut Gdb, registers: &Registers) -> u64 {
    let mut first = registers.instruction() & !(STEP - 1);
    while first > IMAGE.start && gdb.read(first - STEP, JUMP_TO_ITSELF.len()).is_ok() {
        first -= STEP;
    }
    first
}

fn works_for_a_program(gdb: &mut Gdb, registers: &Registers) -> bool {
    let stack = registers.stack() & !(STACK - 1);
    // The stack may be another than a task's, and end below this address.
    let segment = gdb.read(stack + CODE_SEGMENT, 8);
    segment.is_ok_and(|segment| segment == OF_PROGRAMS.to_le_bytes())
}
