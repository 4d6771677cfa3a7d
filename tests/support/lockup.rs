//! Processors of a running node that lock up, as a broken driver or broken hardware makes them: done from outside
//! through QEMU's debugger stub, to a node that knows nothing of it. For x86-64.

use std::ops::Range;
use std::sync::Arc;

use qemu::{Gdb, Registers, VmError};

use crate::node::{Node, SOON};

/// Processors of a machine, unless its test says otherwise.
const PROCESSORS: u32 = 2;
/// The flag that lets interrupts in: `IF` of EFLAGS (Intel's manual, volume 1, "System Flags and IOPL Field").
const INTERRUPTS: u32 = 1 << 9;
/// The instruction that jumps to itself, `JMP rel8` (the same, volume 2).
const JUMP_TO_ITSELF: [u8; 2] = [0xeb, 0xfe];
/// The instruction that waits for an interrupt, `HLT` (the same).
const WAIT: [u8; 1] = [0xf4];
/// Where the kernel's image is, at a place of its choice in whole steps (`KERNEL_IMAGE_SIZE` and
/// `CONFIG_PHYSICAL_ALIGN`; the kernel's `Documentation/arch/x86/x86_64/mm.rst`).
const IMAGE: Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_c000_0000;
const STEP: u64 = 2 << 20;
/// A task's stack in the kernel, aligned to its size (`THREAD_SIZE`, the kernel's `arch/x86/include/asm/page_64_types.h`).
const STACK: u64 = 16 << 10;
/// What an entry from a program leaves at the stack's beginning is `ip`, `cs`, `flags`, `sp`, `ss` (`struct pt_regs`,
/// `ptrace.h` beside it) ...
const CODE_SEGMENT: u64 = STACK - 4 * 8;
/// ... and `cs` is the programs' then (`__USER_CS`, `segment.h` beside it).
const OF_PROGRAMS: u64 = 0x33;

/// A processor that goes round and round in the kernel for a program, and still takes interrupts.
///
/// It is one that works for a program, not one that idles: at every interrupt of an idle processor the kernel tells
/// its detector that nothing is wrong (`tick_nohz_update_jiffies`, the kernel's `kernel/time/tick-sched.c`).
///
/// # Panics
/// When none is found that can be made to.
pub fn stays_in_the_kernel(node: &Node) {
    // Something to do for the kernel, until this function ends one way or the other.
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

/// A processor that goes round and round and takes no interrupts any more.
///
/// It is one that idles: whoever works may hold a lock that the way to a panic needs.
///
/// # Panics
/// When none is found that can be made to.
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

/// Stops the machine again and again, until `change` has found a processor to change.
fn change_one(node: &Node, what: &str, change: impl Fn(&mut Gdb) -> Result<bool, VmError>) {
    let attempt = || -> Result<bool, VmError> {
        let mut gdb = node.vm.debugger()?;
        let mut changed = false;
        // The last first: the first keeps the time.
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

/// Sets the registers, but for the next instruction: that is one which jumps to itself, at a place where nobody
/// else comes, above all nobody on the way to a panic.
fn go_round(gdb: &mut Gdb, registers: Registers) -> Result<(), VmError> {
    let place = first_instruction(gdb, &registers);
    gdb.write(place, &JUMP_TO_ITSELF)?;
    gdb.set_registers(&registers.with_instruction(place))
}

/// The first instruction of the kernel's image, which is part of its start and of nothing else. Below it nothing is
/// mapped.
fn first_instruction(gdb: &mut Gdb, registers: &Registers) -> u64 {
    let mut first = registers.instruction() & !(STEP - 1);
    while first > IMAGE.start && gdb.read(first - STEP, JUMP_TO_ITSELF.len()).is_ok() {
        first -= STEP;
    }
    first
}

fn works_for_a_program(gdb: &mut Gdb, registers: &Registers) -> bool {
    let stack = registers.stack() & !(STACK - 1);
    // Other stacks than a task's may end before.
    let segment = gdb.read(stack + CODE_SEGMENT, 8);
    segment.is_ok_and(|segment| segment == OF_PROGRAMS.to_le_bytes())
}
