//! Link error reporting of the function: status bits, advanced error reporting, messages to the root.

use super::ConfigSpace;
use super::kinds::{BadCompletion, PciError, UncorrectableError};
use super::layout::{COMMAND, STATUS, aer, command, express, status};
use crate::host::ErrorMessage;

/// Device control and device status bits (PCIe 7.5.3.4, 7.5.3.5): correctable, non-fatal, fatal, unsupported request.
mod device {
    pub(super) const CORRECTABLE: u16 = 1;
    pub(super) const NON_FATAL: u16 = 1 << 1;
    pub(super) const FATAL: u16 = 1 << 2;
    pub(super) const UNSUPPORTED: u16 = 1 << 3;
}

impl ConfigSpace {
    /// Logs `error` and returns the message that goes to the root, if reporting is enabled (PCIe 6.2.5).
    pub(crate) fn report(&mut self, error: PciError) -> Option<ErrorMessage> {
        match error {
            PciError::Correctable(error) => {
                self.add(express::DEVICE_STATUS, device::CORRECTABLE);
                self.add_long(aer::CORRECTABLE_STATUS, error.bit());
                let masked = self.has_aer && self.map.dword(aer::CORRECTABLE_MASK) & error.bit() != 0;
                let enabled = self.map.word(express::DEVICE_CONTROL) & device::CORRECTABLE != 0;
                (enabled && !masked).then_some(ErrorMessage::Correctable)
            }
            PciError::Uncorrectable(error) => self.report_uncorrectable(error),
        }
    }

    fn report_uncorrectable(&mut self, error: UncorrectableError) -> Option<ErrorMessage> {
        // Without AER the severity is the default one.
        let severity =
            if self.has_aer { self.map.dword(aer::UNCORRECTABLE_SEVERITY) } else { aer::FATAL_BY_DEFAULT };
        let fatal = severity & error.bit() != 0;
        let (bit, message) = if fatal {
            (device::FATAL, ErrorMessage::Fatal)
        } else {
            (device::NON_FATAL, ErrorMessage::NonFatal)
        };
        let unsupported = error == UncorrectableError::UnsupportedRequest;
        self.add(express::DEVICE_STATUS, bit | if unsupported { device::UNSUPPORTED } else { 0 });
        let masked = self.has_aer && self.map.dword(aer::UNCORRECTABLE_MASK) & error.bit() != 0;
        if self.has_aer && !masked && self.map.dword(aer::UNCORRECTABLE_STATUS) == 0 {
            let rest = self.map.word(aer::CONTROL) & !0x1F;
            // The header log stays empty: the model's packets have no headers.
            self.map.set_word(aer::CONTROL, rest | u16::from(error as u8));
        }
        self.add_long(aer::UNCORRECTABLE_STATUS, error.bit());
        if masked {
            return None;
        }
        let system_error = self.map.word(COMMAND) & command::SERR != 0;
        let enabled = self.map.word(express::DEVICE_CONTROL) & bit != 0;
        if system_error {
            self.add(STATUS, status::SIGNALLED_SYSTEM_ERROR);
        }
        (enabled || system_error).then_some(message)
    }

    /// Notes in the status register a completer's error answer to a request of the card (PCIe 7.5.1.1.4).
    pub(crate) fn note_completion(&mut self, completion: BadCompletion) {
        let bit = match completion {
            BadCompletion::UnsupportedRequest => status::RECEIVED_MASTER_ABORT,
            BadCompletion::CompleterAbort => status::RECEIVED_TARGET_ABORT,
            BadCompletion::Poisoned => status::DETECTED_PARITY_ERROR,
        };
        self.add(STATUS, bit);
    }

    /// Switches reporting of non-fatal and fatal errors on or off, as a kernel that owns AER does. Not counted.
    pub(crate) fn set_error_reporting(&mut self, on: bool) {
        const REPORTED: u16 = 0x000F;
        let rest = self.map.word(express::DEVICE_CONTROL) & !REPORTED;
        self.map.set_word(express::DEVICE_CONTROL, if on { rest | REPORTED } else { rest });
    }

    /// The first error pointer is valid only while the status bit it names is set.
    pub(super) fn forget_cleared_error(&mut self) {
        let control = self.map.word(aer::CONTROL);
        let status = self.map.dword(aer::UNCORRECTABLE_STATUS);
        if control & 0x1F != 0 && status >> (control & 0x1F) & 1 == 0 {
            // Lowest remaining error; 0 if there is none.
            let next = if status == 0 { 0 } else { status.trailing_zeros() };
            self.map.set_word(aer::CONTROL, control & !0x1F | u16::try_from(next).unwrap_or(0));
        }
    }

    fn add(&mut self, at: usize, bits: u16) {
        let word = self.map.word(at);
        self.map.set_word(at, word | bits);
    }

    fn add_long(&mut self, at: usize, bits: u32) {
        if self.has_aer {
            let word = self.map.dword(at);
            self.map.set_bytes(at, &(word | bits).to_le_bytes());
        }
    }
}
