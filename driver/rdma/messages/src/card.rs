//! The card of a messenger: opening, memory, and links of simulated cards.

use crate::address::Address;
use crate::error::{MessengerError, card_error};
use crate::layout::{Layout, STAGING_BYTES};
use crate::options::MessengerOptions;
#[cfg(feature = "sim")]
use fpga_driver::NodeId;
use fpga_driver::{
    C2hChannel, Card, CardSpec, DmaAccess, HugePages, MemoryHandle, OpenOptions, SharedMemory,
};
use fpga_pci::Clock;
use fpga_rdma::{Endpoint, EndpointOptions, HostSource};
use std::time::Duration;

/// Bytes of host memory for what arrives.
pub(crate) const INBOUND_BYTES: usize = 4 << 20;
/// Escape timeout: the other side is software, which may be late.
const ESCAPE_TIMEOUT: Duration = Duration::from_millis(20);
/// Entries of the event ring: one per record in all rings of some peers.
const EVENTS: u32 = 16_384;
/// Number of transfers at the same time that the endpoint of a messenger must permit.
pub const MIN_TRANSFERS: u32 = 4096;
/// Peers with transfers at the same time.
const DESTINATIONS: u32 = 4096;

/// Minimum length of data that the card accesses in the application's memory: of a simulated card of this process, and of a card in an IOMMU, where
/// system calls map the memory and pin its pages.
const DIRECT_SIMULATED: u64 = 128 << 10;
const DIRECT_VFIO: u64 = 1 << 20;
/// Maximum segment size of a view of a shared card to other machines, in bytes: it does not know the path.
#[cfg(feature = "sim")]
const REMOTE_VIEW_SEGMENT: u32 = 4096;

/// A card with everything that moves data.
#[derive(Debug)]
pub(crate) struct CardSide {
    pub(crate) endpoint: Endpoint,
    pub(crate) c2h: C2hChannel,
    pub(crate) staging: SharedMemory,
    /// The staging slots as a source of transfers.
    pub(crate) staging_source: HostSource,
    pub(crate) inbound: SharedMemory,
    pub(crate) inbound_handle: MemoryHandle,
    /// Minimum length of data that the card accesses in place; `None`: all data is copied.
    pub(crate) direct: Option<u64>,
    pub(crate) layout: Layout,
    /// Address of the link of a simulated card.
    pub(crate) link_address: Option<Address>,
    /// Whether the card is a view of a shared one, whose owner reaches the links of simulated cards.
    pub(crate) is_view: bool,
    /// Whether the card's time is that of the system.
    pub(crate) is_real_time: bool,
    #[cfg(feature = "sim")]
    pub(crate) linked: Option<crate::linked::Linked>,
    /// After everything that uses it.
    pub(crate) card: Card,
}

impl CardSide {
    pub(crate) fn open(options: &MessengerOptions) -> Result<Self, MessengerError> {
        let spec: CardSpec = options.card.parse().map_err(card_error)?;
        // Cards in other processes reach only memory that is shared with them.
        let direct = match spec {
            CardSpec::Simulated { .. } => Some(DIRECT_SIMULATED),
            CardSpec::Pci(_) => Some(DIRECT_VFIO),
            _ => None,
        };
        #[cfg(feature = "sim")]
        if let CardSpec::Simulated { description } = &spec {
            let (card, linked) = crate::linked::open(description.as_deref(), options)?;
            let address = Address::Link(linked.address);
            return Self::of_card(&card, options, direct, Some(address), Some(linked));
        }
        if options.link_key.is_some() && matches!(spec, CardSpec::Pci(_)) {
            return Err(MessengerError::NoLink { card: options.card.clone() });
        }
        let card = Card::open_with(&spec, OpenOptions::default()).map_err(card_error)?;
        #[cfg(feature = "sim")]
        return Self::of_card(&card, options, direct, None, None);
        #[cfg(not(feature = "sim"))]
        Self::of_card(&card, options, direct, None)
    }

    fn of_card(
        card: &Card,
        options: &MessengerOptions,
        direct: Option<u64>,
        address: Option<Address>,
        #[cfg(feature = "sim")] linked: Option<crate::linked::Linked>,
    ) -> Result<Self, MessengerError> {
        let mut endpoint_options = EndpointOptions::default();
        endpoint_options.give_up = options.give_up;
        endpoint_options.escape_timeout = ESCAPE_TIMEOUT;
        endpoint_options.event_entries = EVENTS;
        endpoint_options.transfers = Some(MIN_TRANSFERS);
        endpoint_options.destinations = Some(DESTINATIONS);
        let endpoint = Endpoint::open_with(card, &endpoint_options).map_err(card_error)?;
        Self::of_endpoint(
            endpoint,
            direct,
            address,
            #[cfg(feature = "sim")]
            linked,
        )
    }

    /// Takes an endpoint that the caller has opened.
    pub(crate) fn of_open_endpoint(endpoint: Endpoint) -> Result<Self, MessengerError> {
        let is_pci = matches!(endpoint.card().name().parse(), Ok(CardSpec::Pci(_)));
        let direct = Some(if is_pci { DIRECT_VFIO } else { DIRECT_SIMULATED });
        Self::of_endpoint(
            endpoint,
            direct,
            None,
            #[cfg(feature = "sim")]
            None,
        )
    }

    fn of_endpoint(
        mut endpoint: Endpoint,
        direct: Option<u64>,
        address: Option<Address>,
        #[cfg(feature = "sim")] linked: Option<crate::linked::Linked>,
    ) -> Result<Self, MessengerError> {
        let card = endpoint.card().clone();
        let mut c2h = card.c2h(0).map_err(card_error)?;
        let usable = endpoint.usable_memory();
        let too_small = MessengerError::CardMemory { available: usable.length, needed: Layout::needed(1) };
        let layout = Layout::new(usable).ok_or(too_small)?;
        let allocate = |length| SharedMemory::anonymous(length, HugePages::Transparent).map_err(card_error);
        let staging = allocate(usize::try_from(STAGING_BYTES).unwrap_or(usize::MAX))?;
        let inbound = allocate(INBOUND_BYTES)?;
        let map = |memory: &SharedMemory, access| {
            card.map_memory(memory.clone(), access).map_err(|refused| card_error(refused.error))
        };
        let staging_source =
            endpoint.register_source(map(&staging, DmaAccess::ReadByDevice)?).map_err(card_error)?;
        let inbound_handle = c2h
            .register_memory(map(&inbound, DmaAccess::WriteByDevice)?)
            .map_err(|refused| card_error(refused.error))?;
        Ok(Self {
            endpoint,
            c2h,
            staging,
            staging_source,
            inbound,
            inbound_handle,
            direct,
            layout,
            link_address: address,
            is_view: card.info().is_view(),
            is_real_time: card.clock() == Clock::Monotonic,
            #[cfg(feature = "sim")]
            linked,
            card,
        })
    }

    /// Maximum segment size of transfers to a node in bytes, where links carry shorter packets better than those of the card. `is_present`: its
    /// process runs on this machine.
    #[cfg(feature = "sim")]
    pub(crate) fn segment_size_to(&self, node: NodeId, is_present: bool) -> Option<u32> {
        match &self.linked {
            Some(linked) => linked.network.payload_to(node),
            // The owner of the card has the links.
            None => (self.is_view && !is_present).then_some(REMOTE_VIEW_SEGMENT),
        }
    }

    /// Bytes that a linked simulated card and its link have copied.
    pub(crate) fn copied_bytes(&self) -> Option<u64> {
        #[cfg(feature = "sim")]
        return self.linked.as_ref().and_then(crate::linked::Linked::copied_bytes);
        #[cfg(not(feature = "sim"))]
        None
    }

    /// Lets a simulated card of this thread work.
    pub(crate) fn relax(&self) {
        self.endpoint.relax();
    }
}
