//! One-sided transfers: what the receiver needs of its host, and what it does not.
//!
//! A host that does not look at its event ring holds back nothing but the notifications that it is to get. The caller states the free
//! *slots* for notices before each packet ([`Receiver::set_notice_slots`]). All other events of a receiver describe its tables, which can be
//! read; the caller may drop them.
//!
//! A notice takes a slot when its transfer is complete. A transfer whose sender tells the receiver ([`Flags::NOTIFY_RECEIVER`] is not set)
//! reserves one then, for the notice that the ARRIVED packet will cause. Without a free slot that is not reserved
//!
//! | packet | then |
//! |---|---|
//! | completes a transfer that notifies | written, its bit set, its entry freed; answered "receiver not ready"; the transfer's record stays |
//! | any of a transfer that waits so | the notice, if there is a slot now; else "receiver not ready" again |
//! | the only one of a new transfer that notifies | "receiver not ready"; nothing is written or kept |
//! | the first one of a new transfer that notifies, if half of the records are *uncovered* then | the same |
//! | any other | as if there were slots |
//!
//! Uncovered are transfers in progress that notify, beyond as many as there are slots.
//!
//! * **Nothing else depends on the host.** No rule above concerns a transfer without a notification, and the records that it needs are not
//!   all taken by transfers that wait: a waiting transfer holds a record and no registry entry, and with `s` free slots at most `s` plus
//!   half of the records are in use by transfers that notify. Slots that are used up give their records back, since a notice ends its
//!   transfer. So without slots half of the records are for others.
//! * **No notice is lost.** A notice is told only where a slot is free, or was reserved: reserved slots are subtracted from free ones.
//! * **Every transfer ends.** One that waits has its notice with the first retry after a slot became free. If its sender gives it up
//!   first, the record is freed as that of any other transfer: by a later packet that names a younger oldest live transfer, or by the
//!   registry timeout. No notice is told then.
//!
//! The state is a flag for each record and two counters.

#[cfg(doc)]
use fpga_firmware::generated::Flags;

use super::Receiver;

/// Slots of a caller that keeps every event.
pub const UNLIMITED_SLOTS: u32 = u32::MAX;

impl Receiver {
    /// States how many notices can be told from now on; at first any number. To be called before each packet: what is told meanwhile is
    /// counted, what the host takes is not.
    #[inline]
    pub const fn set_notice_slots(&mut self, slots: u32) {
        self.notice_slots = slots;
    }

    /// Slots that are reserved for transfers whose senders are to send the notice.
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

    /// Whether one more transfer can be told, or have its slot reserved.
    pub(super) fn has_notice_slot(&self) -> bool {
        self.free_slots() != 0
    }

    /// Whether one more transfer that notifies may begin: at most half of the records are for those that there is no slot for.
    pub(super) fn admits_notifying(&self) -> bool {
        let waiting = u32::from(self.peers.notifying() - self.peers.announced()) + 1;
        waiting.saturating_sub(self.free_slots()) <= u32::from(self.config.transfers / 2)
    }

    /// One notice was told.
    pub(super) const fn take_notice_slot(&mut self) {
        if self.notice_slots != UNLIMITED_SLOTS {
            self.notice_slots = self.notice_slots.saturating_sub(1);
        }
    }
}
