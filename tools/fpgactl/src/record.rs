//! `--record FILE`: writes every register access of a command as a line, with the register's name and the meaning of the value.

use core::fmt;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use fpga_diag::record::log::{Entry, HEAD};
use fpga_diag::record::{Access, AccessDirection, Observer, Recorder, Width};
use fpga_driver::{BarRoles, NI_SUBSYSTEM, VIEW_SUBSYSTEM};
use fpga_pci::Backend;
use fpga_pci::Clock;
use fpga_pci::config;
use fpga_pci::lock;
use fpga_pci::wait::system_monotonic_ns;
use fpga_register_map::RegisterMap;
use fpga_registers::pci::header;

use crate::bars::Role;
use crate::design::Design;
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::progress::Deadline;
use crate::registers::{self, Register, RegisterBar};

/// Registers by BAR number and offset; several if reads and writes access different registers.
type Names = BTreeMap<(u8, u64), Vec<Register>>;

struct State {
    /// `None` after the end of the record.
    out: Option<BufWriter<OutFile>>,
    /// Time of the first access.
    start: Option<u64>,
    /// Start of the card's clock on the system's `CLOCK_MONOTONIC`, in nanoseconds; `None` if the card's time is virtual.
    clock_origin: Option<u64>,
    accesses: u64,
    roles: Option<BarRoles>,
    names: Names,
    /// First write error.
    failed: Option<io::Error>,
}

/// Record being written.
pub struct Recording {
    path: PathBuf,
    state: Mutex<State>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Recording {
    /// Creates the file, and writes its head.
    pub fn create(path: &Path, deadline: Deadline) -> Result<Self, CliError> {
        let fail = |error| CliError::carried(path, "write the record", error);
        let mut out = BufWriter::new(OutFile::create(path, deadline)?);
        let when = humantime::format_rfc3339_seconds(SystemTime::now());
        let text = format!(
            "{HEAD}\n# Register accesses, recorded {when}. `fpgactl replay {}` repeats them.\n#  seconds   access  BAR  offset value\n",
            path.display()
        );
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(fail)?;
        let state = State {
            out: Some(out),
            start: None,
            clock_origin: None,
            accesses: 0,
            roles: None,
            names: Names::new(),
            failed: None,
        };
        Ok(Self { path: path.to_owned(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns `backend` with a recorder for every register access. Names that do not depend on the opened card are known from the first
    /// access on.
    #[must_use]
    pub fn of(
        recording: &Arc<Self>,
        backend: Arc<dyn Backend>,
        design: Design,
        map: Option<&Arc<RegisterMap>>,
    ) -> Arc<dyn Backend> {
        let roles = BarRoles::of(&*backend, design.dma_bar).ok();
        {
            let mut state = recording.state();
            state.roles = roles;
            if backend.clock() == Clock::Monotonic {
                state.clock_origin = Some(system_monotonic_ns().saturating_sub(backend.now()));
            }
            let id = |at| config::read_u16(&*backend, at).ok();
            let subsystem = id(header::SUBSYSTEM_VENDOR_ID).zip(id(header::SUBSYSTEM_ID));
            let has_identity = subsystem.is_some_and(|ids| [NI_SUBSYSTEM, VIEW_SUBSYSTEM].contains(&ids));
            let mut known = registers::before_opening(design, has_identity);
            known.extend(map.into_iter().flat_map(registers::mapped));
            state.name(known);
            state.comment(&format!("card {}", backend.name()));
            for bar in backend.bars().into_iter().flatten() {
                let role =
                    roles.as_ref().and_then(|roles| Role::among(roles, bar.index)).map_or("", Role::name);
                state.comment(format!("bar{} {:#x} bytes {role}", bar.index, bar.size).trim_end());
            }
        }
        Recorder::new(backend, Arc::clone(recording) as Arc<dyn Observer>)
    }

    /// Sets the registers after the card was opened.
    pub fn knows(&self, registers: Vec<Register>) {
        let mut state = self.state();
        state.names.clear();
        state.name(registers);
    }

    /// Writes the rest of the record, and renames the file to its final name.
    ///
    /// # Errors
    /// Any write error since the beginning; the previous file is unchanged then.
    pub fn finish(&self) -> Result<(), CliError> {
        let mut state = self.state();
        if state.accesses == 0 {
            state.comment("this command accessed no register of the card that --card names");
            tracing::warn!(file = %self.path.display(), "nothing was recorded: no register of the card was accessed");
        }
        let Some(out) = state.out.take() else { return Ok(()) };
        let fail = |error| CliError::carried(&self.path, "write the record", error);
        match state.failed.take() {
            Some(error) => Err(fail(error)),
            None => out.into_inner().map_err(|error| fail(error.into_error()))?.commit(),
        }
    }
}

impl Recording {
    /// Writes the record so far, with a mark that it is incomplete: for the end by a signal. If an access is being written at this moment,
    /// the record stays as it is.
    pub fn interrupted(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.comment("the command was stopped by a signal: accesses may be missing here");
            if state.failed.is_none()
                && let Some(Ok(file)) = state.out.take().map(BufWriter::into_inner)
            {
                let _ = file.commit();
            }
        }
    }
}

impl State {
    fn name(&mut self, registers: Vec<Register>) {
        let Some(roles) = self.roles else { return };
        for register in registers {
            let bar = match register.bar {
                RegisterBar::Dma => Some(roles.dma),
                RegisterBar::User => roles.user,
            };
            if let Some(bar) = bar {
                self.names.entry((bar.index, register.address.get())).or_default().push(register);
            }
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        if self.failed.is_none()
            && let Some(out) = &mut self.out
            && let Err(error) = writeln!(out, "{line}")
        {
            self.failed = Some(error);
        }
    }

    fn comment(&mut self, text: &str) {
        self.line(format_args!("# {text}"));
    }

    /// Register that was accessed. If several have the same offset, one of the map is preferred, and one whose access kind fits.
    fn register(&self, access: &Access) -> Option<&Register> {
        let registers = self.names.get(&(access.bar, access.at.get()))?;
        let fits = |register: &&Register| match access.direction {
            AccessDirection::Read => register.access.is_readable(),
            AccessDirection::Write => register.access.is_writable(),
        };
        let mut fitting = registers.iter().filter(fits);
        let first = fitting.next();
        fitting.find(|register| register.is_mapped()).or(first).or_else(|| registers.first())
    }
}

impl Observer for Recording {
    fn accessed(&self, access: &Access) {
        let mut state = self.state();
        if state.start.is_none()
            && let Some(origin) = state.clock_origin
        {
            let time = origin.saturating_add(access.time);
            let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
            state.comment(&format!("time 0 is CLOCK_MONOTONIC {seconds}.{nanos:09}"));
        }
        let start = *state.start.get_or_insert(access.time);
        state.accesses += 1;
        let entry = Entry::of(access, start);
        let text = state.register(access).map(|register| {
            let decoded = match (access.width, access.value.map(u32::try_from)) {
                (Width::Word, Some(Ok(value))) => register.decoded(value),
                _ => String::new(),
            };
            format!("  # {} {decoded}", register.name)
        });
        let text = text.as_deref().unwrap_or_default().trim_end();
        state.line(format_args!("{entry}{text}"));
    }
}
