//! The I/O port by which a VMware guest calls its hypervisor.

use std::io;

/// Passes registers (`eax`, `ebx`, `ecx`, `edx`, `esi`, `edi`) to the hypervisor and returns their new values. This
/// function sets `eax` and the low half of `edx` itself.
///
/// # Errors
/// The machine is not a VMware guest, where the instruction would kill the program.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "Rust has no function for this instruction")]
pub fn call(registers: [u32; 6]) -> io::Result<[u32; 6]> {
    const MAGIC: u32 = 0x564d_5868;
    const PORT: u32 = 0x5658;
    if !is_guest() {
        return Err(io::Error::other("this machine is not a VMware guest"));
    }
    let [_, ebx, mut ecx, edx, mut esi, mut edi] = registers;
    let (mut eax, mut edx) = (MAGIC, edx & 0xffff_0000 | PORT);
    let mut rbx = u64::from(ebx);
    // SAFETY: the hypervisor is VMware's, which accepts this port from user space and changes only these registers.
    // `rbx` belongs to the compiler and is restored.
    unsafe {
        std::arch::asm!(
            "xchg {rbx}, rbx",
            "in eax, dx",
            "xchg {rbx}, rbx",
            rbx = inout(reg) rbx,
            inout("eax") eax,
            inout("ecx") ecx,
            inout("edx") edx,
            inout("esi") esi,
            inout("edi") edi,
            options(nostack),
        );
    }
    let ebx = u32::try_from(rbx & 0xffff_ffff).unwrap_or_default();
    Ok([eax, ebx, ecx, edx, esi, edi])
}

/// Passes registers to the hypervisor.
///
/// # Errors
/// Always: VMware uses another mechanism on this architecture, which is not implemented.
#[cfg(not(target_arch = "x86_64"))]
pub fn call(_: [u32; 6]) -> io::Result<[u32; 6]> {
    Err(io::Error::other(
        "properties of VMware guests cannot be read on this architecture",
    ))
}

/// Whether CPUID reports VMware's hypervisor.
#[cfg(target_arch = "x86_64")]
fn is_guest() -> bool {
    use std::arch::x86_64::__cpuid;

    const HYPERVISOR_PRESENT: u32 = 1 << 31;
    if __cpuid(1).ecx & HYPERVISOR_PRESENT == 0 {
        return false;
    }
    let leaf = __cpuid(0x4000_0000);
    let words = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes);
    words.as_flattened() == b"VMwareVMware"
}

#[cfg(test)]
mod tests {
    #[test]
    fn backdoor_call_outside_vmware_is_an_error() {
        // The machines that build this code are not VMware guests.
        let refused = super::call([0; 6]).unwrap_err();
        assert!(refused.to_string().contains("VMware"), "{refused}");
    }
}
