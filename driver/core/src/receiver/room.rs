//! Room for what a host is told: why no event is lost, however long the host does not look.
//!
//! Events wait in a ring until the host has taken them. What comes of others' packets may fill a part of it, and a packet of which
//! more would come than there is room for is refused as busy: its sender tries again. A host that does not look makes others wait.
//!
//! What was accepted is followed by events that nothing can hold back. *Owed* are (k is 1 where every packet is told, else 0)
//!
//! | for each | events | which |
//! |---|---|---|
//! | registry entry | 1 | its end |
//! | transfer in progress | 1 | its notice |
//! | escape slot in use | 1 + k | that it is free again, and its packet's bit |
//!
//! A packet is accepted if what is owed and what it adds fit the room that there is [now](EventRoom::now); and if that and a rest that
//! is *held back* fit the room that there will be when the host has taken what it was told ([`EventRoom::rested`]):
//!
//! | packet | adds | held back |
//! |---|---|---|
//! | of a registered segment | k | - |
//! | start, of a transfer in progress | 2 + k | - |
//! | start of a new transfer | 3 + k | - |
//! | one for the escape buffer | 2 + k | 2 + k: with the event of its own that is taken by then, a start of a new transfer |
//!
//! So two things hold.
//!
//! * **Nothing is lost**: what is owed fits what was left when the last packet was accepted. What comes of the node's own packets needs
//!   room of its own: whoever states the room keeps a part of the ring out of it.
//! * **Something can always go on** once the host has looked. Packets of registered segments are accepted then, so entries
//!   complete. Without entries, starts of transfers in progress are, so transfers complete: what the start of such a transfer added
//!   was one more than what the next one adds. Without those, new ones are, whatever waits in the escape buffer, which is released by them.
//!   What was left behind by senders that are gone ends by the registry timeout, as it does where tables are full.

use super::Receiver;

/// How many events can be told before one is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventRoom {
    /// From now on, if the host does not look.
    pub now: u32,
    /// Once the host has taken all that it was told: at least so many, if nothing else happens. At least
    /// [`EventRoom::LEAST`], or nothing is ever accepted.
    pub rested: u32,
}

impl EventRoom {
    /// Without a ring nothing is lost.
    pub const ENDLESS: Self = Self { now: u32::MAX, rested: u32::MAX };

    /// With so much room a receiver can do everything, one at a time: a packet in the escape buffer, and what is held back for it, where
    /// every packet is told.
    pub const LEAST: u32 = 2 + 1 + 2 + 1;
}

/// A packet that events come of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    /// Of a registered segment.
    Expected,
    /// The first one of a segment, of a transfer in progress.
    Start,
    /// The first one of a transfer.
    FirstStart,
    /// One for the escape buffer.
    Early,
}

impl Receiver {
    /// Says how many events can be told from now on; at first any number. To be said again before each packet: what is told meanwhile is
    /// counted, what the host takes is not.
    #[inline]
    pub const fn set_event_room(&mut self, room: EventRoom) {
        self.room = room;
    }

    /// Events that are sure to come, or may, of what was accepted.
    #[must_use]
    pub fn owed_events(&self) -> u32 {
        let slot = 1 + u32::from(self.config.packet_events);
        let transfers = u32::from(self.peers.transfers_in_use());
        let escaped = u32::from(self.escape.occupancy()).saturating_mul(slot);
        self.registry.occupancy().saturating_add(transfers).saturating_add(escaped)
    }

    /// Whether there is room for what comes of this.
    pub(super) fn has_event_room(&self, arrival: Arrival) -> bool {
        if self.room == EventRoom::ENDLESS {
            return true;
        }
        let told = u32::from(self.config.packet_events);
        let start = 2 + told;
        let (added, held_back) = match arrival {
            Arrival::Expected => (told, 0),
            Arrival::Start => (start, 0),
            Arrival::FirstStart => (start + 1, 0),
            Arrival::Early => (1 + 1 + told, start),
        };
        let owed = self.owed_events().saturating_add(added);
        owed <= self.room.now && owed.saturating_add(held_back) <= self.room.rested
    }

    /// One event less.
    #[inline]
    pub(super) const fn take_event_room(&mut self) {
        if self.room.now != u32::MAX {
            self.room.now = self.room.now.saturating_sub(1);
        }
    }
}
