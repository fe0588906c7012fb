//! Notification slots: the dependency of one-sided transfers on the receiving host.
//!
//! A host that does not read its event ring delays only the notifications that it is to receive. The caller sets the
//! number of free *slots* for notifications before each packet ([`Receiver::set_notice_slots`]). All other events of a
//! receiver describe its tables, which can be read; the caller may drop them.
//!
//! A notification takes a slot when its transfer is complete. A transfer with notification by the sender
//! ([`Flags::NOTIFY_RECEIVER`] is not set) reserves a slot at that time, for the notification that the ARRIVED packet
//! will cause. Without a free slot that is not reserved:
//!
//! | packet | then |
//! |---|---|
//! | completes a transfer that notifies | written, its bit set, its entry freed; answer "receiver not ready"; the record stays |
//! | any of a transfer that waits in this state | the notification, if there is a slot now; else "receiver not ready" again |
//! | the only one of a new transfer that notifies | "receiver not ready"; nothing is written or kept |
//! | the first one of a new transfer that notifies, if half of the records are *uncovered* then | the same |
//! | any other | as if there were slots |
//!
//! Uncovered transfers are the transfers in progress that notify, minus the number of slots.
//!
//! * **Nothing else depends on the host.** No rule above concerns a transfer without a notification. Waiting transfers
//!   never take all records: a waiting transfer holds a record and no registry entry, and with `s` free slots the
//!   transfers that notify use at most `s` plus half of the records. A slot that is used frees a record, since a
//!   notification ends its transfer. Therefore without slots half of the records remain available for other transfers.
//! * **No notification is lost.** A notification is reported only where a slot is free or was reserved. Reserved slots
//!   are subtracted from free ones.
//! * **Every transfer ends.** A waiting transfer gets its notification with the first retry after a slot became free.
//!   If its sender gives it up first, the record is freed like that of any other transfer: by a later packet that names
//!   a younger oldest live transfer, or by the registry timeout. No notification is reported then.
//!
//! The state is one flag per record and two counters.

#[cfg(doc)]
use fpga_firmware::generated::Flags;

use super::Receiver;

/// Number of slots of a caller that keeps every event.
pub const UNLIMITED_SLOTS: u32 = u32::MAX;

impl Receiver {
    /// Sets the number of notifications that can be reported from now on; initially unlimited. To be called before each
    /// packet: the receiver subtracts the notifications that it reports, but does not see the events that the host
    /// consumes.
    #[inline]
    pub const fn set_notice_slots(&mut self, slots: u32) {
        self.notice_slots = slots;
    }

    /// Returns the number of slots reserved for transfers whose senders are to send the ARRIVED packet.
    #[must_use]
    pub fn reserved_notices(&self) -> u32 {
        self.peers.announced().into()
    }

    fn free_slots(&self) -> u32 {
        if self.notice_slots == UNLIMITED_SLOTS {
            return UNLIMITED_SLOTS;
        }
        self.notice_slots.saturating_sub(self.reserved_notices())
    }

    /// Whether one more transfer can be reported, or have its slot reserved.
    pub(super) fn has_notice_slot(&self) -> bool {
        self.free_slots() != 0
    }

    /// Whether one more transfer that notifies may begin: at most half of the records are for transfers without a slot.
    pub(super) fn admits_notifying(&self) -> bool {
        let waiting = u32::from(self.peers.notifying() - self.peers.announced()) + 1;
        waiting.saturating_sub(self.free_slots()) <= u32::from(self.config.transfers / 2)
    }

    /// Subtracts one reported notification from the free slots.
    pub(super) const fn take_notice_slot(&mut self) {
        if self.notice_slots != UNLIMITED_SLOTS {
            self.notice_slots = self.notice_slots.saturating_sub(1);
        }
    }
}
