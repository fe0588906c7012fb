//! Execution of one instruction that accesses registers.
//!
//! Every instruction with one memory operand is executed by the processor itself: the operand is moved to the program's stack for one single
//! step, with the register's value in it (a load), or from where the value goes to the register (a store). So the effect on general and
//! vector registers and on the flags is exactly that of the processor. Plain moves of general registers, which are most accesses, need no
//! step: they are executed here. String instructions (`rep movs`, `rep stos`) have two operands and
//! repeat; they are executed here.

use fpga_pci::{Bar, MmioError};
use fpga_registers::BarOffset;
use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use libc::user_regs_struct;
use rustix::io::Errno;

use super::mappings::Mapped;
use super::request::request;
use crate::listener::last_error;
use crate::memory::Memory;

/// Maximum length of an instruction (Intel SDM, volume 2, 2.3.11).
const MAX_LENGTH: usize = 15;
/// Bytes below the stack pointer that a function may use (System V ABI, AMD64, 3.2.2).
const RED_ZONE: u64 = 128;
/// Bytes of the longest operand.
const MAX_OPERAND: usize = 64;
/// Signals of exceptions, by their bits in a mask. The kernel drops the program's handler of a blocked one that it has to deliver.
const SYNCHRONOUS: u64 = {
    let signals = [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    let (mut mask, mut index) = (0, 0);
    while index < signals.len() {
        mask |= 1 << (signals[index] - 1);
        index += 1;
    }
    mask
};
/// Direction flag: string instructions go downwards.
const DIRECTION_FLAG: u64 = 1 << 10;

/// Reasons why an access is not executed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    /// The card or the BAR refuses it.
    #[error("{0}")]
    Card(#[from] MmioError),
    /// The program's state cannot be read or changed.
    #[error("ptrace: {0}")]
    Trace(#[from] Errno),
    /// An instruction of another form.
    #[error("the instruction \"{0}\" cannot be executed on registers")]
    Form(String),
}

/// Executes the instruction that `thread` has stopped at, whose access to `address` is one to `bar`.
pub(super) fn execute(thread: i32, address: u64, mapped: &Mapped, bar: &Bar) -> Result<(), AccessError> {
    let memory = Memory::of_stopped(thread);
    let mut state = registers(thread)?;
    let mut code = [0; MAX_LENGTH];
    // The instruction may end before the end of the code's last page.
    let until_page = usize::try_from(4096 - state.rip % 4096).unwrap_or(MAX_LENGTH).min(MAX_LENGTH);
    let (first, rest) = code.split_at_mut(until_page);
    memory.read(state.rip, first)?;
    let _ = memory.read(state.rip.wrapping_add(until_page as u64), rest);
    let instruction = Decoder::with_ip(64, &code, state.rip, DecoderOptions::NONE).decode();
    let target = Target { memory, mapped, bar, address };
    if instruction.is_string_instruction() {
        return target.string(&instruction, &mut state).and_then(|()| Ok(set_registers(thread, &state)?));
    }
    if target.plain_move(&instruction, &mut state)? {
        return Ok(set_registers(thread, &state)?);
    }
    target.step(thread, &instruction, &state)
}

/// The access.
struct Target<'a> {
    memory: Memory<'a>,
    mapped: &'a Mapped,
    bar: &'a Bar,
    address: u64,
}

impl Target<'_> {
    /// Executes a move between memory and a general register, or of a constant. Returns `false` for other instructions.
    fn plain_move(
        &self,
        instruction: &Instruction,
        state: &mut user_regs_struct,
    ) -> Result<bool, AccessError> {
        let length = instruction.memory_size().size();
        if !matches!(length, 1 | 2 | 4 | 8) || instruction.op_count() != 2 {
            return Ok(false);
        }
        let (into, from) = (instruction.op0_kind(), instruction.op1_kind());
        let operand = u32::from(from == OpKind::Memory);
        // The fault may be inside an operand that begins before the mapping.
        if instruction.virtual_address(operand, 0, |register, _, _| value_of(state, register))
            != Some(self.address)
        {
            return Ok(false);
        }
        let mut bytes = [0; 8];
        match (instruction.mnemonic(), into, from) {
            (Mnemonic::Mov | Mnemonic::Movzx, OpKind::Register, OpKind::Memory) => {
                let register = instruction.op0_register();
                let Some(mask) = mask_of(register) else { return Ok(false) };
                let Some(place) = field(state, register.full_register()) else { return Ok(false) };
                let value = bytes.get_mut(..length).unwrap_or_default();
                self.load(self.address, value)?;
                *place = *place & !mask | u64::from_le_bytes(bytes);
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register) => {
                let register = instruction.op1_register();
                if mask_of(register).is_none() {
                    return Ok(false);
                }
                let Some(value) = field(state, register.full_register()) else { return Ok(false) };
                bytes = value.to_le_bytes();
                self.store(self.address, bytes.get(..length).unwrap_or_default())?;
            }
            (
                Mnemonic::Mov,
                OpKind::Memory,
                OpKind::Immediate8 | OpKind::Immediate16 | OpKind::Immediate32 | OpKind::Immediate32to64,
            ) => {
                bytes = instruction.immediate(1).to_le_bytes();
                self.store(self.address, bytes.get(..length).unwrap_or_default())?;
            }
            _ => return Ok(false),
        }
        state.rip = instruction.next_ip();
        Ok(true)
    }

    /// Executes an instruction with one memory operand by a single step.
    fn step(
        &self,
        thread: i32,
        instruction: &Instruction,
        before: &user_regs_struct,
    ) -> Result<(), AccessError> {
        let form = || AccessError::Form(instruction.to_string());
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        let [operand] = info.used_memory() else { return Err(form()) };
        let length = operand.memory_size().size();
        if !(1..=MAX_OPERAND).contains(&length) {
            return Err(form());
        }
        let (reads, writes) = match operand.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            _ => return Err(form()),
        };
        // The fault's address is inside the operand; usually it is its first byte.
        let at = operand.virtual_address(0, |register, _, _| value_of(before, register)).ok_or_else(form)?;
        if !(at..at.wrapping_add(length as u64)).contains(&self.address) {
            return Err(form());
        }
        let mut saved = [0; MAX_OPERAND];
        let saved = saved.get_mut(..length).ok_or_else(form)?;
        let place = self.operand_place(before.rsp, at, saved)?;
        let distance = place.wrapping_sub(at);
        let mut state = *before;
        let base = instruction.memory_base().full_register();
        let index = instruction.memory_index().full_register();
        let scale = u64::from(instruction.memory_index_scale());
        let (moved, change) = match (base, index) {
            (Register::None, Register::None) | (Register::RIP, _) => return Err(form()),
            // Their sum changes by both.
            (base, index) if base == index => return Err(form()),
            (Register::None, index) => {
                (index, (distance.cast_signed() / scale.cast_signed()).cast_unsigned())
            }
            (base, _) => (base, distance),
        };
        let register = field(&mut state, moved).ok_or_else(form)?;
        let (original, shifted) = (*register, register.wrapping_add(change));
        *register = shifted;
        let written = info.used_registers().iter().filter(|used| used.register().full_register() == moved);
        let written = written.filter(|used| {
            !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
            )
        });
        let written = written.map(|used| used.register().size()).max();

        let mut value = [0; MAX_OPERAND];
        let value = value.get_mut(..length).ok_or_else(form)?;
        if reads {
            self.load(at, value)?;
            self.memory.write(place, value)?;
        }
        set_registers(thread, &state)?;
        single_step(thread)?;
        if writes {
            self.memory.read(place, value)?;
        }
        self.memory.write(place, saved)?;
        let mut state = registers(thread)?;
        let after = field(&mut state, moved).ok_or_else(form)?;
        *after = match written {
            // Four bytes clear the upper ones.
            Some(4 | 8) => *after,
            // The lower bytes of the address register are the result, the others were moved with the address.
            Some(size) => {
                let mask = (1 << (8 * size)) - 1;
                original & !mask | *after & mask
            }
            None => original,
        };
        set_registers(thread, &state)?;
        if writes {
            self.store(at, value)?;
        }
        Ok(())
    }

    /// Address on the stack where the operand that belongs to `at` is during a single step, and what is there (`saved`). It is below the red
    /// zone, which holds no data: memory above the stack pointer may be in use by other threads meanwhile. At the end of the stack, it is
    /// above.
    fn operand_place(&self, stack: u64, at: u64, saved: &mut [u8]) -> Result<u64, AccessError> {
        // The same place in a cache line: aligned instructions stay aligned, and the distance is a multiple of every scale.
        let below = (stack.wrapping_sub(RED_ZONE + 2 * 64) & !63).wrapping_add(at & 63);
        if self.memory.read(below, saved).is_ok() {
            return Ok(below);
        }
        let above = (stack & !63).wrapping_add(64).wrapping_add(at & 63);
        self.memory.read(above, saved)?;
        Ok(above)
    }

    /// Executes a string instruction: all repetitions that stay in the mapping.
    fn string(&self, instruction: &Instruction, state: &mut user_regs_struct) -> Result<(), AccessError> {
        let size: u64 = match instruction.code() {
            Code::Movsb_m8_m8 | Code::Stosb_m8_AL => 1,
            Code::Movsw_m16_m16 | Code::Stosw_m16_AX => 2,
            Code::Movsd_m32_m32 | Code::Stosd_m32_EAX => 4,
            Code::Movsq_m64_m64 | Code::Stosq_m64_RAX => 8,
            _ => return Err(AccessError::Form(instruction.to_string())),
        };
        if state.eflags & DIRECTION_FLAG != 0 {
            return Err(AccessError::Form(instruction.to_string()));
        }
        let copies = !matches!(
            instruction.code(),
            Code::Stosb_m8_AL | Code::Stosw_m16_AX | Code::Stosd_m32_EAX | Code::Stosq_m64_RAX
        );
        let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let count = if repeats { state.rcx } else { 1 };
        // As few accesses as possible: of bytes, whole words.
        let total = count.saturating_mul(size).min(4096);
        let mut done = 0;
        let mut bytes = [0; 8];
        while done < total {
            let (from, into) = (state.rsi.wrapping_add(done), state.rdi.wrapping_add(done));
            let word = if repeats {
                widest(if copies { from | into } else { into }, total - done).max(size)
            } else {
                size
            };
            let word = if (total - done).is_multiple_of(word) || word <= total - done { word } else { size };
            let bytes = bytes.get_mut(..usize::try_from(word).unwrap_or(1)).unwrap_or_default();
            if copies {
                self.get(from, bytes)?;
            } else {
                let element = state.rax.to_le_bytes();
                let element = element.get(..usize::try_from(size).unwrap_or(1)).unwrap_or_default();
                for (place, byte) in bytes.iter_mut().zip(element.iter().cycle()) {
                    *place = *byte;
                }
            }
            self.put(into, bytes)?;
            done += word;
        }
        state.rdi = state.rdi.wrapping_add(done);
        if copies {
            state.rsi = state.rsi.wrapping_add(done);
        }
        if repeats {
            state.rcx -= done / size;
        }
        if !repeats || state.rcx == 0 {
            state.rip = instruction.next_ip();
        }
        Ok(())
    }

    fn get(&self, at: u64, into: &mut [u8]) -> Result<(), AccessError> {
        if self.mapped.contains(at, into.len()) {
            self.load(at, into)
        } else {
            Ok(self.memory.read(at, into)?)
        }
    }

    fn put(&self, at: u64, from: &[u8]) -> Result<(), AccessError> {
        if self.mapped.contains(at, from.len()) {
            self.store(at, from)
        } else {
            Ok(self.memory.write(at, from)?)
        }
    }

    /// Reads registers mapped at `at`, with accesses of the operand's width up to eight bytes.
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let mut offset = self.mapped.offset_of(at);
        let mut rest = into;
        while !rest.is_empty() {
            let width = usize::try_from(widest(offset, rest.len() as u64)).unwrap_or(1);
            let (now, later) = rest.split_at_mut(width);
            let at = BarOffset::new(offset);
            match width {
                8 => now.copy_from_slice(&self.bar.read64(at)?.to_le_bytes()),
                4 => now.copy_from_slice(&self.bar.read32(at)?.to_le_bytes()),
                _ => {
                    // The card's registers have 32 bits; the bus would read the word with byte enables.
                    let word = self.bar.read32(BarOffset::new(offset & !3))?.to_le_bytes();
                    let start = usize::try_from(offset % 4).unwrap_or(0);
                    now.copy_from_slice(word.get(start..start + width).unwrap_or_default());
                }
            }
            offset += width as u64;
            rest = later;
        }
        Ok(())
    }

    /// Writes registers mapped at `at`, likewise.
    fn store(&self, at: u64, from: &[u8]) -> Result<(), AccessError> {
        let mut offset = self.mapped.offset_of(at);
        let mut rest = from;
        while !rest.is_empty() {
            let width = usize::try_from(widest(offset, rest.len() as u64)).unwrap_or(1);
            let (now, later) = rest.split_at(width);
            let at = BarOffset::new(offset);
            if let Ok(word) = now.try_into().map(u64::from_le_bytes) {
                self.bar.write64(at, word)?;
            } else if let Ok(word) = now.try_into().map(u32::from_le_bytes) {
                self.bar.write32(at, word)?;
            } else {
                self.bar.write_narrow(at, now)?;
            }
            offset += width as u64;
            rest = later;
        }
        Ok(())
    }
}

/// The widest access, 1 to 8 bytes, that is aligned at `at` and not longer than `left`.
fn widest(at: u64, left: u64) -> u64 {
    [8, 4, 2].into_iter().find(|width| at.is_multiple_of(*width) && *width <= left).unwrap_or(1)
}

/// Value of a register in an address.
fn value_of(state: &user_regs_struct, register: Register) -> Option<u64> {
    match register {
        // Segments that user programs have, and only with thread-local data.
        Register::FS => Some(state.fs_base),
        Register::GS => Some(state.gs_base),
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        register => field(&mut state.clone(), register).map(|value| *value),
    }
}

/// Bits of the full register that a write of `register` replaces: all for the names of 32 bits, whose writes clear the upper half. `None` for
/// the second byte of a register, and for registers of other kinds.
fn mask_of(register: Register) -> Option<u64> {
    let is_second_byte = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
    match register.size() {
        _ if is_second_byte || !register.is_gpr() => None,
        1 => Some(0xFF),
        2 => Some(0xFFFF),
        4 | 8 => Some(u64::MAX),
        _ => None,
    }
}

/// General register of a thread.
fn field(state: &mut user_regs_struct, register: Register) -> Option<&mut u64> {
    Some(match register {
        Register::RAX => &mut state.rax,
        Register::RBX => &mut state.rbx,
        Register::RCX => &mut state.rcx,
        Register::RDX => &mut state.rdx,
        Register::RSI => &mut state.rsi,
        Register::RDI => &mut state.rdi,
        Register::RBP => &mut state.rbp,
        Register::R8 => &mut state.r8,
        Register::R9 => &mut state.r9,
        Register::R10 => &mut state.r10,
        Register::R11 => &mut state.r11,
        Register::R12 => &mut state.r12,
        Register::R13 => &mut state.r13,
        Register::R14 => &mut state.r14,
        Register::R15 => &mut state.r15,
        _ => return None,
    })
}

/// Lets the thread execute one instruction. Its signals wait meanwhile.
fn single_step(thread: i32) -> Result<(), AccessError> {
    let mask = signal_mask(thread)?;
    set_signal_mask(thread, mask | !SYNCHRONOUS)?;
    let stepped = step_once(thread);
    set_signal_mask(thread, mask)?;
    stepped
}

fn step_once(thread: i32) -> Result<(), AccessError> {
    let mut stops = Vec::new();
    loop {
        request(libc::PTRACE_SINGLESTEP, thread, 0)?;
        let mut status = 0;
        // SAFETY: `status` is valid for a write.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        if waited < 0 {
            match last_error() {
                Errno::INTR => continue,
                error => return Err(error.into()),
            }
        }
        if !libc::WIFSTOPPED(status) {
            return Err(Errno::SRCH.into());
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => break,
            // SIGSTOP cannot be blocked, and those of exceptions are not.
            signal => stops.push(signal),
        }
    }
    for signal in stops {
        // SAFETY: sends a signal.
        unsafe { libc::syscall(libc::SYS_tkill, thread, signal) };
    }
    Ok(())
}

fn signal_mask(thread: i32) -> Result<u64, Errno> {
    let mut mask = 0_u64;
    // SAFETY: the kernel writes as many bytes as the mask has.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, thread, size_of::<u64>(), &raw mut mask) };
    if result < 0 { Err(last_error()) } else { Ok(mask) }
}

fn set_signal_mask(thread: i32, mask: u64) -> Result<(), Errno> {
    // SAFETY: the kernel reads as many bytes as the mask has.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, thread, size_of::<u64>(), &raw const mask) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

fn registers(thread: i32) -> Result<user_regs_struct, Errno> {
    // SAFETY: the structure consists of integers.
    let mut state: user_regs_struct = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes the structure.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0, &raw mut state) };
    if result < 0 { Err(last_error()) } else { Ok(state) }
}

fn set_registers(thread: i32, state: &user_regs_struct) -> Result<(), Errno> {
    // SAFETY: the kernel reads the structure.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0, core::ptr::from_ref(state)) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}
