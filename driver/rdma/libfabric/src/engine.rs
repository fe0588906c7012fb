//! The engine of an endpoint: [`Messenger`], or a loopback in unit tests.

use fpga_messages::{
    AccessRequest, Address, AtomicRequest, Completion, Failure, MessengerOptions, Peek, PeerId, PostError,
    ReceiveRequest, Regions, SendRequest,
};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Functions of [`Messenger`] that endpoints use.
pub(crate) trait Engine: Send {
    fn address(&self) -> Address;
    fn add_peer(&mut self, address: Address) -> Option<PeerId>;
    fn send(&mut self, request: &SendRequest) -> Result<(), PostError>;
    fn receive(&mut self, request: &ReceiveRequest) -> Result<(), PostError>;
    fn peek(&mut self, request: &ReceiveRequest, action: Peek) -> Result<(), PostError>;
    fn receive_claimed(&mut self, request: &ReceiveRequest, discard: bool) -> Result<(), PostError>;
    fn cancel(&mut self, context: u64) -> bool;
    fn write(&mut self, request: &AccessRequest) -> Result<(), PostError>;
    fn read(&mut self, request: &AccessRequest) -> Result<(), PostError>;
    fn atomic(&mut self, request: &AtomicRequest) -> Result<(), PostError>;
    fn progress(&mut self) -> usize;
    /// Failure of the card.
    fn failure(&self) -> Option<Failure>;
    /// Failure of a peer while receives from any source are posted.
    fn next_peer_failure(&mut self) -> Option<Failure> {
        None
    }
    fn next_completion(&mut self) -> Option<Completion>;
    fn in_progress(&self) -> usize;
    fn is_idle(&self) -> bool;
    /// Packets that the card has sent and received.
    fn packets(&self) -> Option<(u32, u32)> {
        None
    }
    fn prepare_to_sleep(&mut self) -> Duration;
    fn events(&self) -> Option<BorrowedFd<'_>>;
}

/// Opens the engine that the environment selects.
#[cfg(not(test))]
pub(crate) fn open(options: &MessengerOptions, regions: Arc<Regions>) -> Result<Box<dyn Engine>, String> {
    use crate::atomic_unit::HostAtomics;
    use crate::memory::ApplicationMemory;
    let messenger = fpga_messages::Messenger::open(
        options,
        Arc::new(ApplicationMemory),
        Arc::new(HostAtomics::default()),
        regions,
    );
    Ok(Box::new(messenger.map_err(|error| error.to_string())?))
}

#[cfg(test)]
pub(crate) fn open(options: &MessengerOptions, regions: Arc<Regions>) -> Result<Box<dyn Engine>, String> {
    crate::tests::loopback::open(options, regions)
}

/// Methods that call the methods of the same names of the type.
#[cfg(not(test))]
macro_rules! forward {
    ($($name:ident(&$($mutable:ident)? $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {$(
        fn $name(&$($mutable)? self $(, $argument: $type)*) -> $result {
            self.$name($($argument),*)
        }
    )*};
}

#[cfg(not(test))]
impl Engine for fpga_messages::Messenger {
    fn add_peer(&mut self, address: Address) -> Option<PeerId> {
        self.add_peer(address).map_err(|error| crate::log::warn(format_args!("{address}: {error}"))).ok()
    }

    forward! {
        send(&mut, request: &SendRequest) -> Result<(), PostError>;
        receive(&mut, request: &ReceiveRequest) -> Result<(), PostError>;
        peek(&mut, request: &ReceiveRequest, action: Peek) -> Result<(), PostError>;
        receive_claimed(&mut, request: &ReceiveRequest, discard: bool) -> Result<(), PostError>;
        cancel(&mut, context: u64) -> bool;
        write(&mut, request: &AccessRequest) -> Result<(), PostError>;
        read(&mut, request: &AccessRequest) -> Result<(), PostError>;
        atomic(&mut, request: &AtomicRequest) -> Result<(), PostError>;
        progress(&mut) -> usize;
        next_peer_failure(&mut) -> Option<Failure>;
        next_completion(&mut) -> Option<Completion>;
        in_progress(&) -> usize;
        is_idle(&) -> bool;
        packets(&) -> Option<(u32, u32)>;
        prepare_to_sleep(&mut) -> Duration;
        events(&) -> Option<BorrowedFd<'_>>;
        address(&) -> Address;
    }

    fn failure(&self) -> Option<Failure> {
        self.failure()
    }
}
